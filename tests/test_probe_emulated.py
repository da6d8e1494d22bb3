"""The probe on real emulated disks: made, judged, removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import in_process
from tests.programs import ended

pytestmark = pytest.mark.machine
DISKLAB = Path(sys.executable).with_name("disklab")
P30 = ["--disk", "azure/P30", "--vm", "azure/Standard_DS14_v2"]
SHORT = ["--duration", "1s", "--size", "16M", "--bs", "4k"]


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Run and data directories of this test's own; afterwards nothing may be left in them."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and /dev/fuse")
    environment = {
        **os.environ,
        "DISKLAB_RUN_DIR": str(tmp_path / "run"),
        "DISKLAB_DATA_DIR": str(tmp_path / "data"),
    }
    yield environment
    left = leftovers(tmp_path)
    if left:
        subprocess.run([str(DISKLAB), "clean", "--all"], env=environment, check=False)
    assert left == []


def leftovers(folder: Path) -> list[str]:
    """Return mounts, loop devices and files of the folder that should be gone."""
    found = [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            shown = backing.read_text().strip()
        except OSError:
            continue
        found += [shown] if shown.startswith(str(folder)) else []
    found += [str(path) for path in (folder / "data").rglob("*.img")]
    found += [str(path) for path in (folder / "run").glob("hosts/*")]
    return found


def disklab(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return ended([str(DISKLAB), *arguments], env=environment)


def cells(ran: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_two_cachings_side_by_side(places: dict[str, str]) -> None:
    cachings = ["--caching", "None", "--caching", "ReadOnly"]
    ran = disklab(places, "probe", *P30, *cachings, *SHORT, "--rw", "randread", "--json")
    told = {(c["factors"]["subject"], c["factors"]["profile"]): c for c in cells(ran)}
    uncached, cached = told["no caching", "async"], told["ReadOnly", "async"]
    # The token buckets keep the cap on any machine; how far a busy one stays below is not tested.
    assert uncached["promise"]["ops_per_s"] == 5000
    assert uncached["promise"]["bound_by"] == "disk 0 5000 IOPS"
    assert uncached["ops_per_s"] < 5000 * 1.07
    assert uncached["bottleneck"]["resource"] == "disk 0 5000 IOPS"
    # The fill has warmed the cache: reads do not pay the disk at all.
    assert cached["promise"]["bound_by"] == "vm cached 64000 IOPS"
    assert cached["telemetry"]["hit_ratio"] == 1.0
    assert cached["ops_per_s"] > uncached["ops_per_s"]
    medians = {
        key: c["promise"]["latency_ms"]["read"]["p50"] for key, c in told.items() if "sync" in key
    }
    assert medians["no caching", "sync"] == pytest.approx(2.22, abs=0.1)
    assert medians["ReadOnly", "sync"] < 0.2


def test_a_mounted_volume_of_ours_is_known(places: dict[str, str], tmp_path: Path) -> None:
    mount = tmp_path / "mnt"
    attach = ["disk", "attach", "azure/P10", "--size", "1GiB", "--filesystem", "ext4"]
    made = disklab(places, *attach, "--mount", str(mount), "--no-calibrate", "--json")
    assert made.returncode == 0, made.stderr
    device = json.loads(made.stdout)["device"]
    try:
        probe = ["probe", str(mount), *SHORT, "--profile", "async", "--rw", "randwrite", "--json"]
        (burst,) = cells(disklab(places, *probe))
        assert burst["promise"]["ops_per_s"] == 3500
        assert burst["ops_per_s"] < 3500 * 1.07
        # Live changes count at once: without credits the baseline is all that is owed.
        # The baseline is 500; the seconds before the cell of one second earned 500 credits each.
        emptied = time.monotonic()
        assert disklab(places, "disk", "set", "data", "--credits", "empty").returncode == 0
        (base,) = cells(disklab(places, *probe))
        earned = 500 * (time.monotonic() - emptied)
        assert 500 <= base["promise"]["ops_per_s"] <= min(500 + earned, 3500)
        # More are earned between the look at the credits and fio's first write.
        assert base["ops_per_s"] < (500 + earned) * 1.07
        assert list(mount.iterdir()) == [mount / "lost+found"]
        # Its device is in use: a probe of the device itself would ruin the file system.
        refused = disklab(places, "probe", device, *SHORT, "--destroy-data")
        assert refused.returncode == 2
        assert "is mounted or in use" in refused.stderr
    finally:
        detached = disklab(places, "disk", "detach", "data", "--delete-data")
        assert detached.returncode == 0, detached.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_probe_removes_its_disk(
    places: dict[str, str], number: signal.Signals
) -> None:
    command = [str(DISKLAB), "probe", *P30, "--duration", "60s", "--size", "16M"]
    ours = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=places
    )
    for line in ours.stderr:
        if "sync randread 4k" in line:
            break
    time.sleep(0.5)  # into the middle of the cell
    ours.send_signal(number)
    ours.communicate(timeout=60)
    assert ours.returncode != 0


def test_an_experiment_stands_beside_what_was_published(
    places: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(
        "title: How fast are Azure's local disks, and what does a cache change?\n"
        "device:\n  vm: azure/Standard_E8ds_v4\n"
        "  volume: {disks: azure/P4, caching: None, latency: '2020'}\n"
        "workload: {fio: {profile: sync, rw: randwrite, bs: 8k}, stop: {duration: 60s}}\n"
        "factors:\n  device: {'OS disk, uncached': {}}\n"
        "  workload.fio.profile: [sync, async]\n"
    )
    ran = disklab(places, "probe", str(file), "--duration", "1s", "--size", "16M")
    assert ran.returncode == 0, ran.stderr
    text = ran.stdout.replace("\N{NO-BREAK SPACE}", " ")
    first, promised = text.split("against the catalogue's promise")
    # What was published: the median of one write at a time; the rate of many is held against it.
    assert "2.47 ms" in first
    assert "Probe compared with published, " in first
    assert "cells met" in promised or "FALLS SHORT" in promised


def test_the_catalogues_errors_come_before_any_disk(places: dict[str, str], tmp_path: Path) -> None:
    def refused(*words: str) -> subprocess.CompletedProcess[str]:
        return in_process.disklab("probe", *words, environment=places)

    unknown = refused("--disk", "azure/P31")
    assert unknown.returncode == 2
    assert "--disk: " in unknown.stderr
    assert "did you mean" in unknown.stderr
    forbidden = refused(*P30[:1], "azure/P60", *P30[2:], "--caching", "ReadOnly")
    assert forbidden.returncode == 2
    assert "cannot use the host cache, which ends at 4095 GiB" in forbidden.stderr
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "device:\n  vm: azure/Standard_E8ds_v5000\n  volume: {disks: local}\n"
        "workload: {fio: {profile: sync, rw: randwrite, bs: 8k}}\n"
    )
    named = refused(str(file))
    assert named.returncode == 2
    assert f"{file}:2: device.vm: " in named.stderr
    assert not (tmp_path / "run" / "hosts").exists()


@pytest.mark.long
@pytest.mark.alone
def test_slow_motion_reaches_a_disk_that_is_too_fast_for_this_machine(
    places: dict[str, str], tmp_path: Path
) -> None:
    chosen = ["--only", "device=NVMe", "--only", "profile=sync", "--quick"]
    slow = ["--time-dilation", "16", "--out", str(tmp_path / "runs"), "--json"]
    experiment = "experiments/azure-local-disks.yaml"
    (told,) = cells(disklab(places, "rehearse", experiment, *chosen, *slow))
    assert told["status"] == "ok", told["invalid_reasons"]
    assert told["share"]["time_dilation"] == 16
    # Published: 43 us. At full speed the way through kernel and emulator alone takes half of it.
    assert 0.038 <= told["latency_ms"]["p50"] <= 0.06
    # One write after the other, each at least that long.
    assert told["ops_per_s"] <= 1e3 / 0.038
