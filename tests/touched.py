"""`pytest -m long --touched main`: the long tests of what a change touched, for ten minutes.

Changed is what differs from the merge base with the branch named. A change reaches a test that
imports it, however far away, that is named after its room, or whose name has its database. The
registry of databases is where imports end: beyond it a database is known by its folder alone.
"""

from __future__ import annotations

import ast
import re
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

SECONDS = 600.0
REGISTRY = "disklab.databases.registry"
DATABASES = Path("python/disklab/databases")
# The rooms whose tests run what a crate does; a crate that others are built of reaches theirs too.
ROOMS_OF_CRATES = {
    "disklab-emulator": {"hosts", "probe"},
    "disklab-load": {"workloads", "databases"},
    "disklab-node": {"machines", "measurement", "telemetry"},
    "disklab-sim": {"prediction", "truth"},
    "disklab-wasm": {"knob"},
}
# Where a room's tests have another name than the room.
TESTS_OF = {"advice": "advise"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know the option."""
    parser.addoption("--touched", metavar="BRANCH", help="only what differs from there reaches")


def pytest_configure(config: pytest.Config) -> None:
    """Choose tests where it is asked for."""
    if branch := config.getoption("--touched"):
        config.pluginmanager.register(Chosen(config.rootpath, branch), "touched tests")


class Chosen:
    """The tests that a change reaches, nearest first, and those for which no time was left."""

    def __init__(self, root: Path, branch: str) -> None:
        self.changed = changed_files(root, branch)
        self.branch = branch
        self.reach = Reach(root, self.changed or [])
        self.until = float("inf")
        self.left_out: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave what is reached, the nearest first."""
        steps = {item: self.reach.steps_to(item.nodeid) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if steps[item] is None])
        items[:] = sorted(
            (item for item in items if steps[item] is not None), key=lambda item: steps[item] or 0
        )
        self.until = time.monotonic() + SECONDS

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Begin no test after the time is over."""
        if time.monotonic() < self.until:
            return None
        self.left_out.append(item.nodeid)
        return True

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Nothing touched is no error."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was compared, and what was left out."""
        terminalreporter.section("long tests of what was touched")
        if self.changed is None:
            terminalreporter.write_line(f"no merge base with {self.branch} here: none ran")
            return
        terminalreporter.write_line(f"{len(self.changed)} files differ from {self.branch}")
        if self.left_out:
            terminalreporter.write_line(f"after {SECONDS / 60:.0f} minutes these were left out:")
        for test in self.left_out:
            terminalreporter.write_line(f"  {test}")


def changed_files(root: Path, branch: str) -> list[Path] | None:
    """Return what differs from the merge base, what is not committed included; None without one.

    A clone of another branch knows this one as its origin's.
    """
    bases = (_git(root, "merge-base", "HEAD", name) for name in (branch, f"origin/{branch}"))
    base = next(filter(None, bases), None)
    if base is None:
        return None
    listed = [_git(root, "diff", "--name-only", base.strip()) or ""]
    listed.append(_git(root, "ls-files", "--others", "--exclude-standard") or "")
    return [Path(line) for text in listed for line in text.splitlines()]


def _git(root: Path, *words: str) -> str | None:
    ran = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return ran.stdout if ran.returncode == 0 else None


class Reach:
    """How far each test is from what was changed, in steps of imports."""

    def __init__(self, root: Path, changed: Iterable[Path]) -> None:
        self.root = root
        self.databases = {path.parent.name for path in root.glob(f"{DATABASES}/*/facts.yaml")}
        of_databases = {path: found for path in changed if (found := self._database_of(path))}
        self.changed_databases = set(of_databases.values())
        others = [path for path in changed if path not in of_databases]
        self.rooms = set(self._rooms(others))
        users = importers(root)
        self.steps = distances(users, filter(None, map(module_of, others)))
        self.steps_of_databases = distances(users, filter(None, map(module_of, of_databases)))

    def steps_to(self, nodeid: str) -> int | None:
        """Return how many steps a test is from the change; None: it is not reached."""
        file = Path(nodeid.split("::", maxsplit=1)[0])
        named = self.databases & set(re.split(r"[^a-z0-9]+", nodeid.lower()))
        if named & self.changed_databases:
            return 0
        if file.parts[1] in self.rooms:
            return 0
        module = module_of(file) or ""
        near = [self.steps.get(module)]
        if not named:
            near.append(self.steps_of_databases.get(module))
        return min((steps for steps in near if steps is not None), default=None)

    def _database_of(self, path: Path) -> str | None:
        parts = path.relative_to(DATABASES).parts if path.is_relative_to(DATABASES) else ()
        return parts[0] if parts and parts[0] in self.databases else None

    def _rooms(self, changed: Iterable[Path]) -> Iterator[str]:
        """Yield the folders of tests that stand for what was changed."""
        crates = set()
        for path in changed:
            parts = path.parts
            if parts[:2] == ("python", "disklab") and len(parts) > 3:
                yield TESTS_OF.get(parts[2], parts[2])
            elif parts[0] == "crates":
                crates.add(parts[1])
            elif parts[0] == "benches":
                yield "test_benches.py"
        for crate in built_of(self.root, crates):
            yield from ROOMS_OF_CRATES.get(crate, ())


def built_of(root: Path, crates: set[str]) -> set[str]:
    """Return the crates, and those that are built of them."""
    needs = {}
    for file in root.glob("crates/*/Cargo.toml"):
        lines = file.read_text(encoding="utf-8")
        needs[file.parent.name] = set(re.findall(r"^(disklab-[a-z]+) =", lines, re.MULTILINE))
    reached = set(crates)
    while more := {crate for crate in needs if needs[crate] & reached} - reached:
        reached |= more
    return reached


def module_of(path: Path) -> str | None:
    """Return a Python file's module; what lies beside modules belongs to its folder's package."""
    if path.parts[:2] == ("python", "disklab"):
        path = path.relative_to("python")
    elif not path.parts or path.parts[0] not in {"tests", "campaigns", "scripts"}:
        return None
    parts = [*path.parent.parts, *([path.stem] if path.suffix == ".py" else [])]
    return ".".join(part for part in parts if part != "__init__")


@cache
def importers(root: Path) -> dict[str, set[str]]:
    """Return for each module those that import it. Nothing is followed through the registry."""
    users: dict[str, set[str]] = {}
    for folder in ("python/disklab", "tests", "campaigns", "scripts"):
        for file in (root / folder).rglob("*.py"):
            user = module_of(file.relative_to(root))
            if user is None or user == REGISTRY:
                continue
            for module in imported(ast.parse(file.read_text(encoding="utf-8"))):
                users.setdefault(module, set()).add(user)
    return users


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the names of modules that a file imports; `from a import b` may be a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def distances(users: dict[str, set[str]], begin: Iterable[str]) -> dict[str, int]:
    """Return how many steps of imports each module is from these."""
    steps = dict.fromkeys(begin, 0)
    waiting = deque(steps)
    while waiting:
        module = waiting.popleft()
        for user in users.get(module, ()):
            if user not in steps:
                steps[user] = steps[module] + 1
                waiting.append(user)
    return steps
