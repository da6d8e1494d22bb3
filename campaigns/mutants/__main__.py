"""`python -m campaigns.mutants`: turn ten comparisons in ten rooms, and see each one noticed.

Works in a copy of what is committed: `<` becomes `<=`, `==` becomes `!=`, and so on. The tests of a
room run once, which takes down what reaches each comparison (`switched.py`). With one turned, the
tests that reach it run, the cheapest first, until one fails; where none does, or none reaches it,
all tests of CI that import its module run, the nearest first. `tried.jsonl` keeps what noticed
each, or the reason why no test can, and a later call goes on from there. Which ones a seed chooses
hangs on their own lines alone: a change elsewhere chooses no others.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns.mutants.switched import OPPOSITES, SIGNS, reached, signs_of, switched, turn
from tests.touched import TESTS_OF, distances, importers, module_of

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).with_name("tried.jsonl")
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
NEAREST = 4
"""Test files of one change. **Reason:** ten rooms are to be through in an hour."""
MOST_S = 20.0
"""Processor seconds of the tests that reach a comparison. **Reason:** as above."""
HANGS_S = 240.0
"""A test that a change makes hang has failed: processor seconds for all that run with it."""
MOST_FAILED = 5
"""Tests that fail without a mutant, too, and are left out."""
IN_CI = "not alone and not long"
HERE = f"{IN_CI} and not machine"


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

    def __str__(self) -> str:
        """Its place, and what becomes of it."""
        return f"{self.file}:{self.line + 1}:{self.column + 1} {self.sign} -> {self.turned}"


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Yield each comparison of a file whose sign stands on the line where its left side ends."""
    text = (ROOT / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            for index, (number, column) in signs_of(node, lines):
                kind = type(node.ops[index])
                sign, turned = SIGNS[kind], SIGNS[OPPOSITES[kind]]
                yield Mutant(str(file), number, column, sign, turned, lines[number].strip())


def chosen(room: str, seed: int) -> list[Mutant]:
    """Return a room's mutants of this seed."""
    folder = Path("python/disklab", room)
    files = sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))
    every = [mutant for file in files for mutant in mutants_of(file)]
    return sorted(every, key=lambda mutant: mutant.rank(seed))[:IN_EACH]


def own_tests(room: str) -> str:
    """Return the folder of a room's tests."""
    return f"tests/{TESTS_OF.get(room, room)}"


def nearest(mutant: Mutant, room: str) -> list[str]:
    """Return the files of tests that are nearest to it, those of its room first."""
    steps = distances(importers(ROOT), [module_of(Path(mutant.file)) or ""])
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    near = [file for file in files if module_of(file) in steps]
    own = own_tests(room)
    near.sort(key=lambda file: (not file.is_relative_to(own), steps[module_of(file) or ""], file))
    return [str(file) for file in near[:NEAREST]]


