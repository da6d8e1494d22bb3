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


def main() -> int:
    """Print every complaint; return 1 when there is one."""
    found = [complaint for path in tracked_sources() for complaint in complaints(path)]
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
