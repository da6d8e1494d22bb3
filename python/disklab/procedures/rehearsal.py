"""A rehearsal: every turn in its order, on beds that are built as they are needed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from disklab.errors import DisklabError, MachineError
from disklab.events import (
    Emit,
    PhaseStarted,
    PlannedTrial,
    RunFinished,
    RunStarted,
    TrialFinished,
    TrialStarted,
    Warned,
    fan_out,
)
from disklab.hosts.cleaning import clean_orphans
from disklab.procedures import closed_loop, device, fixed, outcome, variable
from disklab.procedures.bed import Bed
from disklab.procedures.build import Site, build
from disklab.procedures.outcome import Frame
from disklab.procedures.preparation import Prepared
from disklab.procedures.record import Notes
from disklab.procedures.series import Series
from disklab.procedures.turn import Turn
from disklab.procedures.watch import watched
from disklab.results import Phase, Run, TrialResult, utc_now
from disklab.results.event_log import EventLog
from disklab.results.wishes import Wish, wish, wish_of

PROCEDURES: dict[str, Callable[[Turn, Bed, Notes], Series]] = {
    "closed_loop": closed_loop.run,
    "fixed": fixed.run,
    "variable": variable.run,
}

# A bed that cannot be built twice in a row will not be built a third time.
MOST_BUILDS = 2
# A paused run looks this often whether it may go on.
PAUSE_LOOK_S = 0.5


@dataclass
class Beds:
    """The one bed that stands, if any, and those that could not be made."""

    site: Site
    prefix: str
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
            self.standing = build(
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
        with uninterrupted():
            bed.close()


def rehearse(prepared: Prepared, emit: Emit) -> Run:
    """Run what is left of a rehearsal; returns its run.

    KeyboardInterrupt ends it with everything whole: what is finished is stored, the turn in
    progress is not, nothing is left on the machine.
    """
    run = prepared.run
    frame = Frame(prepared.experiment.title, run.info.id, prepared.catalog)
    turns = prepared.turns
    with run.writing(), EventLog(run.folder) as log, ExitStack() as undo:
        # With the lock of the run, who was killed in it is gone, and what he made is an orphan.
        clean_orphans(prepared.site.places)
        emit = fan_out(log, emit)
        # What was wanted of an earlier start is done.
        wish(run.folder, Wish.GO_ON)
        _note_refused(prepared, frame, emit)
        emit(_started(prepared))
        beds = Beds(prepared.site, prepared.host_prefix)
        undo.callback(beds.close)
        done = 0
        interrupted = False
        try:
            for position, turn in enumerate(turns, 1):
                if position > 1 and not _goes_on(run, emit):
                    interrupted = True
                    break
                emit(
                    TrialStarted(position, len(turns), *turn.key, factors=dict(turn.trial.factors))
                )
                result = _turn(turn, beds, run, frame, emit)
                run.append(result)
                done += 1
                emit(_finished(result))
        except KeyboardInterrupt:
            interrupted = True
        emit(PhaseStarted("clean up", ""))
        beds.close()
        if not interrupted:
            run.end()
        emit(
            RunFinished(
                run_id=run.info.id,
                folder=run.folder,
                finished=len(run.finished()),
                left=len(turns) - done,
                interrupted=interrupted,
            )
        )
    return run


def _turn(turn: Turn, beds: Beds, run: Run, frame: Frame, emit: Emit) -> TrialResult:
    """Run one turn. A failure of the turn is its result; the bed it broke is taken away."""
    started = utc_now()
    if turn.trial.spec.device is not None:
        return _device_turn(turn, frame, started, emit)
    notes: Notes | None = None
    phases: list[Phase] = []
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
                result = outcome.measured(frame, turn, notes, series, started)
            notes.seconds.whole(series.whole())
            # The bed is measured first: what this machine can do at all (METHODOLOGY.md 10).
            envelope = bed.nodes[0].envelope
            told = None if envelope is None else envelope.model_dump()
            return result.model_copy(update={"envelope": told})
        except DisklabError as error:
            emit(Warned(str(error).partition("\n")[0], *turn.key))
            failure: DisklabError = error
        except OSError as error:
            failure = MachineError(f"{error.filename or 'this machine'}: {error.strerror}")
        result = outcome.failed(frame, turn, notes, failure, started)
        try:
            beds.close()
        except DisklabError as error:
            emit(Warned(f"{error}; `disklab clean` finds what is left", *turn.key))
        return result


def _goes_on(run: Run, emit: Emit) -> bool:
    """Return whether the next trial begins; wait while somebody wants a pause."""
    wish = wish_of(run.folder)
    if wish is Wish.PAUSE:
        emit(PhaseStarted("paused", "goes on when the live page says so"))
        while wish is Wish.PAUSE:
            time.sleep(PAUSE_LOOK_S)
            wish = wish_of(run.folder)
    return wish is not Wish.STOP


def fewer_copies(turn: Turn) -> list[str]:
    """Return what it means that fewer copies are kept here than in the cluster."""
    copies = turn.trial.share.replication_factor
    if copies is None or copies.here == copies.full:
        return []
    return [
        f"replication factor {copies.here:g} for {copies.full:g}: a node has its share of the "
        "data, but nothing goes between replicas; rates are those of a node without its work for "
        f"the others' copies (--nodes {copies.full:g} has them all)"
    ]


def _device_turn(turn: Turn, frame: Frame, started: str, emit: Emit) -> TrialResult:
    """Run a turn that has no database. Its disk is made for it and goes with it."""
    try:
        return device.run(turn, frame, started, emit)
    except DisklabError as error:
        emit(Warned(str(error).partition("\n")[0], *turn.key))
        return outcome.failed(frame, turn, None, error, started)


def _note_refused(prepared: Prepared, frame: Frame, emit: Emit) -> None:
    """Store the trials that cannot be, with their reasons, unless they are stored already."""
    known = prepared.run.finished()
    for trial in prepared.trials:
        if trial.refused is not None and (trial.index, 0) not in known:
            result = outcome.refused(frame, trial)
            prepared.run.append(result)
            emit(_finished(result))


def _started(prepared: Prepared) -> RunStarted:
    return RunStarted(
        run_id=prepared.run.info.id,
        folder=prepared.run.folder,
        mode="rehearse",
        title=prepared.experiment.title,
        seed=prepared.options.seed,
        planned=tuple(
            PlannedTrial(*turn.key, dict(turn.trial.factors), expected)
            for turn, expected in zip(prepared.turns, prepared.expected_s, strict=True)
        ),
        finished=len(prepared.run.finished() - {turn.key for turn in prepared.turns}),
        refused=sum(trial.refused is not None for trial in prepared.trials),
    )


def _finished(result: TrialResult) -> TrialFinished:
    return TrialFinished(
        trial=result.trial,
        repeat=result.repeat,
        status=result.status,
        duration_s=sum(phase.duration_s for phase in result.phases),
        result=result.model_dump(mode="json"),
    )


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C wait until the block is done."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
