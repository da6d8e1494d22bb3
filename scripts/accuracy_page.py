"""Writes docs/accuracy.md: published studies beside predictions, and what each part is worth.

`.venv/bin/python scripts/accuracy_page.py [SECTION...] [--fidelity full|quick]` simulates the named
sections, or all of them, and leaves the others as they are; each says how it was simulated.
`--again` simulates nothing: notes, summaries and errors at a glance as they follow from the tables.
`--check` tells where the page no longer fits the published studies, the mechanisms, the calibration
or the catalogue, and simulates a few cells to see that the engine is the one it was written with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.simulating import host_profile
from disklab.engine.process import simulate
from disklab.events import Event
from disklab.prediction import Calibration, Options, calibration_for, predict
from disklab.prediction.against import FIGURES, ComparedCell, Comparison, compare, judged
from disklab.prediction.against import figures as figures_of
from disklab.prediction.cells import prepare
from disklab.prediction.counted import SEARCHED, levels, study_of, under_way, why_not_counted
from disklab.prediction.search import STEP_NS
from disklab.results import TrialResult
from disklab.results.bands import told

from scripts.fingerprint import differ, fingerprint
from scripts.leagues import leagues
from scripts.mechanisms import MECHANISMS, NOT_IN_STUDIES, SINGLE_SERVERS_ALONE

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
COMMAND = ".venv/bin/python scripts/accuracy_page.py"

STUDIES = (
    "cassandra-disk-caching-threads",
    "cassandra-disk-caching-read-ahead",
    "cassandra-local-or-attached",
    "cassandra-vm-types",
    "azure-local-disks",
    "yugabytedb-disk-types",
)
CLIFF = "cassandra-cache-cliff"
ABLATIONS = "ablations"
SQL_ABLATIONS = "yugabytedb-ablations"

ABLATED = {
    "disk caching": ("cassandra-disk-caching-threads", "cassandra-disk-caching-read-ahead"),
    "local or attached": ("cassandra-local-or-attached",),
}
"""Studies on which each mechanism is switched off: their loads use every one of them."""

SQL_ABLATED = "yugabytedb-disk-types"
SQL_MECHANISMS = (
    "throttle_windows",
    "chunk_borders",
    "client_cpu",
    "server_cpu",
    "page_cache_hits",
    "background_io",
)
"""Those of the mechanisms that YugabyteDB's cells use."""
CASSANDRA_MECHANISMS = tuple(
    name for name in MECHANISMS if name not in (*SINGLE_SERVERS_ALONE, *NOT_IN_STUDIES)
)

IN_SIGHT = (
    "how full the P15's bucket of burst credits is when a run of YugabyteDB begins (half, "
    "`before.credits` of the experiment): it decides the Premium SSD cells with thirty "
    "tables and of TPC-C;",
    "the MB/s of the temp disks of Easv4 (8 KiB for each of their IOPS, as the catalogue's Esv3 "
    "has it): the document's 128 MB/s allow fewer I/Os than the study of the local disks saw;",
    "that tables are written piece by piece: it was looked for because mixed loads came out too "
    "slow on local disks, and found in the study's own configuration; the pace is measured, not "
    "fitted;",
    "that a new order's updates of stock are replicated one after the other: it was looked for "
    "because new orders came out at half their latency, and found in YugabyteDB's source;",
    "which mechanisms there are at all: the read-around of single index pages, pauses that grow "
    "with the writes and late messages between nodes each answer a difference seen in the rows of "
    "2019, and have a reason of their own beside it;",
    "that the client warms up, and that its threads wait for their own cores: it was looked for "
    "because medians of warm reads came out too long, and found in the study's own command, which "
    "starts a JVM for each run and says `no-warmup`, and in runs of that client of our own, which "
    "lost 233,000 operations' time to its start; the fit says 564,000. It replaced pauses of the "
    "client, which that client hardly has.",
)
"""Choices that no fit made, and that somebody made who knew the published rows."""

