"""From a measurement to a result: the figures, the judgement, and the reasons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from disklab.catalog import Catalog
from disklab.databases import record_of
from disklab.engine.load import TpccOutcome
from disklab.engine.messages import View
from disklab.errors import DisklabError, MachineError, UserError
from disklab.procedures import burst, jobs
from disklab.procedures.record import MEASURED, Notes, Series
from disklab.procedures.turn import Turn
from disklab.results import (
    Bottleneck,
    LimitWait,
    Mode,
    Operation,
    PlannedTrial,
    Reason,
    RuleFinding,
    Share,
    TrialResult,
    pricing,
)
from disklab.results import Telemetry as TelemetryRecord
from disklab.results.records import CEILING, RATE, SPOILABLE
from disklab.results.required import SUSTAINED, below_ceiling
from disklab.spec import Refusal, Trial
from disklab.spec import Share as SpecShare
from disklab.spec.share import threads_of
from disklab.telemetry import Judgement, judge
from disklab.telemetry import spoiled as spoiling
from disklab.telemetry.sources import node_suffix

# What TPC-C says beyond rates and latencies: tpmC, what is not compliant, consistency.


def benchmark_figures(series: Series) -> dict[str, Any]:
    """Return tpmC, efficiency and mix over the passes, and what the check found; else nothing."""
    runs = _of(series, "run")
    if not runs:
        return {}
    tpmc = [run.tpmc for run in runs if run.tpmc is not None]
    efficiency = [run.efficiency_ratio for run in runs if run.efficiency_ratio is not None]
    found: dict[str, Any] = {"tpcc": runs[-1].model_dump(mode="json", exclude={"conditions"})}
    if tpmc:
        found["tpmc"] = fmean(tpmc)
    if efficiency:
        found["tpcc_efficiency_ratio"] = fmean(efficiency)
    checks = _of(series, "check")
    if checks:
        told = [one.model_dump(mode="json") for one in checks[-1].conditions]
        found["tpcc_conditions"] = told
    return found


def benchmark_remarks(series: Series) -> Iterator[str]:
    """Yield where the runs are not what the standard asks, each once, and what was tried again."""
    runs = _of(series, "run")
    yield from dict.fromkeys(text for run in runs for text in run.remarks)
    retries = sum((Counter(run.retries) for run in runs), Counter())
    for state, count in retries.items():
        yield (
            f"{count} attempts at transactions were undone by others (SQLSTATE {state}) and "
            "retried: response times include all attempts"
        )


def benchmark_violations(series: Series) -> Iterator[str]:
    """Yield the consistency conditions that the data broke: then nothing measured counts."""
    for check in _of(series, "check"):
        for one in check.conditions:
            if not one.passed:
                example = f", such as {one.example}" if one.example else ""
                yield (
                    f"TPC-C consistency condition {one.number} is violated {one.violations} times "
                    f"({one.rule}){example}"
                )


def _of(series: Series, stage: str) -> list[TpccOutcome]:
    return [one for one in series.tpcc if one.stage == stage]


# Where warm-up ends and steady state begins, told from the rate of each second.

# Fewer seconds cannot tell a trend from noise.
LEAST_SECONDS = 5
# SNIA's criteria (SSS PTS 2.0.2): over the window the least-squares line changes by no more than
# 10 % of the mean, and no value leaves the mean by more than 20 %. One second of a database varies
# more than SNIA's rounds of a minute: a tenth of the seconds may leave the band.
MOST_DRIFT_RATIO = 0.10
MOST_EXCURSION_RATIO = 0.20
MOST_OUTSIDE_RATIO = 0.10


@dataclass(frozen=True)
class Steady:
    """What the seconds of a run tell."""

    from_s: int | None
    """The first second of the longest steady end of the run; None: there is no steady state."""
    drift_ratio: float
    """Change of the fitted line over the window, as a share of the mean. Of the whole run when
    there is no steady state."""

    @property
    def found(self) -> bool:
        """Whether there is a steady state."""
        return self.from_s is not None


def steady_state(rates: Sequence[float]) -> Steady:
    """Return from which second on the rates are steady to the end of the run.

    A steady end shorter than half of the run is none: the run was too short to tell.

    **Source:** SNIA SSS PTS 2.0.2 (steady-state criteria), with the window as long as the data
    allow; Barrett et al., OOPSLA'17: say so when there is no steady state.
    """
    last = len(rates) - max(LEAST_SECONDS, math.ceil(len(rates) / 2))
    for start in range(last + 1):
        window = rates[start:]
        mean = fmean(window)
        if mean <= 0:
            continue
        outside = sum(abs(rate - mean) > MOST_EXCURSION_RATIO * mean for rate in window)
        drift = drift_ratio(window)
        if abs(drift) <= MOST_DRIFT_RATIO and outside <= MOST_OUTSIDE_RATIO * len(window):
            return Steady(start, drift)
    return Steady(None, drift_ratio(rates))


def drift_ratio(rates: Sequence[float]) -> float:
    """Return by which share of its mean the fitted line changes from first to last second."""
    count = len(rates)
    mean = fmean(rates) if rates else 0.0
    if count < 2 or mean <= 0:
        return 0.0
    middle = (count - 1) / 2
    spread = sum((second - middle) ** 2 for second in range(count))
    slope = sum((second - middle) * (rate - mean) for second, rate in enumerate(rates)) / spread
    return slope * (count - 1) / mean


# With more failures the rate of what succeeded is no rate of the database.
MOST_ERRORS_RATIO = 0.01
# A limit that keeps fewer I/Os waiting on average (Little's law) holds nobody up: a twentieth of
# the threads is a difference that verdicts are made of.
LEAST_WAITING_RATIO = 0.05
# A disk is what operations wait for when its I/Os take the greater part of their time.
MOSTLY_IN_IOS = 0.5
# The machine's CPU is the limit when client, server and emulator use this much of it: what is left
# lies between the seconds in which all of it is used. A tenth, as for every resource of a report.
FULL_MACHINE_RATIO = 0.9
# Bursts between pauses wait at a limit whose mean use says little; but one of which three quarters
# were free is what nothing was held by.
LEAST_NEAR_RATIO = 0.25
# Beyond this the allowance that a limit begins a pass with is a good part of the pass.
MOST_UTILISATION = 1.05
# Bound of what a result keeps of a log.
EXCERPT_CHARACTERS = 4_000


@dataclass(frozen=True)
class Frame:
    """What all results of a run have in common."""

    title: str
    run_id: str
    catalog: Catalog
    mode: Mode = "rehearse"


def _judged(turn: Turn, notes: Notes, views: Mapping[str, tuple[View, View]]) -> Judgement:
    """Return what was seen of this machine and the volumes; nothing where nobody watched."""
    if notes.sampler is None:
        return Judgement()
    return judge(
        notes.sampler,
        MEASURED,
        views,
        generators=turn.workload().generators,
        client=notes.client,
        on_server=turn.spec.client.on_server,
    )


def measured(frame: Frame, turn: Turn, notes: Notes, series: Series, started: str) -> TrialResult:
    """Return the result of a turn that was measured to its end."""
    account = notes.account
    views = {volume: pair for (_, volume), pair in account.views.items()}
    judged = _judged(turn, notes, views)
    waits = account.waits(series.elapsed_s)
    spent = burst.gone(notes.credits, turn.trial, frame.catalog)
    told = [*map(burst.in_words, spent), *benchmark_remarks(series)]
    response = series.response()
    late = series.lateness()
    judged.spoiled = _spoiled(series, judged, loop_of(turn, notes))
    marks = spoiling.in_words(judged.spoiled)
    for text in [*judged.warnings, *marks, *told, *_condition_warnings(turn, series, waits)]:
        notes.warn(text)
    load = _load_reasons(series, timetable=bool(turn.spec.events))
    invalid = [*judged.invalid, *load, *benchmark_violations(series)]
    if len(judged.spoiled) == len(SPOILABLE):
        invalid += marks
    pause_s = _sum(notes, "database", "gc_pause_s")
    pauses = _sum(notes, "database", "gc_pauses")
    allocated = _sum(notes, "database", "gc_allocated_bytes")
    dropped = _sum(notes, "database", "dropped_messages")
    result = base(frame, turn.trial, turn.repeat).model_copy(
        update={
            "status": "invalid" if invalid else "ok",
            "valid": not invalid,
            "warnings": list(notes.warnings),
            "invalid_reasons": invalid,
            "spoiled": judged.spoiled,
            "ops_per_s": series.ops_per_s,
            "loop": loop_of(turn, notes),
            "latency_ms": response.summary_ms(),
            "per_operation": _per_operation(series),
            "bottleneck": bottleneck(turn, notes, waits, series, judged),
            "host_cache_hit_ratio": account.hit_ratio(),
            "telemetry": TelemetryRecord(
                limits=waits,
                late_ratio=account.late_ratio(),
                client_late_p99_ms=late.percentile(99) / 1e6 if late else None,
                cpu_ratio=judged.cpu_ratio,
                pending_compactions_max=_most(notes, "database", "pending_compactions"),
                gc_pause_ms=None if pause_s is None else pause_s * 1000,
                gc_pauses=None if pauses is None else int(pauses),
                gc_allocated_bytes=None if allocated is None else int(allocated),
                dropped_messages=None if dropped is None else int(dropped),
            ),
            "rules": _rules(turn, notes, judged),
            "credits_gone": spent,
            **_disks(turn, notes, series.elapsed_s),
            "errors": errors_of(series),
            "recovery": notes.recovery,
            "started": started,
            "duration_s": series.elapsed_s,
            "phases": list(notes.phases),
        }
    )
    extra: dict[str, Any] = {"passes": series.passes}
    if account.views:
        extra |= {"disk_read_ios": account.read_ios, "disk_read_bytes": account.read_bytes}
        extra |= {"disk_write_ios": account.write_ios, "disk_write_bytes": account.write_bytes}
    extra |= benchmark_figures(series)
    if notes.steps:
        extra["steps"] = notes.steps
    return result.model_copy(update=extra)


def _spoiled(series: Series, judged: Judgement, loop: Mapping[str, Any]) -> dict[str, str]:
    """Return which figures waiting spoiled that the described system does not have."""
    if not series.operations or not series.elapsed_s:
        return {}
    p50_ms, p99_ms = (series.response().percentile(part) / 1e6 for part in (50, 99))
    rate = series.operations / series.elapsed_s
    achieved = rate >= SUSTAINED * float(loop.get("rate_per_s", math.inf))
    return spoiling.marks(
        judged.waits,
        rate,
        series.mean_ms(),
        p99_ms,
        achieved=achieved,
        p50_ms=p50_ms,
        slowed_cores=judged.slowed_cores,
    )


def _rules(turn: Turn, notes: Notes, judged: Judgement) -> list[RuleFinding]:
    """Return the published rules of the trial's database, as far as they were measured."""
    database = turn.spec.database
    if database is None:
        return []
    rules = record_of(database.engine).rules
    found = rules(lambda name: _sum(notes, "database", name), turn.trial.share.time_dilation)
    doubt = "this machine had no CPU left" if judged.machine_was_full else ""
    return [one.model_copy(update={"doubt": doubt}) for one in found]


