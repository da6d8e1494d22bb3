"""Calibrating on a rehearsal, at its own scale; guesses without a model."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.databases.simulating import host_profile, own_client
from disklab.engine.process import simulate
from disklab.prediction.against import Baseline, ComparedCell, Comparison
from disklab.prediction.cells import with_parameters
from disklab.prediction.counted import (
    ALL,
    LATENCIES,
    InSight,
    in_sight,
    kernel_rules,
    levels,
    prepare_rehearsed,
    rehearsed_trials,
)
from disklab.results import Run, Share, TrialResult
from disklab.spec import Trial

from tests.prediction.test_command import ROOT, run
from tests.results.made import info

THREADS = ROOT / "experiments" / "cassandra-disk-caching-threads.yaml"
TRUTH_NS = 600_000
GIB = 1 << 30


def rehearsed() -> list[Trial]:
    return spec.load(THREADS).trials("rehearse", time_dilation=8)


def job_of(trial: Trial) -> Any:
    made = prepare_rehearsed(trial, load_catalog(), calibration_for("cassandra"), "x.yaml")
    return made.job


@pytest.mark.parametrize(
    ("release", "rules"),
    [
        ("3.10.0-1160.el7.x86_64", "3.10"),
        ("4.4.0", "3.10"),
        ("4.19.0-27", "6.18"),
        ("6.1.0", "6.18"),
    ],
)
def test_a_kernel_has_the_rules_of_its_time(release: str, rules: str) -> None:
    assert kernel_rules(release) == rules


def test_a_run_tells_which_trials_were_rehearsed() -> None:
    experiment = spec.load(THREADS)
    share = experiment.trials("rehearse", nodes=3, time_dilation=24)[0].share
    told = Share.model_validate(share.model_dump(mode="json"))
    assert [one.share for one in rehearsed_trials(experiment, told)] == [
        one.share for one in experiment.trials("rehearse", nodes=3, time_dilation=24)
    ]


def test_what_is_simulated_is_what_was_rehearsed() -> None:
    trial = next(one for one in rehearsed() if one.factors["workload.load.threads"] == 512)
    job = job_of(trial)
    database = job["database"]
    assert database["cluster"]["nodes"] == 1
    assert database["workload"]["load"] == {"closed": {"threads": 85}}
    assert database["dataset"]["rows"] == 250_000
    # 576 GiB of host cache and 101 GiB of page cache, a hundredth of each.
    cache = database["cluster"]["host"]["cache"]["capacity_bytes"]
    assert cache == pytest.approx(5.76 * GIB, rel=0.001)
    assert database["cluster"]["kernel"] == kernel_rules(platform.release())
    page_cache = database["cluster"]["page_cache_bytes"]
    assert page_cache == pytest.approx(trial.share.page_cache_bytes.here, rel=0.1)
    sizes = {one["name"]: one["size_bytes"] for one in database["cluster"]["host"]["volumes"]}
    assert sizes["data"] == pytest.approx(trial.share.volume_bytes["data"].here, rel=0.01)
    # Rates are those of the full system.
    full = host_profile(trial.spec)["volumes"][0]["disks"]
    assert database["cluster"]["host"]["volumes"][0]["disks"] == full
    assert "client_cpu" in job["ablate"]


def results(trials: list[Trial]) -> list[TrialResult]:
    """Simulate the trials with a known overhead, and tell the figures as a rehearsal's."""
    values = own_client(calibration_for("cassandra").newest().values() | {"overhead_ns": TRUTH_NS})
    asked = (
        {"cell": at, "seed": 7, "fidelity": "full", **with_parameters(job_of(one), values)}
        for at, one in enumerate(trials)
    )
    return [
        TrialResult(
            experiment="synthetic",
            mode="rehearse",
            trial=trials[answer["cell"]].index,
            factors=dict(trials[answer["cell"]].factors),
            ops_per_s=answer["ops_per_s"],
            latency_ms=answer["latency_ms"],
            nodes=1,
            share=Share.model_validate(trials[answer["cell"]].share.model_dump(mode="json")),
        )
        for answer in simulate(asked)
    ]


