"""Writes docs/left-out.md: each study predicted by a calibration that has never seen it.

`.venv/bin/python scripts/left_out.py [--fidelity quick|full] [--jobs N]`. The rows that a fit used
say little about rows that it did not. So whole studies are left out, with the copies and twins of
their rows; parameters are fitted on the rows of the others, from values that no study has touched,
and a parameter that the others do not tell keeps such a value.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from accuracy_page import (  # type: ignore[import-not-found]  # beside this script
    ROOT,
    answers_to,
    label,
    load,
    loaded_cells,
    published_part,
    table,
)
from disklab.catalog import load_catalog
from disklab.engine.simulation import simulate
from disklab.prediction import Calibration, Options, calibration_for
from disklab.prediction.against import ComparedCell, figures
from disklab.prediction.cells import prepare
from disklab.prediction.counted import SEARCHED, levels, study_of
from disklab.prediction.fitting import Evaluation, Fit, fit
from disklab.prediction.refit import declared_cells
from disklab.results.deviation import off_by, told

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
    "write_cpu_ns": (316_000, "our Cassandra 5.0: 376 us for a write, less the coordinator's"),
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
}
"""Values of every fitted parameter that owe nothing to a published study, and where from."""


@dataclass(frozen=True)
class Fold:
    """Studies that are left out together, and what the others tell."""

    left_out: tuple[str, ...]
    told: tuple[str, ...]
    """Parameters that rows of the others depend on."""


CACHING = ("cassandra-disk-caching-threads", "cassandra-disk-caching-read-ahead")
COPIES = "cassandra-local-or-attached"
FOLDS = (
    Fold(CACHING, tuple(name for name in UNTOUCHED if name != "overhead_ns")),
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
    """Return a calibration whose fitted parameters have values that no study has touched."""
    fitted = {name for name, one in calibration.parameters.items() if one.status == "fitted"}
    assert fitted == set(UNTOUCHED), fitted ^ set(UNTOUCHED)
    parameters = {
        name: one.model_copy(update={"value": UNTOUCHED[name][0]}) if name in UNTOUCHED else one
        for name, one in calibration.parameters.items()
    }
    return calibration.model_copy(update={"parameters": parameters})


def fitted_without(fold: Fold, calibration: Calibration, options: Options) -> Fit:
    """Return the fit of what the other studies tell, on their declared rows."""
    rows = [row for row in calibration.calibration_rows if row.experiment not in fold.left_out]
    blank = untouched(calibration)
    return fit(declared_cells(rows, blank), fold.told, blank, options, say)


def say(evaluation: Evaluation, number: int) -> None:
    """Tell how far a fit is, on standard error."""
    print(f"evaluation {number}: error {evaluation.error:.3f}", file=sys.stderr, flush=True)


def cells_of(name: str, calibration: Calibration, options: Options) -> list[ComparedCell]:
    """Return every published cell of a study as a calibration predicts it."""
    experiment = published_part(load(name))
    study = study_of(experiment)
    assert study is not None
    rows = {levels(row.factors): row for row in study.results() if row.usable}
    known: list[dict[str, Any]] = []
    jobs: list[dict[str, Any]] = []
    for trial in experiment.trials("predict"):
        prepared = prepare(trial, load_catalog(), calibration, name)
        if prepared.job is None:
            continue
        job = {"cell": len(jobs), "seed": options.seed, "fidelity": options.fidelity}
        jobs.append({**job, **prepared.job})
        known.append(dict(trial.factors))
    found = []
    for answer in sorted(simulate(jobs, workers=options.workers), key=lambda one: one["cell"]):
        factors = known[answer["cell"]]
        shown = {"ops/s": answer["ops_per_s"], **answer["latency_ms"]}
        found.append(ComparedCell(factors, figures(rows[levels(factors)]), shown))
    return found


def searched_cells(options: Options) -> list[ComparedCell]:
    """Return the study of VM types at its published load: it was never fitted on."""
    cells = loaded_cells(published_part(load(SEARCHED)))
    answers = answers_to([cell.job({}) for cell in cells], options)
    return [
        ComparedCell(
            cell.factors, figures(cell.row), {"ops/s": answer["ops_per_s"], **answer["latency_ms"]}
        )
        for cell, answer in zip(cells, answers, strict=True)
    ]


FIGURES = ("ops/s", "p50", "p95", "p99")


def summary(name: str, cells: Sequence[ComparedCell]) -> list[str]:
    """Return a study's line: median and largest error of each figure."""
    line = [name, f"{len(cells)}"]
    for figure in FIGURES:
        found = [off_by(1 + one) for cell in cells if (one := cell.error(figure)) is not None]
        line.append(f"{told(statistics.median(found))}, {told(max(found))}" if found else "")
    return line


def written(options: Options) -> Iterator[str]:
    """Yield the page."""
    calibration = calibration_for("cassandra")
    assert calibration is not None
    today = datetime.now(timezone.utc).date().isoformat()
    summaries, details = [], []
    for fold in FOLDS:
        found = fitted_without(fold, calibration, options)
        details += list(fold_text(fold, found))
        for name in fold.left_out:
            cells = cells_of(name, found.calibration, options)
            summaries.append(summary(name, cells))
            details += [f"### {name}\n", cell_table(cells), ""]
    summaries.append(summary(SEARCHED, searched_cells(options)))
    yield "# Studies that were left out\n"
    yield (
        f"Written by `{COMMAND}` on {today}, fidelity {options.fidelity}, seed {options.seed}; do "
        "not edit. Each study is predicted by a calibration that has never seen it: its rows are "
        "left out with their copies and twins, and what the other studies do not tell has a value "
        "that no study has touched. All published cells count here. What was chosen rather than "
        "fitted ([accuracy.md](accuracy.md), *Chosen in sight of the rows*) stays as it is: read "
        "times of the disks, and which mechanisms there are, were chosen with these rows in view.\n"
    )
    yield table(["study", "cells", *(f"{one}: median, largest" for one in FIGURES)], summaries)
    yield "\nThe study of VM types, at its published load, was never fitted on.\n"
    yield "## Values that no study has touched\n"
    body = [[f"`{name}`", f"{value:,}", why] for name, (value, why) in UNTOUCHED.items()]
    yield table(["parameter", "value", "where from"], body) + "\n"
    yield from details


def fold_text(fold: Fold, found: Fit) -> Iterator[str]:
    """Yield what the other studies told."""
    yield f"## Without {' and '.join(fold.left_out)}\n"
    parameters = found.calibration.parameters
    body = [
        [f"`{name}`", f"{UNTOUCHED[name][0]:,}", f"{parameters[name].value:,}"]
        for name in fold.told
    ]
    yield table(["parameter", "before", "as the other studies tell it"], body) + "\n"
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