def _disks(turn: Turn, notes: Notes, elapsed_s: float) -> dict[str, float]:
    """Return what the disks of the busiest node did, a second of load; nothing: nobody looked.

    Disks that are not emulated are seen by their hosts' own counters, of the same phase.
    """
    counted = notes.account.busiest()
    if counted is not None and elapsed_s:
        ios, bytes_ = (each / elapsed_s for each in counted)
    else:
        each_node = [node for number in _nodes(turn) if (node := _of_node(turn, notes, number))]
        if not each_node:
            return {}
        ios, bytes_ = max(each_node)
    return {"disk_iops": ios, "disk_mb_per_s": bytes_ / 1e6}


def _of_node(turn: Turn, notes: Notes, number: int) -> tuple[float, float] | None:
    """Return I/Os and bytes a second of a node's disks by its kernel; None: it was not seen."""
    means = {
        metric: [
            mean
            for volume in turn.on_cluster.cluster.volumes
            if (mean := _mean(notes, f"disk {volume}{node_suffix(number)}", metric)) is not None
        ]
        for metric in ("read_iops", "write_iops", "read_bytes_per_s", "write_bytes_per_s")
    }
    if not all(means.values()):
        return None
    reads, writes, read_bytes, written = map(sum, means.values())
    return reads + writes, read_bytes + written


