"""What the emulator itself costs: a disk that promises no delay and has no limit."""

from __future__ import annotations

from collections.abc import Callable

from benches.emulated import emulated, latency_of, volume
from benches.load import Load, run
from benches.peers import Asked, available, loop_on_tmpfs, qemu_storage_daemon
from benches.summary import Row, interleave, summarise

SIZE_BYTES = 1 << 30
"""Larger than any processor cache: the data come from memory, as a real load's would."""

Target = tuple[str, ...]

LOADS = {
    "4k reads, depth 1": (Load(), "p50 us"),
    "4k reads, depth 64": (Load(depth=64), "kIOPS"),
    "4k writes, depth 64": (Load(rw="randwrite", depth=64), "kIOPS"),
    "1M reads, depth 16": (Load(rw="read", block_bytes=1 << 20, depth=16), "GB/s"),
    "1M writes, depth 16": (Load(rw="write", block_bytes=1 << 20, depth=16), "GB/s"),
}


def measure(target: Target, load: Load, unit: str) -> float:
    """Return one run's figure in its unit."""
    figures = run(target, load)
    return {
        "p50 us": figures.p50_ns / 1e3,
        "kIOPS": figures.iops / 1e3,
        "GB/s": figures.bytes_per_s / 1e9,
    }[unit]


def bench(repeats: int, seconds: float) -> list[Row]:
    """Measure both transports, the FUSE file itself, the bare kernel path and a peer."""
    nothing = Asked()
    profile = volume(SIZE_BYTES, latency_of(nothing), [])
    rows: list[Row] = []
    with (
        loop_on_tmpfs(SIZE_BYTES) as tmpfs,
        emulated(profile) as auto,
        emulated(profile, transport="fuse") as fallback,
    ):
        targets: dict[str, Target] = {
            "loop over tmpfs, no emulation": tmpfs,
            f"disklab, loop, {auto.transport}": (f"--filename={auto.device}",),
            f"disklab, FUSE file, {auto.transport}": (f"--filename={auto.file}",),
            "disklab, loop, /dev/fuse": (f"--filename={fallback.device}",),
        }
        for device in (*targets.values(),):
            run(device, Load(rw="write", block_bytes=1 << 20, depth=16, seconds=min(seconds, 1)))
        if available("qemu-storage-daemon"):
            with qemu_storage_daemon(nothing, SIZE_BYTES) as qemu:
                rows += cases({**targets, "qemu-storage-daemon, FUSE file": qemu}, repeats, seconds)
        else:
            rows += cases(targets, repeats, seconds)
    return rows


def cases(targets: dict[str, Target], repeats: int, seconds: float) -> list[Row]:
    """Measure every load on every target, interleaved."""
    rows = []
    for case, (load, unit) in LOADS.items():
        timed = Load(load.rw, load.block_bytes, load.depth, load.jobs, seconds)

        def of(target: Target, timed: Load = timed, unit: str = unit) -> Callable[[], float]:
            return lambda: measure(target, timed, unit)

        values = interleave(repeats, [(name, of(target)) for name, target in targets.items()])
        rows += [summarise("zero delay", case, name, unit, got) for name, got in values.items()]
    return rows
