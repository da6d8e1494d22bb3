"""The peers: other programs that slow a disk down, set up as their manuals say.

Each yields fio's options for its target. Debian packages: qemu-system-common (qemu-storage-daemon)
with qemu-utils, nbdkit.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SHM = Path("/dev/shm")  # tmpfs: the peers' data cost no disk time, as ours do not


@dataclass(frozen=True)
class Asked:
    """What is asked of a throttled disk; None: no limit, no delay."""

    latency_ns: int | None = None
    iops: int | None = None
    bytes_per_s: int | None = None


@contextmanager
def image(size_bytes: int) -> Iterator[Path]:
    """Yield a file on tmpfs, fully written: sparse files bypass qemu's throttle."""
    with tempfile.NamedTemporaryFile(dir=SHM, prefix="disklab-bench-") as file:
        block = b"\xa5" * (1 << 20)
        for _ in range(size_bytes >> 20):
            file.write(block)
        file.flush()
        yield Path(file.name)


@contextmanager
def loop_on_tmpfs(size_bytes: int) -> Iterator[tuple[str, ...]]:
    """Yield a loop device over tmpfs: what the kernel's own path costs, without any emulation."""
    with image(size_bytes) as file:
        show = ["losetup", "--direct-io=on", "-f", "--show", str(file)]
        device = subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip()
        try:
            yield (f"--filename={device}",)
        finally:
            backing = Path(f"/sys/block/{Path(device).name}/loop/backing_file").read_text().strip()
            if backing == str(file):
                subprocess.run(["losetup", "-d", device], check=True)


@contextmanager
def qemu_storage_daemon(asked: Asked, size_bytes: int) -> Iterator[tuple[str, ...]]:
    """Yield qemu-storage-daemon's FUSE export behind its throttle filter."""
    limits = ""
    if asked.iops:
        limits += f",x-iops-total={asked.iops}"
    if asked.bytes_per_s:
        limits += f",x-bps-total={asked.bytes_per_s}"
    with image(size_bytes) as file, tempfile.TemporaryDirectory() as folder:
        export = Path(folder, "disk.img")
        export.touch()
        command = [
            "qemu-storage-daemon",
            "--object", f"throttle-group,id=group{limits}",
            "--blockdev", f"driver=file,node-name=file,filename={file}",
            "--blockdev", "driver=throttle,node-name=slow,throttle-group=group,file=file",
            "--export", f"type=fuse,id=fuse,node-name=slow,mountpoint={export},writable=on",
        ]  # fmt: skip
        daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: export.stat().st_size == size_bytes, "qemu-storage-daemon's export")
            yield (f"--filename={export}",)
        finally:
            stop(daemon)


@contextmanager
def nbdkit(asked: Asked, size_bytes: int) -> Iterator[tuple[str, ...]]:
    """Yield nbdkit's memory plug-in behind its delay and rate filters, over fio's nbd engine."""
    filters, options = [], []
    if asked.latency_ns:
        filters.append("--filter=delay")
        # The delay filter takes seconds, or milliseconds with the suffix; never less than one.
        milliseconds = max(1, round(asked.latency_ns / 1e6))
        options += [f"rdelay={milliseconds}ms", f"wdelay={milliseconds}ms"]
    if asked.bytes_per_s:
        filters.append("--filter=rate")
        options.append(f"rate={asked.bytes_per_s * 8}")  # the rate filter counts bits
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder, "nbd.sock")
        command = ["nbdkit", "-f", "-U", str(socket), *filters, "memory", str(size_bytes), *options]
        daemon = subprocess.Popen(command)
        try:
            wait_until(socket.exists, "nbdkit's socket")
            yield ("--ioengine=nbd", f"--uri=nbd+unix:///?socket={socket}", f"--size={size_bytes}")
        finally:
            stop(daemon)


def wait_until(condition: object, what: str, seconds: float = 10.0) -> None:
    """Wait for a condition, at most so many seconds; name what was missing."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not appear within {seconds:g} s")
        time.sleep(0.02)


def whole(seconds: float) -> int:
    """Return how long a peer runs that counts whole seconds.

    At least two: on a busy machine pgbench's connections through TLS took the whole of one.
    """
    return max(2, round(seconds))


def stop(daemon: subprocess.Popen[bytes]) -> None:
    """End a peer that we started: politely, then for good."""
    daemon.terminate()
    try:
        daemon.wait(timeout=10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def available(name: str) -> bool:
    """Return whether a peer's program is installed."""
    return shutil.which(name) is not None
