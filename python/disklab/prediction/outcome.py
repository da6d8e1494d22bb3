"""From an answer of the simulator to a result in the shape of every mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from disklab.databases.simulating import steps_of
from disklab.errors import Problem
from disklab.prediction.cells import breaking_of, model_of
from disklab.results import (
    Bottleneck,
    Operation,
    Reason,
    Rebuild,
    Recovery,
    RuleFinding,
    Share,
    StepTaken,
    Telemetry,
    TrialResult,
)
from disklab.results.records import (
    CEILING,
    OF_ANOTHER_NODE,
    STRETCHES,
    LimitWait,
    TraceRecord,
)
from disklab.results.required import SUSTAINED, below_ceiling
from disklab.results.timetable import recovery_of
from disklab.spec import Cluster, TimedEvent, Trial
from disklab.spec.replay import loop_of as trace_loop
from disklab.spec.replay import record_of as trace_record

# What the simulator answers of a timetable of faults, as the recovery of a rehearsal.


Lever = Callable[[str, str], str]
"""Returns what makes a rebuild faster, by the resource that bounds it and its kind."""


def recovery_from(
    told: Answer,
    events: Sequence[TimedEvent],
    cluster: Cluster | None,
    *,
    rows: int,
    lever_of: Lever,
) -> Recovery:
    """Return what the faults did, in the form of a rehearsed timetable.

    `told`: the answer's `faults`; `rows`: of the data, which the simulator counts and does not
    read.
    """
    waiting = steps_of(events, cluster)
    taken = {}
    for step in told["steps"]:
        # A change of the ring that waited for another one comes behind later events.
        asked = next(one for one in waiting if (one.what, one.node) == (step["what"], step["node"]))
        waiting.remove(asked)
        taken[id(asked.event)] = StepTaken(
            kind=asked.event.kind,
            node=asked.event.node,
            at_s=asked.event.at_s,
            begun_s=round(step["begun_s"], 3),
            ended_s=round(step["ended_s"], 3),
        )
    steps = [*taken.values()]
    course = told["course"]
    length_s = course["interval_s"]
    ends_s = [length_s * (at + 1) for at in range(len(course["completed"]))]
    rates = [count / length_s for count in course["completed"]]
    found = recovery_of(steps, ends_s, rates, told["failed_operations"])
    return found.model_copy(
        update={
            "rows_checked": rows,
            "rows_lost": told["lost_rows"],
            "updates_lost": told.get("lost_updates"),
            "rebuilds": [_rebuild(one, lever_of) for one in told["rebuilds"]],
            "degraded_ms": told.get("degraded_latency_ms", {}),
            "extrapolated": any(step["extrapolated"] for step in told["steps"]),
        }
    )


def _rebuild(told: Answer, lever_of: Lever) -> Rebuild:
    bound = told["bound"]
    return Rebuild(
        kind=told["kind"],
        node=f"n{told['node'] + 1}",
        size_bytes=told["bytes"],
        seen_bytes=told["done_bytes"],
        bytes_per_s=told["bytes_per_s"],
        seconds=told["seconds"],
        sources=told["sources"],
        bound=Bottleneck(resource=bound["resource"], utilisation=bound["utilisation"]),
        lever=lever_of(bound["resource"], told["kind"]),
    )


Answer = dict[str, Any]

LATENCY = "latency"
"""What the simulator names where no limit is full."""
OF_LEADERS = ("late_heartbeats_per_hour", "elections_per_hour")
"""What the simulator counts where members follow a leader, by the names of results."""
MOSTLY = 0.5
"""What takes the greater part of an operation's time decides how long it takes."""

BYTES_IN_MB = 10**6
SECONDS_IN_MINUTE = 60

# Where the engine's resources are the CPUs, by the names that results have for processes.
CPU = {"client CPU": "client", "node CPU": "server"}


def refused_result(trial: Trial, title: str, problems: list[Problem]) -> TrialResult:
    """Return the result of a trial that the file or the simulator refuses."""
    first = problems[0]
    reason = Reason(place=first.place, value=first.value, rule=first.rule, way_out=first.way_out)
    return TrialResult(
        experiment=title,
        mode="predict",
        trial=trial.index,
        factors=dict(trial.factors),
        status="refused",
        valid=False,
        reason=reason,
        warnings=[str(problem) for problem in problems[1:]],
    )


def _of_another_node(answer: Answer) -> float:
    """Return the share of an operation's time for which it waits for another node's copy.

    Of a median one, of the kind on which sessions spend most of their time.
    """
    kinds = answer["per_operation"].values()
    nothing: Answer = {}
    longest = max(
        kinds, key=lambda kind: kind["ops_per_s"] * kind["latency_ms"]["mean"], default=nothing
    )
    stretches = longest.get("tail", {}).get("p50", {})
    whole = sum(stretches.values())
    return stretches.get(OF_ANOTHER_NODE, 0.0) / whole if whole else 0.0


