"""The live page as its users meet it: a real server, real run folders, a real browser."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import pytest
from disklab.events import (
    PhaseStarted,
    PlannedTrial,
    Progress,
    RunFinished,
    RunStarted,
    TrialFinished,
    TrialStarted,
    Warned,
)
from disklab.results import Run
from disklab.results.event_log import EVENTS, EventLog, Wish, wish_of
from playwright.sync_api import Browser, Page

from tests.pages import CONTRAST
from tests.programs import ended
from tests.report import synthetic

DISKLAB = Path(sys.executable).with_name("disklab")
TOKEN = "0123456789abcdef-of-the-test"
HOSTILE = "<img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Served:
    """A server of a folder of runs."""

    folder: Path
    port: int
    pid: int
    stderr: IO[str] | None = None

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, str]:
        """Return status and text of an answer to a request with exactly these headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def told(self, path: str) -> Any:
        status, text = self.ask(path, Authorization=f"Bearer {TOKEN}")
        assert status == 200, text
        return json.loads(text)


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Served]:
    command = [str(DISKLAB), "serve", str(folder), "--port", "0", *options]
    environment = {**os.environ, "DISKLAB_TOKEN": TOKEN}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            line = server.stderr.readline()
            found = re.fullmatch(rf"http://127\.0\.0\.1:(\d+)/\?token={TOKEN}\n", line)
            assert found, line + server.stderr.read()
            made = Served(folder, int(found[1]), server.pid, server.stderr)
            deadline = time.monotonic() + 30
            while True:
                try:
                    made.ask("/")
                    break
                except OSError:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield made
        finally:
            server.terminate()
            server.wait(20)


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    synthetic.caching_threads(folder, seconds=3, repeats=1, run_id="threads", seed=1)
    synthetic.caching_threads(folder, seconds=3, repeats=1, run_id="again", seed=2)
    with served(folder) as server:
        yield server


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    # With a storage of its own.
    made = browser.new_context()
    yield made.new_page()
    made.close()


def test_nothing_of_a_run_is_answered_without_the_token(page_of: Served) -> None:
    api = ("/api/runs", "/api/runs/threads", "/api/runs/threads/events", "/metrics")
    for path in (*api, "/runs/threads/report", "/runs/threads/report?key=wrong", "/nothing"):
        assert page_of.ask(path)[0] == 403, path
        assert page_of.ask(path, Authorization="Bearer wrong")[0] == 403, path
        # A browser sends a cookie to every port of this machine: there is none.
        assert page_of.ask(path, Cookie=f"disklab={TOKEN}")[0] == 403, path
    assert page_of.ask("/?token=wrong")[0] == 403
    # The page without figures is the same for all.
    for path in ("/", "/runs/threads", "/assets/live.js"):
        status, text = page_of.ask(path)
        assert status == 200
        assert TOKEN not in text
        assert page_of.ask(path, "POST", "stop")[0] == 403


def test_the_key_of_a_report_opens_that_report_alone(page_of: Served) -> None:
    for name in ("threads", "again"):
        (page_of.folder / name / "report.html").write_text(f"the report of {name}")
    address = page_of.told("/api/runs/threads")["report"]
    assert page_of.ask(address) == (200, "the report of threads")
    assert page_of.ask(address.replace("threads", "again"))[0] == 403
    assert page_of.ask(address.replace("/runs/threads/report", "/api/runs/threads"))[0] == 403
    assert page_of.ask(address, "POST", "stop")[0] == 403
    for name in ("threads", "again"):
        (page_of.folder / name / "report.html").unlink()


def test_a_foreign_page_in_the_same_browser_gets_nothing(page_of: Served) -> None:
    ours = {"Authorization": f"Bearer {TOKEN}"}
    # A name of the attacker's that now points to 127.0.0.1.
    rebound = page_of.ask("/api/runs", Host=f"evil.example:{page_of.port}", **ours)
    assert rebound[0] == 421
    asked = page_of.ask("/api/runs/threads/after-trial", "POST", "stop", **ours)
    assert asked[0] == 403
    assert wish_of(page_of.folder / "threads") is Wish.GO_ON


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2f..", "threads%00", "nothing"])
def test_a_name_is_never_a_path(page_of: Served, name: str) -> None:
    asked = page_of.ask(f"/api/runs/{name}", Authorization=f"Bearer {TOKEN}")
    assert asked[0] in (400, 404)


