"""What holds for the command line as a whole."""

from __future__ import annotations

from importlib import metadata

from disklab.cli.app import app
from disklab.cli.run_progress import result_text
from disklab.events import TrialFinished
from typer.testing import CliRunner


def test_the_release_is_said() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert said.exit_code == 0
    assert said.stdout == f"disklab {metadata.version('disklab')}\n"


def test_a_slow_trial_is_told_as_well_as_a_fast_one() -> None:
    def told(ops_per_s: float, p50: float) -> str:
        latency = {"p50": p50, "p99": 3 * p50}
        result = {"factors": {"workload": "TPC-C"}, "ops_per_s": ops_per_s, "latency_ms": latency}
        finished = TrialFinished(trial=1, repeat=0, status="ok", duration_s=1.0, result=result)
        return result_text(finished).plain.replace("\N{NO-BREAK SPACE}", " ")

    assert "0.834 ops/s, p50 17.7 ms, p99 53.1 ms" in told(0.83399, 17.694)
    assert "47,400 ops/s, p50 270 us, p99 810 us" in told(47_432.0, 0.27)