class Room:
    """A copy of the tree, with a room's comparisons to be turned."""

    def __init__(self, tree: Path, name: str, mutants: Sequence[Mutant]) -> None:
        """Run the room's tests with none turned."""
        self.tree, self.name, self.mutants = tree, name, mutants
        for path in {mutant.file for mutant in mutants}:
            numbers = {(m.line, m.column): n for n, m in enumerate(mutants) if m.file == path}
            text = (ROOT / path).read_text(encoding="utf-8")
            (tree / path).write_text(switched(text, numbers), encoding="utf-8")
        turn(tree, -1)
        # Where tests/dearest.py writes what each takes.
        (tree / "target").mkdir(exist_ok=True)
        self.failed = set(self._run(["-m", HERE, own_tests(name)], 8 * HANGS_S))
        self.reached = reached(tree)
        rows = (tree / "target/tests.tsv").read_text(encoding="utf-8").splitlines()
        self.cost_s = {test: float(cost) for cost, _, test in (r.partition("\t") for r in rows)}

    def noticed_by(self, mutant: Mutant) -> str:
        """Return the test that fails with a mutant; nothing: none does."""
        number = self.mutants.index(mutant)
        names = [*self._cheapest(self.reached.get(number, set()) - self.failed - {""})]
        near = nearest(mutant, self.name)
        # Servers and disks are asked about what no test of the room reaches without them.
        for marks, tests in ((HERE, names), (HERE, near), (IN_CI, [] if names else near)):
            if tests and (test := self._failed_first(number, ["-m", marks, *tests])):
                return test
        return ""

    def _failed_first(self, number: int, words: Sequence[str]) -> str:
        """Return the first of these tests that fails with a mutant, and passes without it."""
        for _ in range(MOST_FAILED):
            turn(self.tree, number)
            without = [word for test in self.failed for word in ("--deselect", test)]
            failed = self._run(["-x", *without, *words], HANGS_S)
            if not failed:
                return ""
            turn(self.tree, -1)
            if "::" not in failed[0] or not self._run([failed[0]], HANGS_S):
                return failed[0]
            self.failed.add(failed[0])
        return ""

    def _cheapest(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the tests that cost least, as many as there is time for."""
        sum_s = 0.0
        for name in sorted(names, key=lambda name: (self.cost_s.get(name, 0.0), name)):
            sum_s += self.cost_s.get(name, 0.0)
            if sum_s > MOST_S:
                return
            yield name

    def _run(self, words: Sequence[str], most_s: float) -> list[str]:
        """Run tests of the copy; return those that failed, or what else ended them."""
        kept = self.tree / ".pytest_cache/v/cache/lastfailed"
        kept.unlink(missing_ok=True)
        given = self.tree / "target/words"
        given.write_text("\n".join(words), encoding="utf-8")

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(most_s), int(most_s)))

        try:
            ran = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-n", "0", f"@{given}"],
                cwd=self.tree,
                env={**os.environ, "PYTHONPATH": str(self.tree / "python")},
                capture_output=True,
                text=True,
                timeout=4 * most_s,
                check=False,
                preexec_fn=limited,
            )
        except subprocess.TimeoutExpired:
            return ["one that hangs"]
        if ran.returncode in {0, 5}:
            return []
        if kept.exists():
            return list(json.loads(kept.read_text(encoding="utf-8")))
        if ran.returncode < 0:
            return ["one that takes a processor for itself"]
        return [f"none: tests do not begin (exit {ran.returncode})"]


def kept(file: Path) -> dict[str, dict[str, str]]:
    """Return what earlier calls found of each mutant's line: what noticed it, or why none can."""
    if not file.exists():
        return {}
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    # Comparisons that no test noticed are tried again: one may notice them now.
    return {row["key"]: row for row in rows if row["noticed_by"] or row.get("equivalent")}


def shown(mutant: Mutant, row: dict[str, str]) -> str:
    """Return the line of one mutant."""
    if row["noticed_by"]:
        return f"noticed      {mutant} by {row['noticed_by']}"
    reason = row.get("equivalent")
    return f"equivalent   {mutant}: {reason}" if reason else f"NOT NOTICED  {mutant}"


def main() -> int:
    """Try them all; 1: some were not noticed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which comparisons; 1")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all together; 60")
    parser.add_argument("--kept", type=Path, default=KEPT, help="file of what was found")
    parser.add_argument("--room", choices=ROOMS, action="append", help="of all ten")
    given = parser.parse_args()
    until = time.monotonic() + given.minutes * 60.0
    results = kept(given.kept)
    unnoticed = 0
    for name in given.room or ROOMS:
        mutants = chosen(name, given.seed)
        new = [mutant for mutant in mutants if mutant.key not in results]
        for mutant, row in tried(name, mutants, new, until) if new else ():
            results[mutant.key] = row
            with given.kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        for mutant in mutants:
            if mutant.key not in results:
                print("the time is over; the next call goes on from here")
                return 1
            row = results[mutant.key]
            unnoticed += not (row["noticed_by"] or row.get("equivalent"))
            print(shown(mutant, row), flush=True)
    print(f"{unnoticed} not noticed")
    return int(unnoticed > 0)


def tried(
    name: str, mutants: Sequence[Mutant], new: Sequence[Mutant], until: float
) -> Iterator[tuple[Mutant, dict[str, str]]]:
    """Yield what noticed each of a room's new mutants, as long as there is time."""
    with tempfile.TemporaryDirectory(prefix="disklab-mutants-") as made:
        tree = Path(made, "tree")
        subprocess.run(["git", "worktree", "add", "--detach", "-q", tree], cwd=ROOT, check=True)
        try:
            room = Room(tree, name, mutants)
            for mutant in new:
                if time.monotonic() > until:
                    return
                yield mutant, {"key": mutant.key, "noticed_by": room.noticed_by(mutant)}
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
