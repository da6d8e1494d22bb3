"""`disklab calibrate`: the parameters of predictions, fitted to measured cells."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from disklab import spec
from disklab.cli.amounts import FidelityOption, Jobs, Seed
from disklab.cli.experiment import Only, choices, chosen
from disklab.cli.output import console, notes, print_json
from disklab.cli.predict import fidelity_of
from disklab.cli.root_part import root_part
from disklab.errors import Problem, UserError, refuse_given
from disklab.results import DEFAULT_OUT

if TYPE_CHECKING:
    from rich.status import Status

    from disklab.databases.calibration import Calibration
    from disklab.prediction import Options
    from disklab.prediction.fitting import Evaluation, Fit, Watch
    from disklab.prediction.here import Check, Made
    from disklab.results import TrialResult

# `disklab calibrate --here` on the terminal: what was chosen, fitted and checked.

DEFAULT_DISK = "azure/P30"
DEFAULT_MINUTES = 10.0

MOST_PROBED_OFF = 0.1
"""Of what a disk owes; beyond it the fitted overhead is that of the emulation."""


def calibrate_here(  # noqa: PLR0913 - as the command has them
    disks: str,
    minutes: float,
    start: Calibration,
    options: Options,
    *,
    out: Path | None,
    runs: Path,
    as_json: bool,
) -> None:
    """Choose, rehearse, fit, check, print, and write the file."""
    # Loaded here because it brings SciPy, polars and the databases.
    from disklab.cli.rehearsing import divided, root_of  # noqa: PLC0415
    from disklab.cli.run_progress import RunView  # noqa: PLC0415
    from disklab.prediction import here  # noqa: PLC0415
    from disklab.prediction.fitting import calibration_text  # noqa: PLC0415
    from disklab.privilege.probing import look_by  # noqa: PLC0415

    if out is None:
        rule = "a calibration of this machine takes minutes and is only useful as a file"
        raise UserError(Problem("--out", "(nothing)", rule, "name one: --out here.yaml"))
    progress = notes()
    say = partial(progress.print, style="dim", markup=False)
    task = here.Asked(disks, minutes, runs, options, start)
    root, check = root_of(root_part())
    hands = here.Hands()
    if root is not None and check is not None:
        hands = here.Hands(check, partial(divided, root), look_by(root_part()))
    with RunView(progress) as view:
        status = progress.status("simulating")
        made = here.calibrate(task, view, say, watching(status), hands)
    out.write_text(calibration_text(made.calibration), encoding="utf-8")
    if as_json:
        print_json(as_object(made, start, out))
    else:
        print_made(made, start)
        console().print(f"\n{out}", markup=False)


def print_made(made: Made, start: Calibration) -> None:
    """Print the choice, the parameters and what is known of them, and the check."""
    shown = console()
    shown.print(f"cells, the most informative first: {'; '.join(made.chosen)}", markup=False)
    if made.probed is not None:
        seen, owed = made.probed.seen_ns / 1000, made.probed.owed_ns / 1000
        line = f"probe: a 4 KiB read takes {seen:,.0f} us in the median, the disk owes {owed:,.0f}"
        if seen / owed - 1 > MOST_PROBED_OFF:
            line += ": the rest is this machine's, and part of the fitted overhead"
        shown.print(line, markup=False)
    table = Table("\nparameter", box=None, pad_edge=False)
    for heading in ("\nbefore", "\nafter"):
        table.add_column(heading, justify="right")
    table.add_column("\nunit")
    table.add_column("\nknown to")
    for one in made.known:
        old, new = start.parameters[one.name], made.calibration.parameters[one.name]
        table.add_row(
            one.name, f"{old.value:,}", f"{new.value:,}", old.unit, words_of(made, one.name)
        )
    shown.print(table)
    if made.check is not None:
        print_check(made.check)


def words_of(made: Made, name: str) -> str:
    """Return how well a parameter is known, in words."""
    (one,) = (known for known in made.known if known.name == name)
    measured = "as the server's processes reported" if name in made.measured else "as it was"
    if one.like:
        found = f"cannot be separated from {one.like}"
    elif one.within is None:
        found = "not determined by these cells"
    else:
        return f"a factor of {one.within:.2f}, in eight cases of ten"
    return f"{found}: {measured}"


def print_check(check: Check) -> None:
    """Print the held-out cells with both errors."""
    table = Table("\nheld out", "\nfigure", box=None, pad_edge=False)
    for heading in ("\nrehearsed", "package's\nerror", "this one's\nerror"):
        table.add_column(heading, justify="right")
    for trial, measured, before, after in zip(
        check.trials, check.measured, check.before.predicted, check.after.predicted, strict=True
    ):
        name = str(trial.factors["cell"])
        for figure, value in measured.items():
            errors = (f"{one[figure] / value - 1:+.0%}" for one in (before, after))
            table.add_row(name, figure, f"{value:,.4g}", *errors)
            name = ""
    shown = console()
    shown.print(table)
    old, new = (median_error(check, one) for one in (check.before, check.after))
    verdict = "nearer" if new < old else "no closer: keep the package's"
    shown.print(
        f"held out, in the median: {old:.0%} with the package's calibration, {new:.0%} with "
        f"this one: {verdict}",
        markup=False,
    )


def median_error(check: Check, evaluation: Evaluation) -> float:
    """Return the median of the held-out figures' errors."""
    return statistics.median(
        abs(predicted[figure] / value - 1)
        for measured, predicted in zip(check.measured, evaluation.predicted, strict=True)
        for figure, value in measured.items()
    )


