"""The cells of a run: all repeats of one combination of factor levels. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite
from typing import Any

from disklab.results import Level, PlannedTrial, TrialResult
from disklab.results.records import MEDIAN, RATE, TAIL, load_ratio, of_cluster, of_node

Factors = Mapping[str, Level]

SUFFIXES = {
    "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20,
    "GiB": 2.0**30, "TiB": 2.0**40, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "%": 0.01, "/s": 1.0, "k/s": 1e3, "MB/s": 1e6,
}  # fmt: skip
"""Of quantities as experiment files write them; only their order matters here."""
QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%/]*)\s*")


def size_of(level: Level) -> float | None:
    """Return the number behind a level, for its place on an axis; None for a name."""
    if isinstance(level, int | float):
        return float(level)
    found = QUANTITY.fullmatch(level)
    if found is None or found[2] not in SUFFIXES:
        return None
    size = float(found[1]) * SUFFIXES[found[2]]
    return size if isfinite(size) else None


def canonical(level: Level) -> str:
    """Return a level as runs are matched by: 128, "128" and 128.0 are one level."""
    return f"{level:g}" if isinstance(level, int | float) else " ".join(str(level).split())


Key = tuple[tuple[str, str], ...]


def key_of(factors: Factors) -> Key:
    """Return what identifies a combination of levels."""
    return tuple((name, canonical(level)) for name, level in factors.items())


@dataclass(frozen=True)
class Cell:
    """All results of one combination of levels."""

    factors: Factors
    results: tuple[TrialResult, ...]

    @property
    def usable(self) -> tuple[TrialResult, ...]:
        """The repeats whose figures count."""
        return tuple(result for result in self.results if result.usable)

    @property
    def not_counted(self) -> str:
        """Why its error against what was published proves nothing; empty: it does."""
        return next((result.not_counted for result in self.results if result.not_counted), "")

    @property
    def refused(self) -> bool:
        """Whether it was never tried."""
        return all(result.status == "refused" for result in self.results)

    @property
    def shown(self) -> Cell:
        """The cell for a table: all figures, and if no repeat is valid those of the invalid ones.

        Not for a verdict.
        """
        counted = self.usable or tuple(one for one in self.results if one.status == "invalid")
        update = {"status": "ok", "valid": True, "spoiled": {}}
        return Cell(self.factors, tuple(one.model_copy(update=update) for one in counted))

    @property
    def trial(self) -> int:
        """Index of the trial in matrix order."""
        return self.results[0].trial if self.results else -1

    def figures(self, path: str) -> tuple[float, ...]:
        """Return a rate (`Rates`) or `p99_ms` of each usable repeat."""
        found = (figure(result, path) for result in self.usable)
        return tuple(value for value in found if value is not None)

    def median(self, path: str) -> float | None:
        """Return the median over the repeats; None without figures."""
        return median(self.figures(path))


class Rates(str, Enum):
    """Whose rates stand beside each other; the value is the figure's name."""

    AS_RUN = "ops_per_s"
    NODE = "ops_per_s_per_node"
    """The runs had different numbers of nodes."""
    CLUSTER = "ops_per_s_of_cluster"
    """They had as many, and different shares of a load that shrinks with the data (TPC-C)."""

    @property
    def unit(self) -> str:
        """As tables and charts call it."""
        whose = {Rates.NODE: " per node", Rates.CLUSTER: " of the full cluster"}.get(self, "")
        return f"ops/s{whose}"


def kind_of(path: str) -> str:
    """Return which of the figures that other work may spoil a column is."""
    if not path.endswith("_ms"):
        return RATE
    return MEDIAN if path in {"p50_ms", "mean_ms"} else TAIL


def scaled_loads(results: Sequence[TrialResult]) -> bool:
    """Return whether some rates are of a smaller load than the described system's."""
    return any(load_ratio(result) not in (None, 1) for result in results if result.usable)


def figure(result: TrialResult, path: str) -> float | None:
    """Return one figure of a result by its column name; None: it is not there, or was spoiled."""
    if kind_of(path) in result.spoiled:
        return None
    if path == Rates.AS_RUN:
        return result.ops_per_s
    if path == Rates.NODE:
        return of_node(result)
    if path == Rates.CLUSTER:
        return of_cluster(result)
    if path.endswith("_ms"):
        return result.latency_ms.get(path.removesuffix("_ms"))
    raise KeyError(path)


def median(figures: Sequence[float]) -> float | None:
    """Return the median; None of nothing."""
    if not figures:
        return None
    ordered = sorted(figures)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True)
class Factor:
    """One factor of the matrix."""

    name: str
    levels: tuple[Level, ...]
    """In the order of the experiment file."""

    @property
    def ordered(self) -> bool:
        """Whether its levels are sizes, so that they have places on an axis."""
        return len(self.levels) > 1 and all(size_of(level) is not None for level in self.levels)

    @property
    def title(self) -> str:
        """As people say it: the last part of a dotted path, `read ahead`."""
        return self.name.rsplit(".", 1)[-1].replace("_", " ")

    def phrase(self, level: Level) -> str:
        """Return a level in a sentence: `128 threads`, `replication factor 3`, `local`."""
        text = f"{level:,}" if isinstance(level, int) and level >= 10_000 else str(level)
        if self.title in COUNTED and size_of(level) is not None:
            return f"{text} {self.title}"
        if self.ordered or "." in self.name:
            return f"{self.title} {text}"
        return text


COUNTED = frozenset({"threads", "rows", "nodes", "disks", "connections", "tables"})
"""Factors whose level comes before their name: `128 threads`."""
PLACES = ("cluster.", "device", "disk", "data disks", "vm", "host", "volume")
"""How factors begin that are about where the data lies, when no specification tells it."""


