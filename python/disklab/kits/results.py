"""What a load tool wrote: figures, read by the patterns of a kit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from disklab.errors import MachineError
from disklab.kits.schema import UNITS, Result
from disklab.kits.words import at_path

LATENCIES = ("mean", "p50", "p95", "p99", "p99.9", "max")
MOST_LINE = 4096
"""Letters of a line that patterns look at, but for those of a histogram."""
MOST_HDR = 1 << 20
LAST_LINES = 20


@dataclass
class Figures:
    """What was read: numbers by name, latencies in ms; counts of latencies; encoded histograms."""

    numbers: dict[str, float] = field(default_factory=dict)
    buckets: list[tuple[float, int]] = field(default_factory=list)
    """Latency in ms, and how often."""
    hdr: list[str] = field(default_factory=list)


@dataclass
class Reader:
    """Takes a tool's lines one by one, and keeps what its kit's patterns read."""

    results: Sequence[Result]
    what: str
    _found: dict[int, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """By result: which of its patterns, and its last groups."""
    _sums: dict[int, float] = field(default_factory=dict)
    _figures: Figures = field(default_factory=Figures)
    last: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        """Look at a line."""
        self.last = [*self.last, line[:400]][-LAST_LINES:]
        for number, result in enumerate(self.results):
            self._take(number, result, line[: MOST_HDR if result.hdr else MOST_LINE])

    def _take(self, number: int, result: Result, line: str) -> None:
        for place, pattern in enumerate(result.patterns):
            match = re.search(pattern, line)
            # The first pattern that has ever matched is the form of this tool's answer.
            if match is not None and place <= self._found.get(number, (place,))[0]:
                self._found[number] = (place, tuple(match.groups("")))
                return
        if result.json_paths is not None and line.startswith("{"):
            self._take_json(number, result, line)
        if result.count is not None and re.search(result.count, line):
            self._sums[number] = self._sums.get(number, 0.0) + 1
        if result.sum is not None and (match := re.search(result.sum, line)):
            self._sums[number] = self._sums.get(number, 0.0) + _number(match[1], result)
        if result.histogram is not None and (match := re.search(result.histogram, line)):
            latency_ms = _number(match[1], result) * UNITS[result.unit]
            self._figures.buckets.append((latency_ms, int(_number(match[2], result))))
        if result.hdr is not None and (match := re.search(result.hdr, line)):
            self._figures.hdr.append(match[1])

    def _take_json(self, number: int, result: Result, line: str) -> None:
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            return
        words = [next(at_path(answer, path), None) for path in result.json_paths or ()]
        if all(isinstance(word, int | float) and not isinstance(word, bool) for word in words):
            self._found[number] = (0, tuple(str(word) for word in words))

    def figures(self) -> Figures:
        """Return what was read. Raises MachineError when a result that is needed was not said."""
        missing = []
        for number, result in enumerate(self.results):
            if result.count is not None:
                self._figures.numbers[result.figures[0]] = self._sums.get(number, 0.0)
            elif result.sum is not None and number in self._sums:
                self._figures.numbers[result.figures[0]] = self._sums[number]
            elif number in self._found:
                self._keep(result, self._found[number][1])
            elif not self._has(result) and not result.optional:
                missing.append(_form(result))
        if missing:
            said = "\n".join(self.last) or "it wrote nothing"
            raise MachineError(
                f"{self.what}: nothing that it wrote matches {' or '.join(missing)}\n{said}"
            )
        return self._figures

    def _has(self, result: Result) -> bool:
        return bool(
            (result.histogram and self._figures.buckets) or (result.hdr and self._figures.hdr)
        )

    def _keep(self, result: Result, words: Iterable[str]) -> None:
        for name, word in zip(result.figures, words, strict=False):
            if name == "_" or not word:
                continue
            scale = UNITS[result.unit] if name in LATENCIES else 1.0
            self._figures.numbers[name] = _number(word, result) * scale


def _form(result: Result) -> str:
    forms: tuple[Callable[[], object], ...] = (
        lambda: " or ".join(result.patterns),
        lambda: result.json_paths,
        lambda: result.sum or result.histogram or result.hdr,
    )
    return str(next(form() for form in forms if form()))


def _number(word: str, result: Result) -> float:
    if result.thousands:
        word = word.replace(result.thousands, "")
    try:
        return float(word)
    except ValueError:
        raise MachineError(f"{word} is no number, and {_form(result)} reads one") from None
