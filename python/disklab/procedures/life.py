"""The life of a run: every turn in its order, its events told, each result stored at once."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

from disklab import durable, waiting
from disklab.catalog import Catalog
from disklab.events import (
    Emit,
    PhaseStarted,
    PlannedTrial,
    RunFinished,
    RunStarted,
    TrialFinished,
    TrialStarted,
    fan_out,
)
from disklab.interrupts import ended_once, uninterrupted
from disklab.procedures import outcome
from disklab.procedures.outcome import Frame
from disklab.procedures.turn import Turn
from disklab.results import Mode, Run, TrialResult
from disklab.results.event_log import EventLog, Wish, wish, wish_of
from disklab.spec import Experiment, Trial

# A paused run looks this often whether it may go on.
PAUSE_LOOK_S = 0.5


@dataclass(frozen=True)
class Planned:
    """A run that can begin."""

    experiment: Experiment
    trials: list[Trial]
    turns: list[Turn]
    """What is left to do, in running order."""
    expected_s: list[float]
    """Of each turn."""
    seed: int
    run: Run
    catalog: Catalog


class Stage(Protocol):
    """Where the turns of a run take place."""

    @property
    def mode(self) -> Mode:
        """What results of this stage are."""

    def begin(self, emit: Emit) -> None:
        """Make it ready, with the lock of the run held: who was killed in this run is gone."""

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Run one turn. A failure of the turn is its result."""

    def close(self) -> None:
        """Leave everything as it was found; nothing when that is done."""


def live(planned: Planned, stage: Stage, emit: Emit) -> Run:
    """Run what is left of a run; returns it.

    KeyboardInterrupt ends it with everything whole: what is finished is stored, the turn in
    progress is not, nothing is left on any machine.
    """
    with ended_once():
        return _live(planned, stage, emit)


def _live(planned: Planned, stage: Stage, emit: Emit) -> Run:
    run = planned.run
    frame = Frame(planned.experiment.title, run.info.id, planned.catalog, stage.mode)
    turns = planned.turns
    with run.writing(), EventLog(run.folder) as log, ExitStack() as undo:
        emit = fan_out(log, emit)
        undo.enter_context(waits_told(emit))
        undo.callback(_close, stage)
        # What was wanted of an earlier start is done.
        with durable.writing_to(run.folder):
            wish(run.folder, Wish.GO_ON)
        done = 0
        interrupted = False
        try:
            stage.begin(emit)
            _note_refused(planned, frame, emit)
            emit(_started(planned, stage.mode))
            for position, turn in enumerate(turns, 1):
                if position > 1 and not _goes_on(run, emit):
                    interrupted = True
                    break
                emit(
                    TrialStarted(position, len(turns), *turn.key, factors=dict(turn.trial.factors))
                )
                result = stage.turn(turn, run, frame, emit)
                run.append(result)
                done += 1
                emit(_finished(result))
        except KeyboardInterrupt:
            interrupted = True
        emit(PhaseStarted("clean up", ""))
        _close(stage)
        if not interrupted:
            run.end()
        emit(
            RunFinished(
                run_id=run.info.id,
                folder=run.folder,
                finished=len(run.finished()),
                left=len(turns) - done,
                interrupted=interrupted,
                mode=run.info.mode,
            )
        )
    return run


def waits_told(emit: Emit) -> AbstractContextManager[None]:
    """Return a block that tells of the waits in it as events."""
    return waiting.followed(emit)


def _close(stage: Stage) -> None:
    """Close a stage; a second Ctrl-C waits until that is done."""
    with uninterrupted():
        stage.close()


def _goes_on(run: Run, emit: Emit) -> bool:
    """Return whether the next trial begins; wait while somebody wants a pause."""
    wish = wish_of(run.folder)
    if wish is Wish.PAUSE:
        emit(PhaseStarted("paused", "goes on when the live page says so"))
        while wish is Wish.PAUSE:
            time.sleep(PAUSE_LOOK_S)
            wish = wish_of(run.folder)
    return wish is not Wish.STOP


def _note_refused(planned: Planned, frame: Frame, emit: Emit) -> None:
    """Store the trials that cannot be, with their reasons, unless they are stored already."""
    known = planned.run.finished()
    for trial in planned.trials:
        if trial.refused is not None and (trial.index, 0) not in known:
            result = outcome.refused(frame, trial, trial.refused)
            planned.run.append(result)
            emit(_finished(result))


def _started(planned: Planned, mode: Mode) -> RunStarted:
    return RunStarted(
        run_id=planned.run.info.id,
        folder=planned.run.folder,
        mode=mode,
        title=planned.experiment.title,
        seed=planned.seed,
        planned=tuple(
            PlannedTrial(*turn.key, dict(turn.trial.factors), expected)
            for turn, expected in zip(planned.turns, planned.expected_s, strict=True)
        ),
        finished=len(planned.run.finished() - {turn.key for turn in planned.turns}),
        refused=sum(trial.refused is not None for trial in planned.trials),
    )


def _finished(result: TrialResult) -> TrialFinished:
    return TrialFinished(
        trial=result.trial,
        repeat=result.repeat,
        status=result.status,
        duration_s=sum(phase.duration_s for phase in result.phases),
        result=result.model_dump(mode="json"),
    )
