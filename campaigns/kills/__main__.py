"""`python -m campaigns.kills --minutes N`: kills disklab at every step, and says what was found."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pickle
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from campaigns.kills import clock
from campaigns.kills.lab import clear_left
from campaigns.kills.page import STORED, page_of, store
from campaigns.kills.points import MODES, Outcome, Point, steps_of, tell, try_point
from campaigns.kills.scenarios import SCENARIOS, Scenario
from campaigns.kills.tracing import different_first
from campaigns.kills.trouble import TROUBLE, TROUBLES, try_trouble
from tests.alone import run_alone

STATE = Path("target/campaign.jsonl")
TROUBLES_BESIDE = (clock,)
"""Modules that register troubles of their own."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.kills", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; 10 by default")
    parser.add_argument("--seed", type=int, default=1, help="of order and content; 1 by default")
    parser.add_argument("--points", type=int, default=0, help="stop after so many; 0: no limit")
    parser.add_argument("--jobs", type=int, default=1, help="laboratories side by side; 1")
    parser.add_argument("--scenario", action="append", help="only this one; may be repeated")
    parser.add_argument("--trouble", action="append", choices=[*TROUBLES], help="only this one")
    parser.add_argument("--mode", action="append", choices=MODES, help="only this one")
    parser.add_argument("--state", type=Path, default=STATE, help=f"outcomes; {STATE} by default")
    parser.add_argument("--resume", action="store_true", help="go on where the state file ends")
    parser.add_argument("--page", type=Path, help="write what the state file holds as a page")
    parser.add_argument(
        "--store", action="store_true", help=f"move what the state file holds to {STORED}"
    )
    return parser.parse_args()


def points_of(scenario: Scenario, modes: list[str], seed: int) -> list[Point]:
    """Return every point of a scenario, different kinds of steps first, in an order of the seed."""
    steps = steps_of(scenario, seed)
    random.Random(f"{seed} {scenario.name}").shuffle(steps)
    print(f"{scenario.name}: {len(steps)} steps", flush=True)
    return [
        Point(scenario.name, step.program, step.number, mode)
        for mode in modes
        for step in different_first(steps)
    ]


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


@dataclass(frozen=True)
class Work:
    """What the jobs do."""

    given: argparse.Namespace
    streams: list[list[Point]]
    """The points of each scenario."""
    deadline: float
    """By the monotonic clock."""

    def points(self) -> Iterator[Point]:
        """Yield what is to be tried, the same in each job."""
        given = self.given
        done = done_before(given.state, given.seed) if given.resume else set()
        streams = [iter(one) for one in self.streams]
        if not given.scenario or given.trouble:
            streams += [troubles_of(name) for name in given.trouble or TROUBLES]
        left = (point for point in in_turn(streams) if point not in done)
        yield from itertools.islice(left, given.points or None)

    def do(self, job: int) -> list[Outcome]:
        """Try every point that falls to a job, each in a laboratory of its own."""
        outcomes = []
        by_name = {one.name: one for one in SCENARIOS}
        with self.given.state.open("a", encoding="utf-8") as state:
            for point in itertools.islice(self.points(), job, None, self.given.jobs):
                if time.monotonic() > self.deadline:
                    break
                if point.mode == TROUBLE:
                    outcome = try_trouble(point.scenario, point.number, self.given.seed)
                else:
                    outcome = try_point(by_name[point.scenario], point, self.given.seed)
                outcomes.append(outcome)
                # One write, so that lines of jobs side by side stay whole.
                state.write(json.dumps({"seed": self.given.seed, **asdict(outcome)}) + "\n")
                state.flush()
                print(tell(outcome), flush=True)
                if outcome.found:
                    print(outcome.found, flush=True)
        return outcomes


def side_by_side(work: Work, jobs: int) -> list[Outcome]:
    """Do the work in processes of their own; a tracer wants a process with one thread."""
    children: dict[int, BinaryIO] = {}
    for job in range(jobs):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with os.fdopen(writing, "wb") as told:
                    pickle.dump(work.do(job), told)
                code = 0
            except SystemExit:
                pass
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        os.close(writing)
        children[child] = os.fdopen(reading, "rb")
    outcomes: list[Outcome] = []
    try:
        for child, pipe in list(children.items()):
            content = pipe.read()
            _, status = os.waitpid(child, 0)
            del children[child]
            if status:
                raise RuntimeError(f"a job ended with {os.waitstatus_to_exitcode(status)}")
            # From our own child.
            outcomes += pickle.loads(content)
    finally:
        for child in children:
            os.kill(child, signal.SIGTERM)
        for child in children:
            os.waitpid(child, 0)
    return outcomes


def main() -> int:
    """Try points until the time is over; return the exit code."""
    given = arguments()
    run_alone("campaigns.kills")
    os.environ.pop("DISKLAB_CATALOG", None)
    # An end by a signal takes the lab away, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if given.minutes > 0:
        return campaign(given)
    if given.store:
        store(given.state)
    if given.page:
        given.page.write_text(page_of(given.state), encoding="utf-8")
    return 0


def campaign(given: argparse.Namespace) -> int:
    """Try points, write the page if one is asked for, and say what was found."""
    clear_left()
    deadline = time.monotonic() + given.minutes * 60
    given.state.parent.mkdir(parents=True, exist_ok=True)
    if not given.resume:
        given.state.write_text("", encoding="utf-8")
    chosen = [one for one in SCENARIOS if given.scenario is None or one.name in given.scenario]
    if given.trouble and given.scenario is None:
        chosen = []
    streams = [points_of(one, given.mode or list(MODES), given.seed) for one in chosen]
    work = Work(given, streams, deadline)
    outcomes = work.do(0) if given.jobs == 1 else side_by_side(work, given.jobs)
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
