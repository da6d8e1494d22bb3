"""The kernel's block tracepoints, recorded through an instance of tracefs of our own.

Neither blktrace nor BPF is needed, and other people's tracing is not touched: an instance has its
own buffers, events and filters, and goes again. It is root's.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from disklab.engine.process import start_time_of
from disklab.errors import MachineError

MOUNTED = Path("/sys/kernel/tracing")
NAME = re.compile(r"disklab-observe-(\d{1,10})-(\d{1,20})", re.ASCII)
"""Of an instance: process and its start in ticks, so that a later process of that number is told
apart."""
EVENTS = ("block_rq_issue", "block_rq_complete")
"""From when the driver has it until it is done: a disk's own time, without queues above."""
NUMBER = re.compile(r"(\d{1,4}):(\d{1,7})", re.ASCII)
"""Major and minor of a block device."""
MOST_DEVICES = 64
BUFFER_KIB = 4096
"""A processor's: 50,000 events, which is a second of a fast disk, while we read every few ms."""
MOST_BYTES = 256 << 20
"""Text of an I/O has some 230 bytes, and a replay has at most a million of them."""
PART_BYTES = 256 << 10
POLL_SECONDS = 0.2

# Of <linux/mount.h> and the table of system calls, the same on every 64-bit processor since 5.2.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOSE_ON_EXEC, _CREATE, _NO_PRIVILEGES = 1, 6, 0x2 | 0x4 | 0x8
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Ended:
    """How a recording ended."""

    seconds: float
    lost: int
    """Events that the kernel had no room for."""
    full: bool
    """Whether it ended early, as there were more than can be kept."""


def record(
    devices: Sequence[str], seconds: float, stop: Callable[[], bool], took: Callable[[bytes], None]
) -> Ended:
    """Record the I/Os of block devices (`8:16`) for so many seconds, or until `stop` says so.

    `took` hears the kernel's text in parts of at most 256 KiB. Raises MachineError: this is not
    root, or the kernel has no such events.
    """
    numbers = [_kernel_number(one) for one in devices]
    if not 0 < len(numbers) <= MOST_DEVICES:
        raise MachineError(f"a block trace has 1 to {MOST_DEVICES} devices, not {len(numbers)}")
    with _instance() as place:
        _begin(place, numbers)
        return _read(place, seconds, stop, took)


def remove_left(*, dry_run: bool = False) -> list[tuple[str, bool]]:
    """Remove instances whose process is gone; return what was done, a line each, and if it worked.

    No tracefs, no right to it: nothing of ours can be there, or be seen.
    """
    told = []
    with suppress(MachineError, PermissionError), _tracefs() as place:
        with _locked(place / "instances"):
            paths = [path for path in sorted((place / "instances").iterdir()) if _is_left(path)]
        for path in paths:
            what = f"block trace {path.name}"
            if dry_run:
                told.append((f"would remove {what}", True))
                continue
            try:
                _remove(path)
                told.append((f"removed {what}", True))
            except OSError as error:
                told.append((f"could not remove {what}: {error.strerror}", False))
    return told


def _is_left(place: Path) -> bool:
    """Return whether an instance is one of ours whose process is gone."""
    found = NAME.fullmatch(place.name)
    if found is None or start_time_of(int(found[1])) == int(found[2]):
        return False
    # The number says nothing of a process in another PID namespace, such as a container's.
    try:
        os.close(_lock(place))
    except OSError:
        return False
    return True


