"""What a function of Python does with amounts that nobody has chosen yet, as data.

The page evaluates that data (`ruled` of jobs.js), so that a rule is written once, in Python. A
function is called with unknown amounts; each comparison of one is answered both ways, in a call of
its own. What comes out is a tree of comparisons, whose leaves hold expressions and sentences.

An unknown amount stands left of a `Fraction` or `Decimal`: right of one, Python takes its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

Json = Any

MOST_CALLS = 4096
"""Of one function, for one tree."""
FIRST = 7_000_000_000_000_000
"""The number of the first unknown: no amount of the catalogue is as large, and JSON holds it."""


_trees: list[Json] = []
"""Of all unknowns, by their number: calls of one function make the same ones again."""


class _Run:
    """A call, and how its comparisons are answered."""

    def __init__(self, answers: list[bool]) -> None:
        self.answers, self.asked = answers, list[Json]()
        self.current: dict[str, bool] = {}

    def holds(self, comparison: Json) -> bool:
        """Answer a comparison: as before, as it was planned, else yes."""
        key = str(comparison)
        if comparison[1] == comparison[2]:
            return bool(comparison[0] == "==")
        if key not in self.current:
            if len(self.asked) == len(self.answers):
                self.answers.append(True)
            self.current[key] = self.answers[len(self.asked)]
            self.asked.append(comparison)
        return self.current[key]


_runs: list[_Run] = []


def _tree(amount: Any) -> Json:
    if isinstance(amount, Unknown):
        return amount.tree
    if isinstance(amount, float):
        return ["float", amount]
    exact = Fraction(amount)
    return exact.numerator if exact.denominator == 1 else [":", exact.numerator, exact.denominator]


class Unknown(int):
    """An amount that is chosen later. What is done with it is another one."""

    tree: Json

    def __new__(cls, tree: Json) -> Self:
        """Return an unknown with a number of its own, by which a leaf finds it again."""
        made = super().__new__(cls, FIRST + len(_trees))
        _trees.append(tree)
        made.tree = tree
        return made

    def in_words(self, form: str) -> str:
        """Return a mark for a sentence, in the words of `catalog.quantity`."""
        return f"⟦{int.__add__(self, 0)}:{form}⟧"

    def __str__(self) -> str:
        """Return a mark for a sentence."""
        return self.in_words("")

    __format__ = in_words
    __hash__ = int.__hash__


def _compared(a: Unknown, sign: str, b: Any, *, turned: bool = False) -> bool:
    sides = [_tree(b), a.tree] if turned else [a.tree, _tree(b)]
    return _runs[-1].holds([sign, *sides])


EXACT = (Fraction, Decimal)
_OPERATORS: dict[str, Callable[..., Any]] = {
    "bool": lambda a: not _compared(a, "==", 0),
    "eq": lambda a, b: _compared(a, "==", b),
    "ne": lambda a, b: not _compared(a, "==", b),
    "lt": lambda a, b: _compared(a, "<", b),
    "ge": lambda a, b: not _compared(a, "<", b),
    "gt": lambda a, b: _compared(a, "<", b, turned=True),
    "le": lambda a, b: not _compared(a, "<", b, turned=True),
    "neg": lambda a: Unknown(["-", 0, a.tree]),
    # Whole numbers divide to a float, as everywhere in Python.
    "truediv": lambda a, b: Unknown(["/" if type(b) in EXACT else "div", a.tree, _tree(b)]),
    "rtruediv": lambda a, b: Unknown(["div", _tree(b), a.tree]),
}
for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.items():
    _OPERATORS[_name] = lambda a, b, sign=_sign: Unknown([sign, a.tree, _tree(b)])
    _OPERATORS[f"r{_name}"] = lambda a, b, sign=_sign: Unknown([sign, _tree(b), a.tree])
for _name in ("floor", "ceil", "round", "trunc"):
    _OPERATORS[_name] = lambda a, name=_name: Unknown([name, a.tree])
for _name, _operator in _OPERATORS.items():
    setattr(Unknown, f"__{_name}__", _operator)


def traced(rule: Callable[..., Json], *names: str) -> Json:
    """Return what a rule says of unknown amounts of these names, whatever they are.

    The rule returns JSON. An inner node is `{if, then, else}`; in a leaf, `{of: expression}` is a
    number and `{text: [...]}` a sentence, whose parts are text or an expression with its form.
    """
    calls = iter(range(MOST_CALLS))

    def grown(answers: list[bool]) -> Json:
        next(calls)
        run = _Run(answers)
        planned = len(answers)
        _runs.append(run)
        try:
            node = _leaf(rule(*map(Unknown, names)))
        finally:
            _runs.pop()
        for number in reversed(range(planned, len(run.asked))):
            other = grown([*run.answers[:number], False])
            if other != node:
                node = {"if": run.asked[number], "then": node, "else": other}
        return node

    _trees.clear()
    return grown([])


_MARK = re.compile("⟦(\\d+):([^⟧]*)⟧")


def _leaf(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _leaf(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_leaf(part) for part in value]
    if isinstance(value, str) and _MARK.search(value):
        parts = _MARK.split(value)
        marks = zip(parts[1::3], parts[2::3], strict=True)
        trees = [[_trees[int(number) - FIRST], form] for number, form in marks]
        texts = parts[0::3]
        pairs = zip(trees, texts[1:], strict=True)
        return {"text": [texts[0], *(part for pair in pairs for part in pair)]}
    # Pydantic makes plain numbers of them.
    if isinstance(value, int) and int.__ge__(value, FIRST):
        return {"of": _trees[int.__sub__(value, FIRST)]}
    return value
