"""How close the emulator comes to the latency that it was asked for, beside a peer."""

from __future__ import annotations

from benches.block_layer import run_seen
from benches.emulated import Emulated, emulated, latency_of, volume
from benches.load import Figures, Load, run
from benches.peers import Asked, available, nbdkit
from benches.sleeper import sleep
from benches.summary import Row, summarise

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


SHORT = ("100 us", "1 ms")
"""In a run of the small size: below and above what nbdkit counts, one of the two at depth 64."""

BUSY = 3
"""So many runs at depth 64 for one at depth 1.

There a run's p99 says as much about what else had the processor as about the emulator: of 1 ms it
was 1.04 to 1.19 ms in 47 runs of 3 s on a quiet virtual machine with two processors. About half of
the starts have the program, the loop device's worker and the emulator take turns on both of them,
in the others the emulator has one for itself and the I/Os end in clumps. fio without its other
latencies, with fixed buffers, or with another `rq_affinity` came to the same.
"""


Runs = dict[tuple[str, str], list[Figures]]
"""What was measured of each case and contender."""


def bench(repeats: int, seconds: float) -> list[Row]:
    """Measure constants and distributions at depth 1, and at depth 64 from 1 ms up.

    Every repeat is an emulator of its own, as what it finds out at its start decides how early its
    replies leave. Beside it a program sleeps for as long: no disk can be more punctual than that.
    """
    asked: dict[str, tuple[int, int]] = {}
    runs: Runs = {}
    for _ in range(repeats):
        with emulated(volume(SIZE_BYTES, latency_of(Asked()), [])) as disk:
            for name, latency_ns in CONSTANTS.items():
                if seconds < 1 and name not in SHORT:
                    continue
                case = f"{name}, asleep"
                asked[case] = (latency_ns, latency_ns)
                runs.setdefault((case, "no disk"), []).append(sleep(latency_ns, seconds))
                latency = latency_of(Asked(latency_ns))
                disk.request(op="set", volume="bench", change={"latency": latency})
                for depth in (1, 64) if latency_ns >= MS else (1,):
                    case = f"{name}, depth {depth}"
                    asked[case] = (latency_ns, latency_ns)
                    constant_case(runs, case, disk, latency_ns, Load(depth=depth, seconds=seconds))
            for name, (quantiles, p50_ns, p99_ns) in DISTRIBUTIONS.items():
                change = {"latency": latency_of(Asked(), quantiles)}
                disk.request(op="set", volume="bench", change=change)
                for depth in (1, 64):
                    case = f"{name}, depth {depth}"
                    asked[case] = (p50_ns, p99_ns)
                    measure_disk(runs, case, disk, Load(depth=depth, seconds=seconds))
    return [
        row
        for (case, contender), figures in runs.items()
        for row in both(case, contender, figures, *asked[case])
    ]


def measure_disk(runs: Runs, case: str, disk: Emulated, load: Load) -> None:
    """Run on the emulated device, and once more while the kernel records what it sees of it."""
    measure(runs, case, "disklab", (f"--filename={disk.device}",), load)
    seen = run_seen(disk.device, load)
    runs.setdefault((case, "disklab, as the block layer sees it"), []).append(seen)


def constant_case(runs: Runs, case: str, disk: Emulated, latency_ns: int, load: Load) -> None:
    """Measure one constant latency, beside nbdkit's delay filter where it can be asked for it."""
    measure_disk(runs, case, disk, load)
    if latency_ns >= MS and available("nbdkit"):  # its delay filter counts whole milliseconds
        with nbdkit(Asked(latency_ns), SIZE_BYTES) as peer:
            measure(runs, case, "nbdkit delay", peer, load)


def measure(runs: Runs, case: str, contender: str, target: tuple[str, ...], load: Load) -> None:
    """Run once at depth 1, and `BUSY` times at depth 64."""
    times = 1 if load.depth == 1 or load.seconds < 1 else BUSY
    runs.setdefault((case, contender), []).extend(run(target, load) for _ in range(times))


def both(case: str, contender: str, runs: list[Figures], p50_ns: int, p99_ns: int) -> list[Row]:
    """Return the rows of p50 and p99."""
    p50 = [figures.p50_ns / US for figures in runs]
    p99 = [figures.p99_ns / US for figures in runs]
    return [
        summarise("latency accuracy", f"{case}, p50", contender, "us", p50, p50_ns / US),
        summarise("latency accuracy", f"{case}, p99", contender, "us", p99, p99_ns / US),
    ]
