"""Who may see the live page: everybody who has its token, at the address it was started on.

Against other users of this machine: every answer needs the token. Against a page of the internet in
the same browser: the cookie is SameSite=Strict, a Host that is not ours is refused (a name that
was rebound to 127.0.0.1), and what changes something needs a header that a foreign page cannot set.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from disklab.errors import Problem, UserError

COOKIE = "disklab"
CHANGES = "x-disklab"
"""The header that a request which changes something must have. Its value does not matter."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


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
        if "token" in query and scope["method"] == "GET":
            if self._is_ours(query.pop("token")):
                return self._welcome(scope["path"], query)
            return PlainTextResponse("wrong token\n", 403)
        if not self._is_ours(given_token(headers)):
            way_out = "open the address that `disklab serve` printed: it has the token\n"
            return PlainTextResponse(way_out, 403)
        if scope["method"] not in ("GET", "HEAD") and CHANGES not in headers:
            return PlainTextResponse(f"the header {CHANGES} is missing\n", 403)
        return None

    def _welcome(self, path: str, query: dict[str, str]) -> Response:
        """Put the token into a cookie, so that it leaves the address line and the history."""
        target = "/" + path.lstrip("/") + (f"?{urlencode(query)}" if query else "")
        answer = RedirectResponse(target, 303)
        answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict", secure=self._tls)
        return answer

    def _is_ours(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())


def given_token(headers: Headers) -> str:
    """Return the token of a request, from `Authorization: Bearer` or the cookie; empty: none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    try:
        cookie = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookie[COOKIE].value if COOKIE in cookie else ""


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
