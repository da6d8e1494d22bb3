"""Strangers of the live page, and its pages for those who see little or use no mouse."""

from __future__ import annotations

import http.server
import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest
from disklab.events import RunFinished, TrialFinished, TrialStarted, Warned
from disklab.results.event_log import EVENTS, Wish, wish_of
from disklab.web.access import MOST_CONNECTIONS, MOST_HEAD_BYTES, REQUEST_S
from disklab.web.server import MOST_WISH_BYTES, metrics
from disklab.web.state import Followed
from playwright.sync_api import Browser, Locator, Page

from tests.pages import CONTRAST
from tests.report import synthetic
from tests.web.test_live_page import TOKEN, Going, Served, second, served

HALF_OPEN = 270
"""As many as once ended the server."""


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("bad", "good"):
        synthetic.caching_threads(folder, seconds=3, repeats=1, run_id=name, seed=1)
    with served(folder) as server:
        yield server


def dialled(server: Served, stack: ExitStack, said: bytes = b"") -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 30))
    if said:
        connection.sendall(said)
    return connection


def is_closed(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_connections_that_say_nothing_keep_nobody_out(page_of: Served) -> None:
    with ExitStack() as stack:
        others = [
            dialled(page_of, stack, b"" if n % 2 else b"GET / HTTP/1.1\r\nHo")
            for n in range(HALF_OPEN)
        ]
        assert page_of.told("/api/runs")
        opened = len(list(Path(f"/proc/{page_of.pid}/fd").iterdir()))
        assert opened < MOST_CONNECTIONS + 60
        # The first ones made room.
        assert all(is_closed(one, 10) for one in others[: HALF_OPEN - MOST_CONNECTIONS - 1])


def test_a_request_that_comes_a_letter_at_a_time_is_not_waited_for(page_of: Served) -> None:
    with ExitStack() as stack:
        slow = dialled(page_of, stack, b"GET / HTTP/1.1\r\n")
        begun = time.monotonic()
        while time.monotonic() - begun < 6 * REQUEST_S:
            try:
                slow.sendall(b"x")
            except OSError:
                break
            if is_closed(slow, 0.5):
                break
        else:
            pytest.fail("it was waited for")


def test_a_head_without_end_and_a_large_body_are_refused(page_of: Served) -> None:
    with ExitStack() as stack:
        long = dialled(page_of, stack, b"GET / HTTP/1.1\r\nX: " + b"x" * (2 * MOST_HEAD_BYTES))
        assert long.recv(20).startswith(b"HTTP/1.1 400")
    path = "/api/runs/good/after-trial"
    headers = {"Authorization": f"Bearer {TOKEN}", "x_disklab": "1"}
    assert page_of.ask(path, "POST", "stop" * MOST_WISH_BYTES, **headers)[0] == 413
    assert wish_of(page_of.folder / "good") is Wish.GO_ON


def test_trouble_with_connections_is_logged_in_a_few_lines(tmp_path: Path) -> None:
    synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="one", seed=1)
    with served(tmp_path) as server:
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
                connection.sendall(b"no HTTP\r\n\r\n")
                connection.recv(1)
        os.kill(server.pid, signal.SIGTERM)
        assert len(server.stderr.read().splitlines()) < 10


VALUES: tuple[object, ...] = (
    None, True, -1, 1e300, 10**400, float("nan"), "", "x" * 5000, "\ud800", "\x1b[2J", [], [[]], {},
    {"a": {"b": 1}}, "9" * 400,
)  # fmt: skip
WHOLE = {
    "t": "2026-01-01T00:00:00+00:00", "event": "", "title": "a", "mode": "rehearse", "trial": 1,
    "repeat": 0, "planned": [{"trial": 1, "repeat": 0, "expected_s": 3.0}], "position": 1, "of": 2,
    "factors": {"disk": "a"}, "phase": "measure", "detail": "x", "ops_per_s": 5.0, "p99_ms": 1.0,
    "p50_ms": 1.0, "done": 1, "errors": 0, "seen": {"disk data: read_iops": 1.0}, "text": "x",
    "status": "ok", "why": ["a"], "interrupted": False,
}  # fmt: skip
KINDS = (
    "RunStarted", "TrialStarted", "PhaseStarted", "Progress", "Warned", "TrialFinished",
    "RunFinished",
)  # fmt: skip


