"""Checks that no linter makes: the length of files and functions, and forbidden names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LIMIT = 800  # STYLE.md: 400 lines is a smell, 800 a limit
FUNCTION_LIMIT = 70  # STYLE.md
LINE_LIMIT = 200  # STYLE.md: what a reader's eye follows, in the pages that everybody opens
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "STYLE.md")
PACKAGE = Path("python/disklab")
# Programs are started by `disklab.machines.child`, which ends them with their children whatever
# ends disklab. These still do it by themselves: servers and hosts that outlive disklab, a worker
# that has nothing of disklab, and what is left to be moved. None is added.
STARTS_PROGRAMS = {
    PACKAGE / where
    for where in (
        "cli/on_end.py",
        "cloud/kubernetes/kubectl.py",
        "cloud/ready.py",
        "cloud/record.py",
        "databases/asking.py",
        "databases/cassandra/distribution.py",
        "databases/process.py",
        "engine/account.py",
        "engine/process.py",
        "engine/ublk.py",
        "hosts/cleaning.py",
        "hosts/filesystem.py",
        "hosts/namespaces.py",
        "probe/fio.py",
        "sweeps/on_worker.py",
        "workloads/sysbench/run.py",
    )
}
FORBIDDEN_NAMES = re.compile(r"(^|[_-])(utils?|helpers?|managers?|misc|common|v2)($|[_.-])")


def tracked_sources() -> list[Path]:
    """Return the source files that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.rs"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [Path(line) for line in listing.splitlines() if Path(line).exists()]


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, first line and number of lines of each function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def rust_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, first line and number of lines of each function, as rustfmt indents them."""
    opened: list[tuple[str, int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if found := re.match(
            r"^(\s*)(?:pub(?:\([a-z ]+\))? )?(?:const |unsafe |extern \"C\" )*fn (\w+)", line
        ):
            opened.append((found[2], number, found[1]))
        while opened and line.rstrip() == opened[-1][2] + "}":
            name, first, _ = opened.pop()
            yield name, first, number - first + 1


def complaints(path: Path) -> Iterator[str]:
    """Yield what is wrong with one file."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if FORBIDDEN_NAMES.search(path.name):
        yield f"{path}: the name says nothing; name it after its idea"
    if lines > FILE_LIMIT:
        yield f"{path}: {lines} lines; the limit is {FILE_LIMIT}: split it by idea"
    functions = python_functions(text) if path.suffix == ".py" else rust_functions(text)
    for name, first, length in functions:
        if length > FUNCTION_LIMIT:
            yield f"{path}:{first}: {name} has {length} lines; the limit is {FUNCTION_LIMIT}"


def starting_programs(sources: list[Path]) -> Iterator[str]:
    """Yield where subprocess is imported outside `machines`, and what need not be listed."""
    room = PACKAGE / "machines"
    inside = [one for one in sources if PACKAGE in one.parents and room not in one.parents]
    starts = {
        one for one in inside if re.search(r"^\s*(import|from) subprocess\b", one.read_text(), re.M)
    }
    for path in sorted(starts - STARTS_PROGRAMS):
        yield f"{path}: it imports subprocess; use LocalMachine().run or LocalChild of machines"
    for path in sorted(STARTS_PROGRAMS - starts):
        yield f"{path}: it starts no program any more; take it from STARTS_PROGRAMS"


def long_lines() -> Iterator[str]:
    """Yield complaints about lines of the first pages; a table's row is one line too."""
    for page in (*map(Path, PAGES), *Path("docs").glob("predict*.md")):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > LINE_LIMIT:
                yield f"{page}:{number}: {len(line)} characters; the limit is {LINE_LIMIT}"


def main() -> int:
    """Print every complaint; return 1 when there is one."""
    sources = tracked_sources()
    found = [complaint for path in sources for complaint in complaints(path)]
    found += starting_programs([path for path in sources if path.suffix == ".py"])
    found += long_lines()
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
