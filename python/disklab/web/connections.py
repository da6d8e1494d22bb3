"""Connections of the live page: so many at a time, and none that only waits.

Any user of this machine can open a connection and say nothing, or a letter a minute. One that has
asked for nothing within seconds is closed; where there are too many, the one that has waited
longest makes room, so that somebody with the token still gets in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
"""A browser has six of one page."""
REQUEST_S = 10.0
"""For the whole head of a request, from the connection or the last answer on."""
MOST_HEAD_BYTES = 16 << 10
QUIET_S = 60.0
"""One line of a kind is logged in this time: there is one cause for a thousand connections."""


class Connection(H11Protocol):
    """A connection of a browser, or of anybody."""

    _late: asyncio.TimerHandle | None = None
    _since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, or close it where all of them are in use."""
        assert isinstance(transport, asyncio.Transport)
        if len(self.connections) >= MOST_CONNECTIONS and not self._make_room():
            transport.abort()
            return
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._late is not None:
            self._late.cancel()
        # None: it was never taken.
        if self.transport is not None:
            super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._await_request()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _await_request(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._since_s = time.monotonic()
        self._late = self.loop.call_later(REQUEST_S, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self.is_idle:
            self.transport.abort()

    def _make_room(self) -> bool:
        """Close the connection that has waited longest without a request."""
        waiting = [
            other for other in self.connections if isinstance(other, Connection) and other.is_idle
        ]
        if not waiting:
            return False
        longest = min(waiting, key=lambda other: other._since_s)
        # It counts no more, although the loop tells it later.
        self.connections.discard(longest)
        longest.transport.abort()
        return True


class Rarely(logging.Filter):
    """Lets one message of a kind through in a while."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        super().__init__()
        self._quiet_s = quiet_s
        self._last_s: dict[Any, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log it. Its kind is where in the program it comes from."""
        kind = record.pathname, record.lineno
        now = time.monotonic()
        if now - self._last_s.get(kind, -self._quiet_s) < self._quiet_s:
            return False
        self._last_s[kind] = now
        # One line: the trace of calls tells nothing that its message does not.
        record.exc_info = record.exc_text = record.stack_info = None
        record.msg, record.args = record.getMessage().partition("\n")[0], None
        return True


def quiet_logs() -> None:
    """Log each kind of trouble with connections once a minute."""
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).addFilter(Rarely())
