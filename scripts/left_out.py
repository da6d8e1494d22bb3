"""Writes docs/left-out.md: each study predicted by a calibration that has never seen it.

`.venv/bin/python scripts/left_out.py [--fidelity quick|full] [--jobs N]`. The rows that a fit used
say little about rows that it did not. So whole studies are left out, with the copies and twins of
their rows; parameters are fitted on the rows of the others, from values that no study has touched,
and a parameter that the others do not tell keeps such a value. Bands are those of such a file: a
parameter that the others do not tell is known as well as those were that they do, and what is left
when all are right is assumed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from disklab.catalog import load_catalog
from disklab.databases.calibration import Residual
from disklab.databases.simulating import Job
from disklab.engine.process import simulate
from disklab.prediction import Calibration, Options, calibration_for
from disklab.prediction.against import ComparedCell, figures, judged
from disklab.prediction.bands import design_of, simulated_bands
from disklab.prediction.cells import prepare
from disklab.prediction.counted import SEARCHED, levels, study_of
from disklab.prediction.fitting import Evaluation, Fit, declared_cells, fit
from disklab.prediction.uncertain import Key, Ranged, Uncertain, read_ranged, unknowns_of
from disklab.results import Bands
from disklab.results.bands import TENTH, off_by, told

from scripts import widths
from scripts.accuracy_page import (
    ROOT,
    answers_to,
    label,
    load,
    loaded_cells,
    published_part,
    table,
)

PAGE = ROOT / "docs" / "left-out.md"
COMMAND = ".venv/bin/python scripts/left_out.py"

UNTOUCHED: Mapping[str, tuple[int, str]] = {
    "overhead_ns": (50_000, "assumed: three hand-overs between threads"),
    "client_read_cpu_ns": (
        85_000,
        "our own runs of cassandra-stress 3.11.4: 35,600 reads/s on a core of an EPYC, 28 us; the "
        "study's virtual CPUs are half a core of 2015, taken as three times slower",
    ),
    "client_write_cpu_ns": (85_000, "as for reads"),
    "client_cold_permille": (1_000, "a fresh JVM, taken as twice as slow at first"),
    "client_warm_operations": (466_000, "our own runs lost the time of 233,000 operations: half"),
    "write_cpu_ns": (
        132_000,
        "our Cassandra 5.0: 44 us (2026-11-27), three times as for the client",
    ),
    "read_pause_ns": (
        980_000,
        "our rehearsals' collections: 153 ns a read, by requests between pauses",
    ),
    "write_pause_ns": (3_500_000, "our rehearsals' collections: 352 ns an operation, half writes"),
    "pause_every_requests": (
        6_426,
        "sets the scale of the pauses alone: their time is what counts",
    ),
    "message_overhead_ns": (100_000, "assumed: two hand-overs between threads at each end"),
    "message_cpu_ns": (
        138_000,
        "our Cassandra 5.0: 46 us (2026-11-27), three times as for the client; the file assumes 50",
    ),
}
"""Values of every fitted parameter that owe nothing to a published study, and where from; and of
one that the file assumes, which our servers tell by now."""
ASSUMED = {"message_cpu_ns"}


AS = {"client_write_cpu_ns": "client_read_cpu_ns", "message_overhead_ns": "overhead_ns"}
"""What is known as another value is known, and moves with that where other studies tell it: a
client's write as its read, a hand-over between threads of a message as one of a request."""


@dataclass(frozen=True)
class Fold:
    """Studies that are left out together, and what the others tell."""

    left_out: tuple[str, ...]
    told: tuple[str, ...]
    """Parameters that rows of the others depend on."""


CACHING = ("cassandra-disk-caching-threads", "cassandra-disk-caching-read-ahead")
COPIES = "cassandra-local-or-attached"
FOLDS = (
    Fold(CACHING, tuple(name for name in UNTOUCHED if name not in {"overhead_ns", *ASSUMED})),
    Fold(
        (COPIES,),
        (
            "overhead_ns",
            "client_read_cpu_ns",
            "client_warm_operations",
            "read_pause_ns",
        ),
    ),
)
"""The two sweeps of caching are one campaign and share rows, so they are left out together. The
study of VM types and the devices were never fitted on: each is left out always. YugabyteDB has one
study, whose rows of one disk are fitted and those of the others counted."""