def as_object(made: Made, start: Calibration, out: Path) -> dict[str, object]:
    """Return the same as one JSON object."""
    check = made.check
    return {
        "run": str(made.run.folder),
        "cells": list(made.chosen),
        "probe_ns": made.probed and {"seen": made.probed.seen_ns, "owed": made.probed.owed_ns},
        "parameters": {
            one.name: {
                "before": start.parameters[one.name].value,
                "after": made.calibration.parameters[one.name].value,
                "within": one.within,
                "not_told_apart_from": one.like or None,
                "measured": one.name in made.measured,
            }
            for one in made.known
        },
        "error_before": made.fit.before.error,
        "error_after": made.fit.after.error,
        "held_out": check
        and {
            "cells": [trial.factors["cell"] for trial in check.trials],
            "median_error_package": median_error(check, check.before),
            "median_error": median_error(check, check.after),
        },
        "file": str(out),
    }


Here = Annotated[
    bool, typer.Option("--here", help="Rehearse a short plan on this machine, and fit to it.")
]
DisksHere = Annotated[
    str, typer.Option(help="With --here: disks that are emulated for it.", metavar="DISKS")
]
MinutesHere = Annotated[float, typer.Option(help="With --here: about how long it may take.", min=1)]


def calibrate(  # noqa: PLR0913, PLR0917 - each option is a parameter
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EXPERIMENT]",
            help="Experiment file; without one the rows that the calibration declares.",
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            help="Parameters, separated by commas; by default those marked as fitted.",
            metavar="LIST",
        ),
    ] = None,
    only: Only = None,
    measured: Annotated[
        str, typer.Option(help="reference (published), or a run's folder.", metavar="WHAT")
    ] = "reference",
    calibration: Annotated[
        Path | None, typer.Option(help="Where to start from.", metavar="FILE")
    ] = None,
    fidelity: FidelityOption = "full",
    seed: Seed = 1,
    jobs: Jobs = None,
    here: Here = False,
    disk: DisksHere = DEFAULT_DISK,
    minutes: MinutesHere = DEFAULT_MINUTES,
    json: Annotated[bool, typer.Option("--json", help="One JSON object at the end.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="The new calibration file; none by default.", metavar="FILE")
    ] = None,
) -> None:
    """Fit parameters of the prediction to measured cells; the cells become calibration rows.

    Without an experiment, every group of parameters is fitted again, on the published rows that
    the calibration declares for it.

    Examples: [bold]disklab calibrate experiments/cassandra-disk-caching-threads.yaml
    --only cluster.volumes.data.caching=None --fit overhead_ns[/bold],
    [bold]disklab calibrate FILE --measured RUN --fit overhead_ns[/bold] (your own run),
    [bold]disklab calibrate --fidelity quick --out mine.yaml[/bold],
    [bold]disklab calibrate --here --out here.yaml[/bold]
    """
    # Loaded here because it brings SciPy and polars.
    from disklab.databases.calibration import package_calibration, read_calibration  # noqa: PLC0415
    from disklab.prediction import Options  # noqa: PLC0415

    start = read_calibration(calibration) if calibration else package_calibration("cassandra")
    if out is not None and out.exists():
        rule = "exists already and is not overwritten"
        raise UserError(Problem("--out", str(out), rule, "name another file"))
    options = Options(seed=seed, workers=jobs, fidelity=fidelity_of(fidelity))
    if here:
        given = {"EXPERIMENT": experiment, "--fit": fit or None, "--only": only or None}
        compared = None if measured == "reference" else measured
        rule = "--here chooses cells and parameters itself"
        refuse_given({**given, "--measured": compared}, rule)
        # Warm cells are millions of operations, whose rate a part of them tells.
        quick = replace(options, fidelity="quick")
        calibrate_here(disk, minutes, start, quick, out=out, runs=DEFAULT_OUT, as_json=json)
        return
    if experiment is None:
        if fit or only or measured != "reference":
            rule = "needs an experiment: without one the declared rows are fitted"
            raise UserError(Problem("--fit, --only, --measured", "", rule, "name an experiment"))
        tell(declared(start, options), start, out, printed=not json)
    else:
        made = chosen_cells(experiment, only, measured, fit, start, options)
        tell(made, start, out, printed=not json)