LEFT_OPEN: dict[str, dict[str, dict[str, Any]]] = {
    "predicted, as the experiment file has it": {},
    "read-ahead 16 KiB": {"cluster": {"read_ahead_bytes": 16 << 10}},
    "read-ahead 128 KiB, the kernel's default": {"cluster": {"read_ahead_bytes": 128 << 10}},
    "data files read by pread (`mmap_index_only`)": {"database": {"access": "mmap_index_only"}},
    "rows of 10 KiB": {"dataset": {"column_bytes": 2048}},
    "rows of 5 KiB": {"dataset": {"column_bytes": 1024}},
}
"""What the searched study does not say, with other values of the job than the experiment file's."""

NOTES = {
    "yugabytedb-disk-types": (
        "Rates are transactions of ten statements a second, and new orders a second; disk figures "
        "are those of one node. One figure was not fitted but chosen in sight of these results: "
        "how full the P15's bucket of burst credits is when a run begins (half). With a full one "
        "thirty tables read about 2535 transactions a second on Premium SSD, with an empty one "
        "833, and new orders come at 427 and 174: how much of that is known says the page on "
        "predictions (YugabyteDB, Burst credits). The latency of new orders comes out too short, "
        "in the right order of the disks, where credits last: lock conflicts do not explain it (a "
        "district takes a new order every 47 s), nor connections (600, of which a tenth are in "
        "use)."
    ),
    "cassandra-disk-caching-threads": (
        "The published rows of ReadOnly with 64 and 128 threads look partly warm: about half of"
        " their reads take 1.2 ms, as from the host cache, the others 3 to 5 ms, as from the "
        "disk, and with 64 threads no limit is near. The experiment file says that the cache "
        "holds what was written, so the prediction has no misses (the study's page on chunk sizes "
        "tells of sweeps with an emptied cache too, which each run filled a little more). The rows "
        "count all the same. "
        "So do the read-ahead rows below with 8 to 32 KiB, whose 95th percentiles of 4 to 5 ms are "
        "the disk's: a twentieth of misses would explain them, but nothing tells how many there "
        "were. Their medians of 1.2 to 1.3 ms are below those of the same reads of the sister "
        "study (1.4 ms, local or attached with one copy), which the client's times are fitted "
        "on: one model cannot have both. "
        "The bytes that a read costs are not what is wrong where the cached limit binds: where "
        "that of the network does (None, 128 KiB with 256 threads, 256 and 512 KiB), the same "
        "bytes give the published rates within 2 %. Cached reads came to 0.91, 0.95, 1.0 and 1.02 "
        "of what 512 MB/s let through at 64, 128, 256 and 512 KiB, in the order of the runs: a "
        "cache that fills at the cost of its own limit would look like that."
    ),
    "cassandra-local-or-attached": (
        "Log, flush and reads share the local disk's budget. What keeps a flush from emptying its "
        "refill windows is `trickle_fsync`, which the study's cassandra.yaml has on: a table goes "
        "to the disk every 10 MiB, and the writer fills the page cache in between. The ablations "
        "below show what the whole memtable at once (`paced_tables`) would cost. Tails of writes "
        "are the weakest figures here: from one copy over three to five the published 99th "
        "percentiles grow sixfold (8, 20, 46 ms on attached disks), the predicted ones not even "
        "twofold, because a pause is as long whatever else its node has to keep."
    ),
    SEARCHED: (
        "The study raised the threads until a median of 10 ms was met, but its rows lie "
        "elsewhere: small rows have medians of 18 to 40 ms, and medium ones one operation under"
        " way. So the search says nothing about the prediction; the second table has the "
        "published load instead. 23,985 reads a second of DS13_v2, each of two replicas, are "
        "more than its six P30 can do if a read needs a disk: those rows were in memory, which "
        "the experiment file does not say."
    ),
    "azure-local-disks": (
        "The percentiles of the sync rows are where the catalogue has its service times from: "
        "they show that nothing is lost on the way, and are not counted."
    ),
}
"""What a reader of a study's table must know."""


OF_VALUES = {"within": True, "because": True, "when": True}
RANGES: Any = {
    "date": True,
    "correlations": True,
    "residuals": True,
    # No study names a version.
    "newer": True,
    # On the studies' own VMs speeds cancel out.
    "server_vm": True,
    "client_vm": True,
    # Nor a collector.
    "concurrent": True,
    "parameters": {"__all__": OF_VALUES},
    "physical": {"__all__": OF_VALUES},
}
"""What of a calibration moves no prediction: how well its values are known."""


