"""The caller's part of a rehearsal: plans, writes down and reports what root's part does."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from disklab.catalog import Catalog
from disklab.errors import MachineError
from disklab.events import Emit
from disklab.interrupts import uninterrupted
from disklab.names import NAME
from disklab.privilege.requests import (
    FORMS,
    Begin,
    Check,
    Close,
    LogPart,
    Opened,
    Row,
    TakeTurn,
    Told,
    columns_of,
    without_wishes,
)
from disklab.privilege.talk import Link, Said, Talk
from disklab.procedures.outcome import Frame
from disklab.procedures.replay import most_written_bytes
from disklab.procedures.turn import Turn
from disklab.results import Mode, Run, Second, SecondsWriter, TelemetryWriter, TrialResult, Whole
from disklab.spec import Trial


class Root(Talk):
    """Root's part of a rehearsal, as the caller's sees it."""

    def __init__(self, link: Link) -> None:
        """Take the caller's end of the socket."""
        super().__init__(link, FORMS)

    def check(
        self,
        trials: Sequence[Trial],
        turns: Sequence[Turn],
        catalog: Catalog,
        say: Callable[[str], None],
    ) -> dict[str, str]:
        """Return the versions used. See `preparation.check`."""

        def hear(what: Told) -> None:
            if isinstance(what, Said):
                say(what.text)

        plain = [without_wishes(turn) for turn in turns]
        # Only the first refusal is told, and only where there is no turn.
        refused = [one for one in trials if one.refused is not None][:1]
        kept = [*([] if turns else refused)]
        request = Check(kept, plain, catalog, most_written_bytes(turns))
        found: dict[str, str] = self.ask(request, hear)
        return found


@dataclass
class Divided:
    """The stage of a rehearsal whose beds root's part makes."""

    root: Root
    run: Run
    catalog: Catalog
    seed: int
    title: str
    mode: Mode = "rehearse"
    _emit: Emit = field(default=lambda _: None)

    def begin(self, emit: Emit) -> None:
        """Let root's part remove what a killed rehearsal has left."""
        self._emit = emit
        begun = Begin(self.catalog, self.title, self.run.info.id, self.seed)
        self.root.ask(begun, _Notes(self.run, emit).hear)

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Let root's part run one turn; its seconds and telemetry are written down here."""
        del frame
        with _Notes(run, emit, turn.key) as notes:
            replay = turn.trial.replay
            columns = None if replay is None else columns_of(replay)
            asked_for = TakeTurn(without_wishes(turn), columns)
            result: TrialResult = self.root.ask(asked_for, notes.hear)
        return result

    def close(self) -> None:
        """Let root's part take the standing bed away."""
        if self.root.is_gone:
            return
        with uninterrupted():
            self.root.ask(Close(), _Notes(self.run, self._emit).hear)


@dataclass
class _Notes:
    """Writes down what is told while a request is under way."""

    run: Run
    emit: Emit
    key: tuple[int, int] | None = None
    _open: ExitStack = field(default_factory=ExitStack)
    _seconds: SecondsWriter | None = None
    _telemetry: TelemetryWriter | None = None

    def hear(self, what: Told) -> None:
        """Take one message."""
        match what:
            case Opened() if self.key is not None:
                self._seconds = self._open.enter_context(self.run.record_seconds(*self.key))
                self._telemetry = self._open.enter_context(self.run.record_telemetry(*self.key))
            case Second() if self._seconds is not None:
                self._seconds.second(what)
            case Whole() if self._seconds is not None:
                self._seconds.whole(what)
            case Row() if self._telemetry is not None:
                self._telemetry.add(what.phase, what.t_s, what.source, what.metric, what.value)
            case LogPart():
                self._log(what)
            case Opened() | Second() | Whole() | Row() | Said():
                pass
            case _:
                self.emit(what)

    def _log(self, part: LogPart) -> None:
        if NAME.fullmatch(part.name) is None:
            raise MachineError(f"root's part told of a log called {part.name!r}")
        descriptor = self.run.inside(f"logs/{part.name}").appended()
        with os.fdopen(descriptor, "ab") as file:
            file.write(base64.b64decode(part.data))

    def __enter__(self) -> _Notes:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
