"""Bands: how far a predicted figure may be off, from everything that is not known exactly.

All unknowns are moved at once, each to one of two values a standard deviation from its own, in a
two-level design whose columns are orthogonal: the mean square of a figure's change is then the sum
of what each unknown contributes, and the contributions can be told apart. Every cell meets the same
draws, so that what two cells share cancels in their ratio.

**Source:** Plackett and Burman 1946 (the design, here by Sylvester's construction of Hadamard
matrices). **Divergence:** the logarithms of figures are taken to be normal, each side of the
prediction with a spread of its own; where a limit binds, its upper side is narrow.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disklab.databases.calibration import Residual
from disklab.databases.simulating import Job
from disklab.engine.process import Workers, simulate
from disklab.prediction.outcome import sql_figures
from disklab.prediction.uncertain import Key, Uncertain, Unknown
from disklab.results import Bands, Mover
from disklab.results.bands import LEAST_MOVED, TENTH, band
from disklab.spec import TrialSpec

Floats = NDArray[np.float64]

SIZES = (16, 32, 64, 128)
"""Numbers of draws; a design of n draws tells n - 1 unknowns apart."""
PAIRED = ("ops_per_s", "p50_ms", "p95_ms", "p99_ms")
"""Figures whose draws are kept, for the ratio of two cells."""
MOST_MOVERS = 8
DIGITS = 4
"""Of kept logarithms: a hundredth of a percent."""

RESIDUALS = {
    "ops_per_s": Residual(within=1.15, pairs=1.15),
    "p50_ms": Residual(within=1.3, pairs=1.3),
    "p95_ms": Residual(within=1.5, pairs=1.5),
    "p99_ms": Residual(within=1.8, pairs=1.8),
}
"""Where a calibration says nothing, as for devices without a database: assumed."""


@dataclass(frozen=True)
class Design:
    """Which way each unknown is moved in each draw."""

    unknowns: tuple[Unknown, ...]
    signs: Floats
    """Draws x unknowns, +1 or -1; the columns are orthogonal."""

    def __len__(self) -> int:
        """How many draws there are."""
        return len(self.signs)

    @property
    def tells_apart(self) -> bool:
        """Whether its columns are orthogonal, so that it says which unknown moves a figure."""
        return len(self) > len(self.unknowns)

    @property
    def ranges(self) -> Floats:
        """1 for each unknown that is a range of the experiment file, 0 for the others."""
        return np.array([float(one.key[0] == "range") for one in self.unknowns])

    @property
    def digest(self) -> str:
        """Tells it from designs of other unknowns or other ranges."""
        told = repr([(one.key, one.within, one.correlation) for one in self.unknowns])
        told += "" if self.tells_apart else f" {len(self)} draws"
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def shifts(self, draw: int) -> dict[Key, float]:
        """Return by how much the logarithm of each unknown is moved in a draw."""
        own = {one.key: sign for one, sign in zip(self.unknowns, self.signs[draw], strict=True)}
        found = {}
        for one in self.unknowns:
            way = float(own[one.key])
            if one.follows in own:
                rest = math.sqrt(1 - one.correlation**2)
                way = one.correlation * float(own[one.follows]) + rest * way
            found[one.key] = one.deviation * way
        return found

    def jobs(self, cell: Uncertain) -> Iterator[Job]:
        """Yield the job of a cell in each draw."""
        for draw in range(len(self)):
            yield cell.moved(self.shifts(draw))


def design_of(unknowns: Sequence[Unknown], draws: int | None = None) -> Design:
    """Return the smallest design that tells the unknowns apart; ValueError: there are too many.

    `draws`: as few, where fewer do not tell them apart: each unknown is moved up in half of them,
    drawn at random, so that the spread of all is right in the mean, and no mover is told.
    """
    if draws is not None and draws <= len(unknowns):
        chance = np.random.default_rng(draws)
        halves = np.repeat([1.0, -1.0], draws // 2)
        columns = [chance.permutation(halves) for _ in unknowns]
        return Design(tuple(unknowns), np.array(columns).T)
    size = next((size for size in SIZES if size > len(unknowns)), None)
    if size is None:
        raise ValueError(f"{len(unknowns)} unknowns, at most {SIZES[-1] - 1}")
    matrix = np.array([[1.0]])
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    # Columns of odd weight first: products of two of them are none of them, so that what two
    # unknowns do together is not taken for what a third does.
    order = sorted(range(1, size), key=lambda column: (column.bit_count() % 2 == 0, column))
    return Design(tuple(unknowns), matrix[:, order[: len(unknowns)]])


def figures_of(answer: Mapping[str, Any], nodes: int, *, sql: bool) -> dict[str, float]:
    """Return the figures of an answer that get a band, by the names of results."""
    found = {"ops_per_s": float(answer["ops_per_s"])}
    names = ("mean", "p50", "p95", "p99")
    found |= {f"{name}_ms": float(answer["latency_ms"][name]) for name in names}
    told = answer["telemetry"]
    for name in ("read", "write"):
        for what in (f"{name}_ios_per_operation", f"{name}_bytes_per_operation"):
            found[what] = float(told[what])
    if sql:
        disks = sql_figures(dict(answer), nodes)
        found |= {"disk_iops": disks["disk IOPS"], "disk_mb_per_s": disks["disk MB/s"]}
    return found


def bands_of(
    design: Design,
    nominal: Mapping[str, float],
    draws: Sequence[Mapping[str, float]],
    residuals: Mapping[str, Residual],
    widths: Mapping[str, float] | None = None,
) -> Bands:
    """Return the bands of a cell's figures, as ratios of the prediction.

    `nominal` and `draws` are of the same fidelity and seed; those of the prediction itself may be
    others. `widths`: see `band`.
    """
    known = {**RESIDUALS, **residuals}
    figures, kept, moved = {}, {}, {}
    for name, value in nominal.items():
        if value <= 0 or any(draw.get(name, 0) <= 0 for draw in draws):
            continue
        logs = np.log([draw[name] for draw in draws]) - math.log(value)
        effects = design.signs.T @ logs / len(design)
        # A range is moved to its ends, which the band shall reach and not pass. They are not as
        # far off as each other where a limit binds at one: what they have in common is part of it.
        common = float(np.mean(logs)) if design.ranges.any() else 0.0
        logs -= (design.signs @ (effects * design.ranges) + common) * (1 - 1 / TENTH)
        residual = known[name].within if name in known else 1.0
        figures[name] = band(logs.tolist(), residual, (widths or {}).get(name, 1.0))
        moved[name] = design.signs.T @ logs / len(design)
        if name in PAIRED:
            kept[name] = [round(float(log), DIGITS) for log in logs]
    return Bands(
        figures=figures,
        design=design.digest,
        draws=kept,
        pair_residuals={name: known[name].pairs for name in kept},
        movers=_movers(design, moved) if design.tells_apart else [],
    )


def _movers(design: Design, moved: Mapping[str, Floats]) -> list[Mover]:
    """Return what moves the figures most, the rate before the others."""
    found = []
    for index, unknown in enumerate(design.unknowns):
        effects = {name: TENTH * float(each[index]) for name, each in moved.items()}
        shown = {name: effects[name] for name in PAIRED if name in effects}
        if max(map(abs, shown.values()), default=0) >= LEAST_MOVED:
            ratios = {name: math.exp(effect) for name, effect in shown.items()}
            found.append((unknown, ratios))
    found.sort(key=lambda one: -max(abs(math.log(ratio)) for ratio in one[1].values()))
    return [
        Mover(
            name=unknown.name,
            within=unknown.within,
            because=unknown.because,
            ratios={name: round(ratio, DIGITS) for name, ratio in ratios.items()},
        )
        for unknown, ratios in found[:MOST_MOVERS]
    ]


def simulated_bands(  # noqa: PLR0913, PLR0917 - each says which cells, or how
    cells: Mapping[int, Uncertain],
    design: Design,
    seed: int,
    ablate: Sequence[str],
    workers: Workers,
    rough: Container[int] = (),
) -> dict[int, Bands]:
    """Return the bands of each cell, by its number, from one list of jobs at quick fidelity.

    Those of `rough` are sketches. A cell that the simulator refuses in one of its draws has none.
    """
    each = len(design) + 1  # the prediction itself comes first

    def jobs() -> Iterator[Job]:
        for number, cell in cells.items():
            for draw, job in enumerate((cell.job, *design.jobs(cell))):
                yield {
                    "cell": number * each + draw,
                    "seed": seed,
                    "fidelity": "sketch" if number in rough else "quick",
                    "ablate": list(ablate),
                    **job,
                }

    told: dict[int, dict[int, dict[str, float]]] = {number: {} for number in cells}
    for answer in simulate(jobs(), workers=workers):
        number, draw = divmod(answer["cell"], each)
        cluster = cells[number].trial.spec.cluster
        if answer["event"] != "refused":
            sql = "sql" in cells[number].job
            told[number][draw] = figures_of(answer, cluster.nodes if cluster else 1, sql=sql)
    found = {}
    for number, cell in cells.items():
        if len(told[number]) == each:
            nominal, *draws = (told[number][draw] for draw in range(each))
            bands = bands_of(design, nominal, draws, cell.residuals, cell.widths)
            found[number] = within_offered(bands, nominal, cell.trial.spec)
    return found


def within_offered(bands: Bands, nominal: Mapping[str, float], spec: TrialSpec) -> Bands:
    """Return bands whose rate ends at the one that is offered, or at the ceiling of threads."""
    load, rate = spec.workload.load, bands.figures.get("ops_per_s")
    if rate is None or load is None or load.scheduled_per_s is None:
        return bands
    most = max(load.scheduled_per_s / nominal["ops_per_s"], 1.0)
    capped = rate.model_copy(update={"high": min(rate.high, most)})
    return bands.model_copy(update={"figures": {**bands.figures, "ops_per_s": capped}})
