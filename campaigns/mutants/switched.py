"""Every chosen comparison of a room in one copy of its modules, each turned where it is asked for.

A file beside the package names the comparison that is turned, and another takes down which test
reaches which one: programs that a test starts find both where Python finds the package.
"""

from __future__ import annotations

import ast
import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# Position of a sign in its file: line and column, from 0.
Place = tuple[int, int]
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
MODULE = Path("python/disklab/_turned.py")
TURNED = Path("python/turned")
REACHED = Path("python/reached")
SOURCE = """
import os
from pathlib import Path
_PACKAGE = Path(__file__).resolve().parents[1]
_NUMBER = int((_PACKAGE / "turned").read_text())
_REACHED = set()
def is_turned(number):
    if _NUMBER < 0:
        reached = f"{number}\\t{os.environ.get('PYTEST_CURRENT_TEST', '').rpartition(' (')[0]}\\n"
        if reached not in _REACHED:
            _REACHED.add(reached)
            try:
                with (_PACKAGE / "reached").open("a") as file:
                    file.write(reached)
            except OSError:
                pass
    return number == _NUMBER
"""


def signs_of(compare: ast.Compare, lines: Sequence[str]) -> Iterator[tuple[int, Place]]:
    """Yield the number of each operator whose sign stands where its left side ends, and its place.

    Offsets are in bytes: a line with other letters than ASCII is left alone.
    """
    sides = [compare.left, *compare.comparators]
    for index, operator in enumerate(compare.ops):
        left, right = sides[index], sides[index + 1]
        if type(operator) not in SIGNS or left.end_lineno != right.lineno:
            continue
        line = lines[right.lineno - 1]
        column = line.find(SIGNS[type(operator)], left.end_col_offset or 0, right.col_offset)
        if column >= 0 and line.isascii():
            yield index, (right.lineno - 1, column)


def switched(text: str, numbers: Mapping[Place, int]) -> str:
    """Return a module whose comparisons at these places ask whether theirs is the turned number."""
    tree = Switches(text.splitlines(), numbers).visit(ast.parse(text))
    after = next(n for n, line in enumerate(tree.body) if not _is_first(line))
    tree.body.insert(
        after, ast.parse("from disklab._turned import is_turned as _is_turned").body[0]
    )
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_first(line: ast.stmt) -> bool:
    """Return whether a statement is the docstring or of `__future__`, before which nothing is."""
    return isinstance(line, ast.Expr) or (
        isinstance(line, ast.ImportFrom) and line.module == "__future__"
    )


class Switches(ast.NodeTransformer):
    """Puts both kinds of a comparison in its place."""

    def __init__(self, lines: Sequence[str], numbers: Mapping[Place, int]) -> None:
        self.lines = lines
        self.numbers = numbers

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Return the comparison, or what chooses between it and each turned one."""
        places = list(signs_of(node, self.lines))
        self.generic_visit(node)
        made: ast.expr = node
        for index, place in places:
            if place not in self.numbers:
                continue
            turned = copy.copy(node)
            turned.ops = [*node.ops]
            turned.ops[index] = OPPOSITES[type(node.ops[index])]()
            number = ast.Constant(self.numbers[place])
            asks = ast.Call(ast.Name("_is_turned", ast.Load()), [number], [])
            made = ast.IfExp(asks, turned, made)
        return made


def turn(tree: Path, number: int) -> None:
    """Turn one of the comparisons; -1: none, and take down which tests reach them."""
    (tree / MODULE).write_text(SOURCE, encoding="utf-8")
    (tree / TURNED).write_text(str(number), encoding="ascii")


def reached(tree: Path) -> dict[int, set[str]]:
    """Return the tests that reach each comparison; an empty name: one that nobody knows."""
    tests: defaultdict[int, set[str]] = defaultdict(set)
    if (tree / REACHED).exists():
        for line in (tree / REACHED).read_text(encoding="utf-8").splitlines():
            number, _, test = line.partition("\t")
            tests[int(number)].add(test)
    return tests
