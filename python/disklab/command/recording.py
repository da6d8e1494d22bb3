"""What a command asks of files, recorded by strace, as the I/Os that a disk below would get.

The rules are those of Linux in an empty folder: what is written waits in the page cache until an
fsync, or the end; an fsync of a changed file also writes the file system's log, with a flush of its
own; what is read was written before, and comes from the page cache, but for direct I/O.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from disklab.catalog import Catalog, HostRequest, Resolution, VolumeRequest, resolve
from disklab.command.counts import (
    KINDS,
    SIMULATED,
    CommandRun,
    Kind,
    Latency,
    LimitUse,
    Operations,
)
from disklab.databases.simulating import replayed, with_credits
from disklab.engine.process import simulate
from disklab.errors import EngineError, Problem, UserError
from disklab.machines.foreground import Ended, run_command
from disklab.traces import MOST_IOS, SECTOR_BYTES, Trace, placed

CALLS = (
    "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,read,pread64,readv,preadv,preadv2,"
    "lseek,fsync,fdatasync,sync,syncfs,sync_file_range,ftruncate,fallocate,copy_file_range"
)
LARGEST_IO_BYTES = 1 << 20
"""Linux sends a disk about so much at a time (`max_sectors_kb`: 1,280 by default)."""
FILE_APART_BYTES = 1 << 30
"""Each file begins so far behind the one before; only the volume's end cuts that off."""
MOST_LINE_BYTES = 64 << 10

_CALL = re.compile(
    rb"(?P<thread>\d+)\s+(?P<at>\d+\.\d+) "
    rb"(?:(?P<name>\w+)\((?P<arguments>.*)|<\.\.\. (?P<resumed>\w+) resumed>(?P<rest>.*))"
)
_ENDED = re.compile(
    rb"(?P<arguments>.*)\)\s+= (?P<result>-?\d+)(?P<opened><.*>)?.* <(?P<took>\d+\.\d+)>"
)
_FILE = re.compile(rb"(?P<number>\d+)<(?P<path>[^>]*)>(?P<rest>.*)", re.DOTALL)
_WRITES = frozenset({b"write", b"writev", b"pwrite64", b"pwritev", b"pwritev2"})
_TRANSFERS = _WRITES | {b"read", b"readv", b"pread64", b"preadv", b"preadv2"}
_Handle = tuple[bytes, bytes]
"""Number and path of an open file."""
_UNFINISHED = b" <unfinished ...>"


def command_of(words: list[str], log: Path) -> list[str]:
    """Return the command that records another one, with all that it starts."""
    options = ["-f", "-qq", "-ttt", "-T", "-y", "-s", "0", "--signal=none"]
    return ["strace", *options, "-e", f"trace={CALLS}", "-o", str(log), "--", *words]


SYNCS = "fsync,fdatasync,sync,syncfs"
_SYNC = re.compile(rb"^\d+ +(?:fsync|fdatasync|sync|syncfs)\(", re.MULTILINE)


def check_strace(place: str, other: str) -> None:
    """Raise UserError where strace is missing. `other`: another way out."""
    if shutil.which("strace") is None:
        rule = "is not installed: it records what the command asks of its files"
        raise UserError(Problem(place, "strace", rule, f"apt-get install strace{other}"))


@contextmanager
def counted(words: list[str]) -> Iterator[tuple[list[str], Callable[[], int]]]:
    """Yield a command that counts the fsyncs of another one, and what says how many there were.

    The tracer stands aside: exit code and signals are the command's own. Only these calls stop it.
    """
    check_strace("fsyncs", ", or judge flushes, which the disk counts")
    with tempfile.TemporaryDirectory(prefix="disklab-fsyncs-") as folder:
        log = Path(folder) / "calls"
        options = ["-D", "-f", "--seccomp-bpf", "-qqq", "--signal=none", "-e", f"trace={SYNCS}"]
        yield (
            ["strace", *options, "-o", str(log), "--", *words],
            lambda: len(_SYNC.findall(_whole(log))),
        )


def _whole(log: Path) -> bytes:
    """Return a log once its writer, which ends after the command, has nothing to add."""
    content = log.read_bytes() if log.exists() else b""
    for _ in range(MOST_LOOKS):
        time.sleep(LOOK_S)
        before, content = content, log.read_bytes() if log.exists() else b""
        if before == content:
            break
    return content


