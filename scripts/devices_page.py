"""Writes docs/devices-abroad.md: published devices beside what disklab predicts of them.

The studies are those of `reference/devices-abroad.yaml`. Some of the catalogue's limits and service
times rest on them: the page shows each study also by a catalogue without its own data, and what was
taken from it. `--check` ends with 1 where the page is another one. `--print [STUDY...]` prints
summaries, with `--cells` each cell and with `--without` by a catalogue without the study's data.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import combinations, groupby
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from disklab import spec
from disklab.catalog import Catalog, load_catalog
from disklab.catalog.load import settled_on, without
from disklab.prediction import Options, predict
from disklab.spec import feasible

from scripts import abroad_page
from scripts.abroad_page import RATE
from scripts.fio_page import figure_of

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ROOT / "python/disklab/reference/devices-abroad.yaml"
PAGE = ROOT / "docs/devices-abroad.md"
WIDTH = 100
FSYNC = "fsync"
"""In the ids of studies whose cells are compared in pairs of machines."""
FIGURES = {"iops": 1.0, "mib_s": 1 << 20, "mb_s": 1e6}
"""Rates of a cell, and how many of the simulator's bytes (or I/Os) each is."""
FAR = 0.5
"""What is more than 1.5 times off has its reason on the page."""
UNEXPLAINED = "not known"
ORDERED = 1.1
"""Closer than that, two published rates have no order."""


@dataclass(frozen=True)
class Cell:
    """One published figure and its prediction."""

    study: str
    name: str
    figure: str
    published: float
    predicted: float
    bound: str

    @property
    def off(self) -> float:
        """How far the larger is above the smaller."""
        low, high = sorted((self.published, self.predicted))
        return high / low - 1 if low else float("inf")


def every_study() -> list[Mapping[str, Any]]:
    """Return the studies of devices, and of servers on disks, which have an experiment."""
    found: list[Mapping[str, Any]] = yaml.safe_load(STUDIES.read_text(encoding="utf-8"))["studies"]
    return found


def compared(studies: Sequence[Mapping[str, Any]], *, apart: bool) -> Iterator[Cell]:
    """Simulate every cell of the studies; yield each figure beside its prediction."""
    whole = load_catalog([])
    for study in studies:
        catalog = without(whole, study.get("evidence", ())) if apart else whole
        with settled_on(whole if "experiment" in study else catalog), anew():
            yield from (
                of_servers(study["id"]) if "experiment" in study else of_disks(study, catalog)
            )


@contextmanager
def anew() -> Iterator[None]:
    """Read experiment files with the catalogue of now, not with the first one of the process."""
    caches = (feasible.catalogue, feasible._resolved)
    for cache_of in caches:
        cache_of.cache_clear()
    try:
        yield
    finally:
        for cache_of in caches:
            cache_of.cache_clear()


def of_disks(study: Mapping[str, Any], catalog: Catalog) -> Iterator[Cell]:
    """Yield the cells of a study of devices with a catalogue."""
    cells = [cell for cell in study["cells"] if cell["vm"] in catalog.vms]
    experiment = spec.parse(experiment_text(study["id"], cells, catalog))
    with tempfile.TemporaryDirectory() as folder:
        options = Options(bands=False, fidelity="quick", out=Path(folder))
        results = predict(experiment, options, lambda _: None).results()
    ordered = sorted(results, key=lambda result: result.trial)
    for cell, result in zip(cells, ordered, strict=True):
        yield from of_cell(study["id"], cell, result)


@cache
def of_servers(name: str) -> Sequence[Cell]:
    """Return the cells of a study of servers: no catalogue is without what none has read."""
    (study,) = (one for one in every_study() if one["id"] == name)
    return [
        Cell(name, cell.name, RATE, cell.published[RATE], cell.predicted[RATE], cell.bound)
        for cell in abroad_page.compared(study)
    ]


def of_cell(study: str, cell: Mapping[str, Any], result: Any) -> Iterator[Cell]:
    """Yield the figures of a cell."""
    block = int(cell["bs"][:-1]) << 10
    name = name_of(cell)
    bound = result.bottleneck.resource if result.bottleneck else ""
    for figure, unit in FIGURES.items():
        if figure in cell:
            rate = result.ops_per_s * (1 if figure == "iops" else block / unit)
            yield Cell(study, name, figure, float(cell[figure]), rate, bound)
    for figure, quantile in (("avg_us", "mean"), ("p99_us", "p99")):
        if figure in cell:
            predicted = result.latency_ms[quantile] * 1000
            yield Cell(study, name, figure, float(cell[figure]), predicted, bound)


def name_of(cell: Mapping[str, Any]) -> str:
    """Return the name of a cell of a device; a server's has one."""
    if "name" in cell:
        return str(cell["name"])
    return f"{cell['vm']} {cell['disks']} {cell['rw']} {cell['bs']} {load_of(cell)}"