Fitted = tuple["Calibration", list["Fit"]]


def tell(both: Fitted, start: Calibration, out: Path | None, *, printed: bool) -> None:
    """Write the new calibration's file, if one is named, and print what was fitted."""
    made, fits = both
    if out is not None:
        from disklab.prediction.fitting import calibration_text  # noqa: PLC0415 - see `calibrate`

        out.write_text(calibration_text(made), encoding="utf-8")
    for fitted in fits:
        if printed:
            print_fit(fitted, start)
        else:
            print_json(as_json(fitted, made, out))
    if out is not None and printed:
        console().print(f"\n{out}", markup=False)


def declared(start: Calibration, options: Options) -> Fitted:
    """Fit the calibration anew on its own rows."""
    from disklab.prediction.fitting import refit  # noqa: PLC0415 - see `calibrate`

    with notes().status("simulating") as status:
        return refit(start, options, watching(status))


def chosen_cells(  # noqa: PLR0913, PLR0917 - as the command has them
    path: Path,
    only: list[str] | None,
    measured: str,
    names: str | None,
    start: Calibration,
    options: Options,
) -> Fitted:
    """Fit parameters to the chosen cells of an experiment."""
    from disklab.prediction import fitting  # noqa: PLC0415 - see `calibrate`

    whole = spec.load(path)
    found = chosen(whole, only)
    cells = fitting.measured_cells(found, measured_results(whole, measured), start)
    rehearsed = any(cell.rehearsed for cell in cells)
    wanted = names.split(",") if names else fitted_names(start, rehearsed=rehearsed)
    with notes().status("simulating") as status:
        fitted = fitting.fit(cells, wanted, start, options, watching(status))
    levels = whole.levels(choices(only))
    return fitting.with_rows(fitted.calibration, path.stem, levels), [fitted]