def lines(seed: int) -> str:
    chance = random.Random(seed)
    events = []
    for kind in [*KINDS, *chance.choices(KINDS, k=10)]:
        event = {**WHOLE, "event": kind}
        for name in chance.choices([*WHOLE], k=2):
            event[name] = chance.choice(VALUES) if name != "event" else kind
        event["planned"] = chance.choice(
            [
                event["planned"],
                [chance.choice(VALUES)],
                [{"trial": 1, "repeat": 0, "expected_s": 0}],
            ]
        )
        events.append(json.dumps(event))
    return "\n".join(events) + "\n"


def test_events_with_any_values_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    for seed in range(300):
        (tmp_path / EVENTS).write_text(lines(seed))
        run = Followed(tmp_path)
        run.look()
        state = run.state()
        assert len(json.dumps(state, allow_nan=False)) < 200_000
        metrics([state]).encode("utf-8")


@pytest.mark.parametrize("seed", range(3))
def test_one_bad_run_hides_no_other(page_of: Served, seed: int) -> None:
    bad = page_of.folder / "bad" / EVENTS
    bad.unlink(missing_ok=True)
    if seed == 0:
        bad.symlink_to("/etc/passwd")
    else:
        bad.write_text(lines(seed))
    runs = {run["id"]: run for run in page_of.told("/api/runs")}
    assert set(runs) == {"bad", "good"}
    assert ("symbolic link" in runs["bad"]["problem"]) == (seed == 0)
    status, text = page_of.ask("/metrics", Authorization=f"Bearer {TOKEN}")
    assert status == 200
    assert 'run="good"' in text
    assert page_of.told("/api/runs/good")["id"] == "good"


class Listener(http.server.BaseHTTPRequestHandler):
    """Another service of this machine, which does what any request says."""

    asked: list[str] = []  # noqa: RUF012 - of one server of one test

    def handle_one_request(self) -> None:
        line = self.rfile.readline(1000)
        if line:
            self.asked.append(line.decode("latin-1"))
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.close_connection = True