def _nodes(turn: Turn) -> range:
    return range(1, int(turn.trial.share.nodes.here) + 1)


def _mean(notes: Notes, source: str, metric: str) -> float | None:
    return None if notes.sampler is None else notes.sampler.mean(MEASURED, source, metric)


def explained(error: DisklabError, logged: Sequence[str]) -> DisklabError:
    """Return a failure with what servers logged as their first errors.

    A client that loses its connection hears no more than that.
    """
    first, _, rest = str(error).partition("\n")
    news = [line for line in logged if line.partition(" logged: ")[2] not in str(error)]
    if isinstance(error, UserError) or not any(" logged: " in line for line in news):
        return error
    return MachineError("\n".join([f"{first}; {news[0]}", *news[1:], *([rest] if rest else [])]))


def failed(
    frame: Frame, turn: Turn, notes: Notes | None, error: DisklabError, started: str
) -> TrialResult:
    """Return the result of a turn that could not be brought to its end."""
    first, _, excerpt = str(error).partition("\n")
    reason = Reason(rule=first, way_out="")
    if isinstance(error, UserError):
        problem = error.problems[0]
        reason = Reason(
            place=problem.place, value=problem.value, rule=problem.rule, way_out=problem.way_out
        )
        excerpt = "\n".join(str(other) for other in error.problems[1:])
    return base(frame, turn.trial, turn.repeat).model_copy(
        update={
            "status": "failed",
            "valid": False,
            "reason": reason,
            "log_excerpt": excerpt[-EXCERPT_CHARACTERS:],
            "warnings": list(notes.warnings) if notes else [],
            "started": started,
            "phases": list(notes.phases) if notes else [],
        }
    )


