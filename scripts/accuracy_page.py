"""Writes docs/accuracy.md: published studies beside predictions, and what each part is worth.

`.venv/bin/python scripts/accuracy_page.py` simulates every cell at full scale, which takes minutes;
`--quick` is for trying it out, and says so on the page. Run it after every change of the simulator,
the catalogue or the calibration.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from disklab import spec
from disklab.events import Event
from disklab.prediction import Options, calibration_for, predict
from disklab.prediction.against import ComparedCell, Comparison, compare
from disklab.results import TrialResult

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"

STUDIES = (
    "cassandra-disk-caching-threads",
    "cassandra-disk-caching-read-ahead",
    "cassandra-local-or-attached",
    "azure-local-disks",
    "cassandra-vm-types",
    "yugabytedb-disk-types",
)
CLIFF = "cassandra-cache-cliff"

ABLATED = ("cassandra-disk-caching-threads", "cassandra-disk-caching-read-ahead")
"""Studies on which each mechanism is switched off: those with the most varied load on disks."""

MECHANISMS = {
    "uneven_ownership": "each node owns the same share of the ring",
    "read_around": "a miss reads its own page only",
    "index_pages": "index pages are in memory from the start",
    "throttle_windows": "limits refill continuously",
    "chunk_borders": "an I/O ends as one, not chunk by chunk",
    "pauses": "no node ever pauses",
    "client_cpu": "the client has a core for every thread",
    "server_cpu": "the nodes have a core for every request",
    "slots": "every request finds a read or write slot",
    "page_cache_hits": "nothing that was read stays in the page cache",
}
"""Mechanisms of the simulator that these studies can show, and what is so without each."""


def silent(_: Event) -> None:
    """Tell nobody."""


def predicted(name: str, options: Options) -> tuple[spec.Experiment, list[TrialResult], Comparison]:
    """Return an experiment, its prediction, and that beside the published study."""
    experiment = spec.load(Path("experiments") / f"{name}.yaml")
    with tempfile.TemporaryDirectory() as folder:
        run = predict(experiment, with_out(options, Path(folder)), silent)
        results = run.results()
    return experiment, results, compare(experiment, results)


def with_out(options: Options, folder: Path) -> Options:
    """Return the options with another folder for the run."""
    return Options(
        seed=options.seed,
        workers=options.workers,
        fidelity=options.fidelity,
        ablate=options.ablate,
        out=folder,
    )


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def study(name: str, options: Options) -> Iterator[str]:
    """Yield the section of one study."""
    experiment, results, comparison = predicted(name, options)
    yield f"## {experiment.title}\n"
    yield f"{experiment.source}. `disklab predict experiments/{name}.yaml --against reference`\n"
    shown = comparison.figures
    body = [
        [", ".join(map(str, cell.factors.values())), *(cell.text(f) for f in shown), cell.note]
        for cell in comparison.cells
    ]
    if body:
        heads = ["cell", *(f"{f}: published -> predicted" for f in shown), ""]
        yield table(heads, body) + "\n"
        yield "\n".join(f"- {line}" for line in comparison.summary()) + "\n"
    refused = dict.fromkeys(str(result.reason.rule) for result in results if result.reason)
    for rule in refused:
        count = sum(result.reason is not None and result.reason.rule == rule for result in results)
        yield f"Refused, {count} cells: {rule}.\n"
    outside = {note for result in results for note in result.warnings if "outside" in note}
    for note in sorted(outside):
        yield f"- {note}"
    if outside:
        yield ""


def cliff(options: Options) -> Iterator[str]:
    """Yield the section of the cache cliff, which nobody has published cell by cell."""
    experiment, results, _ = predicted(CLIFF, options)
    yield f"## {experiment.title}\n"
    yield f"{experiment.source}. No figures were published; this is the prediction alone.\n"
    heads = ["rows", "data disks", "ops/s", "p50 ms", "p95 ms", "host cache hits", "bottleneck"]
    body = []
    for result in results:
        row = [str(level) for level in result.factors.values()]
        if result.ops_per_s is None:
            body.append([*row, "refused", "", "", "", result.reason.rule if result.reason else ""])
            continue
        hits = result.host_cache_hit_ratio
        bound = result.bottleneck
        body.append(
            [
                *row,
                f"{result.ops_per_s:,.0f}",
                *(f"{result.latency_ms[name]:.3g}" for name in ("p50", "p95")),
                "" if hits is None else f"{hits:.0%}",
                "" if bound is None else f"{bound.resource} {bound.utilisation or 0:.0%}",
            ]
        )
    yield table(heads, body) + "\n"


def ablations(options: Options) -> Iterator[str]:
    """Yield what each mechanism is worth: the error with it switched off."""
    yield "## What each mechanism is worth\n"
    yield (
        f"Median and largest error of ops/s, and median error of p50, over the cells of "
        f"{' and '.join(ABLATED)} that are no calibration rows, with one mechanism switched off "
        "and the parameters as they are.\n"
    )
    body = []
    for mechanism, meaning in {"": "everything as it is", **MECHANISMS}.items():
        ablate = (mechanism,) if mechanism else ()
        changed = Options(
            seed=options.seed, workers=options.workers, fidelity=options.fidelity, ablate=ablate
        )
        cells = [cell for name in ABLATED for cell in predicted(name, changed)[2].cells]
        rates, medians = errors(cells, "ops/s"), errors(cells, "p50")
        body.append(
            [
                f"`{mechanism}`" if mechanism else "",
                meaning,
                f"{statistics.median(rates):.1%}",
                f"{max(rates):.0%}",
                f"{statistics.median(medians):.1%}",
            ]
        )
    yield table(["without", "then", "ops/s median", "ops/s largest", "p50 median"], body) + "\n"


def errors(cells: Iterable[ComparedCell], figure: str) -> list[float]:
    """Return the absolute errors of the cells that count."""
    found = (cell.error(figure) for cell in cells if not cell.note)
    return [abs(error) for error in found if error is not None]


def head(options: Options) -> Iterator[str]:
    """Yield what the page is, and the calibration that everything rests on."""
    calibration = calibration_for("cassandra")
    assert calibration is not None
    today = datetime.now(timezone.utc).date().isoformat()
    yield "# How far predictions are from what others measured\n"
    yield (
        f"Written by `scripts/accuracy_page.py` on {today} ({platform.machine()}, fidelity "
        f"{options.fidelity}, seed {options.seed}); do not edit. Latencies in ms. Published noise "
        "between equal runs is 5 to 20 %: errors below 5 % are luck.\n"
    )
    yield f"## Calibration: {calibration.name} ({calibration.date})\n"
    rows = [
        [f"`{name}`", f"{one.value:,}", one.unit, one.status, one.meaning]
        for name, one in calibration.parameters.items()
    ]
    yield table(["parameter", "value", "unit", "status", "meaning"], rows) + "\n"
    yield "Calibration rows, never counted:\n"
    for row in calibration.calibration_rows:
        levels = ", ".join(f"{name} {level}" for name, level in row.factors.items())
        yield f"- {row.experiment}: {levels}"
    yield ""


def main() -> None:
    """Simulate everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and operations")
    parser.add_argument("--no-ablations", action="store_true", help="leave that section out")
    parser.add_argument("--jobs", type=int, default=None)
    arguments = parser.parse_args()
    options = Options(fidelity="quick" if arguments.quick else "full", workers=arguments.jobs)
    parts = [*head(options)]
    for name in STUDIES:
        parts += study(name, options)
    parts += cliff(options)
    if not arguments.no_ablations:
        # Relative to itself, the quick fidelity tells as much, in a tenth of the time.
        parts += ablations(Options(fidelity="quick", workers=arguments.jobs))
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