def result_of(  # noqa: PLR0913 - a result has these parts
    trial: Trial,
    repeat: int,
    title: str,
    answer: Answer,
    *,
    warnings: list[str],
    price_usd_per_month: float | None,
) -> TrialResult:
    """Return the result of a simulated trial."""
    told, resources = answer["telemetry"], answer["resources"]
    bottleneck, of_load = _bound_by(answer, trial)
    notes = [*warnings, *([answer["error_note"]] if answer.get("error_note") else []), *of_load]
    recovery = _recovery(answer, trial)
    if recovery is not None and (cut := _beyond_the_load(recovery, trial)):
        # When the last node would be whole is not known then.
        recovery = recovery.model_copy(update={"whole_s": None})
        notes += cut
    if recovery is not None and recovery.extrapolated:
        notes += _credits_run_out(answer)
    return TrialResult(
        experiment=title,
        mode="predict",
        trial=trial.index,
        repeat=repeat,
        factors=dict(trial.factors),
        warnings=notes,
        ops_per_s=answer["ops_per_s"],
        nodes=trial.spec.nodes,
        loop=loop_of(trial),
        latency_ms=answer["latency_ms"],
        tail_ms=answer.get("tail", {}),
        per_operation={
            name: Operation(
                operations=one["operations"],
                ops_per_s=one["ops_per_s"],
                latency_ms=one["latency_ms"],
                tail_ms=one.get("tail", {}),
                service_ms=one["latency_ms"] if loop_of(trial)["kind"] == "closed" else {},
            )
            for name, one in answer["per_operation"].items()
        },
        bottleneck=Bottleneck(
            resource=bottleneck["resource"], utilisation=bottleneck["utilisation"]
        ),
        host_cache_hit_ratio=told["host_cache_hit_ratio"],
        telemetry=telemetry_of(resources, told, answer),
        rules=_rules(answer, trial),
        price_usd_per_month=price_usd_per_month,
        duration_s=answer["elapsed_s"],
        **_of_disks(answer, trial),
        recovery=recovery,
        trace=trace_of(trial),
        share=Share.model_validate(trial.share.model_dump(mode="json")),
    )


def _rules(answer: Answer, trial: Trial) -> list[RuleFinding]:
    """Return which rules of the database's makers a cell keeps."""
    model = model_of(trial.spec)
    return [] if model is None or model.rules is None else list(model.rules(answer))


def _bound_by(answer: Answer, trial: Trial) -> tuple[Answer, list[str]]:
    """Return the bottleneck of a cell, and what its load has to do with its figures."""
    bottleneck, done = answer["bottleneck"], answer["ops_per_s"]
    ceiling = trial.spec.workload.load.at_most_per_s if trial.spec.workload.load else None
    if ceiling is not None and done >= ceiling * SUSTAINED:
        return {"resource": CEILING, "utilisation": None}, []
    terminals = terminals_per_s(trial)
    if terminals is not None and done > terminals * SUSTAINED:
        note = (
            f"TPC-C's keying and think times allow {terminals:,.0f} new orders a second "
            f"({NEW_ORDERS_PER_MINUTE} a minute and warehouse), whatever the disks: use "
            "more warehouses to see what the disks can do"
        )
        return {"resource": TERMINALS, "utilisation": None}, [note]
    notes = []
    if ceiling is not None:
        notes.append(below_ceiling(done, ceiling))
    elif answer.get("unsent"):
        notes.append(f"{answer['unsent']} operations were never sent: the offered rate is too high")
    if bottleneck["resource"] == LATENCY and (share := _of_another_node(answer)) >= MOSTLY:
        bottleneck = {"resource": STRETCHES[OF_ANOTHER_NODE], "utilisation": share}
    return bottleneck, notes


NEW_ORDERS_PER_MINUTE = 12.86
"""Of a warehouse at most: its ten terminals key and think. **Source:** TPC-C 5.11, clause 4.1.3."""
TERMINALS = "TPC-C's terminals"


def terminals_per_s(trial: Trial) -> float | None:
    """Return the new orders a second that keying and think times allow; None: there are none."""
    tpcc = trial.spec.workload.tpcc
    return (
        None
        if tpcc is None or not tpcc.rests
        else NEW_ORDERS_PER_MINUTE * tpcc.warehouses / SECONDS_IN_MINUTE
    )


STREAMING = ("replace", "add", "decommission", "migrate")
"""Steps whose end hangs on how long something is streamed."""


def _beyond_the_load(recovery: Recovery, trial: Trial) -> list[str]:
    """Return what is to be said of steps that the load was too short for."""
    found = []
    for event in trial.spec.events:
        step = next(
            (s for s in recovery.steps if (s.kind, s.node) == (event.kind, event.node)), None
        )
        if step is None:
            found.append(
                f"{event.kind} {event.node} had not begun when the load ended, because "
                "another node was still joining or leaving: give a longer workload.stop.duration"
            )
            continue
        seen = sum(one.kind == "stream" and one.node == event.node for one in recovery.rebuilds)
        if event.kind in STREAMING and recovery.extrapolated and not seen and _has_copies(trial):
            found.append(
                f"{event.kind} {event.node} had streamed nothing when the load ended, so it "
                "is not known when it would have all its data: give a longer workload.stop.duration"
            )
    return found