LOOK_S, MOST_LOOKS = 0.1, 50


@dataclass
class _File:
    """What is known of one file."""

    number: int
    size: int = 0
    changed: bool = False
    """Whether its size, or that it exists, is not yet in the file system's log."""
    touched: bool = False
    """Whether its time of change is not."""
    dirty: set[int] = field(default_factory=set)
    """Pages that wait in the page cache."""


@dataclass
class Recording:
    """The I/Os of a command, and what it waited for them."""

    trace: Trace
    flushes: int
    fsyncs: int
    waited_s: float
    """How long its own calls waited for the disk that it ran on."""


class Recorder:
    """Makes I/Os of the lines of strace."""

    def __init__(self, folder: Path) -> None:
        """`folder`: what lies on the disk. What happens elsewhere does not count."""
        self._folder = os.fsencode(folder.resolve()).rstrip(b"/")
        self._files: dict[bytes, _File] = {}
        self._positions: dict[_Handle, int] = {}
        self._flags: dict[_Handle, bytes] = {}
        self._began: dict[bytes, tuple[bytes, bytes]] = {}
        self._trace = Trace("strace", "", array("q"), array("q"), array("q"), bytearray())
        self._log_bytes = 0
        self._start_ns: int | None = None
        self._now_ns = 0
        self.flushes = 0
        self.fsyncs = 0
        self.waited_s = 0.0
        self.cut = False
        """Whether there were more I/Os than are simulated."""

    def take(self, line: bytes) -> None:
        """Take a line of strace's log; what is not understood changes nothing."""
        call = _CALL.match(line.rstrip(b"\n"))
        if call is None:
            return
        self._now_ns = round(float(call["at"]) * 1e9)
        if self._start_ns is None:
            self._start_ns = self._now_ns
        if call["name"] is not None:
            name, text = call["name"], call["arguments"]
            if text.endswith(_UNFINISHED):
                self._began[call["thread"]] = (name, text[: -len(_UNFINISHED)])
                return
        else:
            name, begun = self._began.pop(call["thread"], (b"", b""))
            text = begun + call["rest"]
        ended = _ENDED.fullmatch(text)
        if ended is not None and int(ended["result"]) >= 0:
            self._called(name, ended)

    def ended(self) -> Recording:
        """Write out what waits, as an unmounted file system does, and return all."""
        for file in self._files.values():
            self._write_out(file)
        if any(file.changed or file.touched for file in self._files.values()):
            self._log()
        self.flushes += bool(self._files)
        return Recording(self._trace, self.flushes, self.fsyncs, self.waited_s)

    def _called(self, name: bytes, ended: re.Match[bytes]) -> None:
        result, arguments = int(ended["result"]), ended["arguments"]
        took_s = float(ended["took"])
        if name in {b"open", b"openat", b"creat"}:
            self._open(name, result, arguments, ended["opened"] or b"")
            return
        if name == b"sync":
            self.fsyncs += 1
            for file in self._files.values():
                self._sync(file, data_only=False)
            return
        named = _FILE.match(arguments)
        if named is None or not self._is_inside(named["path"]):
            return
        handle = (named["number"], named["path"])
        if name == b"lseek":
            self._positions[handle] = result
        elif name in _TRANSFERS:
            start = self._begin(handle, name, named["rest"], result)
            transfer = self._write if name in _WRITES else self._read
            transfer(handle, start, result, took_s)
        else:
            self._settle(self._file(named["path"]), name, took_s)

    def _settle(self, file: _File, name: bytes, took_s: float) -> None:
        """Take a call that waits for what was written, or changes a file's size."""
        if name in {b"ftruncate", b"fallocate", b"copy_file_range"}:
            file.changed = True
            return
        self.waited_s += took_s
        if name == b"sync_file_range":
            self._write_out(file)
        else:
            self.fsyncs += 1
            self._sync(file, data_only=name == b"fdatasync")

    def _is_inside(self, path: bytes) -> bool:
        return path == self._folder or path.startswith(self._folder + b"/")

    def _file(self, path: bytes) -> _File:
        return self._files.setdefault(path, _File(len(self._files), changed=True))

    def _open(self, name: bytes, number: int, arguments: bytes, opened: bytes) -> None:
        path = opened[1:-1]
        if not self._is_inside(path):
            return
        handle = (str(number).encode(), path)
        self._positions[handle] = 0
        self._flags[handle] = arguments
        if name == b"creat" or b"O_CREAT" in arguments or b"O_TRUNC" in arguments:
            file = self._file(path)
            if name == b"creat" or b"O_TRUNC" in arguments:
                file.dirty.clear()
                file.size, file.changed = 0, True

    def _begin(self, handle: _Handle, name: bytes, rest: bytes, length: int) -> int:
        """Return where an I/O begins, and move a file's position behind it."""
        if name.startswith(b"p"):
            words = rest.rsplit(b", ", 2 if name.endswith(b"2") else 1)
            text = words[1] if len(words) > 1 else b"0"
            return int(text) if text.isdigit() else 0
        start = self._positions.get(handle, 0)
        if b"O_APPEND" in self._flags.get(handle, b""):
            start = self._file(handle[1]).size
        self._positions[handle] = start + length
        return start

    def _write(self, handle: _Handle, start: int, length: int, took_s: float) -> None:
        if not length:
            return
        file = self._file(handle[1])
        file.changed |= start + length > file.size
        file.size = max(file.size, start + length)
        file.touched = True
        flags = self._flags.get(handle, b"")
        pages = range(start // SECTOR_BYTES, -(-(start + length) // SECTOR_BYTES))
        file.dirty.update(pages)
        if b"O_DIRECT" in flags:
            self.waited_s += took_s
            self._write_out(file)
        if b"SYNC" in flags:
            self.waited_s += took_s
            self._sync(file, data_only=b"O_DSYNC" in flags)

    def _read(self, handle: _Handle, start: int, length: int, took_s: float) -> None:
        if b"O_DIRECT" in self._flags.get(handle, b"") and length:
            self.waited_s += took_s
            base = (1 + self._file(handle[1]).number) * FILE_APART_BYTES
            self._add(base + start, length, is_write=False)

    def _sync(self, file: _File, *, data_only: bool) -> None:
        wrote = self._write_out(file)
        logged = file.changed or (file.touched and not data_only)
        if logged:
            self._log()
            file.changed = file.touched = False
        if wrote or logged:
            self.flushes += 1

    def _log(self) -> None:
        """Write a block of the file system's log, behind a flush of the data before it."""
        self._log_bytes += SECTOR_BYTES
        self.flushes += 1
        self._add(self._log_bytes, SECTOR_BYTES, is_write=True)

    def _write_out(self, file: _File) -> bool:
        """Write a file's pages that wait; return whether there were any."""
        pages = sorted(file.dirty)
        file.dirty.clear()
        base = (1 + file.number) * FILE_APART_BYTES
        for start, end in _runs(pages):
            self._add(base + start, end - start, is_write=True)
        return bool(pages)

    def _add(self, offset: int, length: int, *, is_write: bool) -> None:
        if len(self._trace) >= MOST_IOS:
            self.cut = True
            return
        self._trace.at_ns.append(self._now_ns - (self._start_ns or 0))
        self._trace.offset_bytes.append(offset)
        self._trace.length_bytes.append(length)
        self._trace.is_write.append(is_write)


def _runs(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Yield begin and end in bytes of pages that follow each other, cut as Linux cuts them."""
    most = LARGEST_IO_BYTES // SECTOR_BYTES
    first = before = None
    for page in [*pages, -1]:
        if first is None or before is None:
            first = page
        elif page != before + 1 or page - first >= most:
            yield first * SECTOR_BYTES, (before + 1) * SECTOR_BYTES
            first = page
        before = page


def recording_of(log: Path, folder: Path) -> tuple[Recording, bool]:
    """Return the I/Os of a log of strace, and whether there were more than are simulated."""
    recorder = Recorder(folder)
    with log.open("rb") as file:
        while line := file.readline(MOST_LINE_BYTES):
            recorder.take(line)
    return recorder.ended(), recorder.cut


# A command without a disk of its own: its recorded I/Os on the simulated one.
#
# For runners that allow no FUSE and no root. Counts are those of the command's own calls under the
# rules of `recording`; times are the disk model's, one I/O after the other.


def simulated_run(
    command: list[str],
    catalog: Catalog,
    disk: tuple[VolumeRequest, str | None, Fraction],
    keep: Path | None,
) -> CommandRun:
    """Run a command in an empty folder of its own, and tell what the disk would have done for it.

    `disk`: the volume, the VM size, and the share of burst credits that it begins with.
    Raises UserError where the disk cannot be, or strace is missing.
    """
    volume, vm, credits_ratio = disk
    resolution = resolve(catalog, HostRequest(vm), volume)
    check_strace("--simulate", "")
    with tempfile.TemporaryDirectory(prefix="disklab-run-") as made:
        folder, log = Path(made, "data"), Path(made, "log")
        folder.mkdir()
        ended = run_command(command_of(command, log), folder)
        if not log.exists():
            rule = "strace may trace nothing here"
            raise UserError(Problem("--simulate", command[0], rule, "allow ptrace (SYS_PTRACE)"))
        recording, cut = recording_of(log, folder)
        if keep is not None:
            shutil.copytree(folder, keep, symlinks=True)
    answer = _answer(recording, resolution, credits_ratio)
    standing = [
        *resolution.warnings,
        "simulated: files are recorded by strace, and I/Os follow one another",
    ]
    warnings = [
        *standing,
        *([f"only the first {MOST_IOS:,} I/Os are simulated"] if cut else []),
    ]
    return CommandRun(
        command=command,
        exit_code=ended.exit_code,
        wall_s=_wall_s(ended, recording, answer),
        disks=str(resolution.expression),
        vm=vm,
        caching=volume.caching,
        filesystem=SIMULATED,
        operations=_operations(recording, answer),
        fsyncs=recording.fsyncs,
        limits=_limits(answer),
        late_ratio=0.0,
        warnings=warnings,
        standing=standing,
    )


def _answer(recording: Recording, resolution: Resolution, credits_ratio: Fraction) -> Any:
    """Return the simulator's answer; None: nothing reached the disk."""
    if not len(recording.trace):
        return None
    host = with_credits(resolution.host.model_dump(mode="json"), float(credits_ratio))
    trace = placed(recording.trace, resolution.volume.size_bytes).trace
    job = {
        "cell": 0,
        "seed": 1,
        "fidelity": "full",
        "ablate": [],
        "device": replayed(host, trace, 1, "cold"),
    }
    answer = next(simulate([job], workers=1))
    if answer["event"] != "cell":
        raise EngineError(f"the simulator refused the command's I/Os: {answer}")
    return answer


def _wall_s(ended: Ended, recording: Recording, answer: Any) -> float:
    """Return the command's time with the simulated disk's waits for those that it had here."""
    disk_s = 0.0 if answer is None else float(answer["elapsed_s"])
    return max(0.0, ended.wall_s - recording.waited_s) + disk_s


def _operations(recording: Recording, answer: Any) -> dict[Kind, Operations]:
    made = {kind: Operations(ios=0, bytes=0, failed=0) for kind in KINDS}
    made["flush"] = Operations(ios=recording.flushes, bytes=0, failed=0)
    trace = recording.trace
    sides: tuple[tuple[Kind, bool], ...] = (("read", False), ("write", True))
    for kind, writes in sides:
        lengths = [
            length
            for length, is_write in zip(trace.length_bytes, trace.is_write, strict=True)
            if bool(is_write) == writes
        ]
        if lengths:
            latency_ms = answer["per_operation"][kind]["latency_ms"]
            figures = {
                f"{name}_ms": latency_ms[name] for name in ("mean", "p50", "p95", "p99", "max")
            }
            latency = Latency.model_validate(figures)
            made[kind] = Operations(ios=len(lengths), bytes=sum(lengths), failed=0, latency=latency)
    return made


def _limits(answer: Any) -> list[LimitUse]:
    """Return the limits that I/Os waited for."""
    if answer is None:
        return []
    ios = sum(int(operation["operations"]) for operation in answer["per_operation"].values())
    return [
        LimitUse(
            name=f"{limit['place']} {limit['resource']}".strip(),
            delayed_s=limit["wait_ms_per_operation"] * ios / 1e3,
        )
        for limit in sorted(answer["resources"], key=lambda limit: -limit["wait_ms_per_operation"])
        if limit["wait_ms_per_operation"] > 0
    ]
