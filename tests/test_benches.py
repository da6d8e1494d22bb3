"""The benchmarks still run: their small size, for real, without a word about the figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.programs import ended

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parent.parent


# A cluster of Ray takes half a minute to start, and its tests start one in every run. What the
# others of these run for up to a minute each, other tests run as well.
LONG = [
    pytest.param(name, marks=pytest.mark.long)
    for name in ("zero-delay", "load", "observe", "rates", "simulator", "sql", "sweeps")
]


@pytest.mark.parametrize("bench", ["accuracy", *LONG])
def test_the_small_size_runs_and_stores_its_rows(bench: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "benches", "--size", "small", "--only", bench]
    command += ["--out", str(rows)]
    ended(command, most_s=900, cwd=ROOT, code=0)
    stored = [json.loads(line) for line in rows.read_text().splitlines()]
    assert stored
    assert all(row["median"] > 0 and row["kernel"] for row in stored)
    assert any(row["contender"].startswith("disklab") for row in stored)