def refused(frame: Frame, trial: Trial, why: Refusal) -> TrialResult:
    """Return the result of a trial that cannot be."""
    return base(frame, trial, 0).model_copy(
        update={
            "status": "refused",
            "valid": False,
            "reason": Reason(place=why.place, value=why.value, rule=why.rule, way_out=why.way_out),
        }
    )


def base(frame: Frame, trial: Trial, repeat: int) -> TrialResult:
    """Return what every result has."""
    return TrialResult(
        run=frame.run_id,
        experiment=frame.title,
        mode=frame.mode,
        trial=trial.index,
        repeat=repeat,
        factors=dict(trial.factors),
        nodes=int(trial.share.nodes.here),
        price_usd_per_month=pricing.cluster_price(frame.catalog, trial.spec),
        share=share_record(trial.share),
    )


def planned_record(trial: Trial) -> PlannedTrial:
    """Return a trial as the run's folder keeps it before anything runs."""
    why = trial.refused
    return PlannedTrial(
        trial=trial.index,
        factors=dict(trial.factors),
        spec=trial.spec.model_dump(mode="json"),
        share=share_record(trial.share),
        refused=None
        if why is None
        else Reason(place=why.place, value=why.value, rule=why.rule, way_out=why.way_out),
    )


def share_record(share: SpecShare) -> Share:
    """Return the share in the shape of the results."""
    return Share.model_validate(share.model_dump(mode="json"))


def loop_of(turn: Turn, notes: Notes) -> dict[str, Any]:
    """Return whether the loop was closed or open, and how much was offered."""
    load = turn.spec.workload.load
    if notes.threads is not None:
        kind = turn.spec.procedure.kind
        return {"kind": "closed", "threads": notes.threads, "procedure": kind}
    if load is not None and load.rate_per_s is not None:
        return {"kind": "open", "rate_per_s": load.rate_per_s, "arrivals": load.arrivals}
    if load is not None:
        return load.closed()
    return {"kind": "closed", "threads": threads_of(turn.spec)}


def errors_of(series: Series) -> dict[str, int]:
    """Return the failed operations by kind, and the rows that were not what was written."""
    found = {kind: count for kind, count in series.errors.items() if count}
    if series.wrong_rows:
        found["wrong_rows"] = series.wrong_rows
    if series.unsent:
        found["unsent"] = series.unsent
    return found


def bottleneck(
    turn: Turn, notes: Notes, waits: list[LimitWait], series: Series, judged: Judgement
) -> Bottleneck | None:
    """Return what bound a trial, by what was seen of limits, processes and disks."""
    first = waits[0] if waits else None
    waiting = 0.0 if first is None else _waiting(first, series) / (threads_of(turn.spec) or 1)
    cpu = sum(judged.cpu_ratio.values())
    ceiling = _ceiling_per_s(turn)
    if ceiling is not None and series.ops_per_s >= SUSTAINED * ceiling and cpu < FULL_MACHINE_RATIO:
        return Bottleneck(resource=CEILING)
    if judged.machine_was_full and RATE in judged.spoiled:
        cpu = max(cpu, judged.busy_ratio)
    return binding(first, waiting, cpu, _time_in_ios(turn, notes))


def _ceiling_per_s(turn: Turn) -> float | None:
    """Return the ceiling of a closed loop; None: it has none, or another loop."""
    load = turn.spec.workload.load
    return load.at_most_per_s if load is not None else None


