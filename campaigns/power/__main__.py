"""`python -m campaigns.power --minutes N`: cuts recorded disks' power, and says what was lost."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from campaigns.power.page import page_of
from campaigns.power.trial import SETUPS, trials
from tests.alone import run_alone

STATE = Path("target/power.jsonl")
CUTS = 100
"""Of one run of a writer; then another seed makes another run."""
LYING = 5
"""Cuts of a disk that ignores FLUSH, for each run: they must find losses."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.power", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; 10 by default")
    parser.add_argument("--seed", type=int, default=1, help="the first; 1 by default")
    names = [one.name for one in SETUPS]
    parser.add_argument("--setup", action="append", choices=names, help="only this one")
    parser.add_argument("--cuts", type=int, default=CUTS, help=f"of each run; {CUTS} by default")
    parser.add_argument("--state", type=Path, default=STATE, help=f"outcomes; {STATE} by default")
    parser.add_argument("--evidence", type=Path, help="a folder for images that lost something")
    parser.add_argument("--page", type=Path, help="write what the state file holds as a page")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    run_alone("campaigns.power")
    # An end by a signal takes mounts, loop devices and servers away, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    deadline = time.monotonic() + given.minutes * 60
    given.state.parent.mkdir(parents=True, exist_ok=True)
    seed, lost = given.seed, 0
    with given.state.open("a", encoding="utf-8") as state:
        while time.monotonic() < deadline:
            for setup in (one for one in SETUPS if one.name in (given.setup or [one.name])):
                if time.monotonic() > deadline:
                    break
                for lying, count in ((True, LYING), (False, given.cuts)):
                    kept = None if lying or setup.loses else given.evidence
                    for outcome in trials(setup, count, seed, lying=lying, evidence=kept):
                        state.write(json.dumps({"run": seed, **asdict(outcome)}) + "\n")
                        state.flush()
                        if outcome.found and not (lying or setup.loses):
                            lost += 1
                            print(f"seed {seed}: {outcome}", flush=True)
                        if time.monotonic() > deadline:
                            break
            print(f"seed {seed}: {lost} cuts lost something so far", flush=True)
            seed += 1
    if given.page:
        given.page.write_text(page_of(given.state), encoding="utf-8")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
