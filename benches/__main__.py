"""Run the benchmarks: `python -m benches [--size small|large] [--only NAME] [--out FILE]`."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from pathlib import Path

from rich.console import Console

from benches import accuracy, client, observing, rates, simulator, sql, sweeps, zero_delay
from benches.summary import Row, markdown, processor, show, store

BENCHES = {
    "zero-delay": zero_delay.bench,
    "accuracy": accuracy.bench,
    "rates": rates.bench,
    "load": client.bench,
    "sql": sql.bench,
    "simulator": simulator.bench,
    "observe": observing.bench,
    "sweeps": sweeps.bench,
}

SIZES: dict[str, tuple[int, float]] = {"small": (1, 0.3), "large": (5, 5), "full": (5, 10)}
"""Repeats and seconds a run. Small only shows that the benches still work."""


def main() -> int:
    """Parse the arguments, run, print and store."""
    parser = argparse.ArgumentParser(prog="benches", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="large")
    parser.add_argument("--only", choices=BENCHES, action="append")
    parser.add_argument("--out", type=Path, help="JSON-lines file to append the rows to")
    parser.add_argument("--markdown", type=Path, help="print the rows of such a file, and end")
    arguments = parser.parse_args()
    if arguments.markdown:
        print(markdown(arguments.markdown))
        return 0
    # A bench that is ended takes its devices and daemons with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() != 0:
        print("benches: they make loop devices and FUSE mounts, which needs root; use sudo")
        return 2
    console = Console(width=None if sys.stdout.isatty() else 130)
    repeats, seconds = SIZES[arguments.size]
    console.print(f"{processor()}, Linux {platform.release()}; {repeats} x {seconds:g} s a figure")
    rows: list[Row] = []
    for name in arguments.only or BENCHES:
        measured = BENCHES[name](repeats, seconds)
        show(measured, console)
        rows += measured
        if arguments.out:
            store(measured, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