def _lock(folder: Path) -> int:
    """Return a descriptor that holds the lock of a folder. Raises OSError: somebody else has it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which others hold for a moment only."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def _instance() -> Iterator[Path]:
    with _tracefs() as tracefs:
        place = (
            tracefs / "instances" / f"disklab-observe-{os.getpid()}-{start_time_of(os.getpid())}"
        )
        try:
            # Who removes what is left holds the same lock: he never sees one without its own.
            with _locked(place.parent):
                place.mkdir(0o700)
                lock = _lock(place)
        except OSError as error:
            raise _refused(place, error) from None
        try:
            yield place
        finally:
            os.close(lock)
            with suppress(OSError):
                _remove(place)


@contextmanager
def _tracefs() -> Iterator[Path]:
    """Yield a folder with tracefs: the usual one, or a mount that nobody else sees.

    The second goes with its descriptor, so a killed process leaves no mount.
    """
    try:
        is_mounted = (MOUNTED / "instances").is_dir()
    except PermissionError as error:
        raise _refused(MOUNTED, error) from None
    if is_mounted:
        yield MOUNTED
        return
    mount = _detached_mount()
    try:
        yield Path(f"/proc/self/fd/{mount}")
    finally:
        os.close(mount)


def _detached_mount() -> int:
    context = _called(_FSOPEN, b"tracefs", _CLOSE_ON_EXEC)
    try:
        _called(_FSCONFIG, context, _CREATE, None, None, 0)
        return _called(_FSMOUNT, context, _CLOSE_ON_EXEC, _NO_PRIVILEGES)
    finally:
        os.close(context)


def _called(number: int, *arguments: int | bytes | None) -> int:
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *passed))
    if result < 0:
        code = ctypes.get_errno()
        raise _refused(MOUNTED, OSError(code, os.strerror(code)))
    return result


def _refused(place: Path, error: OSError) -> MachineError:
    if isinstance(error, PermissionError):
        why = "a block trace is root's: start disklab with sudo, or leave --block-trace out"
    else:
        why = "this kernel, or its lockdown, has no block trace: leave --block-trace out"
    return MachineError(f"{place}: {error.strerror}; {why}")


def _kernel_number(device: str) -> int:
    """Return a device as the kernel's filter compares it: major << 20 | minor."""
    found = NUMBER.fullmatch(device)
    if found is None:
        raise MachineError(f"{device!r} is not the number of a block device, such as 8:16")
    return int(found[1]) << 20 | int(found[2])


def _begin(place: Path, numbers: Sequence[int]) -> None:
    wanted = " || ".join(f"dev == {one}" for one in numbers)
    try:
        _write(place / "tracing_on", "0")
        _write(place / "buffer_size_kb", str(BUFFER_KIB))
        # One clock for all processors, as the time between two of them is told.
        _write(place / "trace_clock", "mono")
        for event in EVENTS:
            _write(place / "events" / "block" / event / "filter", wanted)
            _write(place / "events" / "block" / event / "enable", "1")
        _write(place / "tracing_on", "1")
    except OSError as error:
        raise _refused(place, error) from None


def _read(
    place: Path, seconds: float, stop: Callable[[], bool], took: Callable[[bytes], None]
) -> Ended:
    began = time.monotonic()
    pipe = os.open(place / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    size, full, over = 0, False, False
    part = bytearray()
    ended = began
    try:
        while True:
            text = _available(pipe)
            part += text
            size += len(text)
            if len(part) >= PART_BYTES or (over and part):
                for start in range(0, len(part), PART_BYTES):
                    took(bytes(part[start : start + PART_BYTES]))
                part.clear()
            if over and not text:
                return Ended(ended - began, _lost(place), full)
            full = full or size >= MOST_BYTES
            now = time.monotonic()
            if not over and (full or stop() or now - began >= seconds):
                # What is in the buffers still counts; nothing more comes.
                _write(place / "tracing_on", "0")
                over, ended = True, now
            elif not text:
                select.select([pipe], [], [], min(POLL_SECONDS, max(0.0, began + seconds - now)))
    finally:
        os.close(pipe)


def _available(pipe: int) -> bytes:
    """Return what can be read at once; empty: nothing."""
    found = bytearray()
    with suppress(BlockingIOError):
        while len(found) < PART_BYTES and (text := os.read(pipe, 1 << 16)):
            found += text
    return bytes(found)


def _lost(place: Path) -> int:
    lost = 0
    for stats in place.glob("per_cpu/cpu*/stats"):
        text = stats.read_text(encoding="ascii")
        lost += sum(int(n) for n in re.findall(r"^(?:overrun|dropped events): (\d+)", text, re.M))
    return lost


def _remove(place: Path) -> None:
    """Remove an instance. Raises OSError: somebody reads it."""
    for file in ("tracing_on", "events/enable"):
        with suppress(OSError):
            _write(place / file, "0")
    place.rmdir()


def _write(file: Path, text: str) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
