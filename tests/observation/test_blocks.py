"""Block traces: the kernel's text as it was recorded, and a disk whose I/Os are known."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.cli.clean import clean_traces
from disklab.cli.observe import trace_files, trace_of, write_trace
from disklab.errors import MachineError, UserError
from disklab.observation import tracing
from disklab.observation.blocks import (
    BlocksSeen,
    Leaf,
    Seen,
    blkparse_text,
    figures,
    leaves,
    look_at,
    seen_in,
)
from disklab.observation.tracing import Ended, record
from disklab.privilege.probing import Record, TracePart
from disklab.traces.formats import Chosen, read

from tests.programs import wait_until

CAPTURED = Path(__file__).with_name("captured") / "block-trace-6.18.txt"

# As TP_printk of Linux 5.15 has it: no priority, and less in the flags.
OLDER = b"""\
# tracer: nop
CPU:1 [LOST 12 EVENTS]
             fio-913     [000] d..1    10.000100: block_rq_issue: 8,16 R 4096 () 2048 + 8 [fio]
          <idle>-0       [001] d.h1    10.000350: block_rq_complete: 8,16 R () 2048 + 8 [0]
             fio-913     [000] d..1    10.000400: block_rq_issue: 8,16 R 4096 () 2056 + 8 [fio]
      kworker/0:1-7      [000] d..1    10.000450: block_rq_issue: 8,16 FWFS 8192 () 8192 + 16 [kw]
          <idle>-0       [001] d.h1    10.001400: block_rq_complete: 8,16 R () 2056 + 8 [0]
          <idle>-0       [001] d.h1    10.002450: block_rq_complete: 8,16 FWFS () 8192 + 16 [0]
             fio-913     [000] d..1    10.003000: block_rq_issue: 8,0 R 4096 () 2048 + 8 [fio]
             fio-913     [000] d..1    10.004000: block_rq_issue: 8,16 W 512 () 4096 + 1 [fio]
