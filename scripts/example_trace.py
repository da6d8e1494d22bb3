"""Writes the example trace: what a database might ask of its disk in a few seconds.

Nothing of it was recorded. Reads of 8 KiB lie where few pages are asked for often and many seldom,
their arrivals are random; a log is written in order by 4 KiB; every ten seconds a checkpoint writes
pages for two seconds. `python scripts/example_trace.py` writes experiments/traces/orders.csv again,
byte for byte.
"""

from __future__ import annotations

import random
from pathlib import Path

OUT = Path(__file__).parents[1] / "experiments" / "traces" / "orders.csv"
SECONDS = 12
READS_PER_S, LOG_PER_S, CHECKPOINT_PER_S = 150, 40, 300
PAGE, LOG = 8192, 4096
PAGES = 4 * 2**30 // PAGE
LOG_AT = 5 * 2**30
# Windows' file time counts 100 ns; the form is that of MSR Cambridge, which has a time and a size.
TICKS, EPOCH = 10**7, 133_000_000_000_000_000


def arrivals(draw: random.Random, per_s: float, start: float, end: float) -> list[float]:
    """Return random times between start and end, seconds."""
    found, at = [], start
    while (at := at + draw.expovariate(per_s)) < end:
        found.append(at)
    return found


def main() -> None:
    """Write the trace."""
    draw = random.Random(20261124)  # noqa: S311 - a load, no secret
    rows: list[tuple[float, str, int, int]] = []
    for at in arrivals(draw, READS_PER_S, 0, SECONDS):
        page = min(int(draw.paretovariate(0.6)) - 1, PAGES - 1) * 7919 % PAGES
        rows.append((at, "Read", page * PAGE, PAGE))
    for number, at in enumerate(arrivals(draw, LOG_PER_S, 0, SECONDS)):
        rows.append((at, "Write", LOG_AT + number * LOG, LOG))
    for start in range(8, SECONDS, 10):
        times = arrivals(draw, CHECKPOINT_PER_S, start, start + 2)
        rows += [(at, "Write", draw.randrange(PAGES) * PAGE, PAGE) for at in times]
    lines = [
        f"{EPOCH + round(at * TICKS)},orders,0,{kind},{offset},{size},0\n"
        for at, kind, offset, size in sorted(rows)
    ]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
