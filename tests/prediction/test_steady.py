"""Burst credits in predictions: what is done while they last, when they end, and what remains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disklab.prediction.steady import Spending, with_steady

from tests.in_process import disklab
from tests.results import made

DEVICE = """
title: What is left when the credits are gone?
device: {{vm: {vm}, volume: {{disks: "{disks}"}}}}
workload:
  fio: {{profile: async, rw: {rw}, bs: {bs}, direct: true}}
  stop: {{duration: {duration}}}
before: {{credits: {credits}}}
"""


def predicted(folder: Path, text: str, *options: str) -> tuple[list[dict[str, Any]], str]:
    """Return the results of a prediction, and what its report prints."""
    file = folder / "asked.yaml"
    file.write_text(text)
    out = folder / "runs"
    ran = disklab("predict", str(file), "--fidelity", "quick", "--out", str(out), *options, code=0)
    (run,) = out.iterdir()
    results = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    return sorted(results, key=lambda result: result["trial"]), ran.stdout


def device(folder: Path, **asked: str) -> tuple[dict[str, Any], str]:
    usual = {"rw": "randread", "bs": "4k", "duration": "5s", "credits": "100%"}
    (result,), shown = predicted(folder, DEVICE.format(**{**usual, **asked}))
    return result, shown


D2S_V3, M5_4XLARGE = "azure/Standard_D2s_v3", "aws/m5.4xlarge"


@pytest.mark.parametrize(
    ("vm", "disks", "rates", "lasts_s"),
    [
        # A P10 has (3500 - 500) x 1800 s of credits; D2s_v3 lets 4,000 through while it bursts.
        (D2S_V3, "azure/P10", (3500, 500), 1800),
        # 5.4M I/O credits above a baseline of 3 a GiB, at least 100.
        (M5_4XLARGE, "aws/gp2(100GiB)", (3000, 300), 2000),
        (M5_4XLARGE, "aws/gp2(4GiB)", (3000, 100), 1862),
        # m5.xlarge: 18,750 for half an hour, 6,000 all day.
        ("aws/m5.xlarge", "aws/gp3(500GiB, 16000 IOPS, 1000 MiB/s)", (16_000, 6000), 2295),
    ],
)
def test_a_device_has_a_burst_and_a_base_rate(
    tmp_path: Path, vm: str, disks: str, rates: tuple[int, int], lasts_s: float
) -> None:
    burst, base = rates
    result, shown = device(tmp_path, vm=vm, disks=disks)
    assert result["ops_per_s"] == pytest.approx(burst, rel=0.01)
    assert result["steady"]["ops_per_s"] == pytest.approx(base, rel=0.01)
    (gone,) = result["credits_gone"]
    assert (gone["ops_per_s_before"], gone["ops_per_s_after"]) == pytest.approx(
        (burst, base), rel=0.01
    )
    assert gone["at_s"] == pytest.approx(lasts_s, rel=0.02)
    assert f"{burst:,} a second while burst credits last" in " ".join(shown.split())
    assert f"then {base:,}" in " ".join(shown.split())


def test_what_binds_all_day_is_the_smaller_of_disk_and_vm(tmp_path: Path) -> None:
    """Standard SSD of 512 GiB (E20): 600 and 150 MB/s for half an hour, 500 and 60 all day."""
    asked = {"vm": "azure/Standard_D4as_v5", "disks": "azure/E20(400GiB)", "rw": "randwrite"}
    (tmp_path / "4k").mkdir()
    small, _ = device(tmp_path / "4k", **asked)
    assert small["steady"]["ops_per_s"] == pytest.approx(500, rel=0.01)
    (tmp_path / "1M").mkdir()
    large, _ = device(tmp_path / "1M", **asked, bs="1M")
    assert large["ops_per_s"] == pytest.approx(150e6 / (1 << 20), rel=0.02)
    assert large["steady"]["ops_per_s"] == pytest.approx(60e6 / (1 << 20), rel=0.02)


def test_the_throughput_of_st1_has_a_bucket(tmp_path: Path) -> None:
    """2,000 GiB: 78 MiB/s all day, 488 for 5,000 s of credits, 1 GiB for each."""
    asked = {"vm": M5_4XLARGE, "disks": "aws/st1(2000GiB)", "rw": "write", "bs": "1M"}
    result, _ = device(tmp_path, **asked)
    assert result["ops_per_s"] == pytest.approx(2000 / 4.096, rel=0.02)
    assert result["steady"]["ops_per_s"] == pytest.approx(2000 / 25.6, rel=0.02)
    (gone,) = result["credits_gone"]
    assert gone["at_s"] == pytest.approx(2_048_000 / (2000 / 4.096 - 2000 / 25.6), rel=0.02)


def test_a_device_may_begin_without_credits(tmp_path: Path) -> None:
    result, _ = device(tmp_path, vm=D2S_V3, disks="azure/P10", credits="0%")
    assert result["ops_per_s"] == pytest.approx(500, rel=0.01)
    assert (result["steady"], result["credits_gone"]) == (None, [])


def test_credits_that_end_in_the_run_end_when_they_are_spent(tmp_path: Path) -> None:
    """A hundredth of the credits of a P10, 54,000 I/Os above 500 a second: 18 s at 3,500."""
    asked = {"vm": D2S_V3, "disks": "azure/P10", "credits": "1%", "duration": "60s"}
    result, _ = device(tmp_path, **asked)
    assert result["ops_per_s"] == pytest.approx((18 * 3500 + 42 * 500) / 60, rel=0.02)
    (gone,) = result["credits_gone"]
    assert gone["at_s"] == pytest.approx(18, rel=0.05)
    assert gone["ops_per_s_before"] == pytest.approx(3500, rel=0.01)


def test_a_bucket_that_decides_latencies_alone_is_spent_at_the_end() -> None:
    steady = {
        "ops_per_s": 1000.0,
        "latency_ms": {"p99": 50.0},
        "bottleneck": {"resource": "disk IOPS", "utilisation": 1.0},
    }
    spent = Spending("disk IOPS", 0.0)
    result = with_steady(made.result(), {"elapsed_s": 60.0}, spent, steady, {"ops_per_s": 1000.0})
    assert [gone.at_s for gone in result.credits_gone] == [60.0]


def test_a_warm_up_of_a_device_is_not_measured(tmp_path: Path) -> None:
    text = DEVICE.format(
        vm=D2S_V3, disks="azure/P10", rw="randread", bs="4k", duration="10s", credits="1%"
    ).replace("  stop:", "  warm_up: 20s\n  stop:")
    (result,), _ = predicted(tmp_path, text)
    assert result["ops_per_s"] == pytest.approx(500, rel=0.01)
    assert result["duration_s"] == pytest.approx(10, rel=0.01)


def test_what_is_equal_on_credits_is_not_called_equal_alone(tmp_path: Path) -> None:
    text = DEVICE.format(
        vm=M5_4XLARGE, disks="aws/gp2(4GiB)", rw="randread", bs="16k", duration="5s",
        credits="100%",
    ) + 'factors: {device.volume.disks: ["aws/gp2(4GiB)", "aws/gp2(1000GiB)"]}\n'  # fmt: skip
    _, shown = predicted(tmp_path, text)
    words = " ".join(shown.split())
    assert "3,000 a second while burst credits last (31 min), then 100" in words
    assert "aws/gp2(1000GiB): 3,000 a second all day" in words
    assert "Burst credits decide" in words
    assert "equally fast" not in words
    assert "By operations a second" not in words


def test_what_credits_lend_is_not_advised(tmp_path: Path) -> None:
    text = DEVICE.format(
        vm=D2S_V3, disks="azure/P4", rw="randread", bs="4k", duration="5s", credits="100%"
    )
    text += "factors: {device.volume.disks: [azure/P4, azure/P30], before.credits: [0%, 100%]}\n"
    _, shown = predicted(tmp_path, text)
    words = " ".join(shown.split())
    assert (
        "azure/P4, credits 100%: 3,500 a second while burst credits last (30 min), then 1" in words
    )
    assert "Choose disks azure/P4" not in words
    assert "27 times the reads" in words  # without credits: 120 against the 3,200 of the VM


POSTGRESQL = """
title: PostgreSQL on a small bursting disk
cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: azure/P10}}}
database: {engine: postgresql, replication_factor: 1, settings: {shared_buffers: 256MB}}
dataset: {rows: 20M, row: 1 x 1000B}
workload:
  operations: {read: 100%}
  load: {threads: 64}
  stop: {duration: 20s}
