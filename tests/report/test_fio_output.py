"""`disklab report fio.json --disk`: fio's output beside what the disk promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disklab.cli.app import app
from disklab.errors import UserError
from disklab.probe.fio_results import read
from disklab.spec.fio_file import On
from typer.testing import CliRunner

P30 = On(("azure/P30",), "azure/Standard_D8s_v3")


def side(iops: float, block: int, ms: float, seconds: float = 60.0) -> dict[str, Any]:
    ns = ms * 1e6
    ios = round(iops * seconds)
    percentiles = {f"{p:f}": round(ns) for p in (1, 50, 95, 99)} if ios else {}
    latency = {"mean": ns, "min": ns, "max": ns, "N": ios, "percentile": percentiles}
    runtime = seconds * 1000 if ios else 0
    return {"total_ios": ios, "io_bytes": ios * block, "runtime": runtime, "clat_ns": latency}


def output(folder: Path, *jobs: dict[str, Any]) -> Path:
    """Write what fio 3.33 writes: options as texts, those without a value left out."""
    idle = side(0, 4096, 0)
    report = {
        "fio version": "fio-3.33",
        "global options": {"ioengine": "libaio", "direct": "1", "bs": "4k", "size": "1g"},
        "jobs": [{"groupid": 0, "read": idle, "write": idle} | job for job in jobs],
    }
    file = folder / "fio.json"
    file.write_text(f"fio: this is what it warns of\n{json.dumps(report)}")
    return file


def job(name: str, options: dict[str, str], **parts: Any) -> dict[str, Any]:
    return {"jobname": name, "job options": options, **parts}


def test_a_healthy_p30_keeps_its_promise_and_a_slow_one_falls_short(tmp_path: Path) -> None:
    # Case 25 of the public ones: randread 4k at depth 64 on a P30 does 5,000 in 12.8 ms.
    healthy = job("a", {"rw": "randread", "iodepth": "64"}, read=side(5000, 4096, 12.8))
    slow = job("b", {"rw": "randread", "iodepth": "64"}, read=side(2500, 4096, 25), groupid=1)
    found = read(output(tmp_path, healthy, slow), P30)
    verdicts = [(result.model_extra or {})["verdict"]["outcome"] for result in found.results]
    assert verdicts == ["met", "short"]
    first = found.results[0]
    assert (first.ops_per_s, first.latency_ms["p99"]) == (5000.0, 12.8)
    assert (first.model_extra or {})["promise"]["bound_by"] == "disk 0 5000 IOPS"


def test_jobs_of_one_name_are_one_and_those_side_by_side_are_not_judged(tmp_path: Path) -> None:
    options = {"rw": "randwrite", "iodepth": "8", "numjobs": "2"}
    both = [job("w", options, write=side(1000, 4096, 8.0)) for _ in range(2)]
    other = job("r", {"rw": "read", "bs": "64k"}, read=side(500, 65536, 2.0))
    writes, reads = read(output(tmp_path, *both, other), P30).results
    assert writes.ops_per_s == 2000.0
    assert writes.loop == {"kind": "closed", "jobs": 2, "depth": 8}
    for result in (writes, reads):
        assert (result.model_extra or {})["verdict"] is None
        assert any("at the same time" in warning for warning in result.warnings)


def test_syncs_are_told_and_buffered_writes_are_held_against_nothing(tmp_path: Path) -> None:
    sync = {"total_ios": 0, "lat_ns": side(800, 0, 1.2)["clat_ns"]}
    options = {"rw": "write", "direct": "0", "fdatasync": "1", "bs": "2300"}
    (result,) = read(
        output(tmp_path, job("wal", options, write=side(800, 2300, 0.001), sync=sync)), P30
    ).results
    assert result.per_operation["sync"].latency_ms["p99"] == 1.2
    assert (result.model_extra or {})["promise"] is None


def test_the_command_makes_a_run_and_says_what_was_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output(tmp_path, job("a", {"rw": "randread", "iodepth": "64"}, read=side(5000, 4096, 12.8)))
    words = ["report", "fio.json", "--vm", "azure/Standard_D8s_v3"]
    ran = CliRunner().invoke(app, [*words, "--disk", "azure/P30"])
    assert ran.exit_code == 0, ran.output
    told = " ".join(ran.stdout.split())
    assert "Promised: 5,000 IOPS, limited by disk 0 5000 IOPS: met" in told
    assert list(tmp_path.glob("disklab-runs/*measure*/report.html"))
    ran = CliRunner().invoke(app, words)
    assert "add --disk, such as azure/P30" in str(ran.exception)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{}", "has no jobs of fio"),
        ("no JSON", "is not JSON"),
        ('{"fio version": "fio-3.33", "jobs": [5]}', "has no jobs of fio"),
        ('{"fio version": "fio-3.33", "jobs": [{"jobname": "a"}]}', "a job lacks what fio writes"),
    ],
)
def test_what_is_no_output_of_fio_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "fio.json"
    file.write_text(content)
    with pytest.raises(UserError, match=complaint):
        read(file, P30)


@pytest.mark.parametrize("percentiles", [{"-1": 5}, {"101": 5}, {"99": -5}])
def test_a_percentile_that_cannot_be_is_refused(
    tmp_path: Path, percentiles: dict[str, int]
) -> None:
    wrong = side(5000, 4096, 12.8)
    wrong["clat_ns"]["percentile"] |= percentiles
    file = output(tmp_path, job("a", {"rw": "randread"}, read=wrong))
    with pytest.raises(UserError, match="a percentile lies between 0 and 100"):
        read(file, P30)
