"""`disklab calibrate --here` on the terminal: what was chosen, fitted and checked."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from disklab.cli.output import console, notes, print_json
from disklab.cli.root_part import root_part
from disklab.errors import Problem, UserError

if TYPE_CHECKING:
    from disklab.databases.calibration import Calibration
    from disklab.prediction import Options
    from disklab.prediction.fitting import Evaluation
    from disklab.prediction.here import Check, Made

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
    from disklab.cli.calibrate import watching  # noqa: PLC0415
    from disklab.cli.rehearsing import divided, root_of  # noqa: PLC0415
    from disklab.cli.run_progress import RunView  # noqa: PLC0415
    from disklab.prediction import here  # noqa: PLC0415
    from disklab.prediction.fitting import calibration_text  # noqa: PLC0415
    from disklab.privilege.probing import look_by  # noqa: PLC0415

    if out is None:
        rule = "a calibration of this machine takes minutes, and is of use as a file alone"
        raise UserError(Problem("--out", "(nothing)", rule, "name one: --out here.yaml"))
    said = notes()
    say = partial(said.print, style="dim", markup=False)
    asked = here.Asked(disks, minutes, runs, options, start)
    root, check = root_of(root_part())
    hands = here.Hands()
    if root is not None and check is not None:
        hands = here.Hands(check, partial(divided, root), look_by(root_part()))
    with RunView(said) as view:
        status = said.status("simulating")
        made = here.calibrate(asked, view, say, watching(status), hands)
    out.write_text(calibration_text(made.calibration), encoding="utf-8")
    if as_json:
        print_json(as_object(made, start, out))
    else:
        print_made(made, start)
        console().print(f"\n{out}", markup=False)


def print_made(made: Made, start: Calibration) -> None:
    """Print the choice, the parameters and what is known of them, and the check."""
    shown = console()
    shown.print(f"cells, the most telling first: {'; '.join(made.chosen)}", markup=False)
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
    measured = "as the server's processes told" if name in made.measured else "as it was"
    if one.like:
        found = f"not told apart from {one.like}"
    elif one.within is None:
        found = "not told by these cells"
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
    verdict = "nearer" if new < old else "no nearer: keep the package's"
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