@dataclass(frozen=True)
class Section:
    """A part of the page that is simulated by itself."""

    name: str
    rows: Callable[[], list[str]]
    """First column of its table."""
    text: Callable[[Options], Iterator[str]]
    engines: tuple[str, ...] = ()
    """Databases whose calibration it rests on."""
    experiments: tuple[str, ...] = ()
    """Whose disks and VMs it rests on, as the catalogue has them."""

    def digest(self) -> str:
        """Return what tells one calibration of its databases, and one catalogue, from another."""
        known = [calibration_for(engine) for engine in self.engines]
        parts = [one.model_dump_json(exclude=RANGES) for one in known if one is not None]
        parts += [part for name in self.experiments for part in catalogued(name)]
        return hashlib.sha256("".join(parts).encode()).hexdigest()[:8]

    def block(self, options: Options) -> str:
        """Return the section between its marks, simulated now."""
        today = datetime.now(timezone.utc).date().isoformat()
        body = "\n".join(self.text(options)).rstrip()
        how = f"Simulated on {today}, fidelity {options.fidelity}, seed {options.seed}."
        title, _, rest = body.partition("\n")
        begin = f"<!-- {self.name}: calibration {self.digest()} -->"
        return f"{begin}\n{title}\n\n{how}\n{rest}\n<!-- /{self.name} -->"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def label(factors: dict[str, Any]) -> str:
    """Return a cell's levels as its row is named."""
    return ", ".join(map(str, factors.values()))


def silent(_: Event) -> None:
    """Tell nobody."""


def load(name: str) -> spec.Experiment:
    """Return an experiment of the repository."""
    return spec.load(Path("experiments") / f"{name}.yaml")


def published_part(experiment: spec.Experiment) -> spec.Experiment:
    """Return the cells of an experiment that were published with figures."""
    study = study_of(experiment)
    assert study is not None
    known = {levels(row.factors) for row in study.results() if row.usable}
    trials = experiment.trials("predict")
    kept = [
        cell
        for cell, trial in zip(experiment.cells, trials, strict=True)
        if levels(dict(trial.factors)) in known
    ]
    return replace(experiment, cells=tuple(kept))


def predicted(experiment: spec.Experiment, options: Options) -> list[TrialResult]:
    """Return every cell's prediction."""
    with tempfile.TemporaryDirectory() as folder:
        run = predict(experiment, replace(options, out=Path(folder)), silent)
        return run.results()


def study_rows(name: str) -> list[str]:
    """Return the names of a study's published cells."""
    return [label(dict(trial.factors)) for trial in published_part(load(name)).trials("predict")]


def study(name: str, options: Options) -> Iterator[str]:
    """Yield the section of one study."""
    experiment = published_part(load(name))
    results = predicted(experiment, options)
    comparison = compare(experiment, results)
    yield f"## {experiment.title}\n"
    yield f"{experiment.source}. `disklab predict experiments/{name}.yaml --against reference`\n"
    if name in NOTES:
        yield f"{NOTES[name]}\n"
    yield from compared(comparison)
    reasons = dict.fromkeys(str(result.reason.rule) for result in results if result.reason)
    for reason in reasons:
        yield f"- not predicted: {reason}"
    outside = {note for result in results for note in result.warnings if "outside" in note}
    for note in sorted(outside):
        yield f"- {note}"
    if name == SEARCHED:
        yield from at_published_load(experiment, options)


def catalogued(name: str) -> Iterator[str]:
    """Yield the disks and VMs of an experiment's cells, limits and service times among them."""
    for trial in load(name).trials("predict"):
        if trial.refused is None:
            yield json.dumps(host_profile(trial.spec), sort_keys=True)


ENGINE_CELLS = (
    ("cassandra-disk-caching-threads", 0),
    ("cassandra-disk-caching-threads", 5),
    ("cassandra-local-or-attached", 5),
    ("yugabytedb-disk-types", 0),
)
"""Cells that are simulated by every check, at quick fidelity: another engine has other figures."""
ENGINE_MARK = re.compile(r"<!-- engine: (.*) -->")


