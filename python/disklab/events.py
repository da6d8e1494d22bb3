"""What happens while experiments run, as typed facts: the spine of a run.

Procedures emit them; the console, the JSON lines and the log subscribe. Nothing below the command
line prints. Times are seconds since the start of what they belong to; wall-clock times are UTC in
ISO 8601.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disklab.waiting import Waiting

Factors = Mapping[str, str | int | float]
"""Factor name -> level, as the user wrote them, in the order of the file."""


@dataclass(frozen=True)
class PlannedTrial:
    """One trial or repeat in the order in which it will run."""

    trial: int
    repeat: int
    factors: Factors
    expected_s: float
    """An estimate before anything was measured."""


@dataclass(frozen=True)
class RunStarted:
    """A run has begun, or goes on."""

    run_id: str
    folder: Path
    mode: str
    title: str
    seed: int
    planned: tuple[PlannedTrial, ...]
    """What is left to do, in running order."""
    finished: int
    """How many trials and repeats an earlier start of this run has finished."""
    refused: int
    """How many cannot run; they are in the results with their reason."""


@dataclass(frozen=True)
class TrialStarted:
    """A trial has begun."""

    position: int
    """1 for the first of this start."""
    of: int
    trial: int
    repeat: int
    factors: Factors


@dataclass(frozen=True)
class PhaseStarted:
    """A trial, or the building that several trials share, has reached its next phase."""

    phase: str
    """`build`, `provision`, `fill`, `settle`, `condition`, `warm-up`, `measure`, `collect`."""
    detail: str = ""
    """What is done, in a few words."""


@dataclass(frozen=True)
class Progress:
    """How a phase goes, about once a second."""

    phase: str
    t_s: float
    done: int | None
    """Operations since the start of the phase; None: not known while it goes on."""
    of: int | None
    """None: the phase ends by time or by a condition."""
    ops_per_s: float | None
    """None: not known while it goes on."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    errors: int = 0
    seen: Mapping[str, float] | None = None
    """What disks and their limits did in the last second, by `SOURCE: METRIC` of the telemetry."""


@dataclass(frozen=True)
class TimedStep:
    """A step of a timetable has begun or, with `ended_s`, ended; times from the load's start."""

    kind: str
    """What happens: `kill`, `migrate`, `mend`, ...; see docs/experiment-file.md."""
    node: str
    at_s: float
    """When it was requested."""
    begun_s: float
    ended_s: float | None


@dataclass(frozen=True)
class Warned:
    """Something that the user should know, and that stops nothing."""

    text: str
    trial: int | None = None
    repeat: int | None = None


@dataclass(frozen=True)
class TrialFinished:
    """A trial has ended, well or not, and its result is on the disk."""

    trial: int
    repeat: int
    status: str
    """`ok`, `failed`, `refused` or `invalid`."""
    duration_s: float
    result: Mapping[str, Any]
    """The line of `--json`: the same object that lies in `trials.jsonl`."""


@dataclass(frozen=True)
class RunFinished:
    """A run has ended, or was stopped."""

    run_id: str
    folder: Path
    finished: int
    """Trials and repeats with a result, those of earlier starts included."""
    left: int
    """How many are left for `--resume`."""
    interrupted: bool
    report: Path | None = None
    """The page, when one was written."""
    mode: str = "rehearse"
    """The command that goes on with it."""


Event = (
    RunStarted
    | TrialStarted
    | PhaseStarted
    | Progress
    | TimedStep
    | Waiting
    | Warned
    | TrialFinished
    | RunFinished
)
Emit = Callable[[Event], None]
"""Takes an event. Must be quick and must not raise: it is called between measurements."""


def fan_out(*subscribers: Emit) -> Emit:
    """Return what hands each event to every subscriber, in order."""

    def emit(event: Event) -> None:
        for subscriber in subscribers:
            subscriber(event)

    return emit