@dataclass(frozen=True)
class Matrix:
    """The factors of a run in their roles, and its cells."""

    factors: tuple[Factor, ...]
    main: Factor | None
    """What the experiment asks about: the disks. None when only one cell ran."""
    sweep: Factor | None
    """The axis of the charts: an ordered factor."""
    others: tuple[Factor, ...]
    """Held fixed in each comparison: a panel for each combination."""
    cells: Mapping[Key, Cell] = field(repr=False)
    _alike: dict[tuple[str, ...], dict[tuple[str, ...], list[Cell]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def alike(self, names: tuple[str, ...]) -> Mapping[tuple[str, ...], Sequence[Cell]]:
        """Return the cells by their levels of some factors, as runs are matched by."""
        if names not in self._alike:
            found: dict[tuple[str, ...], list[Cell]] = {}
            for cell in self.cells.values():
                key = tuple(canonical(cell.factors[name]) for name in names)
                found.setdefault(key, []).append(cell)
            self._alike[names] = found
        return self._alike[names]

    def cell(self, factors: Factors) -> Cell | None:
        """Return the cell of these levels, in whatever order they are given."""
        return self.cells.get(key_of({f.name: factors[f.name] for f in self.factors}))

    @property
    def varying(self) -> tuple[Factor, ...]:
        """The factors that tell cells apart, in the order of the experiment file."""
        roles = {factor.name for factor in (self.main, self.sweep, *self.others) if factor}
        return tuple(factor for factor in self.factors if factor.name in roles)

    def drawn(self) -> list[Cell]:
        """Return the cells that a chart has a place for.

        Where a factor was tried at one level alone, the refused cells of its other levels would
        stand on top of that one's, with whatever another run has for them.
        """
        roles = {factor.name for factor in self.varying}
        silent = [factor.name for factor in self.factors if factor.name not in roles]
        tried = {
            (name, canonical(cell.factors.get(name, "")))
            for cell in self.cells.values()
            if not cell.refused
            for name in silent
        }
        return [
            cell
            for cell in self.cells.values()
            if all((name, canonical(cell.factors.get(name, ""))) in tried for name in silent)
        ]

    def contexts(self) -> list[dict[str, Level]]:
        """Return the combinations of the other factors' levels that gave figures, in order."""
        found: dict[Key, dict[str, Level]] = {}
        for cell in self.cells.values():
            if not cell.usable:
                continue
            context = {factor.name: cell.factors[factor.name] for factor in self.others}
            found.setdefault(key_of(context), context)
        return list(found.values())

    def phrase(self, factors: Factors) -> str:
        """Return some levels in words: `read, replication factor 3`."""
        named = {factor.name: factor for factor in self.factors}
        return ", ".join(named[name].phrase(level) for name, level in factors.items())


def matrix_of(results: Sequence[TrialResult], planned: Sequence[PlannedTrial] = ()) -> Matrix:
    """Group results into cells and find the factors' roles."""
    grouped: dict[Key, list[TrialResult]] = {}
    for result in sorted(results, key=lambda one: one.key):
        grouped.setdefault(key_of(result.factors), []).append(result)
    # 128, "128" and 128.0 are one level: it is named as it first stands.
    named: dict[tuple[str, str], Level] = {}
    cells = {
        key: Cell(
            {
                name: named.setdefault((name, canonical(level)), level)
                for name, level in repeats[0].factors.items()
            },
            tuple(repeats),
        )
        for key, repeats in grouped.items()
    }
    names = list(dict.fromkeys(name for cell in cells.values() for name in cell.factors))
    factors = []
    for name in names:
        levels = {
            canonical(cell.factors[name]): cell.factors[name]
            for cell in cells.values()
            if name in cell.factors
        }
        factors.append(Factor(name, tuple(levels.values())))
    varying = [factor for factor in factors if len(factor.levels) > 1]
    main = _main(varying, planned)
    # A factor of which one level alone was tried has no role: nothing can be drawn along it.
    seen = [cell for cell in cells.values() if not cell.refused] or list(cells.values())
    rest = [
        factor
        for factor in varying
        if factor is not main and len({canonical(cell.factors[factor.name]) for cell in seen}) > 1
    ]
    sweep = max((f for f in rest if f.ordered), key=lambda f: len(f.levels), default=None)
    others = tuple(factor for factor in rest if factor is not sweep)
    return Matrix(tuple(factors), main, sweep, others, cells)


def _main(varying: Sequence[Factor], planned: Sequence[PlannedTrial]) -> Factor | None:
    """Return the factor that the question is about: named levels that change the disks or hosts."""
    placing = [factor for factor in varying if _places(factor, planned)]
    named = [factor for factor in placing if not factor.ordered]
    return next(iter([*named, *[f for f in varying if not f.ordered], *placing, *varying]), None)


def _places(factor: Factor, planned: Sequence[PlannedTrial]) -> bool:
    """Return whether a factor changes cluster or device: as resolved, or else by its name."""
    groups: dict[Key, list[PlannedTrial]] = {}
    for trial in planned:
        if trial.spec and factor.name in trial.factors:
            rest = {name: level for name, level in trial.factors.items() if name != factor.name}
            groups.setdefault(key_of(rest), []).append(trial)
    alike = [group for group in groups.values() if len(group) > 1]
    if alike:
        return any(_place(one.spec) != _place(group[0].spec) for group in alike for one in group)
    return factor.name.casefold().startswith(PLACES)


def _place(spec: Mapping[str, Any]) -> tuple[Any, Any]:
    return spec.get("cluster"), spec.get("device")