def other_engine(page: str) -> bool:
    """Return whether the engine's figures differ from those with which the page was written."""
    found = ENGINE_MARK.search(page)
    known = [float(text) for text in found[1].split()] if found else []
    return differ(known, engine_figures())


def engine_figures() -> list[float]:
    """Return what tells one engine from another."""
    return fingerprint([(load(name), index) for name, index in ENGINE_CELLS])


def engine_line() -> str:
    """Return the mark that says what the engine's figures are."""
    return f"<!-- engine: {' '.join(f'{figure:.6g}' for figure in engine_figures())} -->"


def compared(comparison: Comparison) -> Iterator[str]:
    """Yield a study's table and what its errors come to."""
    body = []
    for cell in comparison.cells:
        note = cell.note or (cell.seen.note if cell.seen else "")
        texts = [cell.text(figure) for figure in comparison.figures]
        body.append([label(cell.factors), *texts, note])
    yield table([CELL, *heads(comparison.figures), ""], body) + "\n"
    yield from (f"- {line}" for line in comparison.summary())


CELL, AT_LOAD = "cell", "cell at that load"
"""First heads of tables: of a study's, and of a searched study at its published load."""


def heads(figures: Iterable[str]) -> list[str]:
    """Return the heads of columns that hold a published and a predicted figure."""
    return [f"{figure}: published -> predicted" for figure in figures]


def read_back(name: str, block: str) -> Comparison:
    """Return the comparison that a study's section shows; of a searched one at published load."""
    experiment = published_part(load(name))
    reference = study_of(experiment)
    assert reference is not None
    searched = name == SEARCHED
    rows = {label(dict(row.factors)): row for row in reference.results() if row.usable}
    lines = block.splitlines()
    start = next(
        n for n, line in enumerate(lines) if line.startswith(f"| {AT_LOAD if searched else CELL} |")
    )
    head, _, *body = [
        [part.strip() for part in line.strip("|").split("|")]
        for line in takewhile(lambda line: line.startswith("|"), lines[start:])
    ]
    calibration = calibration_for(name.partition("-")[0])
    cells = []
    for first, *texts in body:
        row = rows.get(first)
        if row is None:
            continue
        shown = {
            figure.partition(":")[0]: float(text.partition("->")[2].split()[0].replace(",", ""))
            for figure, text in zip(head[1:], texts, strict=True)
            if "->" in text
        }
        factors = dict(row.factors)
        note = "" if searched else why_not_counted(reference, factors, calibration)
        cells.append(ComparedCell(factors, figures_of(row), shown, note))
    return judged(experiment, cells)


def retold(name: str, block: str) -> str:
    """Return a study's section with notes and summary as they follow from its table now."""
    comparison = read_back(name, block)
    if name == SEARCHED:
        begin, end = SUMMED, "### What the study leaves open"
        middle = "\n".join(f"- {line}" for line in comparison.summary())
    else:
        begin, end = f"| {CELL} |", "- not counted: "
        middle = "\n".join(compared(comparison))
    start = block.index(begin) + (len(begin) if name == SEARCHED else 0)
    if name == SEARCHED:
        return block[:start] + f"\n\n{middle}\n\n" + block[block.index(end) :]
    rest = block[start:].splitlines(keepends=True)
    old = [n for n, line in enumerate(rest) if line.startswith(OF_SUMMARY)]
    return block[:start] + middle + "\n" + "".join(rest[max(old) + 1 :])


OF_SUMMARY = ("| ", *(f"- {figure}: " for figure in FIGURES), "- not counted: ")
SUMMED = (
    "The rows count at this load; no parameter was fitted on them, so there is no guess without a "
    "model."
)


