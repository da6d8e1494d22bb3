"""Tells somebody that a run ended: a command of the user's, or an address that takes JSON."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from disklab.errors import Problem, UserError
from disklab.events import Emit, Event, RunFinished, RunStarted, Warned
from disklab.machines import programs

# Longer than a slow chat server takes; a run's exit waits for it.
SECONDS = 30


class OnEnd:
    """A subscriber that knows what is to be told when the run is over."""

    def __init__(self, what: str, warn: Emit) -> None:
        self._what = what
        self._warn = warn
        self._told = {"status": "failed", "run": "", "folder": "", "title": ""}

    def __call__(self, event: Event) -> None:
        """Remember which run it is and how it ended."""
        if isinstance(event, RunStarted):
            self._told.update(run=event.run_id, folder=str(event.folder), title=event.title)
        elif isinstance(event, RunFinished):
            self._told["status"] = "interrupted" if event.interrupted else "finished"

    def tell(self) -> None:
        """Run the command, or send to the address. What fails is a warning: the run is over."""
        if not self._told["run"]:
            return
        try:
            if is_address(self._what):
                send(self._what, self._told)
            else:
                names = {f"DISKLAB_{name.upper()}": value for name, value in self._told.items()}
                command = ["/bin/sh", "-c", self._what]
                ended = programs.run(command, SECONDS, variables=names, inherits=True, shown=True)
                if ended.code != 0:
                    raise OSError(f"it ended with code {ended.code}")
        except OSError as error:
            self._warn(Warned(f"--on-end {self._what!r} failed: {error}"))


@contextmanager
def telling(what: str | None, warn: Emit) -> Iterator[list[Emit]]:
    """Yield the subscriber, or none, and tell at the end of the block, however it ends."""
    if what is None:
        yield []
        return
    told = OnEnd(what, warn)
    try:
        yield [told]
    finally:
        told.tell()


def check_on_end(what: str | None) -> str | None:
    """Return it. A user error for an address that cannot be sent to, and a program not there."""
    if what is None or not urlsplit(what).scheme or Path(what.split()[0]).exists():
        return what
    if not is_address(what) and "://" in what.split()[0]:
        rule = "is an address that disklab does not send to"
        raise UserError(Problem("--on-end", what, rule, "write http:// or https://, or a command"))
    return what


def is_address(what: str) -> bool:
    """Return whether it is an address and not a command."""
    return what.startswith(("http://", "https://")) and " " not in what


def send(address: str, told: dict[str, str]) -> None:
    """POST what happened as JSON. `text` is what chat servers show. Raises URLError."""
    said = f"disklab: {told['title'] or told['run']}: {told['status']}"
    body = json.dumps({"text": said, **told}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(address, body, headers)  # noqa: S310 - http and https only
    with urllib.request.urlopen(request, timeout=SECONDS):  # noqa: S310
        pass
