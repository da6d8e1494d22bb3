"""Templates of a kit: `{node.address}` is a word of the plan, `{memory.heap / 1048576}` a number.

There is no more of a language: no condition, no loop. A brace before anything but a name, as in
`{ "a": 1 }` or `cluster {`, is a brace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError

_NAME = r"[a-z_]+(?:\.[A-Za-z0-9_.-]+)?"
TEMPLATE = re.compile(rf"\{{(?P<name>{_NAME})(?: (?P<operator>[-+*/]) (?P<other>\d+|{_NAME}))?\}}")
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
}
Values = Mapping[str, str | int | float]


def names_in(text: str) -> Iterator[str]:
    """Yield the names that a template asks for."""
    for match in TEMPLATE.finditer(text):
        yield match["name"]
        if match["other"] and not match["other"].isdigit():
            yield match["other"]


def unknown_in(text: str, known: Values, place: str) -> Iterator[Problem]:
    """Yield the names of a template that mean nothing at this place."""
    for name in names_in(text):
        if name not in known:
            way_out = did_you_mean(name, known, f"known here: {', '.join(sorted(known))}")
            yield Problem(place, f"{{{name}}}", "means nothing here", way_out)


def filled(text: str, values: Values, place: str) -> str:
    """Return a template with its names replaced. Raises UserError for one that means nothing."""
    problems = tuple(unknown_in(text, values, place))
    if problems:
        raise UserError(*problems)

    def word(match: re.Match[str]) -> str:
        value = values[match["name"]]
        if match["operator"] is None:
            return str(value)
        other = match["other"]
        number = int(other) if other.isdigit() else values[other]
        try:
            return str(OPERATORS[match["operator"]](int(value), int(number)))
        except (ValueError, ZeroDivisionError):
            rule = f"{value} {match['operator']} {number} cannot be reckoned"
            raise UserError(Problem(place, match[0], rule, "reckon with whole numbers")) from None

    return TEMPLATE.sub(word, text)


def at_path(answer: object, path: str) -> Iterator[object]:
    """Yield the values of a JSON answer at a path such as `nodes.*.fs.total` or `a[0].b`."""
    parts = [part for part in re.split(r"\.|\[(\d+|\*)\]\.?", path) if part]
    values = [answer]
    for part in parts:
        following: list[object] = []
        for value in values:
            if isinstance(value, Mapping):
                following += (
                    value.values() if part == "*" else [value[part]] if part in value else []
                )
            elif isinstance(value, list):
                if part == "*":
                    following += value
                elif part.isdigit() and int(part) < len(value):
                    following.append(value[int(part)])
        values = following
    yield from values