def test_a_wish_is_left_and_taken_back(page_of: Served) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "x_disklab": "1"}
    path = "/api/runs/threads/after-trial"
    assert page_of.ask(path, "POST", "pause", **headers)[0] == 204
    assert wish_of(page_of.folder / "threads") is Wish.PAUSE
    status, said = page_of.ask(path, "POST", "delete", **headers)
    assert status == 400
    assert "go-on, pause, stop" in said
    assert page_of.ask(path, "POST", "go-on", **headers)[0] == 204
    assert wish_of(page_of.folder / "threads") is Wish.GO_ON


def test_other_machines_are_refused_without_tls(tmp_path: Path) -> None:
    command = [str(DISKLAB), "serve", str(tmp_path), "--address", "0.0.0.0", "--port", "0"]
    ran = ended(command, code=2)
    assert "without TLS" in ran.stderr
    assert "--tls-cert" in ran.stderr


class Going:
    """A run that goes on, written as a rehearsal writes it."""

    def __init__(self, run: Run) -> None:
        self.folder = run.folder
        self._run = run

    @contextmanager
    def begun(self) -> Iterator[EventLog]:
        planned = tuple(PlannedTrial(n, 0, {"threads": n}, 40.0) for n in range(3))
        with self._run.writing(), EventLog(self.folder) as log:
            log(RunStarted("threads", self.folder, "rehearse", HOSTILE, 1, planned, 0, 0))
            yield log


def second(t_s: float, rate: float) -> Progress:
    seen = {
        "disk data: read_iops": 4990.0,
        "disk data: read_bytes_per_s": 40e6,
        "emulator data: utilisation disk 0 ios": 0.998,
        "emulator data: credits_ratio disk 0 ios": 0.25,
    }
    return Progress("measure", t_s, int(rate * t_s), None, rate, 1.5, 9.25, 0, seen)


def test_a_browser_follows_a_run_to_its_report(tmp_path: Path, tab: Page) -> None:
    run = synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="threads", seed=1)
    going = Going(run)
    noted: list[str] = []
    tab.on("pageerror", lambda error: noted.append(str(error)))
    tab.on("console", lambda message: noted.append(message.text))
    with served(tmp_path) as server:
        with going.begun() as log:
            log(TrialStarted(1, 3, 0, 0, {"threads": 64}))
            log(PhaseStarted("measure", "pass 1"))
            for n in range(5):
                log(second(n + 1.0, 5000.0))
            tab.goto(f"http://127.0.0.1:{server.port}/?token={TOKEN}")
            tab.get_by_text("5,000/s").first.wait_for()
            assert "token" not in tab.url, "the token leaves the address line"
            text = tab.inner_text("main")
            for shown in ("Trial 1 of 3", "threads 64", "9.25 ms", "100 %", "25 %", HOSTILE):
                assert shown in text, text
            log(second(6.0, 7777.0))
            log(Warned("the emulator was late"))
            tab.get_by_text("7,780/s").first.wait_for()
            tab.get_by_text("the emulator was late").wait_for()
            tab.get_by_role("button", name="Pause after this trial").click()
            tab.get_by_text("Pauses after this trial").wait_for()
            assert wish_of(going.folder) is Wish.PAUSE
            result = {"factors": {"threads": 64}, "ops_per_s": 5000.0, "latency_ms": {"p50": 1.5}}
            log(TrialFinished(0, 0, "ok", 12.0, result))
            tab.locator("td.ok").wait_for()
            (going.folder / "report.html").write_text("<title>the report</title>")
            log(RunFinished("threads", going.folder, 1, 2, interrupted=True))
        tab.get_by_text("stopped; go on with").wait_for()
        tab.get_by_role("link", name="Open the report").click()
        tab.wait_for_url("**/report?key=*")
        assert tab.title() == "the report"
        assert tab.context.cookies() == []
    assert noted == [], "no script error, nothing refused by the policy"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_with_contrast_aa_and_by_keyboard_alone(
    tmp_path: Path, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    going = Going(synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="one", seed=1))
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    with going.begun() as log, served(tmp_path) as server:
        log(TrialStarted(1, 3, 0, 0, {"threads": 64}))
        log(PhaseStarted("measure", "pass 1"))
        log(second(1.0, 5000.0))
        log(Warned("the emulator was late"))
        tab.goto(f"http://127.0.0.1:{server.port}/?token={TOKEN}")
        tab.get_by_text("the emulator was late").wait_for()
        found = tab.evaluate(CONTRAST)
        assert found["seen"] > 20
        assert found["low"] == []
        # Label and outline are read in one call: between two, the page may replace the button.
        focused = """() => {
          const it = document.activeElement;
          return [it.textContent, getComputedStyle(it).outlineStyle];
        }"""
        for _ in range(30):
            tab.keyboard.press("Tab")
            label, outline = tab.evaluate(focused)
            if label == "Pause after this trial":
                break
        assert (label, outline) == ("Pause after this trial", "solid")
        tab.keyboard.press("Enter")
        tab.get_by_text("Pauses after this trial").wait_for()
        assert wish_of(going.folder) is Wish.PAUSE
    context.close()


