"""The page in a real browser: the engine's bytes, its sentences, the keyboard alone, no request."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disklab.knob import made_page
from disklab.machines.binary import find_engine
from disklab.report import what_if
from disklab.report.files import write_what_if
from playwright.sync_api import Browser, Page

from campaigns.turning import MIB, Sample, turned
from tests.knob.choices import choice, everything
from tests.knob.test_what_if import specified
from tests.pages import CONTRAST, complaints
from tests.programs import ended
from tests.web.test_live_page import TOKEN, served

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
# A job takes a second of processor time in a browser.
JOBS = [8, pytest.param(50, marks=pytest.mark.long)]
NO_TARGET = 2
ANSWERED, REFINED = "body[data-answers]", "body[data-refined]"

AZURE = "&".join(
    f"{side}.{part}"
    for side in "ab"
    for part in (
        "engine=cassandra",
        "vm=azure/Standard_E16s_v3",
        "disk=azure/P30",
        "count=4",
        "size=1024",
        "nodes=3",
        "copies=3",
        "rows=100000000",
        "bytes=818",
        "read=90",
        "ahead=8",
    )
)
"""A Cassandra of which memory holds a part, on disks that the host can cache."""

# Building the simulator takes a minute of processor time: only where a change reaches the page.
pytestmark = [pytest.mark.xdist_group("tests/knob"), pytest.mark.long]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with this tree's simulator, which CI does not build otherwise."""
    built = subprocess.run([ROOT / "scripts/knob.sh"], check=False).returncode
    if built == NO_TARGET:
        pytest.skip("needs Rust's library for browsers (rustup target add wasm32-unknown-unknown)")
    assert built == 0
    path = tmp_path_factory.mktemp("knob") / "knob.html"
    path.write_text(made_page().text, encoding="utf-8")
    return path


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900}, bypass_csp=False)
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    yield tab
    context.close()


def watched(tab: Page, page: Path, state: str = "#own") -> list[str]:
    """Open the page, and return what it complains about or asks for, which grows."""
    noted: list[str] = []
    tab.on("console", lambda message: noted.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: noted.append(f"error: {error}"))
    own = (page.as_uri(), "blob:")
    tab.on("request", lambda it: noted.append(it.url) if not it.url.startswith(own) else None)
    tab.goto(page.as_uri() + state)
    tab.wait_for_selector(ANSWERED)
    return noted


ASK = """
async ([choices, jobs]) => {
  const lane = new Lane(state.module, state.address);
  const answers = [];
  for (const choice of choices) {
    if (problemsOf(state.offer, choice).length) continue;
    const own = jobOf(state.offer, choice);
    const job = answers.length % 10 ? journalJob(own, {elapsed_s: 0.2}) : fidelity(own, 'quick');
    // As it came: not parsed, and so not written again.
    lane.worker.onmessage = ({data}) => lane.answered({...data, text: JSON.stringify(data)});
    answers.push([JSON.stringify({cell: 0, seed: 1, ...job}), (await lane.ask(job)).text]);
    if (answers.length === jobs) break;
  }
  return answers;
}
"""


@pytest.mark.parametrize("jobs", JOBS)
def test_jobs_have_the_bytes_of_the_engine(tab: Page, page: Path, jobs: int) -> None:
    watched(tab, page)
    chance = random.Random(7)
    offered = everything()
    answers = tab.evaluate(ASK, [[choice(chance, offered) for _ in range(4 * jobs)], jobs])
    assert len(answers) == jobs
    lines = "".join(f"{job}\n" for job, _ in answers)
    engine = ended([find_engine(), "simulate", "--jobs", "1"], input=lines)
    told = engine.stdout.splitlines(keepends=True)[:-1]
    without = [re.sub(r'"wall_s":[0-9.e-]+', '"wall_s":0.0', line) for line in told]
    assert [text for _, text in answers] == without
    assert sum(json.loads(line)["event"] == "cell" for line in told) > jobs // 2
    assert sum(bool(json.loads(line).get("journal")) for line in told) > jobs // 4