def untouched(calibration: Calibration) -> Calibration:
    """Return a calibration whose fitted parameters have values that no study has touched.

    Nor have their ranges and residuals: these are the ones of a file that states none.
    """
    fitted = {name for name, one in calibration.parameters.items() if one.status == "fitted"}
    assert fitted == set(UNTOUCHED) - ASSUMED, fitted ^ set(UNTOUCHED)
    parameters = {
        name: one.model_copy(
            update={"value": UNTOUCHED[name][0], "status": "assumed", "within": None}
        )
        if name in UNTOUCHED
        else one
        for name, one in calibration.parameters.items()
    }
    return calibration.model_copy(update={"parameters": parameters, "residuals": {}})


def fitted_without(fold: Fold, calibration: Calibration, options: Options) -> Fit:
    """Return the fit of what the other studies tell, on their declared rows."""
    rows = [row for row in calibration.calibration_rows if row.experiment not in fold.left_out]
    blank = untouched(calibration)
    return fit(declared_cells(rows, blank), fold.told, blank, options, say)


def off_of_assumed(fold: Fold, found: Fit) -> float:
    """Return within which factor eight of ten assumed values lay, of those that the others tell.

    The values that they do not tell are no better known. It owes nothing to what is left out.
    """
    parameters = found.calibration.parameters
    logs = [
        math.log(parameters[name].value / UNTOUCHED[name][0])
        for name in fold.told
        if name not in found.at_bound
    ]
    return math.exp(TENTH * math.sqrt(statistics.fmean(log**2 for log in logs)))


def with_assumed_within(fold: Fold, found: Fit) -> Calibration:
    """Return a fitted file in which each value that the others do not tell has that range."""
    factor = off_of_assumed(fold, found)
    untold = set(UNTOUCHED) - set(fold.told) | set(found.at_bound)
    parameters = dict(found.calibration.parameters)
    for name in untold:
        value = moved_along(name, fold, found)
        parameters[name] = parameters[name].model_copy(update={"within": factor, "value": value})
    return found.calibration.model_copy(update={"parameters": parameters})


def moved_along(name: str, fold: Fold, found: Fit) -> int:
    """Return the value of a parameter that the others do not tell."""
    parameters, other = found.calibration.parameters, AS.get(name)
    value: int = parameters[name].value
    if other is None or name in fold.told or other not in fold.told or other in found.at_bound:
        return value
    return round(value * parameters[other].value / UNTOUCHED[other][0])


def p99_of_others(studies: Sequence[LeftOut]) -> dict[str, Residual]:
    """Return the factor within which eight of ten 99th percentiles of studies left out lay."""
    logs = sorted(math.log1p(error) for study in studies for error in study.errors("p99"))
    factor = math.exp(statistics.quantiles(logs, n=10)[7])
    return {"p99_ms": Residual(within=factor, pairs=factor)}


