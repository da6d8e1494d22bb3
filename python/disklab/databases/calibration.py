"""What a prediction rests on beside the catalogue: fitted times and facts, as a data file."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from disklab import reading
from disklab.catalog.facts import GIB
from disklab.errors import Problem, UserError
from disklab.spec import Trial
from disklab.spec.share import left_for_page_cache

FOLDER = "data/calibration"

AT_ROW_BYTES = "at_row_bytes"
"""The fact that says for rows of how many bytes CPU times hold; further bytes have their own."""


class Part(BaseModel):
    """A frozen part of a calibration file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


When = Literal["writes", "copies", None]
"""Without writes, or with one copy of each row, it has no effect."""


class Parameter(Part):
    """A time or share that no document states."""

    value: int
    unit: str
    status: Literal["fitted", "measured", "assumed"]
    meaning: str
    within: float | None = Field(default=None, ge=1)
    """In eight cases of ten the true value lies between the value divided by this and the value
    times this; None: not said, see `uncertain.WITHIN`."""
    because: str = ""
    """Why this range."""
    when: When = None


class Fact(Part):
    """A fact of the database, the system or the cluster."""

    value: int | float | list[int]
    unit: str
    source: str
    within: float | None = Field(default=None, ge=1)
    """As of a parameter; None: it is known."""
    when: When = None


class Correlation(Part):
    """Two parameters of which the rows tell the sum or the ratio, not each."""

    of: tuple[str, str]
    """The second is moved along when the first is."""
    value: float = Field(ge=-1, le=1)


class Residual(Part):
    """How far published figures are from predicted ones when every parameter is right."""

    within: float = Field(ge=1)
    """In eight cases of ten the ratio of published and predicted lies within this factor."""
    pairs: float = Field(ge=1)
    """The same of the ratio of two cells of one study, published over predicted."""


class CalibrationRow(Part):
    """Cells that parameters were fitted on: every factor named has the level."""

    experiment: str
    """Stem of the experiment's file."""
    factors: dict[str, str | int | float]
    fits: list[str] = []
    """Parameters that were fitted on it; none: the same measurement as another row."""

    def covers(self, experiment: str, factors: dict[str, Any]) -> bool:
        """Return whether a cell of an experiment is one of these."""
        return experiment == self.experiment and all(
            str(factors.get(name)) == str(level) for name, level in self.factors.items()
        )


class Range(Part):
    """Where the parameters were fitted: least and most, both included."""

    row_bytes: tuple[int, int]
    threads: tuple[int, int]
    nodes: tuple[int, int]
    vm_series: list[str]


class Calibration(Part):
    """One calibration file."""

    name: str
    engine: str
    date: str
    versions: dict[str, str]
    parameters: dict[str, Parameter]
    physical: dict[str, Fact]
    correlations: list[Correlation] = []
    residuals: dict[str, Residual] = {}
    """By figure, as results name it: `ops_per_s`, `p99_ms`."""
    calibration_rows: list[CalibrationRow] = []
    range: Range

    def fact(self, name: str) -> int:
        """Return a fact that is a whole number."""
        value = self.physical[name].value
        assert isinstance(value, int)
        return value

    def ratio(self, name: str) -> float:
        """Return a fact that is a share."""
        value = self.physical[name].value
        assert isinstance(value, float)
        return value

    def values(self) -> dict[str, int]:
        """Return the parameters as the engine takes them, and the row bytes that they hold for."""
        found = {name: parameter.value for name, parameter in self.parameters.items()}
        if AT_ROW_BYTES in self.physical:
            found[AT_ROW_BYTES] = self.fact(AT_ROW_BYTES)
        return found

    def covers(self, experiment: str, factors: dict[str, Any]) -> bool:
        """Return whether a cell is one that parameters were fitted on."""
        return any(row.covers(experiment, factors) for row in self.calibration_rows)

    def outside(self, trial: Trial, series: str | None) -> list[str]:
        """Return in what a trial lies outside the calibrated range, in words."""
        spec, found = trial.spec, []
        dataset, load = spec.dataset, spec.workload.load
        figures = {
            "rows of {} bytes": (
                dataset.columns * dataset.column_bytes if dataset else None,
                self.range.row_bytes,
            ),
            "{} threads": (load.threads if load else None, self.range.threads),
            "{} nodes": (spec.cluster.nodes if spec.cluster else None, self.range.nodes),
        }
        for words, (figure, (least, most)) in figures.items():
            if figure is not None and not least <= figure <= most:
                ends = f"{least}" if least == most else f"{least} to {most}"
                found.append(f"{words.format(figure)} (fitted on {ends})")
        if series is not None and series not in self.range.vm_series:
            fitted = ", ".join(self.range.vm_series)
            told = f"fitted on {fitted}" if fitted else "no cloud's VM was measured"
            found.append(f"VMs of {series} ({told})")
        return found


def read_calibration(path: Path) -> Calibration:
    """Return a calibration file. Raises UserError with every problem."""
    text = reading.text(path, reading.CALIBRATION, "--calibration")
    content = reading.yaml_value(text, reading.CALIBRATION, str(path))
    try:
        return Calibration.model_validate(content)
    except ValidationError as error:
        problems = [
            Problem(
                f"{path}: {'.'.join(map(str, detail['loc']))}",
                repr(detail["input"])[:60],
                detail["msg"],
                "compare with the file of the package, or make a new one by `disklab calibrate`",
            )
            for detail in error.errors(include_url=False)
        ]
        raise UserError(*problems) from None


@cache
def calibration_for(engine: str) -> Calibration | None:
    """Return the package's calibration of a database; None: there is none."""
    path = Path(str(resources.files("disklab") / FOLDER / f"{engine}.yaml"))
    return read_calibration(path) if path.is_file() else None


def page_cache_bytes(memory_gib: float | None, calibration: Calibration) -> int:
    """Return what a node's memory leaves for the page cache."""
    beside = calibration.fact("memory_beside_page_cache_bytes")
    least = calibration.ratio("least_page_cache_ratio")
    return left_for_page_cache(int((memory_gib or 0) * GIB), beside, least)
