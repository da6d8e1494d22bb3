"""A calibration fitted anew on the rows that it declares, so that what it says can be repeated."""

from __future__ import annotations

from collections.abc import Sequence

from disklab import spec
from disklab.databases.calibration import Calibration, CalibrationRow
from disklab.errors import Problem, UserError
from disklab.prediction.counted import study_of
from disklab.prediction.fitting import Fit, MeasuredCell, Watch, fit, measured_cells
from disklab.prediction.run import Options
from disklab.spec import bundled

ROUNDS = 2
"""How often all groups are fitted, one after the other.

The parameters of one group move the cells of the others a little: pauses are fitted on writes, and
reads have them too. What the second round still moves is within the noise of a simulation.
"""


def groups(calibration: Calibration) -> dict[tuple[str, ...], list[CalibrationRow]]:
    """Return the declared rows by the parameters that were fitted on them, in the file's order."""
    found: dict[tuple[str, ...], list[CalibrationRow]] = {}
    for row in calibration.calibration_rows:
        if row.fits:
            found.setdefault(tuple(row.fits), []).append(row)
    return found


def declared_cells(rows: Sequence[CalibrationRow], calibration: Calibration) -> list[MeasuredCell]:
    """Return the published cells of declared rows. Raises UserError for rows nobody published."""
    found = []
    for row in rows:
        path = bundled.folder() / f"{row.experiment}{bundled.SUFFIX}"
        experiment = spec.load(path)
        study = study_of(experiment)
        if study is None:
            rule = "disklab has no published results of it"
            way_out = "name a published study in calibration_rows"
            raise UserError(Problem("calibration_rows", row.experiment, rule, way_out))
        part = experiment.only({name: [level] for name, level in row.factors.items()})
        found += measured_cells(part, study.results(), calibration)
    return found


def refit(
    calibration: Calibration, options: Options, watch: Watch
) -> tuple[Calibration, list[Fit]]:
    """Return the calibration fitted anew on its declared rows, and the last fit of each group.

    Raises UserError when it declares no row with parameters to fit.
    """
    known = groups(calibration)
    if not known:
        rule = "declares no rows with `fits`: the parameters that are fitted on them"
        raise UserError(Problem("--calibration", calibration.name, rule, "name an experiment"))
    made, fits = calibration, {}
    for _ in range(ROUNDS):
        for names, rows in known.items():
            fits[names] = fit(declared_cells(rows, made), names, made, options, watch)
            # A group's cells span less than the calibration does.
            made = fits[names].calibration.model_copy(update={"range": calibration.range})
    return made, list(fits.values())
