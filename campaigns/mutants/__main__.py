"""`python -m campaigns.mutants`: turn ten comparisons in ten rooms, and see each one noticed.

Works in a copy of what is committed, one change at a time: `<` becomes `<=`, `==` becomes `!=`, and
so on. The tests of CI that import the changed module run, the nearest first, until one fails or
all of a room's have passed. What was tried is kept, and a later call goes on from there. Which
ones a seed chooses hangs on their own lines alone: a change elsewhere chooses no others.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.touched import TESTS_OF, distances, importers, module_of

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "target" / "mutants.jsonl"
ROOMS = (
    "advice",
    "catalog",
    "machines",
    "observation",
    "prediction",
    "report",
    "results",
    "spec",
    "telemetry",
    "workloads",
)
IN_EACH = 10
# A test that a change makes hang has failed. The slowest of a room take two minutes beside load.
TESTS_SECONDS = 240.0
NEAREST = 6
"""Test files of one change. **Reason:** ten rooms are to be through in an hour."""
TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
}
SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


@dataclass(frozen=True)
class Mutant:
    """One turned comparison."""

    file: str
    line: int
    column: int
    """Where the sign stands."""
    sign: str
    turned: str
    text: str
    """Of its line."""

    def rank(self, seed: int) -> bytes:
        """Return where it stands among others; the first are chosen."""
        return hashlib.sha256(f"{seed} {self.file} {self.column} {self.text}".encode()).digest()

    @property
    def key(self) -> str:
        """What it is known by in calls to come, when other lines were added above."""
        return f"{self.file}:{self.column}: {self.text}"

    def applied(self, text: str) -> str:
        """Return the file with it."""
        lines = text.splitlines(keepends=True)
        line = lines[self.line]
        end = self.column + len(self.sign)
        lines[self.line] = line[: self.column] + self.turned + line[end:]
        return "".join(lines)


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Yield each comparison of a file whose sign stands on the line where its left side ends."""
    text = (ROOT / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, node.comparators, strict=False):
            if type(operator) not in TURNED or left.end_lineno != right.lineno:
                continue
            number, begin = right.lineno - 1, left.end_col_offset or 0
            sign = SIGNS[type(operator)]
            # Offsets are in bytes: a line with other letters than ASCII is left alone.
            column = lines[number].find(sign, begin, right.col_offset)
            if column >= 0 and lines[number].isascii():
                turned = TURNED[type(operator)]
                yield Mutant(str(file), number, column, sign, turned, lines[number].strip())


def chosen(room: str, seed: int) -> list[Mutant]:
    """Return a room's mutants of this seed."""
    folder = Path("python/disklab", room)
    files = sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))
    every = [mutant for file in files for mutant in mutants_of(file)]
    return sorted(every, key=lambda mutant: mutant.rank(seed))[:IN_EACH]


def tests_of(mutant: Mutant, room: str) -> list[str]:
    """Return the files of tests that are nearest to it, those of its room first."""
    steps = distances(importers(ROOT), [module_of(Path(mutant.file)) or ""])
    own = Path("tests", TESTS_OF.get(room, room))
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    near = [file for file in files if module_of(file) in steps]
    near.sort(key=lambda file: (not file.is_relative_to(own), steps[module_of(file) or ""], file))
    return [str(file) for file in near[:NEAREST]]


def is_noticed(tree: Path, files: Sequence[str]) -> bool:
    """Run these tests over the copy; return whether one failed."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    words += ["-m", "not alone and not long and not machine", *files]
    environment = {**os.environ, "PYTHONPATH": str(tree / "python")}
    try:
        ran = subprocess.run(
            words,
            cwd=tree,
            env=environment,
            capture_output=True,
            timeout=TESTS_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return ran.returncode == 1


def tried(tree: Path, room: str, mutant: Mutant) -> bool:
    """Return whether the room's tests notice a mutant; the copy is afterwards as before."""
    file = tree / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.applied(text), encoding="utf-8")
    try:
        return is_noticed(tree, tests_of(mutant, room))
    finally:
        file.write_text(text, encoding="utf-8")


def kept() -> dict[str, bool]:
    """Return what earlier calls found: each mutant's line, and whether it was noticed."""
    if not KEPT.exists():
        return {}
    rows = map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())
    return {row["key"]: row["noticed"] for row in rows}


def main() -> int:
    """Try them all; 1: some were not noticed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which comparisons; 1")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all together; 60")
    parser.add_argument("--room", choices=ROOMS, action="append", help="of all ten")
    given = parser.parse_args()
    until = time.monotonic() + given.minutes * 60.0
    results = kept()
    unnoticed = 0
    KEPT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="disklab-mutants-") as made, KEPT.open("a") as file:
        tree = Path(made, "tree")
        subprocess.run(["git", "worktree", "add", "--detach", "-q", tree], cwd=ROOT, check=True)
        try:
            for room in given.room or ROOMS:
                for mutant in chosen(room, given.seed):
                    if mutant.key not in results:
                        if time.monotonic() > until:
                            print("the time is over; the next call goes on from here")
                            return 1
                        results[mutant.key] = tried(tree, room, mutant)
                        row = {"key": mutant.key, "noticed": results[mutant.key]}
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                    unnoticed += not results[mutant.key]
                    word = "noticed" if results[mutant.key] else "NOT NOTICED"
                    place = f"{mutant.file}:{mutant.line + 1}:{mutant.column + 1}"
                    print(f"{word:12} {place} {mutant.sign} -> {mutant.turned}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    print(f"{unnoticed} not noticed")
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
