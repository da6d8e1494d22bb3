"""Synthetic runs for tests and for looking at the report: drawn from a seed, measured nowhere."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from disklab.results import (
    Bottleneck,
    ExperimentNote,
    Figure,
    Histogram,
    LimitWait,
    Mode,
    PlannedTrial,
    Price,
    Reason,
    Run,
    RunInfo,
    Share,
    Telemetry,
    TrialResult,
    encode,
    merged,
)

SAMPLES = 400  # a second's histogram
POOL = 24  # different seconds of a trial; a long run repeats them


@dataclass(frozen=True)
class Made:
    """What a synthetic trial shall look like."""

    factors: dict[str, Any]
    ops_per_s: float = 5000.0
    p50_ms: float = 2.0
    tail: float = 0.5
    """Spread of the logarithm of latency."""
    spread: float = 0.01
    """Between repeats."""
    hit_ratio: float | None = None
    bound_by: str | None = None
    price: float | None = None
    credits_left: float | None = None
    idle_every: int = 0
    """In every so manyth second nothing ends."""
    more: dict[str, Any] = field(default_factory=dict)


def make_run(  # noqa: PLR0913
    out: Path,
    trials: Sequence[Made],
    *,
    title: str,
    repeats: int = 3,
    seconds: int = 60,
    seed: int = 1,
    run_id: str = "synthetic-rehearse-20261121T120000-abcd",
    mode: Mode = "rehearse",
) -> Run:
    random = np.random.default_rng(seed)
    info = RunInfo(
        id=run_id,
        mode=mode,
        experiment=ExperimentNote(title=title, source="synthetic", file="synthetic.yaml"),
        seed=seed,
        repeats=repeats,
        command=["disklab", "rehearse", "experiments/synthetic.yaml", "--seed", str(seed)],
        started="2026-11-21T12:00:00+00:00",
        environment={"host": "synthetic", "kernel": "6.1", "cpus": 2, "memory_gib": 24,
                     "envelope": {"iops": 90_000, "p50_ns": 21_000}},
        versions={"disklab": "0.1.0", "cassandra": "5.0.2"},
        share=Share(nodes=Figure(full=6, here=1), nodes_ratio=1 / 6, scale="1/100"),
        prices=[
            Price(item="azure/P30", amount=122.88, region="eastus", date="2026-10", source="list"),
            Price(item="azure/Standard_DS14_v2", amount=861.4, region="eastus", date="2026-10",
                  source="retail"),
        ],
        notes=["synthetic: made by a test, measured nowhere"],
    )  # fmt: skip
    planned = [PlannedTrial(trial=n, factors=one.factors) for n, one in enumerate(trials)]
    run = Run.create(out, info, experiment_text=f"title: {title}\n", planned=planned)
    with run.writing():
        for repeat in range(repeats):
            for trial, one in enumerate(trials):
                if one.more.get("status") in ("refused", "failed"):
                    if repeat == 0:
                        run.append(empty(run, title, trial, one))
                    continue
                run.append(finished(run, title, trial, repeat, one, seconds, random))
    run.end()
    return run


def empty(run: Run, title: str, trial: int, one: Made) -> TrialResult:
    return TrialResult(experiment=title, mode=run.info.mode, trial=trial, factors=one.factors,
                       share=run.info.share, **one.more)  # fmt: skip


def finished(  # noqa: PLR0913, PLR0917
    run: Run, title: str, trial: int, repeat: int, one: Made, seconds: int,
    random: np.random.Generator,
) -> TrialResult:  # fmt: skip
    rate = one.ops_per_s * float(np.exp(random.normal(0, one.spread)))
    slow = one.p50_ms * float(np.exp(random.normal(0, one.spread)))
    pool = [
        Histogram.of((slow * 1e6 * np.exp(random.normal(0, one.tail, SAMPLES) +
                      (random.random(SAMPLES) > 0.97) * one.tail * 2)).astype(int).tolist())
        for _ in range(POOL)
    ]  # fmt: skip
    texts = [encode(one) for one in pool]
    state = 0.0
    with run.record_seconds(trial, repeat) as course:
        for second in range(seconds):
            state = 0.7 * state + float(random.normal(0, 0.04))
            done = max(1, round(rate * np.exp(state)))
            idle = one.idle_every and second % one.idle_every == 0
            done, told = (0, {}) if idle else (done, {"read": texts[second % POOL]})
            course.second({"t_s": second + 1.002, "operations": done, "ops_per_s": float(done),
                           "errors": 0, "histograms": told})  # fmt: skip
        whole = encode(merged(pool))
        course.whole({"elapsed_s": float(seconds), "response": {"read": whole}})
    with run.record_telemetry(trial, repeat) as telemetry:
        for second in range(seconds):
            t = float(second + 1)
            telemetry.add("measure", t, "machine", "busy_cores", 1.2 + 0.2 * random.random())
            telemetry.add("measure", t, "disk data", "read_iops", rate * random.uniform(0.9, 1.1))
            if one.hit_ratio is not None:
                telemetry.add("measure", t, "emulator data", "hit_ratio", one.hit_ratio)
    in_flight = rate * merged(pool).mean / 1e9 * seconds * 1000
    limits = []
    if one.bound_by:
        limits = [
            LimitWait(limit=one.bound_by, volume="data", delayed_ios=round(rate * seconds * 0.9),
                      delayed_ms=in_flight * 0.6, utilisation=0.99, credits_left=one.credits_left,
                      credits_start=1.0, credits_capacity=1.0),
            LimitWait(limit="disk 0 200 MB/s", volume="data", delayed_ios=round(rate),
                      delayed_ms=in_flight * 0.05),
        ]  # fmt: skip
    given = {
        "experiment": title,
        "mode": run.info.mode,
        "trial": trial,
        "repeat": repeat,
        "factors": one.factors,
        "ops_per_s": rate,
        "nodes": 1,
        "loop": {"kind": "closed", "threads": 21},
        "latency_ms": merged(pool).summary_ms(),
        "bottleneck": Bottleneck(resource=one.bound_by, utilisation=0.99) if one.bound_by else None,
        "host_cache_hit_ratio": one.hit_ratio,
        "telemetry": Telemetry(limits=limits, late_ratio=0.001, client_late_p99_ms=0.05,
                               cpu_ratio={"client": 0.11, "server": 0.62, "emulator": 0.09}),
        "price_usd_per_month": one.price,
        "started": "2026-11-21T12:00:00+00:00",
        "duration_s": float(seconds),
        "share": Share(nodes=Figure(full=6, here=1), nodes_ratio=1 / 6, scale="1/100",
                       threads=Figure(full=128, here=21)),
    }  # fmt: skip
    return TrialResult(**{**given, **one.more})


def local_or_attached(out: Path, **options: Any) -> Run:
    """The demo's shape: three places for the data, reads and writes; one cell refused."""
    trials = []
    for disks, read, hit, bound, price in (
        ("attached, ReadOnly", 9_800.0, 0.98, None, 6_400.0),
        ("attached, None", 4_900.0, None, "vm uncached 768 MB/s", 6_400.0),
        ("local", 9_850.0, None, None, 3_450.0),
    ):
        trials.append(Made({"data disks": disks, "workload": "read"}, read, 2.0, hit_ratio=hit,
                           bound_by=bound, price=price, spread=0.006))  # fmt: skip
        trials.append(Made({"data disks": disks, "workload": "write"}, 14_000, 1.4,
                           price=price, spread=0.04))  # fmt: skip
    return make_run(out, trials, title="Local or attached data disks for Cassandra?", **options)


