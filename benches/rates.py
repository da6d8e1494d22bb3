"""How exactly limits hold: IOPS and MB/s caps, and the end of a burst, beside peers."""

from __future__ import annotations

from collections.abc import Callable

from benches.emulated import Emulated, emulated, latency_of, limit, limits_of, volume
from benches.load import Load, run
from benches.peers import Asked, available, nbdkit, qemu_storage_daemon
from benches.summary import Row, interleave, summarise

SIZE_BYTES = 256 << 20
MS = 1_000_000

CAPS = {
    "5000 IOPS (P30), 4k depth 64": (Asked(3_300_000, iops=5_000), Load(depth=64), "IOPS"),
    "20000 IOPS, 4k depth 64": (Asked(MS, iops=20_000), Load(depth=64), "IOPS"),
    "200 MB/s (P30), 256k depth 64": (
        Asked(3_300_000, bytes_per_s=200_000_000),
        Load(block_bytes=256 << 10, depth=64),
        "MB/s",
    ),
    "750 MB/s, 1M depth 16": (
        Asked(MS, bytes_per_s=750_000_000),
        Load(block_bytes=1 << 20, depth=16),
        "MB/s",
    ),
}

BURST_IOPS, BASE_IOPS, CREDITS = 3_500, 500, 6_000
"""A small bucket: the credits last CREDITS / (BURST_IOPS - BASE_IOPS) = 2 s at full speed."""


def bench(repeats: int, seconds: float) -> list[Row]:
    """Measure every cap on every contender, and the burst."""
    rows: list[Row] = []
    with emulated(volume(SIZE_BYTES, latency_of(Asked()), [])) as disk:
        for case, (_, load, _) in CAPS.items():
            timed = Load(load.rw, load.block_bytes, load.depth, load.jobs, seconds)
            rows += cap(disk, case, timed, repeats)
        rows += burst(disk, repeats)
    return rows


def cap(disk: Emulated, case: str, load: Load, repeats: int) -> list[Row]:
    """Measure one cap."""
    asked, _, unit = CAPS[case]
    change = {"latency": latency_of(asked), "limits": limits_of(asked)}
    disk.request(op="set", volume="bench", change=change)

    def of(target: tuple[str, ...]) -> Callable[[], float]:
        def once() -> float:
            figures = run(target, load)
            return figures.iops if unit == "IOPS" else figures.bytes_per_s / 1e6

        return once

    values: dict[str, list[float]] = {}
    contenders = [("disklab", of((f"--filename={disk.device}",)))]
    if available("qemu-storage-daemon"):
        with qemu_storage_daemon(asked, SIZE_BYTES) as peer:
            values |= interleave(repeats, [*contenders, ("qemu throttle", of(peer))])
    else:
        values |= interleave(repeats, contenders)
    if unit == "MB/s" and available("nbdkit"):  # its rate filter knows bandwidth only
        with nbdkit(Asked(bytes_per_s=asked.bytes_per_s), SIZE_BYTES) as peer:
            values |= interleave(repeats, [("nbdkit rate", of(peer))])
    wanted = float(asked.iops or 0) if unit == "IOPS" else (asked.bytes_per_s or 0) / 1e6
    return [summarise("caps", case, name, unit, got, wanted) for name, got in values.items()]


def burst(disk: Emulated, repeats: int) -> list[Row]:
    """Measure what a full bucket lets through in all: credits and baseline together."""
    limits = {
        "limits": [
            limit("ios", BASE_IOPS, {"per_s": BURST_IOPS, "credits": CREDITS, "start": CREDITS})
        ],
        "latency": latency_of(Asked(MS)),
    }
    seconds = 4  # two at the burst rate, two at the baseline
    ios = []
    for _ in range(repeats):
        disk.request(op="set", volume="bench", change=limits)
        disk.request(op="set", volume="bench", change={"credit_ios": CREDITS})
        figures = run((f"--filename={disk.device}",), Load(depth=64, seconds=seconds))
        ios.append(figures.total_ios - BASE_IOPS * figures.runtime_s)
    case = f"{CREDITS} credits, {BURST_IOPS} over {BASE_IOPS} IOPS"
    return [summarise("burst", case, "disklab", "credits spent", ios, float(CREDITS))]
