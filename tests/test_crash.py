"""What each failure may and may not lose, and that a crash leaves nothing behind.

Real devices, real writes, a daemon killed at random points. `make test-long` does it more often;
`DISKLAB_CRASH_ROUNDS` and `DISKLAB_CRASH_CYCLES` say how often.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.catalog import VolumeRequest, load_catalog
from disklab.catalog.profile import Caching
from disklab.engine.process import EngineProcess
from disklab.hosts.attach import Attached, AttachRequest, attach
from disklab.hosts.cleaning import Scope, clean
from disklab.hosts.filesystem import Filesystem
from disklab.hosts.places import Places
from disklab.hosts.running import detach, fail, find

from tests.journal import Journal, Promise, Writers

pytestmark = [pytest.mark.machine, pytest.mark.alone]

MORE = pytest.mark.long
ROUNDS = [1, pytest.param(int(os.environ.get("DISKLAB_CRASH_ROUNDS", "5")), marks=MORE)]
CYCLES = [2, pytest.param(int(os.environ.get("DISKLAB_CRASH_CYCLES", "10")), marks=MORE)]
VM = "azure/Standard_DS14_v2"  # it has a temp disk and a host cache
BLOCKS = 2048  # few enough that a block is written several times in a short run
SIZE_BYTES = 64 << 20


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """Places of this test alone, cleaned whatever happens."""
    places = Places(tmp_path / "run", tmp_path / "data")
    yield places
    clean(places, Scope(everything=True, data=True))


def attach_one(places: Places, disks: str, caching: Caching) -> Attached:
    volume = VolumeRequest(disks, caching=caching, size_bytes=SIZE_BYTES)
    request = AttachRequest(volume, vm=VM, calibrate=False)
    return attach(load_catalog([]), request, places)


def kill_daemon(places: Places) -> None:
    """End the emulated host as `kill -9` does: no word, no chance to tidy up."""
    process = EngineProcess.recorded(places.host("default").pid)
    assert process.is_ours()
    assert process.end()


Case = tuple[str, Caching, str, Promise]
CASES: list[Case] = [
    ("azure/P30", "None", "kill -9", Promise.ACKNOWLEDGED),
    ("azure/P30", "None", "host-failure", Promise.ACKNOWLEDGED),
    ("azure/P30", "ReadOnly", "kill -9", Promise.ACKNOWLEDGED),
    ("azure/P30", "ReadOnly", "host-failure", Promise.ACKNOWLEDGED),
    ("azure/P30", "ReadWrite", "kill -9", Promise.FLUSHED),
    ("azure/P30", "ReadWrite", "host-failure", Promise.FLUSHED),
    ("4 x azure/P30", "None", "kill -9", Promise.ACKNOWLEDGED),
    ("local", "None", "kill -9", Promise.NOTHING),
    ("local", "None", "host-failure", Promise.NOTHING),
]


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("case", CASES, ids=lambda one: "-".join(map(str, one)))
def test_a_failure_loses_what_it_may_and_nothing_else(
    places: Places, case: Case, rounds: int
) -> None:
    disks, caching, failure, promise = case
    for round_number in range(rounds):
        seed = random.SystemRandom().randrange(1 << 32)
        where = f"{disks}, {caching}, {failure}, round {round_number}, seed {seed}"
        journal = Journal(BLOCKS)
        device = attach_one(places, disks, caching).device
        writers = Writers(device, journal, seed)
        writers.start()
        time.sleep(random.Random(seed).uniform(0.3, 1.0))
        if failure == "kill -9":
            kill_daemon(places)
            # Told to stop at once, on a busy machine they would end before their next write.
            writers.await_failure()
            writers.join()
            clean(places, Scope())
            device = attach_one(places, disks, caching).device
        else:
            fail(find("data", None, places), {"kind": "host-failure"})
            writers.await_failure()
            writers.join()
            fail(find("data", None, places), {"kind": "recover"})
        assert writers.failures, f"{where}: the failure was not seen by the writers"
        assert journal.flushes, f"{where}: no flush in time, so nothing was tested"
        assert sum(journal.acknowledged) > 100, f"{where}: too few writes to test anything"
        violations = journal.violations(device, promise)
        assert not violations, f"{where}:\n" + "\n".join(violations[:20])
        detach(find("data", None, places), places, delete_data=True)


def test_a_host_failure_really_loses_what_a_write_cache_held(places: Places) -> None:
    device = attach_one(places, "azure/P30", "ReadWrite").device
    journal = Journal(BLOCKS)
    writers = Writers(device, journal, seed=1)
    writers.threads.pop()  # nobody flushes
    writers.start()
    time.sleep(0.2)
    fail(find("data", None, places), {"kind": "host-failure"})
    writers.join()
    fail(find("data", None, places), {"kind": "recover"})
    assert journal.lost(device) > 0
    assert not journal.violations(device, Promise.FLUSHED)


def leftovers(places: Places) -> list[str]:
    """Return every mount, loop device and process that belongs to these places."""
    mounts = [
        line for line in Path("/proc/mounts").read_text().splitlines() if str(places.run) in line
    ]
    loops = [
        file.read_text().strip()
        for file in Path("/sys/block").glob("loop*/loop/backing_file")
        if str(places.run) in file.read_text()
    ]
    processes = [
        str(file.parent)
        for file in Path("/proc").glob("[0-9]*/cmdline")
        if str(places.run).encode() in contents(file)
    ]
    return mounts + loops + processes


def contents(file: Path) -> bytes:
    """Return a file of /proc, empty when its process has ended meanwhile."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("cycles", CYCLES)
@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_no_cycle_of_attach_write_kill_and_clean_leaves_anything(
    places: Places, tmp_path: Path, filesystem: Filesystem, cycles: int
) -> None:
    point = tmp_path / "mnt"
    size_bytes = 512 << 20  # mkfs.xfs wants at least 300 MiB
    for cycle in range(cycles):
        volume = VolumeRequest("azure/P30", size_bytes=size_bytes)
        request = AttachRequest(
            volume,
            vm=VM,
            mount_point=point,
            filesystem=filesystem,
            calibrate=False,
        )
        attach(load_catalog([]), request, places)
        survivor = point / f"cycle-{cycle}"
        survivor.write_bytes(bytes([cycle % 251]) * 100_000)
        with survivor.open("rb") as file:
            os.fsync(file.fileno())
        stopping = threading.Event()
        writer = threading.Thread(target=write_until, args=(point / "busy", stopping))
        writer.start()
        time.sleep(random.uniform(0.0, 0.2))
        kill_daemon(places)
        stopping.set()
        writer.join(30)
        assert not writer.is_alive(), f"cycle {cycle}: a write hangs"
        clean(places, Scope())
        assert not leftovers(places), f"cycle {cycle}"
    attach(load_catalog([]), request, places)
    for cycle in range(cycles):  # the disk kept what was flushed in every cycle
        content = (point / f"cycle-{cycle}").read_bytes()
        assert content == bytes([cycle % 251]) * 100_000
    detach(find("data", None, places), places)
    assert subprocess.run(["mountpoint", "-q", str(point)], check=False).returncode != 0


def write_until(path: Path, stopping: threading.Event) -> None:
    """Write to a file until told to stop or until its disk is gone."""
    try:
        with path.open("wb", buffering=0) as file:
            while not stopping.is_set():
                file.write(b"x" * 65536)
                file.seek(file.tell() % (32 << 20))
    except OSError:
        pass  # that is what happens when the disk's daemon is killed
