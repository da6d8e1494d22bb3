"""What a prediction rests on beside the catalogue: fitted times and facts, as a data file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from disklab import reading
from disklab.catalog import Catalog, Speed, cpu_speed
from disklab.catalog.facts import GIB
from disklab.database_facts import modelled_as
from disklab.errors import Problem, UserError
from disklab.reading import digits
from disklab.spec import ClusterTrial
from disklab.spec.share import left_for_page_cache

FOLDER = "data/calibration"

AT_ROW_BYTES = "at_row_bytes"
"""The fact that says for rows of how many bytes CPU times and pauses hold; those of others follow.
"""
AT_YOUNG_BYTES = "at_young_bytes"
AT_COLLECTOR_THREADS = "at_collector_threads"
"""Facts that say for which JVM pauses hold; those of others follow from it."""

FACTS_OF_JOBS = (
    AT_ROW_BYTES,
    AT_YOUNG_BYTES,
    AT_COLLECTOR_THREADS,
    "read_moved_permille",
    "collector_alone_permille",
    "read_allocated_bytes",
    "read_allocated_permille",
    "write_allocated_bytes",
    "write_allocated_permille",
    "write_kept_bytes",
    "write_kept_permille",
)
"""Facts that the engine takes beside the parameters."""


class Part(BaseModel):
    """A frozen part of a calibration file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


When = Literal["writes", "copies", "other rows", "other collector", None]
"""Without writes, with one copy of each row, with rows or with a collector of the bytes and threads
that the calibration has, it has no effect."""


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


class Newer(Part):
    """What takes the place of parameters and facts from a version of the database on."""

    version: int
    """The first of them, as a whole number."""
    server_vm: str | None = None
    client_vm: str | None = None
    """As of a calibration, in their place."""
    parameters: dict[str, Parameter]
    physical: dict[str, Fact]


class Concurrent(Part):
    """A collector that works beside the program: short stops, and processor time all the while."""

    stop_ns: Parameter
    """Mean length of a stop."""
    cpu_permille: Fact
    """CPU of a node with it, of every thousandth without."""


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
    newer: Newer | None = None
    concurrent: dict[str, Concurrent] = {}
    """By collector."""
    range: Range
    server_vm: str | None = None
    """VM series whose vCPU the server's CPU times are of; None: they hold for any VM."""
    client_vm: str | None = None
    """The same of the client's."""

    def of_version(self, version: str | None) -> Calibration:
        """Return what holds for a version; None: for that of the calibration's own rows."""
        major = (version or "").partition(".")[0]
        if self.newer is None or (digits(major) or 0) < self.newer.version:
            return self
        return self.newest()

    def with_collector(self, name: str | None) -> Calibration:
        """Return what holds with a collector: how long it stops the program; None: the usual."""
        found = self.concurrent.get(name or "")
        if found is None or self.parameters["read_pause_ns"].meaning == found.stop_ns.meaning:
            # None such, or these are its values, moved by now.
            return self
        stops = {"read_pause_ns": found.stop_ns, "write_pause_ns": found.stop_ns}
        # Nothing is moved while the program stands.
        moved = self.physical["read_moved_permille"].model_copy(update={"value": 0, "within": None})
        physical = {**self.physical, "read_moved_permille": moved}
        return self.model_copy(
            update={"parameters": {**self.parameters, **stops}, "physical": physical}
        )

    def newest(self) -> Calibration:
        """Return what holds for the newest versions, which rehearsals run."""
        if self.newer is None:
            return self
        parameters = {**self.parameters, **self.newer.parameters}
        physical = {**self.physical, **self.newer.physical}
        changed = {
            "parameters": parameters,
            "physical": physical,
            "newer": None,
            "server_vm": self.newer.server_vm or self.server_vm,
            "client_vm": self.newer.client_vm or self.client_vm,
        }
        return self.model_copy(update=changed)

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
        """Return the parameters as the engine takes them, and the facts that go with them."""
        found = {name: parameter.value for name, parameter in self.parameters.items()}
        return found | {name: self.fact(name) for name in FACTS_OF_JOBS if name in self.physical}

    def covers(self, experiment: str, factors: dict[str, Any]) -> bool:
        """Return whether a cell is one that parameters were fitted on."""
        return any(row.covers(experiment, factors) for row in self.calibration_rows)

    def outside(self, spec: ClusterTrial, series: str | None) -> list[str]:
        """Return in what a trial lies outside the calibrated range, in words."""
        beyond = []
        dataset, load = spec.dataset, spec.workload.load
        figures = {
            "rows of {} bytes": (
                dataset.columns * dataset.column_bytes if dataset else None,
                self.range.row_bytes,
            ),
            "{} threads": (load.threads if load else None, self.range.threads),
            "{} nodes": (spec.cluster.nodes, self.range.nodes),
        }
        for words, (figure, (least, most)) in figures.items():
            if figure is not None and not least <= figure <= most:
                ends = f"{least}" if least == most else f"{least} to {most}"
                beyond.append(f"{words.format(figure)} (fitted on {ends})")
        if series is not None and series not in self.range.vm_series:
            fitted = ", ".join(self.range.vm_series)
            why = f"fitted on {fitted}" if fitted else "no cloud's VM was measured"
            beyond.append(f"VMs of {series} ({why})")
        return beyond


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