def caching_threads(out: Path, **options: Any) -> Run:
    """The published sweep's shape by node, with 2 % between repeats; one cell is invalid."""
    none = {64: (14_000, 4.0), 128: (29_000, 4.0), 256: (51_000, 4.3), 512: (56_000, 4.9)}
    cached = {64: (27_000, 1.2), 128: (46_000, 3.2), 256: (46_000, 1.9), 512: (47_000, 2.2)}
    trials = []
    for caching, line in (("None", none), ("ReadOnly", cached)):
        for threads, (ops, p50) in line.items():
            on = caching == "ReadOnly"
            trials.append(
                Made(
                    {"cluster.volumes.data.caching": caching, "workload.load.threads": threads},
                    ops / 6, p50, tail=0.9 if on and threads > 128 else 0.4, spread=0.02,
                    hit_ratio=0.97 if on else None,
                    bound_by="vm cached 512 MB/s" if on and threads > 64 else None,
                    price=9_000.0,
                )
            )  # fmt: skip
    last = trials[-1]
    trials[-1] = Made(
        last.factors, last.ops_per_s, last.p50_ms,
        more={"status": "invalid", "valid": False,
              "invalid_reasons": ["the client used 97 % of its share of the machine"]},
    )  # fmt: skip
    title = "Does host caching help, and up to how many client threads?"
    return make_run(out, trials, title=title, **options)


def with_refusals(out: Path, **options: Any) -> Run:
    """Refused and failed cells beside good ones."""
    refusal = Reason(place="dataset.rows", value="2000M", rule="8.2 TB do not fit 224 GiB",
                     way_out="use fewer rows or attached disks")  # fmt: skip
    failure = Reason(place="cassandra", value="exit 137", rule="the node died while it measured")
    trials = [
        Made({"data disks": "attached", "dataset.rows": "50M"}, 9_000, spread=0.01),
        Made({"data disks": "attached", "dataset.rows": "2000M"}, 3_000, spread=0.01),
        Made({"data disks": "local", "dataset.rows": "50M"},
             more={"status": "failed", "reason": failure,
                   "log_excerpt": "ERROR java.lang.OutOfMemoryError"}),
        Made({"data disks": "local", "dataset.rows": "2000M"},
             more={"status": "refused", "reason": refusal}),
    ]  # fmt: skip
    return make_run(out, trials, title="When does a data set outgrow the host cache?", **options)


SHAPES = {"demo": local_or_attached, "threads": caching_threads, "refusals": with_refusals}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a synthetic run to look at.")
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    made = SHAPES[given.shape](
        given.out,
        repeats=given.repeats,
        seconds=given.seconds,
        seed=given.seed,
        run_id=f"{given.shape}-rehearse-20261121T12{given.seed:02}00-abcd",
    )
    print(made.folder)  # noqa: T201
