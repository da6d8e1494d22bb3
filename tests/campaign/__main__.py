"""`python -m tests.campaign --minutes N`: kills disklab at every step, and says what was found."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.campaign.lab import clear_left
from tests.campaign.page import page_of
from tests.campaign.points import MODES, Outcome, Point, steps_of, tell, try_point
from tests.campaign.scenarios import SCENARIOS, Scenario
from tests.campaign.tracing import different_first
from tests.campaign.trouble import TROUBLE, TROUBLES, try_trouble

STATE = Path("target/campaign.jsonl")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; 10 by default")
    parser.add_argument("--seed", type=int, default=1, help="of order and content; 1 by default")
    parser.add_argument("--points", type=int, default=0, help="stop after so many; 0: no limit")
    parser.add_argument("--scenario", action="append", help="only this one; may be repeated")
    parser.add_argument("--trouble", action="append", choices=[*TROUBLES], help="only this one")
    parser.add_argument("--mode", action="append", choices=MODES, help="only this one")
    parser.add_argument("--state", type=Path, default=STATE, help=f"outcomes; {STATE} by default")
    parser.add_argument("--resume", action="store_true", help="go on where the state file ends")
    parser.add_argument("--page", type=Path, help="write what the state file holds as a page")
    return parser.parse_args()


def points_of(scenario: Scenario, modes: list[str], seed: int) -> Iterator[Point]:
    """Yield every point of a scenario, different kinds of steps first, in an order of the seed."""
    steps = steps_of(scenario, seed)
    random.Random(f"{seed} {scenario.name}").shuffle(steps)
    print(f"{scenario.name}: {len(steps)} steps", flush=True)
    for mode in modes:
        for step in different_first(steps):
            yield Point(scenario.name, step.program, step.number, mode)


def troubles_of(name: str) -> Iterator[Point]:
    """Yield a trouble again and again: its number chooses its details."""
    for number in itertools.count():
        yield Point(name, TROUBLE, number, TROUBLE)


def in_turn(streams: list[Iterator[Point]]) -> Iterator[Point]:
    """Yield from each stream in turn until all have ended."""
    nothing = object()
    for row in itertools.zip_longest(*streams, fillvalue=nothing):
        for one in row:
            if isinstance(one, Point):
                yield one


def done_before(state: Path, seed: int) -> set[Point]:
    """Return the points that a state file has an outcome of with this seed, but for failed ones."""
    if not state.exists():
        return set()
    lines = map(json.loads, state.read_text(encoding="utf-8").splitlines())
    latest = {Point(**line["point"]): line for line in lines if line["seed"] == seed}
    return {point for point, line in latest.items() if not line["found"]}


def main() -> int:
    given = arguments()
    os.environ.pop("DISKLAB_CATALOG", None)
    # An end by a signal takes the lab away, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if given.page and not given.resume and given.minutes == 0:
        given.page.write_text(page_of(given.state), encoding="utf-8")
        return 0
    clear_left()
    deadline = time.monotonic() + given.minutes * 60
    done = done_before(given.state, given.seed) if given.resume else set()
    given.state.parent.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in SCENARIOS if given.scenario is None or one.name in given.scenario]
    if given.trouble and given.scenario is None:
        chosen = []
    streams = [points_of(one, given.mode or list(MODES), given.seed) for one in chosen]
    if not given.scenario or given.trouble:
        streams += [troubles_of(name) for name in given.trouble or TROUBLES]
    by_name = {one.name: one for one in chosen}
    outcomes: list[Outcome] = []
    with given.state.open("a" if given.resume else "w", encoding="utf-8") as state:
        for point in in_turn(streams):
            if time.monotonic() > deadline or (given.points and len(outcomes) >= given.points):
                break
            if point in done:
                continue
            if point.mode == TROUBLE:
                outcome = try_trouble(point.scenario, point.number, given.seed)
            else:
                outcome = try_point(by_name[point.scenario], point, given.seed)
            outcomes.append(outcome)
            state.write(json.dumps({"seed": given.seed, **asdict(outcome)}) + "\n")
            state.flush()
            print(tell(outcome), flush=True)
            if outcome.found:
                print(outcome.found, flush=True)
    failed = sum(bool(one.found) for one in outcomes)
    reached = sum(bool(one.step) for one in outcomes)
    blocks = sum(one.acknowledged for one in outcomes)
    print(
        f"{reached} crash points reached of {len(outcomes)} tried (seed {given.seed}), "
        f"{blocks} acknowledged blocks read back, {failed} failed"
    )
    if given.page:
        given.page.write_text(page_of(given.state), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
