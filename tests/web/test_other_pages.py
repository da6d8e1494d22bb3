"""The overview and a finished run's page, for those who see little or use no mouse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from disklab.events import RunFinished, TrialFinished, TrialStarted, Warned
from playwright.sync_api import Browser, Locator, Page

from tests.contrast import CONTRAST
from tests.report import synthetic
from tests.web.test_live_page import TOKEN, Going, Served, second, served


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
