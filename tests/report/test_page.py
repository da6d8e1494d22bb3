"""The page in a real browser: loads nothing, draws everything, fits a phone, opens quickly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from disklab.report.files import write_page
from disklab.report.report import Report
from playwright.sync_api import Browser, Page, sync_playwright

from tests.report import synthetic

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
DRAWN = "document.body.dataset.drawn === 'yes'"
SECONDS_LONG = 36_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no chromium: scripts/setup.sh should have installed it")
        pytest.skip("needs chromium (apt install chromium)")
    with sync_playwright() as playwright:
        # Chromium refuses its sandbox to root, which CI is.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=program, args=sandbox)
        yield started
        started.close()


@pytest.fixture(scope="module")
def short_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("short")
    runs = [
        synthetic.caching_threads(folder, seconds=6, repeats=3, run_id=f"run{n}", seed=n)
        for n in (1, 2)
    ]
    return write_page(Report.of(runs), folder / "report.html")


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten hours a trial, three trials."""
    folder = tmp_path_factory.mktemp("long")
    trials = [
        synthetic.Made({"data disks": disks}, ops, hit_ratio=0.9)
        for disks, ops in (("attached", 5000), ("local", 6000), ("ultra", 7000))
    ]
    run = synthetic.make_run(folder, trials, title="Ten hours", repeats=1, seconds=SECONDS_LONG)
    return write_page(Report.of([run]), folder / "report.html")


def opened(browser: Browser, page: Path, width: int, scheme: str) -> tuple[Page, list[str]]:
    """Open a page and return it with everything that it complained about or asked for."""
    tab = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    noted: list[str] = []
    tab.on("console", lambda message: noted.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: noted.append(f"error: {error}"))
    own = page.as_uri()
    tab.on("request", lambda asked: noted.append(asked.url) if asked.url != own else None)
    tab.goto(own)
    tab.wait_for_function(DRAWN, timeout=30_000)
    return tab, noted


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_draws_everything_and_asks_for_nothing(
    browser: Browser, short_page: Path, width: int, scheme: str
) -> None:
    tab, noted = opened(browser, short_page, width, scheme)
    assert noted == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    charts = tab.locator(".chart")
    visible = [n for n in range(charts.count()) if charts.nth(n).is_visible()]
    assert len(visible) >= 6
    for number in visible:
        chart = charts.nth(number)
        assert chart.locator("svg path, svg rect").count() > 3
        # Vega gives the description to the element that holds the picture.
        assert (chart.get_attribute("aria-label") or "").count(" ") > 3
        box = chart.locator("svg").first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width + 1
    verdict = tab.locator("#verdict").inner_text()
    assert "equally fast in " in verdict
    assert "Choose caching ReadOnly up to 128 threads, caching None at 256 threads" in verdict
    tab.close()


def test_light_and_dark_differ_also_inside_the_charts(browser: Browser, short_page: Path) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        tab, _ = opened(browser, short_page, 1200, scheme)
        label = tab.locator(".chart svg .role-axis-label text").first
        colours.add(label.evaluate("element => getComputedStyle(element).fill"))
        tab.close()
    assert len(colours) == 2


def test_every_chart_has_its_table_and_closed_ones_draw_when_opened(
    browser: Browser, short_page: Path
) -> None:
    tab, _ = opened(browser, short_page, 1200, "light")
    assert tab.locator("figure").count() == tab.locator("figure details table").count()
    more = tab.locator("details.more").first
    more.locator("summary").first.click()
    more.locator(".chart svg").first.wait_for(timeout=10_000)
    tab.close()


@pytest.mark.alone
def test_a_ten_hour_run_opens_in_three_seconds_and_stays_small(
    browser: Browser, long_page: Path
) -> None:
    # 60 hours of seconds are 150 MB on the disk.
    assert long_page.stat().st_size < 3_000_000
    took = []
    # The machine may be busy with something else once; three times is us.
    for _ in range(3):
        begun = monotonic()
        tab, noted = opened(browser, long_page, 1200, "light")
        took.append(monotonic() - begun)
        assert noted == []
        tab.close()
        if took[-1] < 3:
            break
    assert min(took) < 3, took


def test_printing_shows_the_charts_on_white(browser: Browser, short_page: Path) -> None:
    tab, _ = opened(browser, short_page, 1200, "dark")
    tab.emulate_media(media="print", color_scheme="dark")
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    tab.close()