def load_of(cell: Mapping[str, Any]) -> str:
    """Return jobs and depth of a cell in words."""
    depth = f" x {cell['depth']}" if cell.get("depth", 1) > 1 else ""
    return f"{cell['jobs']}{depth}" + (" fsync" if "fsync" in cell else "")


def experiment_text(title: str, cells: Sequence[Mapping[str, Any]], catalog: Catalog) -> str:
    """Return the cells of a study as an experiment file."""
    levels = {}
    for number, cell in enumerate(cells):
        nvme = catalog.vms[cell["vm"]].facts.nvme
        every = f"{nvme.count} x nvme" if nvme and nvme.count > 1 else "nvme"
        fio = {"rw": cell["rw"], "bs": cell["bs"], "jobs": cell["jobs"]}
        fio |= {"depth": cell.get("depth", 1), "size": "128MiB"}
        if "fsync" in cell:
            fio |= {"direct": False, "fsync": 1, "size": f"{8192 // cell['jobs']}MiB"}
        levels[f"{number}"] = {
            "device.vm": cell["vm"],
            "device.volume.disks": every if cell["disks"] == "all nvme" else cell["disks"],
            "workload.fio": fio,
        }
    volume = {"disks": levels["0"]["device.volume.disks"], "filesystem": "ext4", "barriers": False}
    tree = {
        "title": title,
        "device": {"vm": cells[0]["vm"], "volume": volume},
        "workload": {
            "fio": {"rw": "randread", "bs": "4k"},
            "warm_up": "1s" if FSYNC in title else "100ms",
            # A commit takes milliseconds; of others there are many thousands in a second.
            "stop": {"duration": "10s" if FSYNC in title else "1s"},
        },
        "before": {"credits": "0%" if "2019" in title else "100%"},
        "factors": {"cell": levels},
    }
    return yaml.safe_dump(tree, sort_keys=False)


def orders(cells: Sequence[Cell]) -> tuple[int, int]:
    """Return how many pairs of machines with as many threads have an order, and keep it."""
    pairs = kept = 0
    for left, right in combinations(cells, 2):
        same = left.name.split()[-2:] == right.name.split()[-2:]
        low, high = sorted((left, right), key=lambda cell: cell.published)
        if same and high.published > low.published * ORDERED:
            pairs += 1
            kept += high.predicted > low.predicted
    return pairs, kept


@dataclass(frozen=True)
class Summary:
    """How far the cells of a study are off in one figure."""

    cells: int
    middle: float
    close: float
    """The share within 25 %."""
    beyond: int
    """More than 1.5 times off."""
    most: float
    kept: tuple[int, int] | None
    """Pairs of machines in the right order, and all; None: they are not compared."""

    @property
    def row(self) -> str:
        """The summary as cells of a table."""
        kept = "" if self.kept is None else f"{self.kept[0]} of {self.kept[1]}"
        figures = f"{self.middle:.0%} | {self.close:.0%} | {self.beyond}"
        return f"{figures} | {1 + self.most:.3g} times | {kept}"


def summaries(cells: Sequence[Cell]) -> dict[tuple[str, str], Summary]:
    """Return how far cells are off, by study and figure."""
    made = {}
    for study, figure in dict.fromkeys((cell.study, cell.figure) for cell in cells):
        of_kind = [cell for cell in cells if (cell.study, cell.figure) == (study, figure)]
        off = [cell.off for cell in of_kind]
        pairs, kept = orders(of_kind) if FSYNC in study and figure == "iops" else (0, 0)
        made[study, figure] = Summary(
            cells=len(off),
            middle=median(off),
            close=sum(each <= 0.25 for each in off) / len(off),
            beyond=sum(each > FAR for each in off),
            most=max(off),
            kept=(kept, pairs) if pairs else None,
        )
    return made


HEAD = """# Disks of other publishers

Generated by `scripts/devices_page.py`; do not edit. What others measured of disks alone
(`reference/devices-abroad.yaml`) beside predictions at quick fidelity. Some limits and service
times of the [catalogue](disk-evidence.md) were taken from these very studies: *without* is a
prediction by a catalogue that has read nothing of the study, which is what to expect of disks that
nobody has measured. The last two studies have a whole server (InnoDB with TPC-C) in front of EBS;
no parameter was taken from them. Six more cells of the first, and what stands in their way, are on
[a page of their own](abroad-sql.md).
"""