def glance(page: str) -> Iterator[str]:
    """Yield every study's errors, the worst rate first."""
    found = []
    for name in STUDIES:
        section = next(one for one in SECTIONS if one.name == name)
        block = block_of(section, page)
        if block is not None:
            comparison = read_back(name, block)
            found.append((statistics.median(comparison.errors(RATE)), name, comparison))
    found.sort(key=lambda one: -one[0])
    body = []
    for _, name, comparison in found:
        rates, skill = comparison.errors(RATE), comparison.skill(RATE)
        guess = [told(skill[0]), f"{skill[1]:+.2f}"] if skill else ["", ""]
        line = [f"{told(statistics.median(rates))}, {told(max(rates))}", f"{len(rates)}", *guess]
        for figure in ("p50", "p95", "p99"):
            errors = comparison.errors(figure)
            line.append(told(statistics.median(errors)) if errors else "")
        body.append([name, *line])
    yield "## At a glance\n"
    yield GLANCE
    yield table(
        [
            "study, the worst first",
            "ops/s: median, largest",
            "cells",
            "without a model",
            "skill",
            "p50 median",
            "p95 median",
            "p99 median",
        ],
        body,
    )
    yield ""


RATE = "ops/s"
GLANCE = (
    "How far off predicted figures are, upwards or downwards alike: 30 % is 1.3 times too much or "
    "too little. Of the cells that count: no parameter was fitted on them, and no value chosen in "
    "their sight that moves the figure. Without a model: what one would guess from the fitted "
    "rows (the other disk's row; the harmonic mean of reading and writing; the geometric mean of "
    "the levels around), over the same cells. Skill is 1 - error / error of the guess: 1 is "
    "perfect, below 0 the guess is better. The nine local cells of local or attached are twins of "
    "attached ones, five of which were fitted on.\n"
)


