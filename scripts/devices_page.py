"""Prints how far predicted devices are from published ones, by study and figure.

The studies are those of `reference/devices-abroad.yaml` (`STUDY...`: of these alone). Some of the
catalogue's limits and service times rest on them: `--without` predicts one study by a catalogue
without its own data. `--cells` prints each cell too.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from disklab import spec
from disklab.catalog import Catalog, load_catalog
from disklab.catalog.load import settle_on, without
from disklab.prediction import Options, predict

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ROOT / "python/disklab/reference/devices-abroad.yaml"
FIGURES = {"iops": 1.0, "mib_s": 1 << 20, "mb_s": 1e6}
"""Rates of a cell, and how many of the simulator's bytes (or I/Os) each is."""
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


def compared(studies: Sequence[Mapping[str, Any]], *, apart: bool) -> Iterator[Cell]:
    """Simulate every cell of the studies; yield each figure beside its prediction."""
    whole = load_catalog([])
    with tempfile.TemporaryDirectory() as folder:
        for study in studies:
            catalog = without(whole, study["evidence"]) if apart else whole
            settle_on(catalog)
            cells = [cell for cell in study["cells"] if cell["vm"] in catalog.vms]
            experiment = spec.parse(experiment_text(study["id"], cells, catalog))
            options = Options(bands=False, fidelity="quick", out=Path(folder))
            results = predict(experiment, options, lambda _: None).results()
            ordered = sorted(results, key=lambda result: result.trial)
            for cell, result in zip(cells, ordered, strict=True):
                yield from of_cell(study["id"], cell, result)


def of_cell(study: str, cell: Mapping[str, Any], result: Any) -> Iterator[Cell]:
    """Yield the figures of a cell."""
    block = int(cell["bs"][:-1]) << 10
    name = f"{cell['vm']} {cell['disks']} {cell['rw']} {cell['bs']} {load_of(cell)}"
    bound = result.bottleneck.resource if result.bottleneck else ""
    for figure, unit in FIGURES.items():
        if figure in cell:
            rate = result.ops_per_s * (1 if figure == "iops" else block / unit)
            yield Cell(study, name, figure, float(cell[figure]), rate, bound)
    for figure, quantile in (("avg_us", "mean"), ("p99_us", "p99")):
        if figure in cell:
            predicted = result.latency_ms[quantile] * 1000
            yield Cell(study, name, figure, float(cell[figure]), predicted, bound)


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
            "warm_up": "1s",
            "stop": {"duration": "10s"},
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


def summary(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a line for each kind of figure of each study."""
    kinds = dict.fromkeys((cell.study, cell.figure) for cell in cells)
    for study, figure in kinds:
        of_kind = [cell for cell in cells if (cell.study, cell.figure) == (study, figure)]
        off = [cell.off for cell in of_kind]
        close = sum(each <= 0.25 for each in off) / len(off)
        beyond = sum(each > 0.5 for each in off)
        yield (
            f"{study}, {figure}: {len(off)} cells, {median(off):.0%} in the median, "
            f"{close:.0%} within 25 %, {beyond} beyond 1.5 times, at most {max(off) + 1:.2g} times"
        )
        if "fsync" in study and figure == "iops":
            pairs, kept = orders(of_kind)
            yield f"{study}: order right in {kept} of {pairs} pairs ({kept / max(pairs, 1):.0%})"


def main() -> int:
    """Print the summary, and each cell with --cells."""
    studies = yaml.safe_load(STUDIES.read_text(encoding="utf-8"))["studies"]
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
    studies = [study for study in studies if not wanted or study["id"] in wanted]
    if "--without" in sys.argv and len(studies) != 1:
        # An experiment file is read with the first catalogue of the process.
        sys.exit("--without takes one STUDY: write its id")
    cells = list(compared(studies, apart="--without" in sys.argv))
    if "--cells" in sys.argv:
        for cell in cells:
            deviation = cell.predicted / cell.published - 1
            figures = f"{cell.published:.6g} {cell.predicted:.6g} {deviation:+.0%}"
            print(f"{cell.name:75} {cell.figure} {figures} {cell.bound}")
    print("\n".join(summary(cells)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
