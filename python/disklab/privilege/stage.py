"""The caller's part of a rehearsal: plans, writes down and reports what root's part does."""

from __future__ import annotations

import base64
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from disklab.catalog import Catalog
from disklab.errors import DisklabError, MachineError
from disklab.events import Emit
from disklab.hosts.places import NAME
from disklab.privilege.columns import columns_of
from disklab.privilege.requests import (
    ANSWERS,
    TOLD,
    Begin,
    Check,
    Close,
    LogPart,
    Opened,
    Request,
    Row,
    Said,
    TakeTurn,
    Told,
    asked,
    without_wishes,
)
from disklab.privilege.wire import Link, error_of
from disklab.procedures.life import uninterrupted
from disklab.procedures.outcome import Frame
from disklab.procedures.replay import most_written_bytes
from disklab.procedures.turn import Turn
from disklab.results import Mode, Run, Second, SecondsWriter, TelemetryWriter, TrialResult, Whole
from disklab.spec import Trial

Hear = Callable[[Told], None]


class Root:
    """Root's part, as the caller's sees it."""

    def __init__(self, link: Link) -> None:
        """Take the caller's end of the socket."""
        self._link = link
        self.is_gone = False
        """Whether it has ended, and all that it held with it."""
        self._is_sending = False

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

    def ask(self, request: Request, hear: Hear) -> Any:
        """Return the answer; what is told meanwhile is heard. Raises what root's part raised.

        KeyboardInterrupt: the request was ended, and root's part is ready for the next one.
        """
        words = asked(request)
        with self._stopping() as wanted:
            self._send(words)
            if wanted:
                self._stop()
            while "told" in (message := self._receive()):
                hear(TOLD[message["told"]].validate_python(message["what"]))
        error = message.get("error")
        if wanted or (error is not None and error["kind"] == "interrupted"):
            raise KeyboardInterrupt
        if error is not None:
            raise error_of(error)
        return ANSWERS[words["ask"]].validate_python(message["answer"])

    def _send(self, words: dict[str, Any]) -> None:
        self._is_sending = True
        try:
            self._link.send(words)
        except MachineError:
            self.is_gone = True
            raise
        finally:
            self._is_sending = False

    def _stop(self) -> None:
        with suppress(DisklabError):
            self._link.send({"stop": True})

    def _receive(self) -> dict[str, Any]:
        message = self._link.receive()
        if message is None:
            self.is_gone = True
            raise MachineError("root's part of disklab has ended; run `disklab clean`")
        return message

    @contextmanager
    def _stopping(self) -> Iterator[list[int]]:
        """Pass a wish to stop on inside the block, and yield where it is noted.

        An exception in the middle of a message would lose its beginning.
        """
        wanted: list[int] = []

        def stop(number: int, _frame: FrameType | None) -> None:
            wanted.append(number)
            # Never in the middle of another message.
            if not self._is_sending:
                self._stop()

        numbers = (signal.SIGINT, signal.SIGTERM)
        # Those that are ignored stay so: see `life.uninterrupted`.
        before = {one: signal.getsignal(one) for one in numbers}
        for one, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(one, stop)
        try:
            yield wanted
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


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
            case Opened():
                assert self.key is not None, "only a turn is written down"
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
            case Second() | Whole() | Row() | Said():
                pass
            case _:
                self.emit(what)

    def _log(self, part: LogPart) -> None:
        if NAME.fullmatch(part.name) is None:
            raise MachineError(f"root's part told of a log called {part.name!r}")
        with (self.run.folder / "logs" / part.name).open("ab") as file:
            file.write(base64.b64decode(part.data))

    def __enter__(self) -> _Notes:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
