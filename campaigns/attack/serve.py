"""Requests to the live page, without the token and with it, over runs from elsewhere."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from disklab.results.event_log import EVENTS, WISH
from disklab.web.access import Address, key_of
from disklab.web.server import application

from campaigns.attack.folders import TITLE, damaged, linked, whole
from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.words import hostile_word

TOKEN = "0123456789abcdef-of-the-campaign"
ADDRESS = Address("127.0.0.1", 8350, tls=False)
# Who has no token never sees the title of a run.
PATHS = (
    "/", "/runs/good", "/runs/bad", "/runs/good/report", "/runs/bad/report", "/api/runs",
    "/api/runs/good", "/api/runs/bad", "/api/runs/good/after-trial", "/metrics", "/assets/live.js",
    "/assets/../server.py", "/runs/../../victim/report", "/api/runs/..", "/runs//report",
)  # fmt: skip
METHODS = ("GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "X")
BODIES = (b"", b"stop", b"pause", b"go-on", b"x" * 500, b"\xff" * 50, b"stop" * 100_000)

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Request:
    """What is asked, and with what."""

    method: str
    path: str
    given: str
    """Whose token, or what in its place."""
    body: bytes

    @property
    def query(self) -> str:
        """What follows the path."""
        return f"key={key_of(TOKEN, 'another')}" if self.given == "key" else ""

    @property
    def headers(self) -> Headers:
        """Who asks, and for which host."""
        host = b"evil.example:8350" if self.given == "rebound" else b"127.0.0.1:8350"
        ours = (b"authorization", f"Bearer {TOKEN}".encode())
        others: dict[str, Headers] = {
            "wrong": [(b"authorization", b"Bearer \xff wrong")],
            "cookie": [(b"cookie", f"disklab={TOKEN}".encode())],
            "rebound": [ours],
            "right": [ours, (b"x-disklab", b"1")],
        }
        return [(b"host", host), *others.get(self.given, [])]


def answered(app: Any, request: Request) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return status, headers and text of an answer."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
        "method": request.method, "path": request.path,
        "raw_path": request.path.encode(errors="replace"), "root_path": "",
        "query_string": request.query.encode(), "headers": request.headers, "scheme": "http",
        "server": ("127.0.0.1", 8350), "client": ("127.0.0.1", 5),
    }  # fmt: skip
    body = request.body
    sent: list[dict[str, Any]] = []
    parts = [body[at : at + 50_000] for at in range(0, len(body), 50_000)] or [b""]

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    # A test of a browser beside may have left an event loop running in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, app(scope, receive, send)).result()
    if not sent:
        raise HurtError("it was not answered")
    text = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), text


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield requests over two runs, one of which is changed again and again."""
    base, runs = yard.folder / "base", yard.folder / "runs"
    base.mkdir()
    source = whole(base)
    shutil.copytree(source, runs / "good")
    number = 0
    while True:
        if number % 20 == 0:
            shutil.rmtree(runs / "bad", ignore_errors=True)
            shutil.copytree(source, runs / "bad")
            name = chance.choice((EVENTS, EVENTS, "run.json", WISH, "lock", "report.html"))
            if chance.random() < 0.4:
                linked(runs / "bad" / name, yard, chance)
            else:
                damaged(runs / "bad" / name, chance)
        number += 1
        path = chance.choice(PATHS)
        if chance.random() < 0.2:
            path = f"/{hostile_word(chance, yard.canary)}"
        method, body = chance.choice(METHODS), chance.choice(BODIES)
        given = chance.choice(("none", "wrong", "cookie", "key", "rebound", "right", "right"))
        request = Request(method, path, given, body)
        yield f"{method} {path!r} {given} {body[:20]!r}", partial(_attempt, runs, request)


def _attempt(runs: Path, request: Request) -> None:
    status, answer, text = answered(application(runs, TOKEN, ADDRESS), request)
    given, path, method = request.given, request.path, request.method
    if status >= 500:
        raise HurtError(f"status {status}")
    if b"content-security-policy" not in answer:
        raise HurtError("an answer without a policy")
    wished = (runs / "good" / WISH).exists()
    if given != "right" and (TITLE.encode() in text or wished):
        raise HurtError(f"without the token: status {status}, {text[:200]!r}")
    (runs / "good" / WISH).unlink(missing_ok=True)
    if given == "right" and path == "/api/runs" and method == "GET":
        names = {run["id"] for run in json.loads(text)}
        if "good" not in names:
            raise HurtError(f"one bad run hides the other: {names}")


KIND = Kind(
    "serve",
    "requests to the live page with wrong, stolen and no tokens, names that are paths, foreign "
    "hosts and large bodies, over a run whose files are changed or are links: who has no token "
    "sees no run and changes none, nothing answers 500, and one bad run hides no other",
    tries,
)
