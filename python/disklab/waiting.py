"""Waits: each has a name, what it waits for, since when, and how long it may take.

Whoever waits says so here; whoever shows what goes on (`followed`) hears of every wait that lasts.
A wait never ends by itself: its owner looks at `is_over` and raises what tells the user the most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from disklab.errors import DisklabError

# Shorter ones are nobody's business.
SILENT_SECONDS = 2.0
TELL_SECONDS = 1.0


@dataclass(frozen=True)
class Waiting:
    """Something is waited for, for some seconds: told once a second, and at its end."""

    name: str
    """What shall come about: `compactions end`, `n1 answers its first query`."""
    what: str
    """What it waits for at the moment; empty: the name says it."""
    since_s: float
    """How long it has lasted."""
    limit_s: float
    """How long it may last."""
    ended: bool = False


Listener = Callable[[Waiting], None]


class Clock(Protocol):
    """Time that passes; the module `time` is one, and tests have one that needs none."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def sleep(self, seconds: float, /) -> None:
        """Let time pass."""


class Wait:
    """A wait that begins when its block is entered and ends with it."""

    def __init__(self, name: str, limit_s: float, what: str = "", clock: Clock = time) -> None:
        """Take what shall come about, and within which time."""
        self.name = name
        self.limit_s = limit_s
        self.what = what
        self._clock = clock
        self.is_told = False
        """Whether somebody has heard of it."""
        self._begun = clock.monotonic()

    @property
    def since_s(self) -> float:
        """How long it has lasted."""
        return self._clock.monotonic() - self._begun

    @property
    def left_s(self) -> float:
        """How long it may still last; never less than zero."""
        return max(self.limit_s - self.since_s, 0.0)

    @property
    def is_over(self) -> bool:
        """Whether it has lasted as long as it may."""
        return self.since_s > self.limit_s

    def pause(self, seconds: float, what: str | None = None) -> None:
        """Sleep until the next look. `what`: what is still missing, for whoever follows."""
        if what is not None:
            self.what = what
        self._clock.sleep(seconds)

    def state(self, *, ended: bool = False) -> Waiting:
        """Return how it stands."""
        since_s = round(self.since_s, 3)
        return Waiting(self.name, self.what, since_s, self.limit_s, ended)

    def __enter__(self) -> Wait:
        """Begin it anew, for whoever follows."""
        self._begun = self._clock.monotonic()
        _OPEN.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        _OPEN.remove(self)


def until(what: str, done: Callable[[], bool], seconds: float, pause_s: float = 0.1) -> bool:
    """Return whether it is done, trying again until the time is over."""
    with Wait(what, seconds) as wait:
        while not done():
            if wait.is_over:
                return False
            wait.pause(pause_s)
    return True


class _Open:
    """The waits of this process, and who follows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: list[Wait] = []
        self._listeners: list[Listener] = []

    def add(self, wait: Wait) -> None:
        with self._lock:
            self._waits.append(wait)

    def remove(self, wait: Wait) -> None:
        with self._lock:
            self._waits.remove(wait)
            listener = self._listeners[-1] if wait.is_told and self._listeners else None
        if listener is not None:
            _tell(listener, wait.state(ended=True))

    def listen(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.remove(listener)

    def lasting(self, listener: Listener) -> list[Wait]:
        """Return the waits that are worth a word to a listener: none while another one follows."""
        with self._lock:
            if self._listeners[-1] is not listener:
                return []
            return [wait for wait in self._waits if wait.since_s >= SILENT_SECONDS]


_OPEN = _Open()


def _tell(listener: Listener, state: Waiting) -> None:
    # Whoever follows may be gone: what is waited for comes about all the same.
    with suppress(DisklabError):
        listener(state)


@contextmanager
def followed(listener: Listener) -> Iterator[None]:
    """Tell a listener of every wait that lasts inside the block, once a second and at its end.

    It is called from a thread of its own, and from those that wait. In a block within a block the
    inner one's listener alone hears.
    """
    over = threading.Event()

    def tell() -> None:
        while not over.wait(TELL_SECONDS):
            for wait in _OPEN.lasting(listener):
                wait.is_told = True
                _tell(listener, wait.state())

    thread = threading.Thread(target=tell, name="waits", daemon=True)
    _OPEN.listen(listener)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _OPEN.leave(listener)