def test_the_page_comes_back_after_the_server_did(tmp_path: Path, tab: Page) -> None:
    going = Going(synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="one", seed=1))
    with going.begun() as log:
        with served(tmp_path) as first:
            tab.goto(f"http://127.0.0.1:{first.port}/?token={TOKEN}")
            tab.get_by_text("live", exact=True).wait_for()
            port = first.port
        tab.get_by_text("connection lost").wait_for()
        log(TrialStarted(2, 3, 1, 0, {"threads": 128}))
        with served(tmp_path, "--port", str(port)):
            tab.get_by_text("threads 128").wait_for(timeout=20_000)


def test_a_run_of_ten_hours_stays_small(tmp_path: Path) -> None:
    run = synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="long", seed=1)
    with Going(run).begun() as log:
        log(TrialStarted(1, 3, 0, 0, {"threads": 64}))
        for n in range(36_000):
            log(second(n + 1.0, 5000.0 + n % 7))
        assert (run.folder / EVENTS).stat().st_size < 30e6
        with served(tmp_path) as server:
            state = server.told("/api/runs/long")
            assert 300 <= len(state["course"]) <= 720
            assert len(json.dumps(state)) < 100_000
            rss = Path(f"/proc/{server.pid}/status").read_text()
            kib = int(re.search(r"VmRSS:\s+(\d+)", rss)[1])
            # Python with pydantic and polars is most of it.
            assert kib < 250_000


def test_events_are_whole_from_many_threads(tmp_path: Path) -> None:
    run = synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="many", seed=1)
    with Going(run).begun() as log:

        def warn() -> None:
            for _ in range(200):
                log(Warned("x" * 3000))

        threads = [threading.Thread(target=warn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = (run.folder / EVENTS).read_text().splitlines()
    assert len(lines) == 801
    assert all(json.loads(line)["event"] for line in lines)


def test_what_a_kill_tore_is_passed_over(tmp_path: Path) -> None:
    run = synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="torn", seed=1)
    (run.folder / EVENTS).write_text('{"t": "2026-01-01T00:00:00+00:00", "event": "RunSta')
    with Going(run).begun(), served(tmp_path) as server:
        assert server.told("/api/runs/torn")["status"] == "running"
    with served(tmp_path) as server:
        assert server.told("/api/runs/torn")["status"] == "stopped", "its process is gone"


def test_metrics_name_their_units_and_escape(tmp_path: Path) -> None:
    run = synthetic.caching_threads(tmp_path, seconds=3, repeats=1, run_id="one", seed=1)
    with Going(run).begun() as log, served(tmp_path) as server:
        log(TrialStarted(1, 3, 0, 0, {"threads": 64}))
        log(second(1.0, 5000.0))
        status, text = server.ask("/metrics", Authorization=f"Bearer {TOKEN}")
    assert status == 200
    assert text.endswith("# EOF\n")
    assert 'disklab_run_operations_per_second{run="one"} 5000\n' in text
    assert 'disklab_run_p99_seconds{run="one"} 0.00925\n' in text
    assert 'source="disk data",metric="read_iops"} 4990\n' in text
