"""What a load tool wrote: figures, read by the patterns of a kit; and values of JSON answers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from disklab.errors import MachineError
from disklab.kits.schema import LATENCIES, UNITS, Result

MOST_LINE = 4096
"""Letters of a line that patterns look at, but for those of an encoded histogram."""
MOST_NUMBER = 1e15
"""What counts no operations and no time that anybody has."""


def at_path(answer: object, path: str) -> Iterator[object]:
    """Yield the values of a JSON answer at a path such as `nodes.*.fs.total` or `a[0].b`."""
    values = [answer]
    for part in filter(None, re.split(r"[].[]+", path)):
        own = [
            {str(n): each for n, each in enumerate(v)} if isinstance(v, list) else v for v in values
        ]
        named = [value for value in own if isinstance(value, Mapping)]
        values = [each for value in named for key, each in value.items() if part in ("*", key)]
    yield from values


def parsed(text: str) -> object:
    """Return what a JSON text says; None: it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@dataclass
class Reader:
    """Takes a tool's lines one by one, and keeps what its kit's patterns read; latencies in ms."""

    results: Sequence[Result]
    what: str
    numbers: dict[str, float] = field(default_factory=dict)
    buckets: list[tuple[float, int]] = field(default_factory=list)
    """A latency, and how often it was."""
    hdr: str = ""
    _read: set[int] = field(default_factory=set)

    def take(self, line: str) -> None:
        """Look at a line."""
        for position, result in enumerate(self.results):
            words = _words(result, line if "hdr" in result.figures else line[:MOST_LINE])
            if words is not None:
                self._read.add(position)
                self._keep(result, dict(zip(result.figures, words, strict=True)))

    def _keep(self, result: Result, words: dict[str, str]) -> None:
        self.hdr = words.pop("hdr", self.hdr)
        words.pop("_", None)
        numbers = {name: _number(name, word, result) for name, word in words.items() if word}
        if "times" in numbers:
            self.buckets.append((numbers.pop("latency", 0.0), int(numbers.pop("times"))))
        for name, value in numbers.items():
            self.numbers[name] = value + (self.numbers.get(name, 0.0) if result.sum else 0.0)

    def check(self, last: str) -> None:
        """Raise MachineError, with what was said last, when a result that is needed was not."""
        left = (each for n, each in enumerate(self.results) if n not in self._read)
        missing = [str(each.line or each.json_paths) for each in left if not each.optional]
        if missing:
            wanted = " or ".join(missing)
            raise MachineError(f"{self.what}: nothing that it wrote matches {wanted}\n{last}")


def _words(result: Result, line: str) -> Sequence[str] | None:
    """Return the figures of a line as they are written; None: it has none of these."""
    if result.line is not None:
        match = re.search(result.line, line)
        return None if match is None else match.groups("")
    answer = parsed(line) if line.startswith("{") else None
    values = [next(at_path(answer, path), None) for path in result.json_paths or ()]
    numbers = [str(value) for value in values if isinstance(value, int | float)]
    return numbers if len(numbers) == len(values) else None


def _number(name: str, word: str, result: Result) -> float:
    try:
        number = float(word.replace(result.thousands, "") if result.thousands else word)
    except ValueError:
        number = math.nan
    if not 0 <= number < MOST_NUMBER:
        rule = f"{result.line or result.json_paths} reads one"
        raise MachineError(f"{word[:80]} is not a number of operations or a time, and {rule}")
    return number * (UNITS[result.unit] if name in (*LATENCIES, "latency") else 1.0)
