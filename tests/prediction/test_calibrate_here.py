"""A calibration of this machine: what is asked for, and what a known machine is found to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from disklab.catalog import load_catalog
from disklab.databases.calibration import Calibration, read_calibration
from disklab.databases.simulating import own_client
from disklab.engine.process import simulate
from disklab.errors import UserError
from disklab.prediction import Options, calibration_for, design, here
from disklab.prediction.cells import with_parameters
from disklab.prediction.counted import prepare_rehearsed
from disklab.prediction.fitting import calibration_text
from disklab.procedures.jobs import QUICK
from disklab.results import Operation, Run, Share, Telemetry, TrialResult
from disklab.spec import Trial

from tests.prediction.test_command import run
from tests.results.made import info

CPUS = 2
TRUTH = {
    "overhead_ns": 60_000,
    "coordinator_cpu_ns": 12_000,
    "read_cpu_ns": 24_000,
    "write_cpu_ns": 40_000,
    "read_pause_ns": 2_000_000,
    "write_pause_ns": 9_000_000,
}
CHOSEN = (
    "in memory, reads, 1 thread",
    "in memory, reads, 16 threads",
    "in memory, writes, 16 threads",
    "from the disk, 16 threads",
)
ALONE = "from the disk, 1 thread"


def start() -> Calibration:
    return here.on_this_machine(calibration_for("cassandra"), here.experiment_of("azure/P30", CPUS))


def asked(minutes: float = 10.0) -> here.Asked:
    return here.Asked(
        "azure/P30",
        minutes,
        Path("unused"),
        Options(fidelity="quick", seed=1),
        calibration_for("cassandra"),
    )


def result_of(trial: Trial, answer: Any) -> TrialResult:
    """Tell a simulated cell as a rehearsal does, with the CPU and the pauses of its operations."""
    counts = {name: int(one["operations"]) for name, one in answer["per_operation"].items()}
    read, write = counts.get("read", 0), counts.get("write", 0)
    both = TRUTH["coordinator_cpu_ns"] * (read + write)
    cpu_ns = both + TRUTH["read_cpu_ns"] * read + TRUTH["write_cpu_ns"] * write
    values = start().values()
    # All keys are in the key cache.
    read_pause_ns = TRUTH["read_pause_ns"] * (1 - values["read_moved_permille"] / 1000)
    paused_ns = read_pause_ns * read + TRUTH["write_pause_ns"] * write
    paused_ns /= values["pause_every_requests"]
    elapsed_s = (read + write) / answer["ops_per_s"]
    return TrialResult(
        experiment="synthetic",
        mode="rehearse",
        trial=trial.index,
        factors=dict(trial.factors),
        ops_per_s=answer["ops_per_s"],
        latency_ms=answer["latency_ms"],
        per_operation={name: Operation(operations=count) for name, count in counts.items()},
        telemetry=Telemetry(
            cpu_ratio={"server": cpu_ns / 1e9 / elapsed_s / CPUS}, gc_pause_ms=paused_ns / 1e6
        ),
        duration_s=elapsed_s,
        nodes=1,
        share=Share.model_validate(trial.share.model_dump(mode="json")),
    )


@pytest.fixture
def rehearsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of a machine whose times are known."""
    monkeypatch.setattr("os.cpu_count", lambda: CPUS)
    experiment = here.experiment_of("azure/P30", CPUS)
    trials = {str(one.factors["cell"]): one for one in experiment.trials("rehearse")}
    names = [*CHOSEN, *here.CHECKS, ALONE]
    values = own_client(start().values() | TRUTH)
    jobs = []
    for number, name in enumerate(names):
        job = prepare_rehearsed(
            trials[name], load_catalog(), calibration_for("cassandra"), "x", QUICK
        ).job
        told = with_parameters(job, values)
        jobs.append({"cell": number, "seed": 7, "fidelity": "quick", **told})
    found = Run.create(tmp_path, info())
    with found.writing():
        for answer in simulate(jobs):
            found.append(result_of(trials[names[answer["cell"]]], answer))
    return found


def test_a_known_machine_is_found(rehearsed: Run, tmp_path: Path) -> None:
    experiment = here.experiment_of("azure/P30", CPUS)
    made = here.made_of(asked(), experiment, CHOSEN, rehearsed, lambda *_: None)
    values = made.calibration.values()
    for name in ("overhead_ns", "read_cpu_ns", "write_cpu_ns", "coordinator_cpu_ns"):
        assert values[name] == pytest.approx(TRUTH[name], rel=0.1), name
    known = {one.name: one for one in made.known}
    # On one node their sum alone matters.
    assert known["coordinator_cpu_ns"].like in {"read_cpu_ns", "write_cpu_ns"}
    assert (known["overhead_ns"].within or 9) < 1.5
    assert made.check.after.error < 0.3 * made.check.before.error
    # What is written is read again, and says what is known.
    path = tmp_path / "here.yaml"
    path.write_text(calibration_text(made.calibration), encoding="utf-8")
    assert read_calibration(path).parameters["overhead_ns"].within == pytest.approx(
        known["overhead_ns"].within, abs=0.001
    )


def test_cells_that_tell_nothing_are_named(rehearsed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine one cell may be all that is usable; a fit of nothing was a traceback."""
    # No cell tells a parameter to a thousandth.
    monkeypatch.setattr(design, "LEAST_TOLD", 1e-3)
    experiment = here.experiment_of("azure/P30", CPUS)
    with pytest.raises(UserError, match=rf"\({ALONE}\) determine none of the parameters"):
        here.made_of(asked(), experiment, [ALONE], rehearsed, lambda *_: None)


@pytest.mark.long
def test_more_time_tells_more() -> None:
    experiment = here.experiment_of("azure/P30", CPUS)
    short, long = here.plan(asked(5), experiment), here.plan(asked(10), experiment)
    assert 2 <= len(short) < len(long)
    assert short[:2] == long[:2]
    # Reads and writes cost different parameters: a plan has both.
    assert any("writes" in name for name in long)
    assert any("reads" in name for name in long)


def test_what_cannot_be_is_said() -> None:
    said = run("calibrate", "--here", code=2).stderr
    assert "name one: --out here.yaml" in said
    said = run("calibrate", "x.yaml", "--here", "--fit", "overhead_ns", code=2).stderr
    assert "EXPERIMENT: x.yaml: --here chooses" in said
    assert "--fit: overhead_ns: --here chooses" in said
    said = run("calibrate", "--here", "--minutes", "2", "--out", "/tmp/none.yaml", code=2).stderr
    assert "--minutes: 2:" in said
    assert "give 3 or more" in said