@dataclass(frozen=True)
class Loaded:
    """A cell of a searched study, with as many operations under way as were published."""

    factors: dict[str, Any]
    row: TrialResult
    database: dict[str, Any]
    """Its job."""

    def job(self, changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the job with parts of it changed."""
        changed = {part: {**self.database[part], **values} for part, values in changes.items()}
        return {**self.database, **changed}


def loaded_cells(experiment: spec.Experiment) -> list[Loaded]:
    """Return the cells of a searched study by Little's law on each published row."""
    catalog, calibration = load_catalog(), calibration_for("cassandra")
    reference = study_of(experiment)
    assert reference is not None
    rows = {levels(row.factors): row for row in reference.results()}
    found = []
    for trial in experiment.trials("predict"):
        row = rows[levels(dict(trial.factors))]
        prepared = prepare(trial, catalog, calibration, str(experiment.path))
        assert prepared.job is not None
        database = prepared.job["database"]
        load = {"closed": {"threads": under_way(row)}}
        stop = {"operations": None, "duration_ns": STEP_NS}
        work = {**database["workload"], "load": load, "stop": stop}
        found.append(Loaded(dict(trial.factors), row, {**database, "workload": work}))
    return found


def answers_to(jobs: Sequence[dict[str, Any]], options: Options) -> list[dict[str, Any]]:
    """Return the engine's answers to jobs of a searched study, whose client is warm."""
    numbered = [
        {"cell": number, "seed": options.seed, "database": job, "ablate": ["client_warm_up"]}
        for number, job in enumerate(jobs)
    ]
    answers = simulate(numbered, workers=options.workers)
    return sorted(answers, key=lambda answer: int(answer["cell"]))


def at_published_load(experiment: spec.Experiment, options: Options) -> Iterator[str]:
    """Yield a searched study once more, with as many operations under way as it had."""
    cells = loaded_cells(experiment)
    body = []
    answers = answers_to([cell.job({}) for cell in cells], options)
    for loaded, answer in zip(cells, answers, strict=True):
        shown = {"ops/s": answer["ops_per_s"], **answer["latency_ms"]}
        cell = ComparedCell(loaded.factors, figures_of(loaded.row), shown)
        bound = answer["bottleneck"]["resource"]
        texts = (cell.text(figure) for figure in ("ops/s", "mean", "p95", "p99"))
        body.append([label(loaded.factors), *texts, bound])
    yield "\n### With as many operations under way as were published\n"
    yield "By Little's law on each published row; full fidelity.\n"
    columns = heads(("ops/s", "mean", "p95", "p99"))
    yield table([AT_LOAD, *columns, "bottleneck"], body) + f"\n\n{SUMMED}\n"
    medium = [cell for cell in cells if cell.factors["dataset.row"] == "medium"]
    yield from left_open(medium, options)


def left_open(cells: Sequence[Loaded], options: Options) -> Iterator[str]:
    """Yield what would follow from what a study does not say."""
    jobs = [cell.job(changes) for changes in LEFT_OPEN.values() for cell in cells]
    answers = iter(answers_to(jobs, options))
    body = []
    for what in LEFT_OPEN:
        found = [next(answers) for _ in cells]
        means = (f"{answer['latency_ms']['mean']:.3g}" for answer in found)
        ios = found[0]["telemetry"]["read_ios_per_operation"]
        body.append([what, *means, f"{ios:.1f}"])
    published = [f"{figures_of(cell.row)['mean']:.3g}" for cell in cells]
    names = [f"{cell.factors['vm']}: mean ms" for cell in cells]
    yield "### What the study leaves open\n"
    yield (
        "It says neither how large a medium row is, nor the read-ahead, nor how table files are "
        "read; the experiment file assumes 20 KiB, 8 KiB and Cassandra's default, mapped files. "
        "Then each page of a row is a page fault, and a disk access after the one before.\n"
    )
    rows = [["published", *published, ""], *body]
    yield table(["medium rows", *names, "I/Os of a read, first VM"], rows)


def cliff_rows() -> list[str]:
    """Return the names of the cliff's cells."""
    return [label(dict(trial.factors)) for trial in load(CLIFF).trials("predict")]


def cliff(options: Options) -> Iterator[str]:
    """Yield the section of the cache cliff, which nobody has published cell by cell."""
    experiment = load(CLIFF)
    results = sorted(predicted(experiment, options), key=lambda result: result.trial)
    yield f"## {experiment.title}\n"
    yield f"{experiment.source}. No figures were published: this is the prediction alone.\n"
    body = []
    for result in results:
        name = label(dict(result.factors))
        if result.ops_per_s is None:
            rule = result.reason.rule if result.reason else ""
            body.append([name, "refused", "", "", "", str(rule)])
            continue
        hits, bound = result.host_cache_hit_ratio, result.bottleneck
        body.append(
            [
                name,
                f"{result.ops_per_s:,.0f}",
                *(f"{result.latency_ms[figure]:.3g}" for figure in ("p50", "p95")),
                "" if hits is None else f"{hits:.0%}",
                "" if bound is None else f"{bound.resource} {bound.utilisation or 0:.0%}",
            ]
        )
    heads = ["cell", "ops/s", "p50 ms", "p95 ms", "host cache hits", "bottleneck"]
    yield table(heads, body)


def ablation_rows() -> list[str]:
    """Return the names of the ablations."""
    return ["as it is", *(f"without `{mechanism}`" for mechanism in CASSANDRA_MECHANISMS)]


def ablations(options: Options) -> Iterator[str]:
    """Yield what each mechanism is worth: the errors with it switched off."""
    yield "## What each mechanism is worth\n"
    yield (
        "Errors over the cells that no parameter was fitted on, with one mechanism switched off at "
        "a time and the parameters as they are. In a quick run the bursts of flushes and logs fit "
        "into one refill window and delay little: `background_io`, `paced_tables` and "
        "`throttle_windows` are worth more than these rows say.\n"
    )
    choices = ("", *CASSANDRA_MECHANISMS)
    cells: dict[tuple[str, str], list[ComparedCell]] = defaultdict(list)
    for group, mechanism, cell in ablated_cells(choices, options):
        cells[group, mechanism].append(cell)
    shown = (("ops/s", "p50", "p95"), ("ops/s", "p50", "p99"))
    heads = ["", "what is so then"]
    for group, names in zip(ABLATED, shown, strict=True):
        heads += [f"{group}: ops/s median, largest", *(f"{f} median" for f in names[1:])]
    body = []
    for name, mechanism in zip(ablation_rows(), choices, strict=True):
        line = [name, MECHANISMS.get(mechanism, "")]
        for group, names in zip(ABLATED, shown, strict=True):
            rates = errors(cells[group, mechanism], "ops/s")
            line.append(f"{statistics.median(rates):.1%}, {max(rates):.0%}")
            line += [
                f"{statistics.median(errors(cells[group, mechanism], f)):.1%}" for f in names[1:]
            ]
        body.append(line)
    yield table(heads, body)


def sql_ablation_rows() -> list[str]:
    """Return the names of YugabyteDB's ablations."""
    return ["as it is", *(f"without `{mechanism}`" for mechanism in SQL_MECHANISMS)]


def sql_ablations(options: Options) -> Iterator[str]:
    """Yield what each mechanism is worth to YugabyteDB's cells."""
    yield "## What each mechanism is worth: YugabyteDB\n"
    yield "Median and largest error over the cells that count, one mechanism off at a time.\n"
    figures = ("ops/s", "mean", "disk IOPS")
    experiment = published_part(load(SQL_ABLATED))
    body = []
    for name, mechanism in zip(sql_ablation_rows(), ("", *SQL_MECHANISMS), strict=True):
        off = replace(options, ablate=(mechanism,) if mechanism else ())
        comparison = compare(experiment, predicted(experiment, off))
        found = [comparison.errors(figure) for figure in figures]
        errors_of = [f"{statistics.median(each):.1%}, {max(each):.0%}" for each in found]
        body.append([name, MECHANISMS.get(mechanism, ""), *errors_of])
    yield table(["", "what is so then", *figures], body)


def ablated_cells(
    mechanisms: Sequence[str], options: Options
) -> Iterator[tuple[str, str, ComparedCell]]:
    """Yield each published cell that counts, simulated without each of the mechanisms."""
    catalog, calibration = load_catalog(), calibration_for("cassandra")
    jobs: list[dict[str, Any]] = []
    known: list[tuple[str, str, dict[str, Any], dict[str, float]]] = []
    for group, name in ((group, name) for group, names in ABLATED.items() for name in names):
        experiment = published_part(load(name))
        reference = study_of(experiment)
        assert reference is not None
        rows = {levels(row.factors): row for row in reference.results() if row.usable}
        for trial in experiment.trials("predict"):
            factors = dict(trial.factors)
            assert calibration is not None
            if calibration.covers(name, factors):
                continue
            prepared = prepare(trial, catalog, calibration, name)
            for mechanism in mechanisms:
                ablate = [mechanism] if mechanism else []
                job = {"cell": len(jobs), "seed": options.seed, "fidelity": options.fidelity}
                jobs.append({**job, "ablate": ablate, **(prepared.job or {})})
                known.append((group, mechanism, factors, figures_of(rows[levels(factors)])))
    for answer in simulate(jobs, workers=options.workers):
        group, mechanism, factors, published = known[answer["cell"]]
        figures = {"ops/s": answer["ops_per_s"], **answer["latency_ms"]}
        yield group, mechanism, ComparedCell(factors, published, figures)


def errors(cells: Iterable[ComparedCell], figure: str) -> list[float]:
    """Return the absolute errors of cells."""
    found = (cell.error(figure) for cell in cells)
    return [abs(error) for error in found if error is not None]


def calibration_text(calibration: Calibration) -> Iterator[str]:
    """Yield the parameters of a calibration and the rows that they were fitted on."""
    yield f"## Calibration: {calibration.name}\n"
    rows = [
        [f"`{name}`", f"{one.value:,}", one.unit, one.status, one.meaning]
        for name, one in calibration.parameters.items()
    ]
    yield table(["parameter", "value", "unit", "status", "meaning"], rows) + "\n"
    yield "Calibration rows, never counted:\n"
    for row in calibration.calibration_rows:
        chosen = ", ".join(f"{name} {level}" for name, level in row.factors.items())
        yield f"- {row.experiment}: {chosen}"
    yield ""


def head(page: str) -> str:
    """Return what the page is, its errors, and the calibrations that everything rests on."""
    parts = [
        "# How far predictions are from what others measured\n",
        f"Written by `{COMMAND}`; do not edit. Latencies in ms; an error is predicted / "
        "published - 1. Rows that parameters were fitted on are marked, and never counted. "
        "Published noise between equal runs is 5 to 20 %: errors below 5 % are luck.\n",
        *glance(page),
        *leagues(),
    ]
    for engine in ("cassandra", "yugabytedb"):
        calibration = calibration_for(engine)
        if calibration is not None:
            parts += calibration_text(calibration)
    parts += ["## Chosen in sight of the rows\n"]
    parts += ["Not fitted, but decided by somebody who had seen the published figures:\n"]
    parts += [*(f"- {choice}" for choice in IN_SIGHT), ""]
    return "\n".join(parts)


def study_section(name: str) -> Section:
    """Return the section of a study."""
    engine = name.partition("-")[0]
    engines = (engine,) if engine in ("cassandra", "yugabytedb") else ()
    return Section(
        name, lambda: study_rows(name), lambda options: study(name, options), engines, (name,)
    )


SECTIONS = (
    *map(study_section, STUDIES),
    Section(CLIFF, cliff_rows, cliff, ("cassandra",), (CLIFF,)),
    Section(
        ABLATIONS,
        ablation_rows,
        ablations,
        ("cassandra",),
        tuple(name for names in ABLATED.values() for name in names),
    ),
    Section(SQL_ABLATIONS, sql_ablation_rows, sql_ablations, ("yugabytedb",), (SQL_ABLATED,)),
)

AT_QUICK = (ABLATIONS, SQL_ABLATIONS)
"""Sections that are simulated at quick fidelity whatever is asked for.

Relative to themselves they tell as much, in a tenth of the time.
"""


def block_of(section: Section, page: str) -> str | None:
    """Return a section of the page with its marks; None: it is not there."""
    name = re.escape(section.name)
    found = re.search(rf"<!-- {name}: .*?<!-- /{name} -->", page, flags=re.DOTALL)
    return found[0] if found else None


def first_column(block: str) -> list[str]:
    """Return the names of the rows of a section's first table."""
    lines = iter(block.splitlines())
    rows = takewhile(
        lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines)
    )
    return [line.removeprefix("| ").split(" | ")[0] for line in rows][2:]


