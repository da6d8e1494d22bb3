"""The question of `etcd-which-disk` for one disk: a rehearsal that ends in its answer."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import IN_CI
from tests.hosts.conftest import DISKLAB, Lab

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "etcd-which-disk.yaml"

# A busy machine takes minutes for what an idle one does in a quarter of one.
MOST_SECONDS = 400.0


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long  # CI: test_broken_links, and tests/report/test_published_rules.py
def test_a_disk_is_held_against_the_rule(lab: Lab, tmp_path: Path) -> None:
    if shutil.which("etcd") is None:
        assert not IN_CI, "scripts/setup.sh installs etcd in CI"
        pytest.skip("etcd is not installed")
    small = tmp_path / "small.yaml"
    text = EXPERIMENT.read_text(encoding="utf-8")
    small.write_text(text.replace("rows: 20k", "rows: 500").replace("60s", "4s"), encoding="utf-8")
    out = tmp_path / "runs"
    only = ("--only", "disk=Premium P10", "--nodes", "1", "--quick")
    said = subprocess.run(
        [str(DISKLAB), "rehearse", str(small), *only, "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
        env=lab.environment(),
    )
    # 1: nothing is valid. On a busy machine the emulator may be late, and the figures no answer.
    assert said.returncode in {0, 1}, said.stderr
    result = json.loads(said.stdout.splitlines()[0])
    assert result["status"] in {"ok", "invalid"}, result
    assert not result["errors"], result
    (fsync, *_) = result["rules"]
    assert (fsync["subject"], fsync["below_ms"]) == ("etcd", 10.0)
    assert 0 < fsync["found_ms"] < 5_000
    assert lab.processes() == []
    (run,) = out.iterdir()
    report = lab.run("report", str(run), "--json")
    assert report.returncode == 0, report.stderr
    if result["status"] == "ok":
        assert json.loads(report.stdout)["verdict"][0]["text"].startswith("Good enough for etcd?")