def say(evaluation: Evaluation, number: int) -> None:
    """Tell how far a fit is, on standard error."""
    print(f"evaluation {number}: error {evaluation.error:.3f}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class LeftOut:
    """A study as a calibration predicts it that has not seen it."""

    name: str
    cells: Sequence[ComparedCell]
    bands: Sequence[Bands | None]
    """Of each cell."""
    known: frozenset[object]
    """The rows that a guess without a model has: it is not held against these."""

    def parts(self, figure: str) -> Iterator[float]:
        """Yield how far off each published figure is as a part of its band."""
        for cell, bands in zip(self.cells, self.bands, strict=True):
            error = cell.error(figure)
            band = bands.figures.get(BANDED[figure]) if bands is not None else None
            if error is not None and band is not None:
                yield widths.part(1 + error, band.low, band.high)

    def inside(self, figure: str) -> tuple[int, int]:
        """Return in how many cells a published figure lies in its band, and of how many."""
        within = [part <= 1 for part in self.parts(figure)]
        return sum(within), len(within)

    def errors(self, figure: str) -> list[float]:
        """Return how far off each cell is."""
        errors = (cell.error(figure) for cell in self.cells)
        return [off_by(1 + one) for one in errors if one is not None]

    def skill(self, figure: str) -> tuple[int, float, float] | None:
        """Return how many cells have a guess, and how far off model and guess are in the median."""
        pairs = [
            (off_by(1 + error), off_by(1 + guess))
            for cell in self.cells
            if levels(cell.factors) not in self.known
            and (error := cell.error(figure)) is not None
            and (guess := cell.guess_error(figure)) is not None
        ]
        if not pairs:
            return None
        model, guesses = (statistics.median(column) for column in zip(*pairs, strict=True))
        return len(pairs), model, guesses


def left_out(
    name: str, calibration: Calibration, options: Options, *, bands: bool = True
) -> LeftOut:
    """Return every published cell of a study as a calibration predicts it."""
    experiment = published_part(load(name))
    study = study_of(experiment)
    assert study is not None
    rows = {levels(row.factors): row for row in study.results() if row.usable}
    uncertain: dict[int, Uncertain] = {}
    jobs: list[dict[str, Any]] = []
    for trial in experiment.trials("predict"):
        prepared = prepare(trial, load_catalog(), calibration, name)
        if prepared.job is None:
            continue
        uncertain[len(jobs)] = Uncertain(trial, calibration, prepared.job, name)
        job = {"cell": len(jobs), "seed": options.seed, "fidelity": options.fidelity}
        jobs.append({**job, **prepared.job})
    found = []
    for answer in sorted(simulate(jobs, workers=options.workers), key=lambda one: one["cell"]):
        factors = dict(uncertain[answer["cell"]].trial.factors)
        shown = {"ops/s": answer["ops_per_s"], **answer["latency_ms"]}
        found.append(ComparedCell(factors, figures(rows[levels(factors)]), shown))
    fitted = calibration_for("cassandra")
    assert fitted is not None
    known = frozenset(key for key, row in rows.items() if fitted.covers(name, dict(row.factors)))
    found = list(judged(experiment, found).cells)
    none: list[Bands | None] = [None] * len(found)
    return LeftOut(name, found, bands_of(uncertain, options) if bands else none, known)


def bands_of(
    cells: Mapping[int, Uncertain], options: Options, ablate: Sequence[str] = ()
) -> list[Bands | None]:
    """Return the bands of each cell, in their order."""
    design = design_of(unknowns_of(list(cells.values())))
    found = simulated_bands(cells, design, options.seed, ablate, options.workers)
    return [found.get(number) for number in cells]


@dataclass(frozen=True)
class AtPublishedLoad(Uncertain):
    """A cell of a searched study whose unknowns are moved at the load that was published."""

    def moved(self, shifts: Mapping[Key, float]) -> Job:
        """Return the moved job, with the load of this one."""
        job = super().moved(shifts)
        database, own = job["database"], self.job["database"]["workload"]
        workload = {**database["workload"], "load": own["load"], "stop": own["stop"]}
        return {**job, "database": {**database, "workload": workload}}


WITH_RANGES = f"{SEARCHED}, with ranges"
LEFT_OPEN = (
    ("read_ahead: 8KiB", "read_ahead: 8KiB..128KiB"),
    ("keys: uniform", "keys: uniform, working_set: 1%..100%"),
    (
        "dataset.row: [small, medium]",
        "dataset.row: {small: {}, medium: {dataset.row: 5 x 1KiB..4KiB}}",
    ),
)
"""What the study of VM types does not state, and the experiment file assumes: the read-ahead (what
Cassandra's guides ask for, to the kernel's default), which rows are asked for (any share of them)
and how large a medium row is (`medium` of spec/payloads.yaml, to a quarter of it)."""


def _listed(ranges: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in ranges)


def left_open(folder: Path) -> Ranged:
    """Return the study of VM types with a range for each thing that it does not state."""
    text = load(SEARCHED).path.read_text(encoding="utf-8")
    for stated, ranged in LEFT_OPEN:
        assert stated in text, stated
        text = text.replace(stated, ranged, 1)
    path = folder / f"{SEARCHED}.yaml"
    path.write_text(text, encoding="utf-8")
    return read_ranged(path, {})


def searched(
    options: Options, residuals: Mapping[str, Residual] | None, ranged: Ranged | None = None
) -> LeftOut:
    """Return the study of VM types at its published load: it was never fitted on.

    `residuals`: of its bands, where they are not the file's; None: it has no bands.
    """
    experiment = published_part(ranged.middle if ranged else load(SEARCHED))
    cells = loaded_cells(experiment)
    answers = answers_to([cell.job({}) for cell in cells], options)
    compared = [
        ComparedCell(
            cell.factors, figures(cell.row), {"ops/s": answer["ops_per_s"], **answer["latency_ms"]}
        )
        for cell, answer in zip(cells, answers, strict=True)
    ]
    calibration = calibration_for("cassandra")
    assert calibration is not None
    name = WITH_RANGES if ranged else SEARCHED
    if residuals is None:
        return LeftOut(name, compared, [None] * len(compared), frozenset())
    known = {**calibration.residuals, **residuals}
    calibration = calibration.model_copy(update={"residuals": known})
    uncertain: dict[int, Uncertain] = {
        number: AtPublishedLoad(trial, calibration, {"database": cell.job({})}, SEARCHED, ranged)
        for number, (trial, cell) in enumerate(
            zip(experiment.trials("predict"), cells, strict=True)
        )
    }
    bands = bands_of(uncertain, options, ["client_warm_up"])
    return LeftOut(name, compared, bands, frozenset())


BANDED = {"ops/s": "ops_per_s", "p50": "p50_ms", "p95": "p95_ms", "p99": "p99_ms"}
"""Names of figures in bands."""
FIGURES = tuple(BANDED)


def summary(study: LeftOut) -> list[str]:
    """Return a study's line: median and largest error of each figure."""
    line = [study.name, f"{len(study.cells)}"]
    for figure in FIGURES:
        found = study.errors(figure)
        line.append(f"{told(statistics.median(found))}, {told(max(found))}" if found else "")
    return line


def coverage(studies: Sequence[LeftOut]) -> Iterator[list[str]]:
    """Yield how many published figures of each study lie in their bands, and of all together.

    Of the study of VM types the bands with ranges count.
    """
    sums = dict.fromkeys(FIGURES, (0, 0))
    for study in studies:
        counts = {figure: study.inside(figure) for figure in FIGURES}
        if study.name != SEARCHED:
            sums = {figure: _added(sums[figure], counts[figure]) for figure in FIGURES}
        for figure in ("ops/s", "p99"):
            if study.name != SEARCHED and (found := list(study.parts(figure))):
                widths.keep(BANDED[figure], study.name, found)
        yield [study.name, *map(_share, counts.values())]
    yield ["all", *map(_share, sums.values())]


def _added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _share(count: tuple[int, int]) -> str:
    inside, of = count
    return f"{inside} of {of}, {100 * inside / of:.0f} %" if of else ""


def skills(study: LeftOut) -> list[str]:
    """Return a study's line: model and guess over the cells that have one, and the skill."""
    line = [study.name]
    for figure in FIGURES[:3]:
        found = study.skill(figure)
        if found is None:
            line.append("")
            continue
        count, model, guess = found
        skill = f"{1 - model / guess:+.2f}" if guess else "-"
        line.append(f"{told(model)}, {told(guess)}: {skill} ({count} cells)")
    return line


def written(options: Options) -> Iterator[str]:
    """Yield the page."""
    calibration = calibration_for("cassandra")
    assert calibration is not None
    today = datetime.now(timezone.utc).date().isoformat()
    of_it = p99_of_others([searched(options, None)])
    studies, details = [], []
    for fold in FOLDS:
        found = fitted_without(fold, calibration, options)
        details += list(fold_text(fold, found))
        told_by_others = with_assumed_within(fold, found).model_copy(update={"residuals": of_it})
        for name in fold.left_out:
            studies.append(left_out(name, told_by_others, options))
            details += [f"### {name}\n", cell_table(studies[-1].cells), ""]
        if COPIES in fold.left_out:
            details += list(worth_of_values(found.calibration, calibration, options))
    of_others = p99_of_others(studies)
    studies.append(searched(options, of_others))
    with tempfile.TemporaryDirectory() as folder:
        studies.append(searched(options, of_others, left_open(Path(folder))))
    yield "# Studies that were left out\n"
    yield (
        f"Written by `{COMMAND}` on {today}, fidelity {options.fidelity}, seed {options.seed}; do "
        "not edit. Each study is predicted by a calibration that has never seen it: its rows are "
        "left out with their copies and twins, and what the other studies do not tell has a value "
        "that no study has touched. All published cells count here. What was chosen rather than "
        "fitted ([accuracy.md](accuracy.md), *Chosen in sight of the rows*) stays as it is: read "
        "times of the disks, and which mechanisms there are, were chosen with these rows in view.\n"
    )
    body = [summary(study) for study in studies]
    yield table(["study", "cells", *(f"{one}: median, largest" for one in FIGURES)], body)
    as_filed = [study for study in studies if study.name != WITH_RANGES]
    middle = told(statistics.median(one for study in as_filed for one in study.errors("ops/s")))
    yield (
        "\nThe study of VM types, at its published load, was never fitted on. Its experiment file "
        "assumes what the study does not state; *with ranges* it is predicted in the middle of "
        f"{_listed(ranged for _, ranged in LEFT_OPEN)}. Of all cells together, without these "
        f"ranges, ops/s are {middle} off in the median.\n"
    )
    yield "## Bands\n"
    yield BANDS.format(*(each["p99_ms"].within for each in (of_it, of_others)))
    yield table(["study", *(f"{one} inside" for one in FIGURES)], list(coverage(studies)))
    yield "\n## Beside a guess\n"
    yield GUESSES
    heads = (f"{one}: model, guess: skill" for one in FIGURES[:3])
    yield table(["study", *heads], [skills(study) for study in studies if study.known]) + "\n"
    yield MISSING
    yield "## Values that no study has touched\n"
    body = [[f"`{name}`", f"{value:,}", why] for name, (value, why) in UNTOUCHED.items()]
    yield table(["parameter", "value", "where from"], body) + "\n"
    yield from details


BANDS = (
    "Published figures inside their 80 % bands; 70 to 90 % is what was aimed for. Bands are those "
    "of a calibration file that states no ranges: 1.3 for what was fitted on the others; for what "
    "they do not tell, the factor that eight of ten assumed values were off by among those that "
    "they do tell (below); and residuals that are assumed, since the file's own were taken from "
    "these cells. The study of VM types has the file's own, and its line with ranges counts in the "
    "sum. What is left of a 99th percentile is what other studies that were left out tell: eight "
    "of ten were within a factor of {:.1f} in the study of VM types, whence that of the others, "
    "and of {:.1f} in the others. It is so wide because a mechanism is missing (see below). On VMs "
    "that no calibration has seen bands have a width that was fitted on these studies and others: "
    "with what the others tell, 15 of the 18 of local or attached are inside "
    "([abroad.md](abroad.md#bands)).\n"
)
GUESSES = (
    "A guess without a model has the rows of the study itself on which the file's parameters were "
    "fitted ([accuracy.md](accuracy.md)), which the model has not seen here. Over the other cells: "
    "how far off the model and the guess are in the median, and the skill, 1 - model / guess.\n"
)
MISSING = (
    "Why it is below 0, from a look at the cells of 2026-11-26:\n\n"
    "- **Local or attached.** The guess copies a cell's twin on the other disk. Published twins "
    "differ by 2 % in the median (at most 9 %, to both sides), less than equal runs of a study do. "
    "The file's own fit has their ratio at 0.99 to 1.00, so no mechanism of disks is missing for "
    "rates. What is wrong is the level, which both twins share: four values that no other study "
    "tells, and which other studies do not narrow (see below). For the 99th percentile a "
    "mechanism is missing: it grows sixfold from one copy to five where writes are published, and "
    "not even twofold where they are predicted; a pause does not grow with what a node keeps.\n"
    "- **YugabyteDB** (-1.85 in accuracy.md). The guess copies Premium SSD v2. Two cells decide: "
    "TPC-C on Premium SSD, where the simulated credits of the disk end (-15 % beside v2) and the "
    "study's did not (-2 %); and reads of thirty tables on Ultra, where shorter reads make "
    "transactions faster (+7 %) and in the study something else held them (0 %) at 80 % of CPU.\n"
    "- **VM types** (no guess; few rates in their bands). Small rows of DS13_v2 were published "
    "with 16,000 reads a second of each node, whose two P30 do 10,000: many were in memory, by "
    "keys or sizes that the study does not state. Medium rows on remote disks take twice as long "
    "as published: each page of a mapped row is an access of its own, and with a read-ahead of 16 "
    "KiB it would be half as many (accuracy.md). With ranges for read-ahead, row and working set "
    "the bands reach twice as many of the rates. No working set explains DS13_v2: long reading "
    "comes before a cold cache holds much of any, and a step of the search takes seconds.\n"
)
"""What the table does not say; written by hand, so look again when the figures change."""
WORTH = (
    "What is missing here are values, not a mechanism: no other study writes or has copies. Once "
    "more with pauses as measured on a JVM of our own, of which no study knows either; and with "
    "values of the file, which were fitted in sight of these rows and so count nowhere:\n"
)


UNTOLD = {
    "its `client_write_cpu_ns`": ("client_write_cpu_ns",),
    "its pauses": ("read_pause_ns", "write_pause_ns", "pause_every_requests"),
    "its `message_overhead_ns`": ("message_overhead_ns",),
    "these three": (
        "client_write_cpu_ns",
        "read_pause_ns",
        "write_pause_ns",
        "pause_every_requests",
        "message_overhead_ns",
    ),
    "these three and its `write_cpu_ns`": (
        "client_write_cpu_ns",
        "read_pause_ns",
        "write_pause_ns",
        "pause_every_requests",
        "message_overhead_ns",
        "write_cpu_ns",
    ),
}
"""Values of the file with which the study of copies is predicted once more."""


def worth_of_values(blank: Calibration, file: Calibration, options: Options) -> Iterator[str]:
    """Yield the study of copies with single values that the other studies do not tell."""
    others = {
        "no value moved along": blank,
        "pauses of our own JVM, scaled to the study's": blank.newest(),
        **{name: _with_values(blank, file, names) for name, names in UNTOLD.items()},
    }
    body = []
    for name, calibration in others.items():
        study = left_out(COPIES, calibration, options, bands=False)
        line = [name, *(told(statistics.median(study.errors(figure))) for figure in FIGURES)]
        for workload in ("write", "read", "mixed"):
            cells = [cell for cell in study.cells if workload in cell.factors.values()]
            part = replace(study, cells=cells)
            line.append(told(statistics.median(part.errors("ops/s"))))
        body.append(line)
    yield WORTH
    heads = [*(f"{one}: median" for one in FIGURES), "ops/s of writes", "of reads", "of mixed"]
    yield table(["with", *heads], body) + "\n"


def _with_values(blank: Calibration, file: Calibration, names: Sequence[str]) -> Calibration:
    parameters = {
        name: one.model_copy(update={"value": file.parameters[name].value})
        if name in names
        else one
        for name, one in blank.parameters.items()
    }
    return blank.model_copy(update={"parameters": parameters})


def fold_text(fold: Fold, found: Fit) -> Iterator[str]:
    """Yield what the other studies told."""
    yield f"## Without {' and '.join(fold.left_out)}\n"
    parameters = found.calibration.parameters
    body = [
        [f"`{name}`", f"{UNTOUCHED[name][0]:,}", f"{parameters[name].value:,}"]
        for name in fold.told
    ]
    yield table(["parameter", "before", "as the other studies tell it"], body) + "\n"
    yield (
        f"So eight of ten assumed values lay within a factor of {off_of_assumed(fold, found):.1f}: "
        "the range, in bands, of those that they do not tell.\n"
    )
    moved = {name: moved_along(name, fold, found) for name in AS}
    if along := [name for name, value in moved.items() if value != parameters[name].value]:
        values = ", ".join(f"`{name}` {moved[name]:,} (as `{AS[name]}`)" for name in along)
        yield f"Moved along with what they tell: {values}.\n"
    if found.at_bound:
        yield f"Not told by them after all: {', '.join(found.at_bound)}.\n"


def cell_table(cells: Sequence[ComparedCell]) -> str:
    """Return the cells of a study, published and predicted."""
    shown = [one for one in FIGURES if any(cell.error(one) is not None for cell in cells)]
    body = [[label(cell.factors), *(cell.text(one) for one in shown)] for cell in cells]
    return str(table(["cell", *(f"{one}: published -> predicted" for one in shown)], body))


def main() -> int:
    """Fit, predict and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fidelity", choices=("full", "quick"), default="quick")
    parser.add_argument("--jobs", type=int, default=None, help="cells at a time")
    arguments = parser.parse_args()
    options = replace(Options(), fidelity=arguments.fidelity, workers=arguments.jobs)
    PAGE.write_text("\n".join(written(options)).rstrip() + "\n", encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
