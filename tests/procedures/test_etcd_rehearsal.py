"""The question of `etcd-which-disk` for one disk: a rehearsal that ends in its answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.databases.servers import need
from tests.hosts.conftest import Lab

from .rehearsed import rehearsed

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "etcd-which-disk.yaml"

# A busy machine takes minutes for what an idle one does in a quarter of one.
MOST_SECONDS = 400.0


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long  # CI: test_broken_links, and tests/report/test_wording.py
def test_a_disk_is_held_against_the_rule(lab: Lab, tmp_path: Path) -> None:
    need("etcd")
    small = tmp_path / "small.yaml"
    text = EXPERIMENT.read_text(encoding="utf-8")
    small.write_text(text.replace("rows: 20k", "rows: 500").replace("60s", "4s"), encoding="utf-8")
    only = ("--only", "disk=Premium P10", "--nodes", "1")
    result, run = rehearsed(lab, small, *only, most_s=MOST_SECONDS)
    assert not result["errors"], result
    (fsync, *_) = result["rules"]
    assert (fsync["subject"], fsync["below_ms"]) == ("etcd", 10.0)
    assert 0 < fsync["found_ms"] < 5_000
    assert lab.processes() == []
    report = lab.run("report", str(run), "--json")
    assert report.returncode == 0, report.stderr
    if result["status"] == "ok":
        assert json.loads(report.stdout)["verdict"][0]["text"].startswith("Good enough for etcd?")