def watching(status: Status) -> Watch:
    """Return what tells each evaluation on the terminal."""

    def watch(evaluation: Evaluation, number: int) -> None:
        values = ", ".join(f"{name} {value}" for name, value in evaluation.values.items())
        status.update(f"evaluation {number}: error {evaluation.error:.1%} with {values}")

    return watch


def measured_results(experiment: spec.Experiment, measured: str) -> list[TrialResult]:
    """Return the measured cells: the published study of the experiment, or a stored run's."""
    from disklab.prediction.counted import study_of  # noqa: PLC0415 - see `calibrate`
    from disklab.results import Run  # noqa: PLC0415

    if measured != "reference":
        return Run.open(measured).results()
    study = study_of(experiment)
    if study is None:
        rule = "disklab has no published results of it"
        way_out = "give a run's folder by --measured"
        raise UserError(Problem("EXPERIMENT", str(experiment.path), rule, way_out))
    return study.results()


def fitted_names(calibration: Calibration, *, rehearsed: bool) -> list[str]:
    """Return the parameters that a calibration marks as fitted, and that the cells can tell."""
    from disklab.prediction.counted import CLIENT  # noqa: PLC0415 - see `calibrate`

    return [
        name
        for name, one in calibration.parameters.items()
        if one.status == "fitted" and not (rehearsed and name.startswith(CLIENT))
    ]


def as_json(fitted: Fit, made: Calibration, out: Path | None) -> dict[str, object]:
    """Return what a fit found as one JSON object."""
    return {
        "parameters": fitted.after.values,
        "error_before": fitted.before.error,
        "error_after": fitted.after.error,
        "evaluations": fitted.evaluations,
        "at_bound": list(fitted.at_bound),
        "rehearsed": any(cell.rehearsed for cell in fitted.cells),
        "cells": [
            {
                "factors": cell.trial.factors,
                "measured": cell.measured,
                "before": {name: before[name] for name in cell.measured},
                "after": {name: after[name] for name in cell.measured},
            }
            for cell, before, after in zip(
                fitted.cells, fitted.before.predicted, fitted.after.predicted, strict=True
            )
        ],
        "calibration": made.model_dump(mode="json"),
        "file": None if out is None else str(out),
    }


def number(figure: float) -> str:
    """Return a figure with four digits or whole."""
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.4g}"


def print_fit(fitted: Fit, start: Calibration) -> None:
    """Print the parameters and the cells, before and after."""
    out = console()
    table = Table("parameter", box=None, pad_edge=False)
    for heading in ("before", "after", "unit"):
        table.add_column(heading, justify="right" if heading != "unit" else "left")
    for name, value in fitted.after.values.items():
        old = start.parameters[name]
        table.add_row(name, f"{old.value:,}", f"{value:,}", old.unit)
    out.print(table)
    cells = Table("\ncell", "figure", box=None, pad_edge=False)
    for heading in ("measured", "before", "after", "error"):
        cells.add_column(heading, justify="right")
    for cell, before, after in zip(
        fitted.cells, fitted.before.predicted, fitted.after.predicted, strict=True
    ):
        name = ", ".join(map(str, cell.trial.factors.values()))
        for figure, measured in cell.measured.items():
            error = f"{after[figure] / measured - 1:+.1%}"
            shown = [number(one[figure]) for one in (cell.measured, before, after)]
            cells.add_row(name, figure, *shown, error)
            name = ""
    out.print(cells)
    out.print(
        f"\nweighted error {fitted.before.error:.1%} -> {fitted.after.error:.1%} "
        f"in {fitted.evaluations} evaluations of {len(fitted.cells)} cells"
    )
    for name in fitted.at_bound:
        out.print(f"{name} ended at its limit: these cells do not determine it")
    if any(cell.rehearsed for cell in fitted.cells):
        out.print(
            "rehearsed cells: simulated as they were rehearsed, at their scale; times of CPU are "
            "this machine's, and the client's parameters stay"
        )