def stale(page: str) -> Iterator[str]:
    """Yield where the page differs in structure from what would be written now."""
    there = all(block_of(section, page) for section in SECTIONS)
    if there and not page.startswith(head(page)):
        yield "the calibration's parameters or rows, or the errors at a glance differ"
    for section in SECTIONS:
        block = block_of(section, page)
        if block is None:
            yield f"{section.name} is missing"
            continue
        if f"calibration {section.digest()} " not in block.partition("\n")[0]:
            yield f"{section.name} was simulated with another calibration or catalogue"
        if first_column(block) != section.rows():
            yield f"{section.name} has other rows"
        elif section.name in STUDIES and retold(section.name, block) != block:
            yield f"{section.name} has other notes, or another summary, than follow from its table"


def main() -> int:
    """Simulate what is asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [section.name for section in SECTIONS]
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(names))
    parser.add_argument("--fidelity", choices=("full", "quick"), default="full")
    parser.add_argument("--jobs", type=int, default=None, help="cells at a time")
    parser.add_argument("--check", action="store_true", help="simulate nothing, name what is stale")
    parser.add_argument(
        "--again", action="store_true", help="simulate nothing: what follows from the tables"
    )
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if arguments.check:
        found = list(stale(page))
        if other_engine(page):
            found.append("the engine gives other figures than when the page was written")
        for problem in found:
            print(f"docs/accuracy.md: {problem}; run {COMMAND}", file=sys.stderr)
        return 1 if found else 0
    unknown = set(arguments.sections) - set(names)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; choose {', '.join(names)}")
    options = Options(fidelity=arguments.fidelity, workers=arguments.jobs)
    quick = replace(options, fidelity="quick")
    blocks = []
    for section in SECTIONS:
        kept = block_of(section, page)
        if (
            kept is None
            or (not arguments.again and not arguments.sections)
            or section.name in arguments.sections
        ):
            kept = section.block(quick if section.name in AT_QUICK else options)
        blocks.append(retold(section.name, kept) if section.name in STUDIES else kept)
    mark = ENGINE_MARK.search(page)
    body = "\n\n".join([*blocks, mark[0] if mark and arguments.again else engine_line()]) + "\n"
    PAGE.write_text(f"{head(body)}\n\n{body}", encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
