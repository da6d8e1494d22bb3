"""A rehearsal: every turn in its order, on beds that are built as they are needed."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from disklab.databases.log import FirstErrors
from disklab.errors import DisklabError, MachineError
from disklab.events import Emit, PhaseStarted, Warned
from disklab.hosts.cleaning import clean_orphans
from disklab.hosts.filesystem import explained
from disklab.hosts.node import Progress
from disklab.hosts.places import Places
from disklab.interrupts import held_back
from disklab.procedures import device, outcome, passes, replay
from disklab.procedures.bed import Bed
from disklab.procedures.build import Site, build
from disklab.procedures.life import Stage, live
from disklab.procedures.outcome import Frame
from disklab.procedures.preparation import Prepared
from disklab.procedures.record import BETWEEN, Notes, SecondsSink, Series, TelemetrySink
from disklab.procedures.turn import Turn
from disklab.results import Mode, Phase, Run, TrialResult, utc_now
from disklab.telemetry import (
    DatabaseWatch,
    Machine,
    ProcessCpu,
    Sampler,
    Source,
)
from disklab.telemetry.sources import CPUS
from disklab.waiting import Wait

# Watching a bed once a second while a turn runs on it.


def _alone(pid: int | None) -> list[int]:
    return [] if pid is None else [pid]


@contextmanager
def watched(bed: Bed, notes: Notes) -> Iterator[None]:
    """Watch processes, disks, emulator, page cache and database inside the block."""
    with ExitStack() as undo:
        database = DatabaseWatch(bed.database)
        sources: list[Source] = [
            Machine(),
            ProcessCpu("client", lambda: _alone(bed.client_pid)),
            ProcessCpu("server", database.serving),
            ProcessCpu("emulator", lambda: [one.pid for one in bed.hosts.nodes if one.attached]),
            database,
        ]
        sources += bed.hosts.sources(undo)

        def noticed(error: DisklabError) -> None:
            # The death of a database or a disk ends a load; a blind source of telemetry does not.
            if isinstance(error, MachineError):
                bed.give_up(error)

        notes.credits.time_dilation = bed.hosts.time_dilation
        notes.sampler = undo.enter_context(Sampler(sources, notes.saw, noticed))
        notes.sampler.enter(BETWEEN)
        yield


PROCEDURES: dict[str, Callable[[Turn, Bed, Notes], Series]] = {
    "closed_loop": passes.closed_loop,
    "fixed": passes.fixed_rate,
    "variable": passes.variable_threads,
}

# A bed that cannot be built twice in a row will not be built a third time.
MOST_BUILDS = 2


Make = Callable[[Turn, str, Site, Progress], Bed]
"""Makes the bed of a turn; see `build`."""


@dataclass
class Beds:
    """The one bed that stands, if any, and those that could not be made."""

    site: Site
    prefix: str
    make: Make = build
    standing: Bed | None = None
    _failures: dict[str, list[DisklabError]] = field(default_factory=dict)
    _built: int = 0

    def get(self, turn: Turn, emit: Emit, phases: list[Phase]) -> Bed:
        """Return the bed of a turn; build it when another one stands, or none."""
        if self.standing is not None and self.standing.name == turn.bed:
            return self.standing
        self.close()
        failures = self._failures.setdefault(turn.bed, [])
        if len(failures) >= MOST_BUILDS:
            raise failures[-1]
        self._built += 1
        begun = time.monotonic()
        emit(PhaseStarted("build", "hosts, volumes, database"))
        try:
            self.standing = self.make(
                turn,
                f"{self.prefix}-{self._built}",
                self.site,
                lambda what: emit(PhaseStarted("build", what)),
            )
        except DisklabError as error:
            failures.append(error)
            raise
        failures.clear()
        phases.append(Phase(name="build", duration_s=round(time.monotonic() - begun, 3)))
        return self.standing

    def close(self) -> None:
        """Take the standing bed away; a second Ctrl-C waits until that is done."""
        bed, self.standing = self.standing, None
        if bed is None:
            return
        with held_back():
            bed.close()


# What others do on this machine now may be over in a moment, and a trial beside it not count.

MOST_WAIT_S = 60.0
"""For a calmer machine, in all of a run."""
WAIT_ENVIRONMENT = "DISKLAB_CALM_WAIT"
"""Seconds instead of these: 0 where others' work is no reason to wait, as in tests."""
LOOK_S = 0.5
CALM_RATIO = 0.5
"""Of the processors. A trial's own work leaves about that much free."""
TOLD_EACH = 20
"""Looks from one line of progress to the next."""


