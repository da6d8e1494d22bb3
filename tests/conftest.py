"""What all tests share: the mark `machine`, a browser, an SSH server, and who shares a process."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from disklab import interrupts
from disklab.catalog import load
from disklab.hosts import requirements
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

from tests import warm
from tests.machines.ssh_server import SshServer, start_server

# A busy machine is slow, not wrong: no example fails for the time that it took.
settings.register_profile("disklab", deadline=None)
settings.load_profile("disklab")

warm.install()

# What a test asks of a Cassandra is soon done: compiled once and quickly, and believed to be what
# its compiler made, it starts with 8 s of processor time instead of 12.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:-BytecodeVerificationRemote"
)

# Tests share their machine, and look at marks and words: no rehearsal waits for a calmer one.
os.environ.setdefault("DISKLAB_CALM_WAIT", "0")

# Tables of tests are wide: a terminal's own width is tested where it counts.
os.environ.pop("COLUMNS", None)

IN_CI = os.environ.get("CI") == "true"
# What takes longest begins first: at the end one process would work on it alone.
LONGEST_FIRST = (
    "tests/databases",
    "tests/procedures",
    "tests/test_benches.py",
    "tests/measurement",
    "tests/sweeps",
    "tests/kills",
    "tests/kits",
    "tests/web",
    "tests/power",
    "tests/test_probe_emulated.py",
)
# Characters of a text that is a parameter of a test, in the test's name.
LONGEST_NAME = 100
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among what stays: all tests, which later searches pass over too."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def _unsettled() -> Iterator[None]:
    """What a test settles on ends with it: others would not see their own files."""
    yield
    assert not load._settled


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser of this machine, one for each process of the tests."""
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        if IN_CI:
            pytest.fail("no chromium: scripts/setup.sh should have installed it")
        pytest.skip("needs chromium (apt install chromium)")
    with sync_playwright() as playwright:
        # Chromium refuses its sandbox to root, which CI is.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=program, args=sandbox)
        yield started
        started.close()


@pytest.fixture(autouse=True)
def signals_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give back what a command that runs in this process has made of signals."""
    state = getattr(interrupts, "_State")  # noqa: B009 - tests alone run two commands in a process
    monkeypatch.setattr(state, "numbers", state.numbers)
    handlers = {number: signal.getsignal(number) for number in state.numbers}
    yield
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture
def ssh_server(tmp_path: Path) -> Iterator[SshServer]:
    """A real sshd of this test alone."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    started = start_server(folder)
    try:
        yield started
    finally:
        started.stop()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Return a short name of one line for a long text: every process writes and compares them all.

    None: pytest names it itself. It numbers equal names.
    """
    if not isinstance(val, str | bytes) or len(val) <= LONGEST_NAME:
        return None
    begin = val[:LONGEST_NAME]
    text = begin.decode("latin-1") if isinstance(begin, bytes) else begin
    return f"{text.encode('unicode_escape').decode('ascii')}..."


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep tests that share a server in one process; skip what this machine cannot do; order."""
    for item in items:
        if item.get_closest_marker("alone"):
            item.add_marker(pytest.mark.xdist_group(_alone(item)))
        elif shared := _shared(item):
            item.add_marker(pytest.mark.xdist_group(shared))
    skip_without_devices(items)
    # One process does them as they are named: see campaigns/mutants, which begins with the nearest.
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Return where a test stands: one of those that begin first, or after them as it was found."""
    begins = (n for n, where in enumerate(LONGEST_FIRST) if item.nodeid.startswith(where))
    return next(begins, len(LONGEST_FIRST))


def _alone(item: pytest.Item) -> str:
    """Return the process of a test that runs with none beside it, but for one that only waits.

    Those with devices are one after the other, and beside them what watches and draws in a process.
    """
    return "with devices" if item.get_closest_marker("machine") else "in a process"


def _shared(item: pytest.Item) -> str | None:
    """Return what a test shares with others, so that it is made once: a module's or a package's."""
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - pytest names it so
    wide: dict[str, str] = {
        made[-1].scope: made[-1].baseid
        for made in fixtures.values()
        if made and made[-1].baseid.startswith("tests")
    }
    if "package" in wide:
        return wide["package"]
    return item.nodeid.split("::")[0] if "module" in wide else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Raise when xdist does not know the groups: each process would make what they share."""
    if session.config.getoption("loadgroup", False):
        for item in session.items:
            assert not item.get_closest_marker("xdist_group") or "@" in item.nodeid, item.nodeid


def skip_without_devices(items: list[pytest.Item]) -> None:
    """Skip tests that make block devices where none can be made; in CI that is a failure."""
    problems = list(requirements.problems())
    if not problems:
        return
    reason = "; ".join(f"{problem.place}: {problem.rule}" for problem in problems)
    for item in items:
        if item.get_closest_marker("machine") is None:
            continue
        if IN_CI:
            item.add_marker(pytest.mark.xfail(run=False, strict=True, reason=reason))
        else:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what is missing when CI must not skip."""
    if IN_CI and terminalreporter.stats.get("skipped"):
        terminalreporter.section("skips are failures in CI")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run in CI when a test was skipped: what is skipped there is never checked."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not IN_CI or reporter is None:
        return
    if reporter.stats.get("skipped") or reporter.stats.get("xfailed"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
