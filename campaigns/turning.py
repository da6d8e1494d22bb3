"""`python -m campaigns.turning --turns 3600`: the knobs of the simulator's page turned for an hour.

Each turn waits for its answer; now and then the knobs rest until the answer is refined, and a study
is chosen. What is counted: how long answers take, and the memory of the page's process, as Linux
shares it out (PSS), of its scripts and of its WebAssembly modules. What is left once the browser
has collected garbage tells a leak from what it had not collected yet.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab.knob import made_page
from playwright.sync_api import Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REST, STUDY, SAMPLE = 20, 100, 10
"""After how many turns the knobs rest, another study is chosen, and memory is looked at."""
MIB = 1 << 20
TURN = """
([side, name, value]) => new Promise((resolve) => {
  const control = document.querySelector(`#form-${side} input[type=range][name=${name}]`);
  const before = document.body.dataset.answers, begun = performance.now();
  const seen = new MutationObserver(() => {
    if (document.body.dataset.answers === before) return;
    seen.disconnect();
    clearTimeout(limit);
    resolve(performance.now() - begun);
  });
  const kept = control.value;
  const limit = setTimeout(() => {
    // A value that is refused, with its sentence, has no answer: it is taken back.
    seen.disconnect();
    control.value = kept;
    control.dispatchEvent(new Event('input', {bubbles: true}));
    resolve(null);
  }, 5000);
  seen.observe(document.body, {attributes: true, attributeFilter: ['data-answers']});
  control.value = value;
  control.dispatchEvent(new Event('input', {bubbles: true}));
})
"""
OWN = """
() => ({
  scripts: performance.memory.usedJSHeapSize,
  modules: [...Object.values(state.lanes), state.refining]
    .reduce((sum, {bytes = 0}) => sum + bytes, 0),
})
"""


@dataclass(frozen=True)
class Sample:
    """The page's memory after so many turns, in bytes."""

    turns: int
    process: int
    scripts: int
    modules: int


def process_bytes() -> int:
    """Return the memory of the page's process: the largest renderer below this process.

    Chromium keeps another one in reserve.
    """
    renderers = (pid for pid in below(os.getpid()) if "--type=renderer" in text(pid, "cmdline"))
    return max(pss(pid) for pid in renderers)


def below(pid: int) -> Iterator[int]:
    """Return the processes that a process and its children have started."""
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    parts = {pid: text(pid, "stat").rpartition(")")[2].split() for pid in pids}
    parents = {pid: int(fields[1]) for pid, fields in parts.items() if fields}
    for child in parents:
        ancestor = child
        while ancestor in parents and ancestor != pid:
            ancestor = parents[ancestor]
        if ancestor == pid:
            yield child


def text(pid: int, name: str) -> str:
    """Return a file of a process; empty: it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def pss(pid: int) -> int:
    lines = text(pid, "smaps_rollup").splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def turned(tab: Page, turns: int, seed: int) -> Iterator[float | Sample]:
    """Turn knobs; yield the milliseconds that each answer took, and samples of the memory."""
    chance = random.Random(seed)
    studies = tab.locator("#presets button").count()
    for turn in range(1, turns + 1):
        if turn % STUDY == 0:
            tab.locator("#presets button").nth(chance.randrange(studies)).click()
            rest(tab)
        side = chance.choice("ab")
        knobs = tab.locator(f"#form-{side} input[type=range]")
        knob = knobs.nth(chance.randrange(knobs.count()))
        name, least, most = (knob.get_attribute(key) for key in ("name", "min", "max"))
        value = chance.randint(int(least or 0), min(int(most or 0), 512))
        answered = tab.evaluate(TURN, [side, name, value])
        if answered is not None:
            yield float(answered)
        if turn % REST == 0:
            rest(tab)
        if turn % SAMPLE == 0 or turn == turns:
            own = tab.evaluate(OWN)
            yield Sample(turn, process_bytes(), own["scripts"], own["modules"])


def rest(tab: Page) -> None:
    """Leave the knobs alone until the answer is refined."""
    tab.evaluate("delete document.body.dataset.refined")
    tab.wait_for_selector("body[data-refined]", timeout=120_000)


def collected(tab: Page) -> int:
    """Let the browser collect its garbage; return what the page's process still has, in bytes."""
    session = tab.context.new_cdp_session(tab)
    session.send("HeapProfiler.collectGarbage")
    # Chromium gives pages back in the background.
    time.sleep(2)
    return process_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3600)
    parser.add_argument("--minutes", type=float, default=120, help="No longer than this.")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        print("needs chromium")
        return 2
    answers: list[float] = []
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "knob.html"
        page.write_text(made_page().text, encoding="utf-8")
        arguments = ["--enable-precise-memory-info"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        tab = browser.new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-refined]", timeout=120_000)
        end = time.monotonic() + 60 * asked.minutes
        for noted in turned(tab, asked.turns, asked.seed):
            if time.monotonic() > end:
                break
            if isinstance(noted, float):
                answers.append(noted)
                continue
            samples.append(noted)
            if noted.turns % 100 == 0 or noted.turns == SAMPLE:
                print(line(noted), flush=True)
        left = collected(tab)
        browser.close()
    quick = statistics.median(answers)
    print(f"{len(answers)} turns: an answer takes {quick:.0f} ms in the median")
    print(f"most: {line(max(samples, key=lambda sample: sample.process))}")
    print(f"left once garbage is collected: {left / MIB:.0f} MiB")
    return 0


def line(sample: Sample) -> str:
    sizes = (sample.process, sample.scripts, sample.modules)
    process, scripts, modules = (size / MIB for size in sizes)
    return (
        f"after {sample.turns} turns: {process:.0f} MiB, of which "
        f"scripts {scripts:.1f}, modules {modules:.0f}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