def test_the_picture_replays_ios_of_the_simulated_job(tab: Page, page: Path) -> None:
    noted = watched(tab, page, f"#{AZURE}&b.caching=ReadOnly")
    for side in (1, 2):
        tab.wait_for_selector(f"#ios li:nth-child({side}):has-text('I/Os within')")
    a, b = tab.locator("#ios li").all_inner_texts()
    # B's caching is ReadOnly: only there the host cache serves.
    assert re.match(r"A: \d+ I/Os within [\d.]+ ms: served \d+ by disks \(", a)
    assert "by the host cache (" in b
    tab.click("#play")
    assert tab.inner_text("#play") == "Play"
    # Where the dots stand is where the simulator has the I/Os at that moment.
    drawn = """(ms) => {
      const moment = document.getElementById('moment');
      moment.value = ms;
      moment.dispatchEvent(new Event('input'));
      const {ios, from, length} = replay.sides.a, at = from + replay.at % length;
      const shown = ios.filter(({place}) => place);
      const wrong = shown.filter(({place, arrived, passed, ended}) => !(arrived <= at && at < ended)
        || (at < passed) !== (place[0] < replay.gate));
      const under = ios.filter(({arrived, ended}) => arrived <= at && at < ended);
      return [shown.length, under.length, wrong.length];
    }"""
    for ms in (0.2, 1, 3):
        dots, under_way, wrong = tab.evaluate(drawn, ms)
        assert dots == under_way > 0
        assert wrong == 0
    tab.click("#picture summary")
    tab.wait_for_selector("#picture tbody tr")
    rows = tab.locator("#picture tbody tr")
    assert rows.count() == 50
    assert "data disk" in (rows.first.text_content() or "")
    assert noted == []


def test_it_asks_nobody_and_says_what_the_command_line_says(tab: Page, page: Path) -> None:
    noted = watched(tab, page, f"#{AZURE}&b.caching=ReadOnly&b.disk=azure/P50")
    tab.wait_for_selector(REFINED)
    assert "azure/P50 (4096 GiB) cannot use the host cache" in tab.inner_text("#problems-b")
    assert re.search(r"A\s+[\d,]+\s+[\d.]+ ms\s+[\d,]+ USD", tab.inner_text("#brief"))
    assert "disks: 4 x azure/P30" in tab.inner_text("#file")
    assert noted == []


def test_a_link_of_a_report_opens_its_configuration(tab: Page, page: Path, tmp_path: Path) -> None:
    assert page.is_file()
    specs = [specified("4 x azure/P30")]
    simulator = write_what_if(specs, tmp_path / "report.html")
    assert simulator == "report.what-if.html"
    address = what_if.address(specs, 10, simulator)
    noted = watched(tab, tmp_path / simulator, f"#{address.partition('#')[2]}")
    assert tab.locator("#problems-a li, #problems-b li").count() == 0
    for line in ("nodes: 3", "disks: 4 x azure/P30, caching: ReadOnly", "rate: 4000/s"):
        assert line in tab.inner_text("#file")
    assert tab.input_value("#promise") == "10"
    assert noted == []
    # The VMs of its series and those of the studies are there to be picked.
    offered = tab.evaluate("[...document.querySelectorAll('#vm-sizes option')].map(it => it.value)")
    assert {"azure/Standard_E32s_v3", "azure/Standard_L8s"} <= set(offered)
    tab.locator("#presets button").nth(4).click()
    tab.wait_for_selector("#sweep .published")
    assert tab.locator("#problems-a li, #problems-b li").count() == 0


@pytest.mark.parametrize("number", range(3))
def test_a_scene_teaches_one_idea(tab: Page, page: Path, number: int) -> None:
    noted = watched(tab, page, f"#scene={number}")
    tab.wait_for_selector(f"body[data-scene='{number}']")
    points = tab.evaluate("scene.points")
    assert [point["value"] for point in points] == tab.evaluate("stops(sceneNow())")
    # Every figure of its sentences is there, and comes from what was simulated.
    assert re.match("What you have just seen: .*[0-9]", tab.inner_text("#scene-after"))
    assert "…" not in tab.inner_text("#scene")
    rates = [point["rate"] for point in points]
    times = [point["ms"] for point in points]
    assert max(rates) > 3 * min(rates)
    assert max(times) > 3 * min(times)
    # A slider by keyboard: rate, time and picture follow.
    tab.focus("#slide")
    answers = tab.evaluate("Number(document.body.dataset.answers ?? 0)")
    tab.keyboard.press("End")
    tab.wait_for_selector(f"body:not([data-answers='{answers}'])")
    assert tab.inner_text("#scene-ms") == tab.evaluate("shown(scene.points.at(-1).ms)")
    assert tab.evaluate("replay.sides.scene.ios.length") > 100
    assert noted == []