def _has_copies(trial: Trial) -> bool:
    """Return whether there is anybody to stream from, or something to stream away."""
    return trial.spec.copies > 1


def _credits_run_out(answer: Answer) -> list[str]:
    """Return what is to be said of a rebuild that would outlast burst credits."""
    lasting = [one["lasts_s"] for one in answer["credits"] if one.get("lasts_s") is not None]
    if not lasting:
        return []
    return [
        f"burst credits last {min(lasting):.0f} s more at this load, and the rebuild goes on "
        "beyond what was simulated: before: {credits: 0%} tells how long it takes without them"
    ]


def _recovery(answer: Answer, trial: Trial) -> Recovery | None:
    """Return what the trial's timetable did; None: it has none."""
    spec, dataset, breaking = trial.spec, trial.spec.dataset, breaking_of(trial)
    if "faults" not in answer or dataset is None or breaking is None:
        return None
    return recovery_from(
        answer["faults"],
        spec.events,
        spec.cluster,
        rows=dataset.rows or 0,
        lever_of=breaking.lever_of,
    )


def _of_disks(answer: Answer, trial: Trial) -> dict[str, Any]:
    """Return what a SQL result says beside the shape of every mode, as published ones do."""
    spec = trial.spec
    if spec.cluster is None or spec.workload.kind not in ("sysbench", "tpcc"):
        return {}
    told = sql_figures(answer, spec.cluster.nodes)
    found = {"disk_iops": told["disk IOPS"], "disk_mb_per_s": told["disk MB/s"]}
    return found | ({"tpmc": told["tpmC"]} if "tpmC" in told else {})


def sql_figures(answer: Answer, nodes: int) -> dict[str, float]:
    """Return what studies of SQL databases print beside rates: CPU, and what a node's disks did."""
    told, rate = answer["telemetry"], answer["ops_per_s"] / nodes
    each = {
        "IOPS": told["read_ios_per_operation"] + told["write_ios_per_operation"],
        "bytes": told["read_bytes_per_operation"] + told["write_bytes_per_operation"],
    }
    found = {
        "disk IOPS": each["IOPS"] * rate,
        "disk MB/s": each["bytes"] * rate / BYTES_IN_MB,
    }
    for one in answer["resources"]:
        if one["resource"] == "node CPU":
            found["CPU"] = one["mean_utilisation"]
    if "new order" in answer["per_operation"]:
        found["tpmC"] = answer["ops_per_s"] * SECONDS_IN_MINUTE
    return found


def trace_of(trial: Trial) -> TraceRecord | None:
    """Return what the trial's trace is made of; None: its workload is none."""
    if trial.replay is None:
        return None
    return TraceRecord.model_validate(trace_record(trial.replay, trial.spec))


def loop_of(trial: Trial) -> dict[str, Any]:
    """Return how operations were offered."""
    work = trial.spec.workload
    if trial.replay is not None:
        return trace_loop(trial.replay, trial.spec)
    if work.load is not None and work.load.rate_per_s is not None:
        return {"kind": "open", "rate_per_s": work.load.rate_per_s}
    if work.load is not None:
        return work.load.closed()
    return {"kind": "closed"}


def telemetry_of(resources: list[Answer], told: Answer, answer: Answer) -> Telemetry:
    """Return what the cell had to do: limits with the longest wait first, and what was counted."""
    operations = sum(int(one["operations"]) for one in answer["per_operation"].values())
    limits = [
        LimitWait(
            limit=one["resource"],
            volume=one["place"],
            delayed_ms=one["wait_ms_per_operation"] * operations,
            utilisation=one["utilisation"],
        )
        for one in sorted(resources, key=lambda one: -float(one["wait_ms_per_operation"]))
    ]
    counted = {
        name: told[name]
        for name in (
            "read_ios_per_operation",
            "read_bytes_per_operation",
            "write_ios_per_operation",
            "write_bytes_per_operation",
            "disk_wait_ms_per_operation",
            "pause_ratio",
            "pending_compaction_bytes",
        )
    }
    return Telemetry.model_validate(
        {
            "limits": limits,
            "page_cache_hit_ratio": told["page_cache_hit_ratio"],
            "cpu_ratio": {
                CPU[one["resource"]]: one["mean_utilisation"]
                for one in resources
                if one["resource"] in CPU
            },
            **counted,
            **{name: value for name, value in answer.get("log", {}).items() if name in OF_LEADERS},
            "credits": answer["credits"],
            "mean_in_flight": answer["mean_in_flight"],
            "simulated": {
                key: answer[key]
                for key in ("scale", "events", "disk_ios", "wall_s")
                if key in answer
            },
        }
    )
