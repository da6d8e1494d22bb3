"""How close the emulator comes to the latency that it was asked for, beside a peer."""

from __future__ import annotations

from collections.abc import Callable

from benches.emulated import Emulated, emulated, latency_of, volume
from benches.load import Figures, Load, run
from benches.peers import Asked, available, nbdkit
from benches.summary import Row, interleave, summarise

SIZE_BYTES = 256 << 20
US = 1_000
MS = 1_000_000

CONSTANTS = {"100 us": 100 * US, "300 us": 300 * US, "1 ms": MS, "3.3 ms": 3_300 * US}

UNCACHED_P4 = [
    (0, 2_200 * US), (10_000, 2_245 * US), (50_000, 2_311 * US), (100_000, 2_343 * US),
    (200_000, 2_376 * US), (300_000, 2_409 * US), (400_000, 2_442 * US), (500_000, 2_474 * US),
    (600_000, 2_507 * US), (700_000, 2_540 * US), (800_000, 2_606 * US), (900_000, 2_704 * US),
    (950_000, 2_868 * US), (990_000, 3_556 * US), (995_000, 4_047 * US), (999_000, 5_997 * US),
    (999_500, 7_504 * US), (1_000_000, 9_634 * US),
]  # fmt: skip
"""A measured distribution with a tail.

**Source:** tkubica 2020-09-07, E8ds_v4, P4 as OS disk with the cache off, 8 KiB writes.
"""

DISTRIBUTIONS = {"P4 uncached": (UNCACHED_P4, 2_474 * US, 3_556 * US)}
"""Quantiles, and the p50 and p99 among them."""


BUSY = 3
"""So many times the repeats at depth 64.

There a run's p99 says as much about what else had the processor as about the emulator: of 1 ms it
was 1.04 to 1.19 ms in 47 runs of 3 s on a quiet virtual machine with two processors, so that
medians of five or six lay anywhere from 1.07 to 1.12 ms, and three of ten to sixteen at 1.073 ms;
an hour later, with less of the host's processor, fifteen of 5 s had 1.106 ms. fio without its other
latencies, with fixed buffers, or with another `rq_affinity` came to the same.
"""


def bench(repeats: int, seconds: int) -> list[Row]:
    """Measure constants and distributions at depth 1, and at depth 64 from 1 ms up."""
    rows: list[Row] = []
    with emulated(volume(SIZE_BYTES, latency_of(Asked()), [])) as disk:
        for name, latency_ns in CONSTANTS.items():
            disk.request(
                op="set", volume="bench", change={"latency": latency_of(Asked(latency_ns))}
            )
            for depth in (1, 64) if latency_ns >= MS else (1,):
                load = Load(depth=depth, seconds=seconds)
                rows += constant_case(disk, name, latency_ns, load, repeats_at(depth, repeats))
        for name, (quantiles, p50_ns, p99_ns) in DISTRIBUTIONS.items():
            change = {"latency": latency_of(Asked(), quantiles)}
            disk.request(op="set", volume="bench", change=change)
            for depth in (1, 64):
                load = Load(depth=depth, seconds=seconds)
                runs = [run(target_of(disk), load) for _ in range(repeats_at(depth, repeats))]
                rows += both(f"{name}, depth {depth}", "disklab", runs, p50_ns, p99_ns)
    return rows


def repeats_at(depth: int, repeats: int) -> int:
    """Return how often a depth is measured."""
    return repeats if depth == 1 else BUSY * repeats


def target_of(disk: Emulated) -> tuple[str, ...]:
    """Return fio's option for the emulated device."""
    return (f"--filename={disk.device}",)


def constant_case(
    disk: Emulated, name: str, latency_ns: int, load: Load, repeats: int
) -> list[Row]:
    """Measure one constant latency, beside nbdkit's delay filter where it can be asked for it."""
    case = f"{name}, depth {load.depth}"
    runs: dict[str, list[Figures]] = {}

    def of(name: str, target: tuple[str, ...]) -> Callable[[], float]:
        def once() -> float:
            runs.setdefault(name, []).append(run(target, load))
            return float(runs[name][-1].p50_ns)

        return once

    contenders = [("disklab", of("disklab", target_of(disk)))]
    if latency_ns >= MS and available("nbdkit"):  # its delay filter counts whole milliseconds
        with nbdkit(Asked(latency_ns), SIZE_BYTES) as peer:
            interleave(repeats, [*contenders, ("nbdkit delay", of("nbdkit delay", peer))])
    else:
        interleave(repeats, contenders)
    return [
        row
        for name, figures in runs.items()
        for row in both(case, name, figures, latency_ns, latency_ns)
    ]


def both(case: str, contender: str, runs: list[Figures], p50_ns: int, p99_ns: int) -> list[Row]:
    """Return the rows of p50 and p99."""
    p50 = [figures.p50_ns / US for figures in runs]
    p99 = [figures.p99_ns / US for figures in runs]
    return [
        summarise("latency accuracy", f"{case}, p50", contender, "us", p50, p50_ns / US),
        summarise("latency accuracy", f"{case}, p99", contender, "us", p99, p99_ns / US),
    ]
