"""One crash point: a fresh lab, a command killed at a step, and what must be true afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import traceback
from dataclasses import asdict, dataclass

from disklab.results import Run

from campaigns.kills.lab import MOST_SECONDS, FoundError, Lab, memory_groups_of
from campaigns.kills.scenarios import EXPERIMENT, RAW, Scenario
from campaigns.kills.tracing import Step, Trace, Tracer
from campaigns.kills.writer import Writing
from tests.journal import Journal

MODES = ("alone", "together", "halt")
"""Kill the process that makes the step; kill conductor and engine at once; stop the process for a
while, which must do no harm."""
HALT_SECONDS = 0.5
# A busy machine takes minutes for what an idle one does in half of one.
REHEARSAL_SECONDS = 600.0


@dataclass(frozen=True)
class Point:
    """Where and how to kill."""

    scenario: str
    program: str
    number: int
    mode: str


@dataclass(frozen=True)
class Outcome:
    """What became of a point."""

    point: Point
    step: str
    """Where it really was; empty: the command ended before."""
    found: str
    """What was wrong; empty: nothing."""
    acknowledged: int
    """Blocks whose acknowledged version was looked for."""
    seconds: float


def trace_in_fork(lab: Lab, scenario: Scenario, at: tuple[str, int] | None, mode: str) -> Trace:
    """Run the command of a scenario under the tracer, in a process that goes away with it."""
    engine = lab.engine()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            tracer = Tracer(
                scenario.programs,
                str(lab.root),
                at,
                together=mode == "together",
                halt_s=HALT_SECONDS if mode == "halt" else 0.0,
                most_s=REHEARSAL_SECONDS if scenario.rehearses else MOST_SECONDS,
            )
            trace = tracer.run(lab.child(scenario.command), [engine.pid] if engine else [])
            with os.fdopen(writing, "w") as told:
                json.dump(asdict(trace), told)
        except BaseException:
            traceback.print_exc()
            os._exit(70)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    os.waitpid(child, 0)
    if not text:
        raise RuntimeError("the tracer failed")
    kept = json.loads(text)
    steps = [Step(**one) for one in kept["steps"]]
    reached = None if kept["reached"] is None else Step(**kept["reached"])
    return Trace(steps, reached, kept["status"], kept["conductor"])


def prepare(lab: Lab, scenario: Scenario, seed: int) -> Writing | None:
    """Bring a lab into the state that a scenario begins in."""
    if scenario.rehearses:
        (lab.root / "experiment.yaml").write_text(EXPERIMENT)
    for command in scenario.before:
        lab.must(*command)
    writing = None
    if scenario.writes:
        record = lab.volume("data")
        assert record is not None
        assert record.device is not None
        writing = Writing.begin(record.device, seed)
    if scenario.kill_engine:
        engine = lab.engine()
        assert engine is not None
        assert engine.end()
    return writing


def steps_of(scenario: Scenario, seed: int) -> list[Step]:
    """Return every step of a scenario's command, by running it once to its end."""
    lab = Lab.make()
    writing = None
    try:
        writing = prepare(lab, scenario, seed)
        trace = trace_in_fork(lab, scenario, None, "alone")
        if trace.status != 0:
            raise RuntimeError(f"{scenario.name}: it ended with {trace.status}:\n{lab.said()}")
        return trace.steps
    finally:
        if writing is not None:
            writing.kill()
        lab.take_away()


def try_point(scenario: Scenario, point: Point, seed: int) -> Outcome:
    """Kill at a point and look at everything afterwards."""
    began = time.monotonic()
    lab = Lab.make()
    writing: Writing | None = None
    step, found, checked = "", "", 0
    try:
        writing = prepare(lab, scenario, seed)
        trace = trace_in_fork(lab, scenario, (point.program, point.number), point.mode)
        if trace.reached is not None:
            step = f"{trace.reached.program} {trace.reached.call} {trace.reached.what}".strip()
        if trace.status is None:
            raise FoundError("the command hangs")
        if point.mode == "halt" and trace.status != 0:
            raise FoundError(f"stopped for a while, it ended with {trace.status}")
        checked = check(lab, scenario, writing, trace.conductor)
    except FoundError as error:
        found = str(error)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        found = f"{type(error).__name__}: {error}"
    finally:
        if found:
            found += "\n" + lab.said()[-2000:]
        if writing is not None:
            writing.kill()
        lab.take_away()
    return Outcome(point, step, found, checked, round(time.monotonic() - began, 2))