"""


def one_of(text: bytes, leaf: Leaf) -> Seen:
    (found,) = seen_in([text[:100], text[100:]], [leaf])
    return found


def test_the_text_of_an_older_kernel_tells_sizes_order_and_times() -> None:
    seen = one_of(OLDER, Leaf("8:16"))
    told = figures("n", seen, 2.0, 12, full=False)
    assert told.device == "8,16"
    assert (told.reads.ios, told.reads.per_s, told.reads.sizes) == (2, 1.0, {4096: 1.0})
    assert told.reads.latency_ms == pytest.approx({"p50": 0.25, "p95": 1, "p99": 1, "max": 1})
    assert told.writes.sizes == {8192: 0.5, 512: 0.5}
    assert told.writes.latency_ms["max"] == pytest.approx(2.0)
    assert told.sequential_ratio == 0.25
    assert told.unfinished == 1
    assert "12 events were lost" in told.in_words()
    assert told.in_words().startswith("1.0 reads/s (4 KiB 100 %) in p50 0.25, p95 1, p99 1 ms; ")


def test_what_was_recorded_is_written_as_a_trace_that_replays(tmp_path: Path) -> None:
    seen = one_of(CAPTURED.read_bytes(), Leaf("254:0"))
    assert seen.flushes > 0
    assert seen.discards > 0
    file = tmp_path / "t.blkparse.txt"
    write_trace(file, seen)
    again = read(file, Chosen(), "t")
    begin = seen.trace.at_ns[0]
    assert again.device == "254,0"
    assert list(again.at_ns) == [at - begin for at in seen.trace.at_ns]
    assert list(again.offset_bytes) == list(seen.trace.offset_bytes)
    assert list(again.length_bytes) == list(seen.trace.length_bytes)
    assert list(again.is_write) == list(seen.trace.is_write)
    with pytest.raises(UserError):
        write_trace(file, seen)
    # A program's name may tell what nobody should know.
    assert "postgres" not in file.read_text()


def test_a_partition_has_its_disks_requests_and_its_own_offsets(tmp_path: Path) -> None:
    disk = tmp_path / "devices" / "sdb"
    part, volume = disk / "sdb1", tmp_path / "devices" / "dm-0"
    for place, number in ((disk, "8:16"), (part, "8:17"), (volume, "253:0")):
        place.mkdir(parents=True)
        (place / "dev").write_text(f"{number}\n")
        (tmp_path / number).symlink_to(place)
    for name, text in (("partition", "1"), ("start", "2048"), ("size", "6144")):
        (part / name).write_text(text)
    (volume / "slaves").mkdir()
    (volume / "slaves" / "sdb1").symlink_to(part)
    assert leaves("8:16", tmp_path) == [Leaf("8:16")]
    assert leaves("8:17", tmp_path) == [Leaf("8:16", 2048, 6144)]
    assert leaves("253:0", tmp_path) == [Leaf("8:16", 2048, 6144)]
    # 8192 is the first sector behind it.
    seen = one_of(OLDER, Leaf("8:16", 2048, 6144))
    assert list(seen.trace.offset_bytes) == [0, 4096, 2048 * 512]


def test_traces_of_several_disks_have_names_of_their_own() -> None:
    seen = one_of(OLDER, Leaf("8:16"))
    told = figures("n", seen, 2.0, 0, full=False)
    assert trace_files(Path("a/o.yaml"), [(told, seen)]) == [Path("a/o.blkparse.txt")]
    assert len(set(trace_files(Path("o.yaml"), [(told, seen)] * 2))) == 2
    assert BlocksSeen.as_json(told)["reads"]["ios"] == 2


def test_a_block_trace_is_roots_and_has_a_length(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UserError, match="only to root; start disklab with sudo"):
        trace_of("30s")
    with pytest.raises(UserError, match="1 s to 600 s"):
        trace_of("2h")
    # The kernel's place, with nothing in it: as many devices as may be get as far as that.
    (tmp_path / "instances").mkdir()
    monkeypatch.setattr(tracing, "MOUNTED", tmp_path)
    for devices, rule in (
        ([], "not 0"),
        (["8:16; echo"], "8:16; echo"),
        (["1:1"] * 65, "not 65"),
        (["1:1"] * 64, str(tmp_path)),
    ):
        with pytest.raises(MachineError, match=rule):
            record(devices, 1.0, lambda: False, lambda _: None)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A block device of ours on which nobody else does anything."""
    file = tmp_path / "disk.img"
    file.write_bytes(bytes(8 << 20))
    made = ["losetup", "--find", "--show", "--direct-io=off", str(file)]
    loop = subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()
    yield Path(loop)
    subprocess.run(["losetup", "--detach", loop], check=True)


def ask(disk: Path) -> None:
    """Read 4 KiB ten times in a row, and write 8 KiB twenty times far apart."""
    handle = os.open(disk, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 8192)
    try:
        for number in range(10):
            os.preadv(handle, [memoryview(page)[:4096]], number * 4096)
        for number in range(20):
            os.pwritev(handle, [page], (1 << 20) + number * 65536)
    finally:
        os.close(handle)


def number_of(disk: Path) -> str:
    device = disk.stat().st_rdev
    return f"{os.major(device)}:{os.minor(device)}"