def test_charts_are_to_scale_with_round_ticks(tab: Page, page: Path) -> None:
    watched(tab, page)
    tab.wait_for_selector(REFINED)
    for values, log in (((0, 19_644), False), ((0, 105), False), ((8, 512), True), ((3, 4), True)):
        axis = tab.evaluate(
            """([values, log]) => {
              const {ticks, at, low, high} = axisOf(values, {log});
              return {ticks, places: ticks.map(at), values: values.map(at), low, high};
            }""",
            [values, log],
        )
        assert 3 <= len(axis["ticks"]) <= 7
        assert all(float(f"{tick:.2g}") == tick for tick in axis["ticks"])
        assert all(-0.001 <= at <= 1.001 for at in (*axis["places"], *axis["values"]))
    # An hour is as long as any other, and 8 to 64 threads as far as 64 to 512.
    assert tab.evaluate(
        "const own = axisOf([0, 24], {end: 24}); own.at(8) - own.at(4) - own.at(4)"
    ) == pytest.approx(0)
    assert tab.evaluate(
        "const it = axisOf([8, 512], {log: true}); it.at(512) - 2 * it.at(64) + it.at(8)"
    ) == pytest.approx(0)
    assert "(logarithmic)" in (tab.text_content("#sweep svg") or "")


def test_nothing_changes_that_nobody_touched(tab: Page, page: Path) -> None:
    watched(tab, page, f"#{AZURE}")
    before = tab.evaluate("({...state.a})")
    tab.fill("#form-a input[name=vm]", "aws/m8i.4xlarge")
    tab.wait_for_selector("#problems-a li")
    assert tab.evaluate("({...state.a})") == {**before, "vm": "aws/m8i.4xlarge"}
    assert "choose a disk of aws" in tab.inner_text("#problems-a")
    assert tab.input_value("#form-a select[name=disk]") == "azure/P30"
    # A part of a name is a search, not a choice.
    tab.fill("#form-a input[name=vm]", "r8g")
    assert re.match(r"\d+ sizes have this", tab.inner_text("#help-a-vm"))
    assert tab.evaluate("state.a.vm") == "aws/m8i.4xlarge"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("#a.engine=oracle&a.threads=8", "a.engine=oracle"),
        ("#b.vm=azure/none&b.threads=many", "b.vm=azure/none, b.threads=many"),
        ("#scene=9", "scene=9"),
        ("#x=%3Cscript%3E", "x=<script>"),
    ],
)
def test_a_link_that_asks_for_more_says_so(tab: Page, page: Path, state: str, said: str) -> None:
    tab.goto(page.as_uri() + state)
    tab.wait_for_selector("#notice:not([hidden])")
    assert f"does not have: {said}." in tab.inner_text("#notice")


def test_different_work_is_not_compared(tab: Page, page: Path) -> None:
    watched(tab, page, "#b.engine=mysql&b.ahead=-1")
    says = tab.locator("#says")
    says.filter(has_text="different work (database)").wait_for()
    assert "times the operations" not in says.inner_text()


def test_a_promise_tells_what_to_buy_in_each_study(tab: Page, page: Path) -> None:
    watched(tab, page)
    assert not tab.is_visible("#over")
    tab.fill("#promise", "20")
    tab.click("#over")
    tab.wait_for_selector("body[data-studies='20']", timeout=120_000)
    rows = tab.locator("#studies tbody tr").all_inner_texts()
    studies = tab.locator("#presets button").all_inner_texts()
    assert len(rows) == len(studies)
    assert all(study in row for study, row in zip(studies, rows, strict=True))
    bought = [
        re.search(r"it alone keeps it|the cheaper of two|Both keep it|Neither keeps", row)
        for row in rows
    ]
    assert all(bought), rows
    tab.fill("#promise", "5")
    assert not tab.is_visible("#studies")


