"""Shows a run: one line a finished trial, and on a terminal a live line for what goes on."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from disklab.events import (
    Emit,
    Event,
    Factors,
    PhaseStarted,
    Progress,
    RunFinished,
    RunStarted,
    TimedStep,
    TrialFinished,
    TrialStarted,
    Warned,
)
from disklab.procedures.life import waits_told
from disklab.report import wording
from disklab.results.event_log import TimeLeft
from disklab.waiting import Waiting

REFRESH_PER_S = 4
# Without a terminal a line now and then shows that it goes on: a log of an hour stays readable.
PLAIN_EVERY_S = 15.0


class RunView:
    """A subscriber to the events of a run. Writes to one console, standard error."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.interrupted = False
        self._time = TimeLeft(())
        self._told: set[str] = set()
        self._begun = time.monotonic()
        self._key: tuple[int, int] | None = None
        self._trial = ""
        self._phase = ""
        self._load = ""
        self._said_at = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> RunView:
        """Start the live line when there is a terminal."""
        if self.console.is_terminal:
            self._live = Live(
                self._line(), console=self.console, refresh_per_second=REFRESH_PER_S, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the live line."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:  # noqa: C901 - a case for each event
        """Show one event."""
        match event:
            case RunStarted():
                self._time = TimeLeft(event.planned)
                self._say(plan_text(event), style="bold")
            case TrialStarted():
                self._begun, self._key = time.monotonic(), (event.trial, event.repeat)
                name = name_of(event.factors, event.repeat)
                self._trial = f"trial {event.position} of {event.of}: {name}"
                self._plain(f"{self._trial} (about {clock(self._time.left_s())} left)")
            case PhaseStarted():
                self._phase, self._load = event.phase, event.detail
                self._time.phase_began()
                self._plain(f"  {event.phase}" + (f": {event.detail}" if event.detail else ""))
            case Progress():
                self._load = load_text(event)
                self._time.progressed(event.done, event.of, event.t_s)
                self._plain_now_and_then()
            case Waiting():
                self._load = waiting_text(event)
                self._plain_now_and_then()
            case TimedStep():
                self._say(step_text(event))
            case Warned():
                self._warn(event.text)
            case TrialFinished():
                self._finish(event)
            case RunFinished():
                self.interrupted = event.interrupted
                self._say(ending_text(event))
        if self._live is not None:
            self._live.update(self._line())

    def _warn(self, text: str) -> None:
        """Show a warning. What holds for a bed is noted with each of its trials; told once."""
        if text not in self._told:
            self._told.add(text)
            self._say(Text.assemble(("  warning: ", "yellow"), text))

    def _finish(self, event: TrialFinished) -> None:
        self._time.finished((event.trial, event.repeat), time.monotonic() - self._begun)
        self._say(result_text(event))

    def _line(self) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(self._trial, style="bold")
        line.append(f"  {self._phase}", style="cyan")
        line.append(f"  {self._load}  ")
        line.append(f"{clock(self._left_s())} left", style="dim")
        return line

    def _left_s(self) -> float:
        return self._time.left_s(self._key, time.monotonic() - self._begun)

    def _say(self, text: str | Text, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, highlight=False)
        self._said_at = time.monotonic()

    def _plain_now_and_then(self) -> None:
        if time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            left = clock(self._left_s())
            self._plain(f"  {self._phase}: {self._load} (about {left} left)")

    def _plain(self, text: str) -> None:
        """Print what the live line shows on a terminal."""
        if self._live is None:
            self._say(text)


@contextmanager
def waits_shown(to: Console, *beside: Emit) -> Iterator[None]:
    """Show the waits in a block where no run is shown; `beside` hears each as an event too."""
    shown_at = time.monotonic()

    def show(event: Event) -> None:
        nonlocal shown_at
        for emit in beside:
            emit(event)
        assert isinstance(event, Waiting), "nothing else is told here"
        if not event.ended and time.monotonic() - shown_at >= PLAIN_EVERY_S:
            shown_at = time.monotonic()
            to.print(waiting_text(event), markup=False, highlight=False)

    with waits_told(show):
        yield


def plan_text(event: RunStarted) -> str:
    """Return what is going to happen."""
    expected = clock(sum(one.expected_s for one in event.planned))
    parts = [f"{wording.counted(len(event.planned), 'trial')} to run, about {expected}"]
    if event.finished:
        parts.append(f"{event.finished} have a result")
    if event.refused:
        parts.append(f"{event.refused} refused, with the reason in the report")
    # A probe without --out keeps no run.
    where = f"\nrun {event.run_id} in {event.folder}" if event.run_id else ""
    return f"{event.title}\n{'; '.join(parts)}{where}"


def name_of(factors: Factors, repeat: int) -> str:
    """Return a trial's levels in a few words."""
    levels = ", ".join(f"{name.rpartition('.')[2]} {level}" for name, level in factors.items())
    return f"{levels}; repeat {repeat + 1}"


def load_text(event: Progress) -> str:
    """Return how a load goes."""
    if event.done is None or event.ops_per_s is None:
        return f"{clock(event.t_s)} so far"
    done = f"{event.done}" + (f" of {event.of}" if event.of else "")
    p99 = "" if event.p99_ms is None else f", p99 {wording.latency(event.p99_ms)}"
    errors = f", {event.errors} errors" if event.errors else ""
    return f"{done}, {wording.rate(event.ops_per_s)} ops/s{p99}{errors}"


def waiting_text(event: Waiting) -> str:
    """Return what is waited for, since when and how long at most."""
    what = f" ({event.what})" if event.what else ""
    if event.ended:
        return f"{event.name}: after {clock(event.since_s)}"
    since, limit = clock(event.since_s), clock(event.limit_s)
    return f"waiting until {event.name}{what}: {since} of at most {limit}"


def result_text(event: TrialFinished) -> Text:
    """Return a finished trial on one line."""
    result = event.result
    style = {"ok": "green", "invalid": "yellow"}.get(event.status, "red")
    line = Text.assemble((f"{event.status:8}", style), name_of(result["factors"], event.repeat))
    latency = result.get("latency_ms") or {}
    if result.get("ops_per_s") is not None and latency:
        line.append(
            f": {wording.rate(result['ops_per_s'])} ops/s, "
            f"p50 {wording.latency(latency['p50'])}, p99 {wording.latency(latency['p99'])}"
        )
    reason = result.get("reason")
    if reason:
        line.append(f": {reason['rule']}")
    for why in result.get("invalid_reasons") or []:
        line.append(f"\n         {why}", style="yellow")
    return line


def ending_text(event: RunFinished) -> str:
    """Return how the run ended, and what to do next."""
    where = f"run {event.run_id} in {event.folder}"
    if event.interrupted:
        return (
            f"stopped; {wording.counted(event.finished, 'result')} stored, "
            f"{wording.counted(event.left, 'trial')} left; "
            f"go on with: disklab {event.mode} --resume {shlex.quote(str(event.folder))}"
        )
    return f"done: {wording.counted(event.finished, 'result')}, {where}"


def clock(seconds: float) -> str:
    """Return a time left in a form that people read at a glance."""
    whole = max(int(seconds + 0.5), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def step_text(event: TimedStep) -> str:
    """Return a step of a timetable on one line."""
    if event.ended_s is None:
        return f"  {event.begun_s:.0f} s: {event.kind} {event.node}"
    took_s = event.ended_s - event.begun_s
    return f"  {event.ended_s:.0f} s: {event.kind} {event.node} done in {took_s:.1f} s"