def _file_of(engine: str) -> Path:
    return Path(str(resources.files("disklab") / FOLDER / f"{modelled_as(engine)}.yaml"))


@cache
def package_calibration(engine: str) -> Calibration:
    """Return the package's calibration of a database that is simulated. Raises UserError."""
    return read_calibration(_file_of(engine))


def calibration_for(engine: str) -> Calibration | None:
    """Return the package's calibration of a database; None: there is none."""
    return package_calibration(engine) if _file_of(engine).is_file() else None


USUAL_HEAP_BYTES = 8 * GIB
"""Of what a calibration has beside the page cache."""


def page_cache_bytes(
    memory_gib: float | None, calibration: Calibration, heap_bytes: int | None = None
) -> int:
    """Return what a node's memory leaves for the page cache; `heap_bytes`: where it is set."""
    beside = calibration.fact("memory_beside_page_cache_bytes")
    if heap_bytes is not None:
        beside += heap_bytes - USUAL_HEAP_BYTES
    least = calibration.ratio("least_page_cache_ratio")
    return left_for_page_cache(int((memory_gib or 0) * GIB), beside, least)


# CPU times on VMs other than those that they were measured on: by the speed of a vCPU.
#
# A calibration names the VM series whose vCPU the server's times are of, and the client's; see
# `catalog/processor.py` for what a vCPU's speed is.

CLIENT = "client_"
"""Beginning of the names of a client's times; the others are a node's."""
TIMES = ("_cpu_ns", "_byte_ps")
"""Ends of the names of times that are a processor's."""


def is_cpu_time(name: str, *, of_client: bool) -> bool:
    """Return whether a parameter is CPU time, of the client or of a node."""
    return name.endswith(TIMES) and name.startswith(CLIENT) == of_client


def cpu_costs(costs: Mapping[str, int]) -> dict[str, int]:
    """Return the CPU times among costs, as they are on the machines that they were measured on."""
    return {name: value for name, value in costs.items() if name.endswith(TIMES)}


def carried(
    costs: Mapping[str, int], spec: ClusterTrial, catalog: Catalog, calibration: Calibration
) -> dict[str, int]:
    """Return costs as the trial's VMs have them."""
    scaled = dict(costs)
    for of_client, measured_on, vm in _machines(spec, calibration):
        slower = cpu_speed(catalog, measured_on).over(cpu_speed(catalog, vm))
        for name in costs:
            if is_cpu_time(name, of_client=of_client):
                scaled[name] = round(costs[name] * slower)
    return scaled


def ways(
    spec: ClusterTrial, catalog: Catalog, calibration: Calibration
) -> Iterator[tuple[bool, Speed, Speed]]:
    """Yield how times are carried: whether the client's, the speed measured and the trial's.

    Where both are VMs of one series nothing is carried.
    """
    for of_client, measured_on, vm in _machines(spec, calibration):
        if catalog.vms[vm].series_name != measured_on:
            yield of_client, cpu_speed(catalog, measured_on), cpu_speed(catalog, vm)


def unmeasured(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    """Yield whose vCPUs nobody has measured, in words, with what they are taken for."""
    vms = {spec.cluster.vm, spec.client.vm or spec.cluster.vm}
    if calibration.server_vm is None:
        return
    for name in sorted({catalog.vms[vm].series_name for vm in vms}):
        speed = cpu_speed(catalog, name)
        if speed.assumed:
            yield f"the speed of a vCPU of {name} ({speed.note})"


def _machines(spec: ClusterTrial, calibration: Calibration) -> Iterator[tuple[bool, str, str]]:
    """Yield whether a machine is the client's, the series that times are of, and the trial's VM."""
    if calibration.server_vm is not None:
        yield False, calibration.server_vm, spec.cluster.vm
    if calibration.client_vm is not None:
        yield True, calibration.client_vm, spec.client.vm or spec.cluster.vm