@contextmanager
def another_port() -> Iterator[tuple[int, list[str]]]:
    asked: list[str] = []
    handler = type("Own", (Listener,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, asked
        server.shutdown()
        thread.join()


HOSTILE = """<!doctype html><title>a report</title><p id="o"></p><form id="f" method="post"
action="http://127.0.0.1:PORT/form"><input name="a" value="b"></form><script>
const tries = [
  () => fetch("http://127.0.0.1:PORT/fetch", {method: "POST", mode: "no-cors", body: "x"}),
  () => fetch("/api/runs"),
  () => new Promise((done, fail) => { const x = new XMLHttpRequest();
    x.onload = done; x.onerror = fail; x.open("POST", "http://127.0.0.1:PORT/xhr"); x.send("x"); }),
  () => { if (!navigator.sendBeacon("http://127.0.0.1:PORT/beacon", "x")) throw 1; },
  () => new Promise((done, fail) => { const i = new Image();
    i.onload = done; i.onerror = fail; i.src = "http://127.0.0.1:PORT/img"; }),
  () => new Promise((done, fail) => { const w = new WebSocket("ws://127.0.0.1:PORT/ws");
    w.onopen = done; w.onerror = fail; }),
  () => { const s = document.createElement("iframe"); s.src = "http://127.0.0.1:PORT/frame";
    document.body.append(s); },
  () => { document.getElementById("f").submit(); },
  () => { window.open("http://127.0.0.1:PORT/window"); },
  () => { document.getElementById("o").textContent += sessionStorage.getItem("token"); },
  () => { document.getElementById("o").textContent += document.cookie + localStorage; },
];
(async () => {
  for (const one of tries) { try { await one(); } catch {} }
  document.getElementById("o").textContent += `origin ${self.origin}`;
  document.title = "tried";
})();
</script>"""


def test_the_script_of_a_report_from_elsewhere_reaches_nothing(
    tmp_path: Path, browser: Browser
) -> None:
    run = synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="one", seed=1)
    context = browser.new_context()
    tab = context.new_page()
    with another_port() as (port, asked), served(tmp_path) as server:
        (run.folder / "report.html").write_text(HOSTILE.replace("PORT", str(port)))
        # The tab has the token already, as that of somebody who follows the link.
        tab.goto(f"http://127.0.0.1:{server.port}/?token={TOKEN}")
        tab.get_by_role("link", name="Open the report").click()
        tab.wait_for_function("() => document.title === 'tried'")
        shown = tab.inner_text("#o")
        tab.wait_for_timeout(500)
    context.close()
    assert shown == "origin null"
    assert asked == []


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(("threads", "again")):
        run = synthetic.caching_threads(folder, seconds=3, repeats=1, run_id=name, seed=number)
        with Going(run).begun() as log:
            for trial, status in enumerate(("ok", "invalid", "failed")):
                log(TrialStarted(trial + 1, 3, trial, 0, {"threads": trial}))
                for t_s in range(3):
                    log(second(t_s + 1.0, 5000.0))
                result = {"factors": {"threads": trial}, "ops_per_s": 5000.0, "latency_ms": {}}
                log(TrialFinished(trial, 0, status, 12.0, result))
            log(Warned("the emulator was late"))
            run.end()
            log(RunFinished(name, run.folder, 3, 0, interrupted=False))
        (run.folder / "report.html").write_text(f"<title>of {name}</title>")
    with served(folder) as server:
        yield server


@contextmanager
def opened(
    browser: Browser, server: Served, path: str, scheme: Literal["light", "dark"]
) -> Iterator[Page]:
    """Yield a page; when it is left, it has complained of nothing."""
    context = browser.new_context(color_scheme=scheme)
    tab, noted = context.new_page(), list[str]()
    tab.on("pageerror", lambda error: noted.append(str(error)))
    tab.on("console", lambda message: noted.append(message.text))
    tab.goto(f"http://127.0.0.1:{server.port}{path}?token={TOKEN}")
    yield tab
    context.close()
    assert noted == [], "no script error, nothing refused by the policy"


def reach(tab: Page, link: Locator) -> None:
    """Press Tab until the link has the focus, and see that it shows."""
    for _ in range(20):
        tab.keyboard.press("Tab")
        if link.evaluate("e => e === document.activeElement"):
            break
    assert link.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_has_contrast_aa_and_opens_a_run_by_keyboard(
    two_runs: Served, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    with opened(browser, two_runs, "/", scheme) as tab:
        tab.get_by_role("heading", name="Runs").wait_for()
        # Runs of one title are told apart by when they began.
        assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d", tab.locator("tbody").inner_text())
        found = tab.evaluate(CONTRAST)
        assert found["seen"] >= 10
        assert found["low"] == []
        link = tab.locator("tbody a").last
        reach(tab, link)
        # The list is drawn again every 3 s: somebody who reads it keeps the place.
        link.evaluate("e => { e.dataset.old = '1'; }")
        tab.wait_for_function("() => !document.querySelector('[data-old]')", timeout=30_000)
        assert link.evaluate("e => e === document.activeElement")
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/runs/*")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_finished_run_has_contrast_aa_and_opens_its_report_by_keyboard(
    two_runs: Served, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    with opened(browser, two_runs, "/runs/threads", scheme) as tab:
        tab.get_by_role("link", name="Open the report").wait_for()
        found = tab.evaluate(CONTRAST)
        assert found["seen"] > 20
        assert found["low"] == []
        assert tab.get_by_role("button").count() == 0, "there is nothing to pause"
        reach(tab, tab.get_by_role("link", name="Open the report"))
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/report?key=*")
        assert tab.title() == "of threads"