def test_studies_draw_their_published_points(tab: Page, page: Path) -> None:
    noted = watched(tab, page)
    for number, points in enumerate((6, 8, 2, 4, 2)):
        tab.locator("#presets button").nth(number).click()
        tab.wait_for_selector(f"#sweep .published >> nth={points - 1}")
        assert tab.locator("#sweep .published").count() == points
        assert tab.locator("#problems-a li, #problems-b li").count() == 0
        assert f"study={number}" in tab.url
        tab.goto(page.as_uri() + "#own")
        tab.reload()
        tab.wait_for_selector(ANSWERED)
    assert noted == []


# `#own` would begin at the form, which has that name.
@pytest.mark.parametrize("state", ["#scene=0", "#a.threads=64"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_keyboard_alone_reaches_everything_and_leaves_again(
    browser: Browser, page: Path, width: int, state: str
) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 844}, reduced_motion="reduce")
    tab.goto(page.as_uri() + state)
    tab.wait_for_selector("body[data-scene='0']" if "scene" in state else REFINED)
    # A figure that is drawn anew meanwhile would not be known again.
    tab.evaluate("state.round += 1, state.refining.drop()")
    assert complaints(tab) == []
    tab.close()


def test_the_keyboard_alone_turns_a_knob_and_the_address_keeps_it(tab: Page, page: Path) -> None:
    watched(tab, page)
    tab.wait_for_selector(REFINED)
    before = tab.inner_text("#brief")
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.name + document.activeElement.type") == (
            "threadsrange"
        ):
            break
    else:
        pytest.fail("Tab does not reach the knob of the threads")
    answers = tab.evaluate("Number(document.body.dataset.answers)")
    for _ in range(3):
        tab.keyboard.press("PageUp")
    tab.wait_for_selector(f"body:not([data-answers='{answers}'])")
    tab.evaluate("delete document.body.dataset.refined")
    tab.wait_for_selector(REFINED)
    brief = tab.inner_text("#brief")
    assert brief != before
    assert "a.threads=" in tab.url
    other = tab.context.new_page()
    other.goto(tab.url)
    other.wait_for_selector(REFINED, timeout=60_000)
    assert other.inner_text("#brief") == brief


@pytest.mark.long
def test_turned_knobs_leave_no_memory_behind(tab: Page, page: Path) -> None:
    watched(tab, page)
    tab.wait_for_selector(REFINED)
    noted = list(turned(tab, 20, seed=1))
    early, late = (sample for sample in noted if isinstance(sample, Sample))
    assert late.modules <= 3 * 96 * MIB
    assert 0 < late.process < early.process + 64 * MIB


def test_serve_links_to_it_and_shows_it_to_whom_has_the_token(
    tab: Page, page: Path, tmp_path: Path
) -> None:
    assert page.is_file()
    with served(tmp_path) as server:
        assert server.ask("/knob")[0] == 403
        tab.goto(f"http://127.0.0.1:{server.port}/?token={TOKEN}")
        tab.get_by_role("link", name="Turn the knob").click()
        tab.wait_for_selector(ANSWERED)
        assert float(tab.inner_text("#scene-rate").replace(",", "")) > 1000


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "dark"),
        (1440, "light"),
        pytest.param(390, "light", marks=pytest.mark.long),
        pytest.param(1440, "dark", marks=pytest.mark.long),
    ],
)
def test_it_fits_and_is_legible(browser: Browser, page: Path, width: int, scheme: Any) -> None:
    tab = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    for state, ready in (
        *((f"#scene={at}", f"body[data-scene='{at}']") for at in range(3)),
        ("#own", REFINED),
    ):
        tab.goto(page.as_uri() + state)
        tab.wait_for_selector(ready, timeout=60_000)
        assert tab.inner_text("#play") == "Play"
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(CONTRAST)["low"] == []
    for figure in tab.locator("figure:visible").all():
        figure.locator("summary").click()
        figure.locator("table").wait_for()
    charts = tab.locator("figure:visible > :is(svg, canvas)").count()
    assert charts == tab.locator("figure:visible table").count() >= 3
    controls = tab.locator("input, select, button").all()
    unnamed = "it => !it.labels?.length && !it.ariaLabel && !it.textContent"
    assert not any(control.evaluate(unnamed) for control in controls)
    tab.close()