def test_a_rehearsal_tells_the_parameter_that_made_it(tmp_path: Path) -> None:
    trials = [one for one in rehearsed() if "None" in map(str, one.factors.values())]
    stored = Run.create(tmp_path, info(), experiment_text=THREADS.read_text(encoding="utf-8"))
    with stored.writing():
        for result in results(trials):
            stored.append(result)
    fit = ("calibrate", str(THREADS), "--measured", str(stored.folder))
    told = json.loads(run(*fit, "--fit", "overhead_ns", "--json").stdout)
    assert told["rehearsed"] is True
    assert len(told["cells"]) == len(trials) == 4
    assert told["parameters"]["overhead_ns"] == pytest.approx(TRUTH_NS, rel=0.1)
    # What is left is the noise of another seed.
    assert told["error_after"] < 0.5 * told["error_before"]
    refused = run(*fit, "--fit", "overhead_ns,client_read_cpu_ns", code=2).stderr
    assert "client_read_cpu_ns: belongs to the studies' client; a rehearsal has its own" in refused


def row(disk: str, copies: int, work: str) -> tuple[tuple[str, str], ...]:
    return levels({"data disks": disk, "copies": copies, "work": work})


FITTED = {
    row("attached", 1, "write"): {"ops/s": 100.0, "p50": 1.0},
    row("attached", 4, "write"): {"ops/s": 25.0, "p50": 4.0},
    row("attached", 1, "read"): {"ops/s": 100.0},
    row("attached", 4, "read"): {"ops/s": 100.0},
    row("attached", 4, "mixed"): {"ops/s": 20.0},
}


@pytest.mark.parametrize(
    ("cell", "rate"),
    [
        (row("attached", 1, "write"), 100),
        (row("local", 4, "write"), 25),
        (row("attached", 2, "write"), 50),
        (row("local", 2, "write"), 50),
        (row("attached", 8, "write"), 25),
        # Half of 2 x 100 x 25 / 125, which the fitted mixed row was.
        (row("local", 1, "mixed"), 50),
    ],
)
def test_a_guess_comes_from_the_fitted_rows_alone(
    cell: tuple[tuple[str, str], ...], rate: float
) -> None:
    assert Baseline(FITTED).guess(cell)["ops/s"] == pytest.approx(rate)


def test_without_fitted_rows_there_is_no_guess() -> None:
    assert Baseline({}).guess(row("local", 1, "read")) is None


def test_skill_compares_the_same_cells_and_leaves_out_what_was_in_sight() -> None:
    def cell(predicted: float, guessed: float | None, **more: object) -> ComparedCell:
        guess = {} if guessed is None else {"ops/s": guessed, "p50": guessed}
        told = {"ops/s": predicted, "p50": predicted}
        return ComparedCell({}, {"ops/s": 100.0, "p50": 100.0}, told, guessed=guess, **more)  # type: ignore[arg-type]

    seen = InSight("x", {}, LATENCIES, "in sight")
    cells = (
        cell(110, 140, seen=seen),
        cell(110, 140, seen=seen),
        cell(300, None, seen=seen),
        cell(100, 900, note="calibration row"),
    )
    comparison = Comparison("x", cells)
    assert comparison.errors("ops/s") == pytest.approx([0.1, 0.1, 2.0])
    assert comparison.skill("ops/s") == pytest.approx((0.4, 0.75))
    assert comparison.errors("p50") == []
    assert comparison.skill("p50") is None
    told = list(comparison.summary())
    assert told[0].endswith("3 cells; without a model 40 %, skill +0.75")
    assert told[1].startswith("p50: no cell counts (known when a value was fitted): off by 10 %")


def test_what_the_latency_file_calls_fitted_does_not_count() -> None:
    stem = "cassandra-disk-caching-read-ahead"
    none = in_sight(stem, levels({"cluster.volumes.data.caching": "None", "threads": 128}))
    assert none.figures == ALL
    cached = in_sight(stem, levels({"cluster.volumes.data.caching": "ReadOnly", "threads": 128}))
    assert "ops/s" not in cached.figures
    assert in_sight("cassandra-local-or-attached", row("local", 1, "read")) is None
