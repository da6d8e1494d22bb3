"""Root's part of a rehearsal: makes the beds, and tells what is seen on them."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from disklab.catalog.load import settle_on
from disklab.engine.locks import own_name
from disklab.errors import DisklabError, MachineError
from disklab.events import Event
from disklab.hosts.cleaning import clean_orphans
from disklab.hosts.places import Places
from disklab.privilege.requests import (
    FORMS,
    TOLD,
    Begin,
    Check,
    Close,
    LogPart,
    Opened,
    Request,
    Row,
    TakeTurn,
    request_of,
)
from disklab.privilege.talk import Link, Said, Serving
from disklab.procedures import preparation
from disklab.procedures.build import Site
from disklab.procedures.life import waits_told
from disklab.procedures.outcome import Frame
from disklab.procedures.rehearsal import Beds, run_turn
from disklab.procedures.replay import check_room
from disklab.results import Second, Whole

LOG_PART_BYTES = 256 << 10
MOST_LOG_BYTES = 256 << 20
"""Of one file; a node that wrote more has told the same thing many times."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RootPart(Serving):
    """What root does for one rehearsal of one caller."""

    forms = FORMS

    def __init__(self, link: Link) -> None:
        """Take the end of the socket; `serve` does the rest."""
        super().__init__(link)
        self._beds: Beds | None = None
        self._frame: Frame | None = None

    def request_of(self, message: dict[str, Any]) -> tuple[str, Request]:
        """Return what a message asks, with its turns looked at one by one."""
        return request_of(message)

    def done(self, request: Request) -> object:
        """Do what a request asks, and tell what it waits for."""
        with waits_told(self._emit):
            return self._done(request)

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
                self.close()
                return None

    def _begin(self, request: Begin) -> None:
        if self._beds is not None:
            raise MachineError("refused: the rehearsal has begun")
        settle_on(request.catalog)
        places = Places.usual()
        clean_orphans(places)
        site = Site(request.catalog, places, None, request.seed, take_logs=self._take_logs)
        self._beds = Beds(site, own_name("rehearsal"))
        self._frame = Frame(request.title, request.run_id, request.catalog)

    def close(self) -> None:
        """Take the standing bed away."""
        if self._beds is not None:
            with suppress(DisklabError):
                self._beds.close()

    # What a turn writes down goes to the caller's part, whose files it is in.

    @contextmanager
    def record_seconds(self, trial: int, repeat: int) -> Iterator[RootPart]:
        """Open the files of a turn, in the caller's part."""
        del trial, repeat
        self.tell(Opened())
        yield self

    @contextmanager
    def record_telemetry(self, trial: int, repeat: int) -> Iterator[RootPart]:
        """Return what takes the telemetry; its file is open by now."""
        del trial, repeat
        yield self

    def second(self, line: Second) -> None:
        """Tell of an interval of the load."""
        self.tell(line)

    def whole(self, line: Whole | dict[str, Any]) -> None:
        """Tell of a whole phase."""
        kept = Whole.model_fields
        known = line if isinstance(line, Whole) else {k: line[k] for k in kept if k in line}
        self.tell(Whole.model_validate(known))

    def add(self, phase: str, t_s: float, source: str, metric: str, value: float) -> None:
        """Tell of a figure of the telemetry."""
        self.tell(Row(phase, float(t_s), source, metric, float(value)))

    def _emit(self, event: Event) -> None:
        if type(event).__name__ in TOLD:
            self.tell(event)

    def _say(self, text: str) -> None:
        self.tell(Said(text))

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
                self.tell(LogPart(name, base64.b64encode(part).decode("ascii")))