@pytest.mark.machine
def test_the_ios_of_a_disk_are_found_as_they_were_asked_for(disk: Path, tmp_path: Path) -> None:
    asked = iter([True])

    def stop() -> bool:
        # Asked once it records: then everything is seen, and it ends.
        if next(asked, False):
            ask(disk)
            return False
        return True

    ((told, seen),) = look_at({"n": number_of(disk)}, 30.0, stop, record)
    assert told.lost == 0
    # udev looks at a new disk, too: nothing of it is written.
    assert told.writes.ios == 20
    assert told.writes.sizes == {8192: 1.0}
    assert told.unfinished == 0
    offsets = [
        offset for _, offset, length, kind in seen.trace.ios() if not kind and length == 4096
    ]
    assert offsets[-10:] == [number * 4096 for number in range(10)]
    assert 0 < told.writes.latency_ms["p50"] <= told.writes.latency_ms["p99"] < 10_000
    file = tmp_path / "t.blkparse.txt"
    file.write_text("".join(blkparse_text(seen)))
    assert len(read(file, Chosen(), "t")) == told.reads.ios + 20
    with tracing._tracefs() as place:
        assert not [*place.glob(f"instances/disklab-observe-{os.getpid()}-*")]


@pytest.mark.machine
def test_a_killed_recording_is_cleaned_up_and_a_living_one_stays(disk: Path) -> None:
    program = (
        "import sys; from disklab.observation.tracing import record; "
        "record([sys.argv[1]], 300.0, lambda: False, lambda _: None)"
    )
    asked = [sys.executable, "-c", program, number_of(disk)]
    # There it has a number that is another process here, or nobody's.
    elsewhere = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *asked]
    with (
        subprocess.Popen(asked) as killed,
        subprocess.Popen(asked) as living,
        subprocess.Popen(elsewhere) as foreign,
    ):
        try:
            with tracing._tracefs() as place:
                wait_for(place / "instances", killed.pid)
                wait_for(place / "instances", living.pid)
                wait_for(place / "instances", 1)
                killed.send_signal(signal.SIGKILL)
                killed.wait()
                (left,) = place.glob(f"instances/disklab-observe-{killed.pid}-*")
                assert (f"would remove block trace {left.name}", True) in clean_traces(
                    dry_run=True, quiet=True
                )
                assert (f"removed block trace {left.name}", True) in clean_traces(
                    dry_run=False, quiet=True
                )
                assert not left.exists()
                assert [*place.glob(f"instances/disklab-observe-{living.pid}-*")]
                assert [*place.glob("instances/disklab-observe-1-*")]
        finally:
            for one in (killed, living, foreign):
                one.kill()
                one.wait()
            tracing.remove_left()


def wait_for(instances: Path, pid: int) -> None:
    """Wait until a process records."""
    wait_until(
        lambda: [*instances.glob(f"disklab-observe-{pid}-*/events/block/block_rq_issue/enable")]
    )


def test_root_s_part_takes_a_request_in_the_list_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"ask": "record", "with": {"devices": ["8:16"], "seconds": 3}}
    _, request = TracePart.forms.request_of(asked)
    assert request == Record(["8:16"], 3)
    for wrong in ({"devices": ["8:16"], "seconds": 601}, {"devices": ["8:16" * 9], "seconds": 1}):
        with pytest.raises(MachineError, match="refused"):
            TracePart.forms.request_of({"ask": "record", "with": wrong})
    heard: list[object] = []

    def recorded(devices: list[str], seconds: float, _stop: object, took: object) -> Ended:
        assert callable(took)
        took(b"\xff\x00text")
        return Ended(seconds, len(devices), full=False)

    monkeypatch.setattr(tracing, "record", recorded)
    part = TracePart.__new__(TracePart)
    monkeypatch.setattr(part, "tell", heard.append)
    assert part.done(request) == Ended(3, 1, full=False)
    (said,) = heard
    assert getattr(said, "text", "").encode("latin-1") == b"\xff\x00text"


def test_what_can_be_read_at_once_comes_in_parts() -> None:
    ours, theirs = os.pipe()
    try:
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.set_blocking(ours, False)
        os.write(theirs, bytes(tracing.PART_BYTES + (1 << 16)))
        read = [len(tracing._available(ours)) for _ in range(3)]
    finally:
        os.close(ours)
        os.close(theirs)
    assert read == [tracing.PART_BYTES, 1 << 16, 0]