def check(lab: Lab, scenario: Scenario, writing: Writing | None, conductor: int) -> int:
    """Clean, look for everything that was promised; return how many blocks were looked at."""
    lab.must("clean")
    lab.check_half_made()
    lab.check_decoys()
    checked = 0
    if scenario.rehearses:
        lab.check_empty()
        checked = resume(lab)
    elif writing is not None:
        # The writer goes on as long as its device lives.
        journal = writing.end()
        checked = look(lab, scenario, journal)
    elif scenario.again and lab.volume(scenario_volume(scenario)) is None:
        lab.must(*scenario.again)
    lab.must("clean", "--all", "--data")
    lab.check_empty()
    lab.check_decoys()
    if left := memory_groups_of(conductor):
        raise FoundError(f"memory groups left: {left}")
    return checked


def resume(lab: Lab) -> int:
    """Go on with the killed rehearsal; return how many results it had, all of which must stay."""
    runs = sorted((lab.root / "runs").glob("*/run.json"))
    if not runs:
        return 0
    folder = runs[0].parent
    before = [one.model_dump(mode="json") for one in Run.open(folder).results()]
    # 1: a busy machine made a trial invalid.
    code = lab.run("rehearse", "--resume", str(folder), seconds=REHEARSAL_SECONDS)
    if code not in (0, 1):
        raise FoundError(f"resume ended with {code}")
    run = Run.open(folder)
    now = [one.model_dump(mode="json") for one in run.results()]
    if any(one not in now for one in before):
        raise FoundError("a result of before the crash is lost")
    if run.finished() != {(0, 0), (1, 0)} or len(now) != 2:
        raise FoundError(f"finished are {run.finished()}, in {len(now)} results")
    if bad := [one["status"] for one in now if one["status"] not in ("ok", "invalid")]:
        raise FoundError(f"trials ended {bad}")
    return len(before)


def scenario_volume(scenario: Scenario) -> str:
    """Return the name of the volume that a scenario's command attaches."""
    words = list(scenario.command)
    return words[words.index("--name") + 1] if "--name" in words else "data"


def look(lab: Lab, scenario: Scenario, journal: Journal) -> int:
    """Read every block back and hold it against what was promised."""
    if lab.volume("data") is None:
        lab.must(*(scenario.before[0] if scenario.before else RAW))
    elif scenario.mend:
        lab.must(*scenario.mend)
    record = lab.volume("data")
    if record is None or record.device is None:
        raise FoundError("volume data has no device")
    violations = read_in_fork(record.device, journal, scenario)
    if violations:
        raise FoundError("lost: " + "; ".join(violations[:10]))
    return sum(version > 0 for version in journal.acknowledged)


def read_in_fork(device: str, journal: Journal, scenario: Scenario) -> list[str]:
    """Return the violations; a process of its own reads, so that a dead disk hangs nobody else."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as told:
            try:
                json.dump(journal.violations(device, scenario.promise), told)
            except OSError as error:
                json.dump([f"{device}: {error}"], told)
        os._exit(0)
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(60)
    try:
        with os.fdopen(reading) as told:
            text = told.read()
    finally:
        signal.alarm(0)
    os.waitpid(child, 0)
    found: list[str] = json.loads(text) if text else [f"{device}: reading hangs"]
    return found


def tell(outcome: Outcome) -> str:
    """Return one line on an outcome."""
    point = outcome.point
    state = "FAILED" if outcome.found else "ok" if outcome.step else "ended before"
    where = outcome.step or f"{point.program} {point.number}"
    return f"{state:12} {point.scenario}: {point.mode} at {where} ({outcome.seconds:g} s)"


__all__ = ["MODES", "Outcome", "Point", "steps_of", "tell", "try_point"]