before: {credits: CREDITS}
"""


def test_what_is_not_simulated_is_not_called_equally_fast(tmp_path: Path) -> None:
    factor = 'factors: {database.settings.enable_seqscan: ["on", "off"]}\n'
    _, shown = predicted(tmp_path, POSTGRESQL.replace("CREDITS", "0%") + factor)
    words = " ".join(shown.split())
    assert "The prediction does not distinguish between" in words
    assert "equally fast" not in words


def test_a_database_has_a_steady_state_too(tmp_path: Path) -> None:
    (full,), shown = predicted(tmp_path, POSTGRESQL.replace("CREDITS", "100%"))
    (tmp_path / "spent").mkdir()
    (spent,), _ = predicted(tmp_path / "spent", POSTGRESQL.replace("CREDITS", "0%"))
    assert full["ops_per_s"] > 2 * full["steady"]["ops_per_s"]
    assert full["steady"]["ops_per_s"] == pytest.approx(spent["ops_per_s"], rel=0.05)
    assert "while burst credits last" in " ".join(shown.split())
    assert spent["steady"] is None


def test_cells_without_a_price_are_not_ranked_by_it_in_silence(tmp_path: Path) -> None:
    text = DEVICE.format(
        vm="aws/m6a.2xlarge",
        disks="aws/gp3(100GiB)",
        rw="randread",
        bs="4k",
        duration="5s",
        credits="100%",
    )
    text += 'factors: {device.volume.disks: ["aws/gp3(100GiB)", "aws/gp2(100GiB)"]}\n'
    _, shown = predicted(tmp_path, text)
    assert "no price is known for 2 of 2 cells" in " ".join(shown.split())
