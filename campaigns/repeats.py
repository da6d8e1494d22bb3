"""`python -m campaigns.repeats`: how alike runs of `disklab run` are, and what a comparison finds.

Run as root, on a quiet machine and beside load. A command that waits for its disk runs again and
again on an emulated disk and, for comparison, in a folder of this machine; then one more fsync is
looked for by `--compare`, and so is none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DISKLAB = Path(sys.executable).with_name("disklab")
DISK = ("--disk", "azure/P10", "--size", "512MiB", "--filesystem", "xfs")
COMMAND = """
import os, sys
file = os.open("records", os.O_CREAT | os.O_WRONLY)
for record in range(int(sys.argv[1])):
    os.write(file, bytes(8192))
    os.fsync(file)
"""
RECORDS = 500
"""About three seconds of a P10's service times."""
FEW = 20
"""Records of the runs that are compared: counts do not depend on how long they take."""


def run(words: Sequence[str], folder: Path) -> tuple[int, Any]:
    """Run a command on a disk; return the exit code and what it told."""
    ran = subprocess.run(
        [str(DISKLAB), "run", *DISK, "--json", *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    if ran.returncode not in (0, 3):
        raise SystemExit(ran.stderr)
    return ran.returncode, json.loads(ran.stdout.splitlines()[-1])


def command(records: int) -> list[str]:
    """Return the command that writes so many records, each with an fsync."""
    return [sys.executable, "-c", COMMAND, str(records)]


def here(folder: Path) -> float:
    """Run the command on this machine's own disk; return seconds."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        begin = time.monotonic()
        subprocess.run(command(RECORDS), check=True, cwd=own)
        return time.monotonic() - begin


def spread(seconds: Sequence[float]) -> str:
    """Return the median, and how far the farthest is from it."""
    median = statistics.median(seconds)
    farthest = max(abs(one / median - 1) for one in seconds)
    within = sorted(abs(one / median - 1) for one in seconds)[len(seconds) * 9 // 10 - 1]
    return f"median {median:.3f} s, nine in ten within {within:.1%}, all within {farthest:.1%}"


def main() -> int:
    """Measure and print; 1: counts differed, or a comparison was wrong."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.repeats", description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="of the same command; 30")
    parser.add_argument("--more", type=int, default=20, help="comparisons with one more fsync; 20")
    parser.add_argument("--same", type=int, default=100, help="comparisons without; 100")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    with tempfile.TemporaryDirectory(prefix="disklab-repeats-") as made:
        folder = Path(made)
        results = [run(["--", *command(RECORDS)], folder)[1] for _ in range(given.runs)]
        counts = {
            tuple((kind, one["ios"], one["bytes"]) for kind, one in result["operations"].items())
            for result in results
        }
        print(f"{given.runs} runs: {len(counts)} different counts of I/Os and bytes")
        if results:
            print("on the disk:", spread([result["wall_s"] for result in results]))
            print("its I/Os:", spread([result["disk_s"] for result in results]))
            print("late replies:", max(f"{result['late_ratio']:.2%}" for result in results))
            print("on this machine's:", spread([here(Path.cwd()) for _ in range(given.runs)]))
        base = folder / "base.json"
        base.write_text(json.dumps(run(["--", *command(FEW)], folder)[1]), encoding="utf-8")
        compare = ["--no-calibrate", "--compare", str(base), "--"]
        seen = sum(run([*compare, *command(FEW + 1)], folder)[0] == 3 for _ in range(given.more))
        false = sum(run([*compare, *command(FEW)], folder)[0] == 3 for _ in range(given.same))
    print(f"one more fsync: seen in {seen} of {given.more}; false alarms: {false} of {given.same}")
    print(f"load {os.getloadavg()[0]:.1f}")
    return int(len(counts) > 1 or seen < given.more or false > 0)


if __name__ == "__main__":
    sys.exit(main())