def binding(
    first: LimitWait | None, waiting: float, cpu: float, in_ios: Mapping[str, float]
) -> Bottleneck | None:
    """Return the limit that kept the most I/Os waiting, the machine's CPU, or a disk.

    `first`: that limit, `waiting`: I/Os at it for each operation under way; `cpu`: share of the
    machine that client, server and emulator used, 0 to 1; `in_ios`: share of an operation's time
    by volume. A disk without a limit in the way binds by its latency when a closed loop's
    operations spend most of their time in its I/Os.
    """
    full = cpu >= FULL_MACHINE_RATIO
    if first is not None and waiting > LEAST_WAITING_RATIO:
        used = first.utilisation
        # A checkpoint's writes wait for each other at a limit that has room for all else.
        if used is None or used >= (cpu if full else LEAST_NEAR_RATIO):
            return Bottleneck(resource=f"{first.volume} {first.limit}".strip(), utilisation=used)
    if full:
        return Bottleneck(resource="this machine's CPU", utilisation=min(cpu, 1.0))
    if in_ios:
        volume = max(in_ios, key=lambda one: in_ios[one])
        if in_ios[volume] >= MOSTLY_IN_IOS:
            return Bottleneck(resource=f"{volume} latency", utilisation=min(in_ios[volume], 1.0))
    return None


def _time_in_ios(turn: Turn, notes: Notes) -> dict[str, float]:
    """Return, for each volume, I/Os under way for each operation under way; none in an open loop.

    By Little's law the share of an operation's time that its I/Os take, where they follow each
    other.
    """
    under_way = notes.threads or threads_of(turn.spec)
    if not under_way or notes.sampler is None or turn.spec.cluster is None:
        return {}
    found: dict[str, float] = {}
    for number in _nodes(turn):
        for volume in turn.spec.cluster.volumes:
            source = f"disk {volume}{node_suffix(number)}"
            queue = _mean(notes, source, "queue")
            if queue is not None:
                found[volume] = found.get(volume, 0.0) + queue / under_way
    return found


def _waiting(wait: LimitWait, series: Series) -> float:
    """Return how many I/Os waited for a limit on average."""
    return wait.delayed_ms / 1e3 / series.elapsed_s if series.elapsed_s else 0.0


def _condition_warnings(turn: Turn, series: Series, waits: list[LimitWait]) -> list[str]:
    """Return what a reader must know about the condition of the measurement."""
    found = []
    if series.again and not series.is_enough():
        found.append(
            f"short: {series.operations} operations in {series.elapsed_s:.1f} s of load, where "
            f"{turn.effort.least_operations} in {turn.effort.least_load_s:g} s were wanted"
        )
    settles = not jobs.uses_up(turn.spec) and not turn.spec.events
    if settles and not steady_state(series.rates).found:
        found.append(
            f"no steady state was found in {series.elapsed_s:.0f} s: rates still drift by more "
            "than a tenth"
        )
    ceiling = _ceiling_per_s(turn)
    if ceiling is not None and series.ops_per_s < SUSTAINED * ceiling:
        found.append(below_ceiling(series.ops_per_s, ceiling))
    for wait in waits:
        if not wait.credits_capacity and (wait.utilisation or 0.0) > MOST_UTILISATION:
            found.append(
                f"{wait.volume} {wait.limit}: more than its rate got through, because each pass "
                f"begins with "
                "a full allowance and passes are short; a larger --scale makes them longer"
            )
        start, left, capacity = wait.credits_start, wait.credits_left, wait.credits_capacity
        if start is None or left is None or not capacity:
            continue
        if left < start and left > 0:
            found.append(
                f"{wait.volume} {wait.limit}: burst credits went from {start / capacity:.0%} to "
                f"{left / capacity:.0%}; the run was shorter than they last"
            )
    return found


def _load_reasons(series: Series, *, timetable: bool) -> list[str]:
    """Return why the load's figures must not be used."""
    found = []
    if series.wrong_rows and not timetable:
        found.append(f"{series.wrong_rows} rows read were not what was written")
    failures = sum(series.errors.values())
    total = series.operations + failures
    # Under a timetable failed operations are an answer.
    if total and failures / total > MOST_ERRORS_RATIO and not timetable:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in series.errors.items())
        found.append(f"{failures / total:.1%} of the operations failed: {kinds}")
    if not series.operations:
        found.append("no operation succeeded")
    return found


def _per_operation(series: Series) -> dict[str, Operation]:
    found = {}
    for name, count in series.counts.items():
        service = series.service(name)
        found[name] = Operation(
            operations=count,
            ops_per_s=count / series.elapsed_s if series.elapsed_s else None,
            latency_ms=series.response(name).summary_ms(),
            service_ms=service.summary_ms() if service else {},
        )
    return found


def _most(notes: Notes, source: str, metric: str) -> int | None:
    course = notes.sampler.course(MEASURED, source, metric) if notes.sampler else None
    return None if course is None else int(course.most)


def _sum(notes: Notes, source: str, metric: str) -> float | None:
    """Return the sum of a metric whose values are growths."""
    course = notes.sampler.course(MEASURED, source, metric) if notes.sampler else None
    return None if course is None else course.sum
