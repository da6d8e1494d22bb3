"""Who may see the live page: everybody who has its token, at the address it was started on.

The page itself (one HTML file, script and style, the same for all) has no secret. It takes the
token from the address that was printed, keeps it in its own tab, and gives it with each request
for data: no cookie, which a browser would send to every other port of this machine as well.
Against a page of the internet in the same browser: no such page can set that header, and a Host
that is not ours (a name that was rebound to 127.0.0.1) is refused. A run's report has a key of its
own in its address: it may come from anywhere, and is shown where it can do nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from disklab.errors import Problem, UserError

# Connections of the live page: so many at a time, and none that only waits.
#
# Any user of this machine can open a connection and say nothing, or a letter a minute. One that
# has asked for nothing within seconds is closed; where there are too many, the one that has waited
# longest makes room, so that somebody with the token still gets in.

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

    def __init__(self) -> None:
        super().__init__()
        self._last_s: dict[Any, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log it. Its kind is where in the program it comes from."""
        kind = record.pathname, record.lineno
        now = time.monotonic()
        if now - self._last_s.get(kind, -QUIET_S) < QUIET_S:
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


CHANGES = "x-disklab"
"""The header that a request which changes something must have. Its value does not matter."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PUBLIC = re.compile(r"/|/runs/[^/]*|/assets/[^/]*")
"""What has no secret in it: the page without any figures."""
REPORT = re.compile(r"/runs/([^/]*)/report")
KNOB = "/knob"
"""The simulator's page: it has the prices of the user's own catalogue files."""


@dataclass(frozen=True)
class Address:
    """Where the page is served."""

    host: str
    port: int
    tls: bool

    @property
    def origin(self) -> str:
        """The beginning of every address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def hosts(self) -> frozenset[str]:
        """Return the Host headers that name this server; empty: any, as with TLS."""
        if not is_loopback(self.host):
            return frozenset()
        names = {self.host, "localhost", "127.0.0.1", "[::1]"}
        return frozenset(f"{name}:{self.port}" for name in names)


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, *, tls: bool) -> None:
    """Refuse an address that other machines reach when nothing keeps the token secret there."""
    if is_loopback(host) or tls:
        return
    rule = "is reached from other machines, and without TLS they could read the token on its way"
    way_out = (
        "give --tls-cert and --tls-key, or stay on 127.0.0.1 and use `ssh -L 8350:127.0.0.1:8350`"
    )
    raise UserError(Problem("--address", host, rule, way_out))


class Guard:
    """Lets only requests with the token through, and gives every answer the page's policy."""

    def __init__(self, app: ASGIApp, token: str, address: Address) -> None:
        self._app = app
        self._token = token
        self._hosts = address.hosts()
        self._tls = address.tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, with_policy(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._hosts and headers.get("host", "") not in self._hosts:
            return PlainTextResponse("this is not the address of the page\n", 421)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if "token" in query and not is_same(query["token"], self._token):
            return PlainTextResponse("wrong token\n", 403)
        changes = scope["method"] not in ("GET", "HEAD")
        if not changes and self._is_open(scope["path"], query.get("key", "")):
            return None
        if not is_same(given_token(headers), self._token):
            way_out = "open the address that `disklab serve` printed: it has the token\n"
            return PlainTextResponse(way_out, 403)
        if changes and CHANGES not in headers:
            return PlainTextResponse(f"the header {CHANGES} is missing\n", 403)
        return None

    def _is_open(self, path: str, key: str) -> bool:
        """Return whether a page needs no token: it has no secret, or the key of this report."""
        if path == KNOB:
            return is_same(key, key_of(self._token, KNOB))
        report = REPORT.fullmatch(path)
        if report is None:
            return PUBLIC.fullmatch(path) is not None
        return is_same(key, key_of(self._token, report[1]))


def key_of(token: str, run: str) -> str:
    """Return what opens the report of one run, or the simulator's page, and nothing else."""
    name = run.encode("utf-8", "surrogatepass")
    return hmac.new(token.encode(), b"report " + name, hashlib.sha256).hexdigest()


def report_address(token: str, run: str) -> str:
    """Return the address of a run's report."""
    return f"/runs/{quote(run, safe='', errors='surrogatepass')}/report?key={key_of(token, run)}"


def knob_address(token: str) -> str:
    """Return the address of the simulator's page."""
    return f"{KNOB}?key={key_of(token, KNOB)}"


def is_same(given: str, wanted: str) -> bool:
    """Return whether two secrets are the same; how long it takes tells nothing of them."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def given_token(headers: Headers) -> str:
    """Return the token of a request, from `Authorization: Bearer`; empty: none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def with_policy(send: Send) -> Send:
    """Return what sends an answer with the headers that each of ours has."""

    async def sending(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])  # type: ignore[call-overload]
            names = {name.lower() for name, _ in headers}
            if b"content-security-policy" not in names:
                headers.append((b"content-security-policy", POLICY.encode()))
            headers += [
                (b"x-content-type-options", b"nosniff"),
                (b"referrer-policy", b"no-referrer"),
                (b"cache-control", b"no-store"),
            ]
            message = {**message, "headers": headers}
        await send(message)

    return sending  # type: ignore[return-value]
