"""Root's part: answers the requests of the list, one at a time, until the caller's has gone."""

from __future__ import annotations

import base64
import os
import queue
import signal
import stat
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from disklab.catalog.load import settle_on
from disklab.errors import DisklabError, MachineError
from disklab.events import Event
from disklab.hosts.cleaning import clean_orphans
from disklab.hosts.places import Places
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
    request_of,
)
from disklab.privilege.wire import Link, told
from disklab.procedures import preparation
from disklab.procedures.build import Site
from disklab.procedures.outcome import Frame
from disklab.procedures.rehearsal import Beds, run_turn
from disklab.procedures.replay import check_room
from disklab.results import Second, Whole

LOG_PART_BYTES = 256 << 10
MOST_LOG_BYTES = 256 << 20
"""Of one file; a node that wrote more has told the same thing many times."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RootPart:
    """What root does for one command of one caller."""

    def __init__(self, link: Link) -> None:
        """Take the end of the socket; `serve` does the rest."""
        self._link = link
        self._asked: queue.SimpleQueue[dict[str, Any] | MachineError | None] = queue.SimpleQueue()
        self._busy = False
        self._beds: Beds | None = None
        self._frame: Frame | None = None

    def serve(self) -> None:
        """Answer until the caller's part has gone; then nothing is left of what was made."""
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            while (message := self._asked.get()) is not None:
                self._answer(message)
        except MachineError:
            # Nobody hears the answer.
            pass
        finally:
            self._close()

    def _listen(self) -> None:
        """Take messages as they come: a wish to stop is for the request under way."""
        while True:
            try:
                message = self._link.receive()
            except MachineError as error:
                self._asked.put(error)
                message = None
            if message is None or message.get("stop") is True:
                os.kill(os.getpid(), signal.SIGINT)
            if message is None or "ask" in message:
                self._asked.put(message)
            if message is None:
                return

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        # Ctrl-C in the terminal comes here as well; between requests the caller's part decides.
        if self._busy:
            raise KeyboardInterrupt

    def _answer(self, message: dict[str, Any] | MachineError) -> None:
        answer: dict[str, Any] = {"error": {"kind": "interrupted"}}
        try:
            self._busy = True
            if isinstance(message, MachineError):
                raise message
            name, request = request_of(message)
            found = ANSWERS[name].dump_python(self._done(request), mode="json")
            answer = {"answer": found}
        except KeyboardInterrupt:
            pass
        except DisklabError as error:
            answer = {"error": told(error)}
        except OSError as error:
            said = f"{error.filename or 'this machine'}: {error.strerror}"
            answer = {"error": told(MachineError(said))}
        except Exception as error:
            traceback.print_exc()
            said = f"root's part failed: {type(error).__name__}: {error}"
            answer = {"error": told(MachineError(said))}
        finally:
            self._busy = False
        self._link.send(answer)

    def _done(self, request: Request) -> object:
        match request:
            case Check():
                settle_on(request.catalog)
                check_room(request.traces_write_bytes)
                return preparation.check(request.trials, request.turns, request.catalog, self._say)
            case Begin():
                self._begin(request)
                return None
            case TakeTurn():
                if self._beds is None or self._frame is None:
                    raise MachineError("refused: a rehearsal has to begin before its turns")
                return run_turn(request.turn, self._beds, self, self._frame, self._emit)
            case Close():
                self._close()
                return None

    def _begin(self, request: Begin) -> None:
        if self._beds is not None:
            raise MachineError("refused: the rehearsal has begun")
        settle_on(request.catalog)
        places = Places.usual()
        clean_orphans(places)
        site = Site(request.catalog, places, None, request.seed, take_logs=self._take_logs)
        self._beds = Beds(site, f"rehearsal-{os.getpid()}")
        self._frame = Frame(request.title, request.run_id, request.catalog)

    def _close(self) -> None:
        if self._beds is not None:
            with suppress(DisklabError):
                self._beds.close()

    # What a turn writes down goes to the caller's part, whose files it is in.

    @contextmanager
    def record_seconds(self, trial: int, repeat: int) -> Iterator[RootPart]:
        """Open the files of a turn, in the caller's part."""
        del trial, repeat
        self._tell(Opened())
        yield self

    @contextmanager
    def record_telemetry(self, trial: int, repeat: int) -> Iterator[RootPart]:
        """Return what takes the telemetry; its file is open by now."""
        del trial, repeat
        yield self

    def second(self, line: Second) -> None:
        """Tell of an interval of the load."""
        self._tell(line)

    def whole(self, line: Whole | dict[str, Any]) -> None:
        """Tell of a whole phase."""
        kept = Whole.model_fields
        known = line if isinstance(line, Whole) else {k: line[k] for k in kept if k in line}
        self._tell(Whole.model_validate(known))

    def add(self, phase: str, t_s: float, source: str, metric: str, value: float) -> None:
        """Tell of a figure of the telemetry."""
        self._tell(Row(phase, float(t_s), source, metric, float(value)))

    def _emit(self, event: Event) -> None:
        if type(event).__name__ in TOLD:
            self._tell(event)  # type: ignore[arg-type]

    def _say(self, text: str) -> None:
        self._tell(Said(text))

    def _tell(self, what: Told) -> None:
        name = type(what).__name__
        self._link.send({"told": name, "what": TOLD[name].dump_python(what, mode="json")})

    def _take_logs(self, folder: Path) -> None:
        """Send what a database has logged: regular files with one name, no link is followed."""
        with suppress(OSError):
            at = os.open(folder, _FOLDER)
            try:
                for name in sorted(os.listdir(at)):
                    with suppress(OSError):
                        self._send_log(at, name)
            finally:
                os.close(at)

    def _send_log(self, at: int, name: str) -> None:
        with open(os.open(name, _FILE, dir_fd=at), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                return
            left = min(found.st_size, MOST_LOG_BYTES)
            while left > 0 and (part := file.read(min(left, LOG_PART_BYTES))):
                left -= len(part)
                self._tell(LogPart(name, base64.b64encode(part).decode("ascii")))