def page(studies: Sequence[Mapping[str, Any]], own: Sequence[Cell], apart: Sequence[Cell]) -> str:
    """Return the page: `own` predicted by the whole catalogue, `apart` without a study's data."""
    with_own, without_own = summaries(own), summaries(apart)
    lines = [
        HEAD,
        "| study | figure | cells | predicted | median | within 25 % | beyond 1.5 times | at most "
        "| order of machines right |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (study, figure), summary in with_own.items():
        first = f"| {study} | {figure} | {summary.cells}"
        lines += [f"{first} | with its own data | {summary.row} |"]
        lines += [f"{first} | without | {without_own[study, figure].row} |"]
    for described in studies:
        setup = described.get("setup") or f"Assumed: {described['assumed']}"
        text = f"{described['source']}. {setup}."
        lines += ["", f"## {described['id']}", "", *wrap(text, WIDTH, break_long_words=False), ""]
        if "not_stated" in described:
            lines += ["Not stated:", "", *bullets(described["not_stated"]), ""]
        parameters = list(taken(described)) or ["nothing"]
        lines += ["Taken from it, with the numbers of its cells:", "", *bullets(parameters), ""]
        lines += [*rows(described, own, apart)]
    return "\n".join(lines) + "\n"


def bullets(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a list."""
    for text in texts:
        yield from wrap(f"- {text}", WIDTH, subsequent_indent="  ", break_long_words=False)


def taken(study: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the catalogue takes from a study, and from which of its cells."""
    catalog, sources = load_catalog([]), study.get("evidence", ())
    for evidence in catalog.nvme_evidence:
        if evidence.source in sources:
            others = set(evidence.rows) - {cell["vm"] for cell in study["cells"]}
            more = f"; of sizes that are not below: {', '.join(sorted(others))}" if others else ""
            yield f"limits of NVMe disks of each size{numbers(study, evidence.rows)}{more}"
    for kind, measured in catalog.evidence.items():
        for row in measured:
            if row.source in sources:
                figure = (
                    row.mean_ms if row.mean_ms is not None else row.percentiles_ms.get(Decimal(50))
                )
                note = f": {row.note}" if row.note else ""
                cells = numbers(study, (row.vm or "").split(", "), row.op)
                yield f"{kind}: a {row.op} of {row.kib} KiB takes {figure} ms{cells}{note}"
    for name, series in {vm.series_name: vm.series for vm in catalog.vms.values()}.items():
        fields = [part for part, who in series.provenance.items() if set(who.source) & set(sources)]
        if fields:
            sizes = [size for size, vm in catalog.vms.items() if vm.series_name == name]
            yield f"{name}: {', '.join(fields)}{numbers(study, sizes)}"


def numbers(study: Mapping[str, Any], vms: Iterable[str], op: str = "") -> str:
    """Return which cells of some VM sizes a parameter was taken from: ` (1 to 4, 9)`.

    Of those that do an operation, the ones with the fewest I/Os at once: they show its own time.
    """
    names = {vm.rpartition("/")[2].removeprefix("Standard_") for vm in vms}
    some = [
        (number, cell["jobs"] * cell.get("depth", 1))
        for number, cell in enumerate(study["cells"], 1)
        if cell["vm"].rpartition("/")[2].removeprefix("Standard_") in names and op in cell["rw"]
    ]
    least = min((at_once for _, at_once in some), default=0)
    left = [number for number, at_once in some if not op or at_once == least]
    runs = [list(run) for _, run in groupby(left, lambda number: number - left.index(number))]
    spans = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return f" ({', '.join(spans)})" if spans else ""


def reason_of(study: Mapping[str, Any], cell: Cell) -> str:
    """Return why a cell is more than 1.5 times off; empty: it is not."""
    if cell.off <= FAR:
        return ""
    reasons = study.get("reasons", {}).items()
    return next((why for part, why in reasons if part in cell.name), UNEXPLAINED)


def rows(study: Mapping[str, Any], own: Sequence[Cell], apart: Sequence[Cell]) -> Iterator[str]:
    """Yield the table of a study's cells; those beyond 1.5 times are in bold, with the reason."""
    yield "| | cell | figure | published | predicted | off by | without its data | bound by | why |"
    yield "|---|---|---|---|---|---|---|---|---|"
    order = {name_of(cell): number for number, cell in enumerate(study["cells"], 1)}
    for cell, other in zip(own, apart, strict=True):
        if cell.study == study["id"]:
            name = f"**{cell.name}**" if cell.off > FAR else cell.name
            deviation = cell.predicted / cell.published - 1
            figures = (
                f"{figure_of(cell.published)} | {figure_of(cell.predicted)} | {deviation:+.0%}"
            )
            yield (
                f"| {order[cell.name]} | {name} | {cell.figure} | {figures} | "
                f"{figure_of(other.predicted)} | {cell.bound} | {reason_of(study, cell)} |"
            )


def main() -> int:
    """Write the page, compare it with --check, or print parts of it."""
    studies = every_study()
    if "--print" not in sys.argv:
        both = [list(compared(studies, apart=apart)) for apart in (False, True)]
        made = page(studies, *both)
        if "--check" in sys.argv:
            return int(PAGE.read_text(encoding="utf-8") != made)
        PAGE.write_text(made, encoding="utf-8")
        return 0
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
    studies = [study for study in studies if not wanted or study["id"] in wanted]
    cells = list(compared(studies, apart="--without" in sys.argv))
    if "--cells" in sys.argv:
        print("\n".join(row for study in studies for row in rows(study, cells, cells)))
    for (study, figure), each in summaries(cells).items():
        print(f"{study}, {figure}, {each.cells} cells: {each.row}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
