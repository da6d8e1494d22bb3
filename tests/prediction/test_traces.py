"""Traces and fio's job files through the simulator by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from disklab.cli.app import app
from typer.testing import CliRunner

from tests.in_process import disklab
from tests.spec.test_fio_file import ETCD

DISKLAB = Path(sys.executable).with_name("disklab")

EXPERIMENT = """
title: Which disk carries this trace?
device:
  vm: azure/Standard_D8s_v3
  volume: {{disks: azure/E10, caching: ReadOnly}}
workload:
  trace: {{file: t.csv{more}}}
before: {{host_cache: {cache}}}
require: {{all: {{p99: 50ms}}}}
"""


def write(folder: Path, more: str = "", cache: str = "empty", gap_us: int = 5_000) -> Path:
    """Write an experiment and its trace of 1000 reads of 100 pages; return the experiment."""
    lines = [f"{10**17 + n * gap_us * 10},h,0,Read,{n % 100 * 8192},8192,0" for n in range(1_000)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    file = folder / "e.yaml"
    file.write_text(EXPERIMENT.format(more=more, cache=cache))
    return file


def predicted(file: Path, *more: str) -> list[dict[str, Any]]:
    # From another folder: the trace lies beside the experiment.
    words = ["predict", str(file), "--json", *more, "--out", str(file.parent / "runs")]
    ran = disklab(*words, environment={**os.environ, "COLUMNS": "200"}, code=0)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_below_the_limits_the_rate_is_the_traces_and_the_host_cache_keeps_what_was_read(
    tmp_path: Path,
) -> None:
    (cell,) = predicted(write(tmp_path))
    assert cell["ops_per_s"] == pytest.approx(200, rel=0.01)
    assert cell["loop"]["kind"] == "open"
    assert cell["loop"]["rate_per_s"] == pytest.approx(200)
    # The first read of each of the hundred pages misses, unless two share a block of the cache.
    assert cell["host_cache_hit_ratio"] == pytest.approx(0.9, abs=0.001)
    told = cell["trace"]
    assert (told["ios"], told["reads"], told["writes"]) == (1_000, 1_000, 0)
    assert told["block_sizes"] == {"8192": 1.0}
    assert told["sequential_ratio"] == pytest.approx(0.99)
    (warm,) = predicted(write(tmp_path, cache="warm"))
    assert warm["host_cache_hit_ratio"] == 1.0


def test_what_is_too_much_for_the_disk_cannot_be_sustained(tmp_path: Path) -> None:
    file = write(tmp_path, ", speed: 100", cache="empty")
    file.write_text(file.read_text().replace("caching: ReadOnly", "caching: None"))
    (cell,) = predicted(file)
    assert cell["loop"]["rate_per_s"] == pytest.approx(20_000)
    assert cell["ops_per_s"] < 2_000
    shown = subprocess.run(
        [str(DISKLAB), "report", str(next((tmp_path / "runs").iterdir()))],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "COLUMNS": "220"},
    ).stdout
    assert "cannot sustain" in shown
    assert "The trace" in shown
    assert "8 KiB 100 %" in shown


def test_a_depth_makes_a_closed_loop(tmp_path: Path) -> None:
    (cell,) = predicted(write(tmp_path, ", depth: 4", cache="warm"))
    assert cell["loop"] == {"kind": "closed", "jobs": 1, "depth": 4}
    assert cell["ops_per_s"] > 1_000
    assert cell["trace"]["offered_per_s"] is None


@pytest.mark.parametrize(
    ("lines", "more", "told"),
    [
        (
            f"1,h,0,Read,{1 << 40},8192,0\n",
            "",
            "1 of 1 I/Os lie beyond the volume's 137438953472 bytes",
        ),
        ("1,h,0,Read,0,8192,0\n1,h,0,Rea,0,8192,0\n", "", "t.csv:2"),
        ("1,h,0,Read,0,8192,0\n", ", speed: 2, depth: 2", "leave out depth or speed"),
        ("1,h,0,Read,0,8192,0\n", ", device: x.1", "choose one of h.0"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(
    lines: str, more: str, told: str, tmp_path: Path
) -> None:
    file = write(tmp_path, more)
    (tmp_path / "t.csv").write_text(lines)
    words = ["predict", str(file), "--out", str(tmp_path / "runs")]
    ran = disklab(*words, environment={**os.environ, "COLUMNS": "300"}, code=2)
    assert told in ran.stderr
    assert not (tmp_path / "runs").exists()


def test_what_lies_outside_is_wrapped_when_that_is_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path, ", outside: wrap")
    (tmp_path / "t.csv").write_text(f"1,h,0,Read,{1 << 40},8192,0\n9,h,0,Write,512,512,0\n")
    (cell,) = predicted(file)
    assert cell["trace"]["wrapped"] == 1
    assert any("1 of 2 I/Os of the trace lie beyond the volume" in w for w in cell["warnings"])
    assert any("widened to whole sectors" in w for w in cell["warnings"])


WORDS = ["predict", "etcd.fio", "--vm", "aws/m6i.xlarge", "--no-bands"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "etcd.fio").write_text(ETCD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(*words: str) -> list[dict[str, Any]]:
    ran = CliRunner().invoke(app, [*WORDS, *words, "--json"])
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


@pytest.mark.usefixtures("folder")
def test_etcds_test_answers_as_it_was_measured() -> None:
    disks = ["aws/gp2(128GiB)", "aws/gp3(128GiB)"]
    both = answers(*(word for disk in disks for word in ("--disk", disk)))
    # Mean and p99 of fdatasync, milliseconds; catalogue's evidence of `mtulio`, which is what a
    # write is halved from: the ends of what its six machines had.
    measured = {disks[0]: ((1.29, 1.42), (1.9, 3.0)), disks[1]: ((1.33, 1.77), (3.0, 5.1))}
    for answer in both:
        sync = answer["per_operation"]["sync"]["latency_ms"]
        mean, p99 = measured[answer["factors"]["device.volume.disks"]]
        assert mean[0] * 0.85 <= sync["mean"] <= mean[1] * 1.15
        assert p99[0] * 0.85 <= sync["p99"] <= p99[1] * 1.15
        # Who asks for syncs waits for them.
        assert answer["latency_ms"]["p99"] == sync["p99"]
        assert answer["per_operation"]["sync"]["operations"] == (22 << 20) // 2300


def test_the_experiment_file_is_kept_when_asked_and_predicts_the_same(folder: Path) -> None:
    (one,) = answers("--disk", "aws/io2(100GiB)", "--write", "kept.yaml")
    ran = CliRunner().invoke(app, ["predict", "kept.yaml", "--no-bands", "--json"])
    again = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("{")))
    assert again["per_operation"] == one["per_operation"]
    ran = CliRunner().invoke(app, [*WORDS, "--disk", "aws/gp3(9GiB)", "--write", "kept.yaml"])
    assert "is there already" in str(ran.exception)
    assert (folder / "kept.yaml").read_text().startswith("# Written by")


@pytest.mark.usefixtures("folder")
def test_a_job_file_needs_a_disk_and_an_experiment_file_none() -> None:
    ran = CliRunner().invoke(app, WORDS)
    assert ran.exit_code != 0
    assert "add --disk, such as azure/P30" in str(ran.exception)
    Path("e.yaml").write_text("title: x\n")
    ran = CliRunner().invoke(app, ["predict", "e.yaml", "--disk", "azure/P30"])
    assert "names its own disks" in str(ran.exception)