@dataclass
class Calm:
    """What is left of the time in which a run waits for others to end."""

    left_s: float = field(
        default_factory=lambda: float(os.environ.get(WAIT_ENVIRONMENT) or MOST_WAIT_S)
    )

    def wait(self, emit: Emit) -> None:
        """Return when little else runs, or the time is over."""
        machine = Machine()
        deque(machine.sample(LOOK_S), maxlen=0)
        pause = Wait("a calmer machine", self.left_s).pause
        for look in count():
            if self.left_s < LOOK_S:
                return
            self.left_s -= LOOK_S
            begun = time.monotonic()
            pause(LOOK_S)
            seen = dict(machine.sample(time.monotonic() - begun))
            used = seen.get("busy_cores", 0.0) / CPUS
            if used < CALM_RATIO:
                return
            if look % TOLD_EACH == 0:
                text = f"waiting for a calmer machine: others use {used:.0%} of its processors"
                emit(PhaseStarted("condition", f"{text} ({self.left_s:.0f} s at most)"))


@dataclass
class Emulation:
    """The stage of a rehearsal: beds on this machine's emulated disks."""

    beds: Beds
    mode: Mode = "rehearse"
    calm: Calm = field(default_factory=Calm)

    def begin(self, emit: Emit) -> None:
        """Remove what a rehearsal has left that was killed."""
        del emit
        clean_orphans(self.beds.site.places)

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Run one turn. A failure of the turn is its result; the bed it broke is taken away."""
        self.calm.wait(emit)
        return run_turn(turn, self.beds, run, frame, emit)

    def close(self) -> None:
        """Take the standing bed away."""
        self.beds.close()


def rehearse(prepared: Prepared, emit: Emit, stage: Stage | None = None) -> Run:
    """Run what is left of a rehearsal; returns its run. See `life.live`.

    `stage`: whoever makes the beds; this process by default.
    """
    here = Emulation(Beds(prepared.site, prepared.host_prefix))
    return live(prepared, here if stage is None else stage, emit)


class Records(Protocol):
    """Where the course of a turn is written down."""

    def record_seconds(self, trial: int, repeat: int) -> AbstractContextManager[SecondsSink]:
        """Return what takes the seconds and histograms."""

    def record_telemetry(self, trial: int, repeat: int) -> AbstractContextManager[TelemetrySink]:
        """Return what takes the telemetry."""


def run_turn(turn: Turn, beds: Beds, run: Records, frame: Frame, emit: Emit) -> TrialResult:
    """Run one turn. A failure of the turn is its result; the bed it broke is taken away."""
    started = utc_now()
    if turn.trial.spec.device is not None:
        return _device_turn(turn, frame, started, emit)
    notes: Notes | None = None
    phases: list[Phase] = []
    errors = FirstErrors()
    with ExitStack() as undo:
        try:
            bed = beds.get(turn, emit, phases)
            notes = Notes(
                emit=emit,
                seconds=undo.enter_context(run.record_seconds(*turn.key)),
                telemetry=undo.enter_context(run.record_telemetry(*turn.key)),
                trial=turn.trial.index,
                repeat=turn.repeat,
                phases=phases,
            )
            for text in [*fewer_copies(turn), *bed.warnings]:
                notes.warn(text)
            with watched(bed, notes):
                series = PROCEDURES[turn.procedure](turn, bed, notes)
                for text in bed.warnings:
                    notes.warn(text)
                result = outcome.measured(frame, turn, notes, series, started)
            notes.seconds.whole(series.whole())
            # The bed is measured first: what this machine can do at all.
            envelope = bed.hosts.nodes[0].envelope if bed.hosts.nodes else None
            told = None if envelope is None else envelope.model_dump()
            result = result.model_copy(update={"envelope": told})
            failure: DisklabError | None = None
        except DisklabError as error:
            emit(Warned(str(error).partition("\n")[0], *turn.key))
            failure = error
        except OSError as error:
            failure = MachineError(f"{error.filename or 'this machine'}: {error.strerror}")
        if failure is None and not turn.spec.events:
            return result
        if failure is not None:
            # Asked while the data that filled it are there.
            failure = outcome.explained(failure, errors.lines())
            failure = explained(failure, Places.usual().room()[0])
            result = outcome.failed(frame, turn, notes, failure, started)
        # What was broken on purpose is not as it was either.
        try:
            beds.close()
        except DisklabError as error:
            emit(Warned(f"{error}; `disklab clean` finds what is left", *turn.key))
        return result


def fewer_copies(turn: Turn) -> list[str]:
    """Return what it means that fewer copies are kept here than in the cluster."""
    copies = turn.trial.share.replication_factor
    if copies is None or copies.here == copies.full:
        return []
    return [
        f"replication factor {copies.here:g} for {copies.full:g}: a node has its share of the "
        "data, but "
        "there is no traffic between replicas; rates are those of a node without the work for "
        f"copies on other nodes (--nodes {copies.full:g} has them all)"
    ]


def _device_turn(turn: Turn, frame: Frame, started: str, emit: Emit) -> TrialResult:
    """Run a turn that has no database. Its disk is made for it and goes with it."""
    try:
        if turn.trial.replay is not None:
            return replay.run(turn, frame, started, emit)
        return device.run(turn, frame, started, emit)
    except DisklabError as error:
        emit(Warned(str(error).partition("\n")[0], *turn.key))
        return outcome.failed(
            frame, turn, None, explained(error, Places.usual().room()[0]), started
        )
