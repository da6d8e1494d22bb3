"""How fast one vCPU of a VM series is beside that of a named one: a stated function of benchmarks.

Every machine was measured with all its vCPUs busy, because databases that are bound by the
processor keep them busy. A test's ratio is its score per vCPU over that of `REFERENCE` in the same
test of the same source. The speed is the median over the tests, each test being the median of its
machines. The band reaches to the farthest test: a compiler, a web server, a Redis and CoreMark
disagree about two processors, and a database may be like any of them.

**Divergence:** a series of several processors (Dsv3 has four) has one speed, and burstable sizes
(t3, B) have the speed that they have while their CPU credits last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from disklab.catalog.evidence import LEAST_BAND
from disklab.catalog.facts import Facts

if TYPE_CHECKING:
    from disklab.catalog.load import Catalog

REFERENCE = "azure/Ddsv5"
"""Intel Xeon Platinum 8370C, the only processor of its series, measured by both sources."""
TESTS = ("coremark", "clang", "web", "redis")
UNMEASURED_BAND = Fraction(16, 10)
"""Of a series that nobody measured: the middle eight tenths of those that were lie within it."""
LIKE_BAND = Fraction(125, 100)
"""Of a series that is taken for another one: families of one processor lie within it."""


class Benchmark(Facts):
    """One machine's scores with all vCPUs busy, or the series that stands for this one."""

    size: str = ""
    vcpu: int = Field(default=0, ge=0)
    cpu: str = ""
    """The processor as the machine names it."""
    source: str = ""
    date: str | None = None
    coremark: int | None = None
    """CoreMark, iterations a second."""
    clang: int | None = None
    """Geekbench 6, the multi-core score of compiling with Clang."""
    web: int | None = None
    """Answers a second of a web server with files of 1 KiB, its clients on the same machine."""
    redis: int | None = None
    """SETs a second of Redis without pipelining, its clients on the same machine."""
    like: str | None = None
    because: str | None = None

    @model_validator(mode="after")
    def _measured_or_like(self) -> Benchmark:
        scores = [getattr(self, test) for test in TESTS]
        measured = self.size and self.vcpu and self.cpu and self.source and any(scores)
        if bool(self.like) == bool(measured) or (self.like and any(scores)):
            raise ValueError(
                "give size, vcpu, cpu, source and a score (coremark, clang, web or redis), or like"
            )
        return self


@dataclass(frozen=True)
class Speed:
    """The speed of one vCPU over that of `REFERENCE`."""

    value: float
    within: float
    """In eight cases of ten the true ratio is the value divided or multiplied by at most this."""
    processors: tuple[str, ...]
    source: tuple[str, ...]
    assumed: bool
    """Nobody measured this series: it is taken for another one, or for the reference."""
    note: str

    def over(self, other: Speed) -> float:
        """Return how much faster this vCPU is than another one."""
        return self.value / other.value


def cpu_speed(catalog: Catalog, size: str) -> Speed:
    """Return the speed of a vCPU of a VM size or series, by its full name.

    Of a size that the catalogue does not know it is that of the reference, assumed.
    """
    entry = catalog.vms.get(size)
    series = size if entry is None else entry.series_name
    rows = catalog.processors.get(series, [])
    measured = [row for row in rows if row.like is None]
    if measured:
        return _speed(catalog, measured)
    for row in rows:
        other = cpu_speed(catalog, row.like or "")
        within = max(other.within, float(LIKE_BAND))
        note = row.because or f"as {row.like}"
        return Speed(other.value, within, other.processors, other.source, True, note)
    note = f"the catalogue has no measurement: assumed to be that of {REFERENCE}"
    return Speed(1.0, float(UNMEASURED_BAND), (), ("disklab_assumption",), True, note)


def _speed(catalog: Catalog, rows: Sequence[Benchmark]) -> Speed:
    reference = [row for row in catalog.processors[REFERENCE] if row.like is None]
    tests: dict[str, Fraction] = {}
    for test in TESTS:
        if ratios := [*_ratios(test, rows, reference)]:
            tests[test] = median(ratios)
    if not tests:
        return cpu_speed(catalog, "")
    value = median(tests.values())
    stated = ", ".join(f"{test} {float(ratio):.2f}" for test, ratio in tests.items())
    return Speed(
        value=float(value),
        within=float(
            max(LEAST_BAND, *(max(ratio / value, value / ratio) for ratio in tests.values()))
        ),
        processors=tuple(dict.fromkeys(row.cpu for row in rows)),
        source=tuple(dict.fromkeys(row.source for row in rows)),
        assumed=False,
        note=f"a vCPU over one of {REFERENCE}: {stated}",
    )


def _ratios(
    test: str, rows: Iterable[Benchmark], reference: Sequence[Benchmark]
) -> Iterator[Fraction]:
    for row in rows:
        peers = [*_scores(test, (peer for peer in reference if peer.source == row.source))]
        for score in _scores(test, (row,)):
            if peers:
                yield score / median(peers)


def _scores(test: str, rows: Iterable[Benchmark]) -> Iterator[Fraction]:
    for row in rows:
        if (score := getattr(row, test)) is not None:
            yield Fraction(score, row.vcpu)
