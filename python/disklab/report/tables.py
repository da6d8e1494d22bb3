"""The tables of the report, as text: the page and the terminal show the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from disklab.catalog import load_catalog
from disklab.report import wording
from disklab.report.answer import Answer
from disklab.report.axes import Figures, rows
from disklab.report.cells import Cell, Matrix, Rates, median
from disklab.report.pair import Comparison, Kind, Pair
from disklab.report.reasons import (
    carried,
    fails,
    late_clients,
    over,
    problem_of,
    rules_of,
    status_of,
    why,
)
from disklab.report.subject import Subject, slow_motion
from disklab.report.verdict import Quantity
from disklab.results import Level, TrialResult
from disklab.results.records import Price, TraceRecord, load_ratio

WAITED = "waited at (ms per operation)"
SENTENCES = (
    *("why", "asked for", "good enough", "not counted", "reason", "cells", "log"),
    *(WAITED, "CPU"),
)
"""Columns of words: a page sets them under their rows."""


def titled(matrix: Matrix, cell: Cell) -> list[str]:
    """Return a cell's levels of the factors that vary, as text."""
    return [str(cell.factors[factor.name]) for factor in matrix.varying]


def summary(subject: Subject) -> Figures:
    """Return every cell that ran, with its rate, latencies, and what bound it."""
    matrix = subject.matrix
    heads = [factor.title for factor in matrix.varying] or ["cell"]
    lines = []
    for cell in matrix.cells.values():
        if cell.refused:
            continue
        names = titled(matrix, cell) or ["all"]
        reason = why(cell)
        bound = "; ".join(reason.phrases()[:2])
        # The figures of an invalid cell are shown, with the word; no verdict rests on them.
        shown = cell.shown
        lines.append(
            [
                *names,
                wording.rate(shown.median("ops_per_s")),
                *(wording.latency(shown.median(f"{name}_ms")) for name in ("p50", "p95", "p99")),
                bound if cell.usable else status_of(cell),
                str(subject.kept.get(cell.trial, "")),
                "; ".join(
                    f"{one.answer}: {one.found[0].what} {one.figure}" for one in rules_of(shown)
                ),
                str(len(cell.usable)),
            ]
        )
    figures = ("ops/s", "p50", "p95", "p99", "why", "asked for", "good enough", "repeats")
    return Figures((*heads, *figures), rows(lines))


def comparisons(answer: Answer) -> Figures:
    """Return every pair that was compared: both figures of what decides, what differs, and p99."""
    matrix = answer.subject.matrix
    if matrix.main is None:
        return Figures((), ())
    lines = []
    for pair in answer.pairs:
        old, new = pair.cells
        fixed = matrix.phrase(pair.context)
        tail = pair.judgements.get(Quantity.P99)
        lines.append(
            [
                fixed or "all",
                f"{matrix.main.phrase(pair.second)} against {matrix.main.phrase(pair.first)}",
                of_what_decides(pair, old),
                of_what_decides(pair, new),
                wording.judged(pair.judgement),
                "" if tail is None else change(tail),
                "" if pair.kind in SAID_BY_FIGURES else pair.kind.value,
            ]
        )
    heads = ("where", "compared", "before", "after", "difference", "p99", "")
    return Figures(heads, rows(lines))


def of_what_decides(pair: Pair, cell: Cell) -> str:
    """Return a cell's figure of what its pair is judged by: `94.2 ops/s`, `p50 2.82 ms`."""
    median = cell.median(pair.deciding.value)
    if pair.deciding is Quantity.OPS:
        return f"{wording.rate(median)} ops/s" if median is not None else ""
    return f"{pair.deciding.label} {wording.latency(median)}" if median is not None else ""


def by_level(answer: Answer) -> Figures:
    """Return a row for each place of the comparison and a column for each level; empty for one.

    The first level has its rate, the others what differs from it.
    """
    matrix = answer.subject.matrix
    if matrix.main is None:
        return Figures((), ())
    levels = list(dict.fromkeys(pair.second for pair in answer.pairs))
    places: dict[str, dict[Level, Pair]] = {}
    for pair in answer.pairs:
        places.setdefault(matrix.phrase(pair.context) or "all", {})[pair.second] = pair
    if len(levels) < LEAST_OF_MATRIX or len(places) < LEAST_OF_MATRIX:
        return Figures((), ())
    lines = []
    for place, of_place in places.items():
        base = next(iter(of_place.values()))
        line = [place, wording.rate(base.cells[0].median("ops_per_s"))]
        for level in levels:
            found = of_place.get(level)
            line.append("" if found is None else change(found.judgement))
        lines.append(line)
    main = matrix.main
    first = f"{main.phrase(main.levels[0])}, ops/s"
    return Figures(("where", first, *(main.phrase(level) for level in levels)), rows(lines))


LEAST_OF_MATRIX = 2
"""Levels, and places, from which on a matrix says more than a list."""

SAID_BY_FIGURES = (Kind.BETTER, Kind.WORSE, Kind.EQUAL, Kind.UNKNOWN)
"""Kinds of answer that need no word beside the difference."""


def limits(subject: Subject) -> Figures:
    """Return where the time went in each usable cell."""
    matrix = subject.matrix
    lines = []
    for shown in matrix.cells.values():
        cell = shown.shown
        if not cell.usable:
            continue
        found = why(cell)
        lines.append(
            [
                matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying}) or "all",
                found.bound_by or "",
                found.used().removesuffix(" used"),
                waits(cell),
                "" if found.delayed_share is None else wording.percent(found.delayed_share),
                "" if found.hit_ratio is None else wording.percent(found.hit_ratio),
                "" if found.credits_left is None else wording.percent(found.credits_left),
                cpu(cell),
            ]
        )
    heads = (
        "cell", "limited by", "used", WAITED, "share of time waiting",
        "host cache hits", "credits left", "CPU",
    )  # fmt: skip
    return Figures(heads, rows(lines))


def waits(cell: Cell) -> str:
    """Return the longest waits of the first usable repeat, in milliseconds an operation."""
    result = cell.usable[0]
    if not result.ops_per_s or not result.duration_s:
        return ""
    operations = result.ops_per_s * result.duration_s
    told = [
        f"{one.limit}: {wording.significant(one.delayed_ms / operations, 2)}"
        for one in sorted(result.telemetry.limits, key=lambda one: -one.delayed_ms)[:2]
        if one.delayed_ms > 0
    ]
    return "; ".join(told)


def cpu(cell: Cell) -> str:
    """Return the shares of the machine that client, database and emulator used."""
    shares = []
    for process, name in (("client", "client"), ("server", "database"), ("emulator", "emulator")):
        found = [result.telemetry.cpu_ratio.get(process) for result in cell.usable]
        share = median([value for value in found if value is not None])
        if share is not None:
            shares.append(f"{name} {wording.percent(share)}")
    return ", ".join(shares)


def prices(subject: Subject) -> Figures | None:
    """Return what each cell costs; None when no price is known.

    The rate of the full cluster is that of a node times its nodes; TPC-C's that of its warehouses.
    """
    matrix = subject.matrix
    lines = []
    for cell in matrix.cells.values():
        usd = over(cell.results, lambda result: result.price_usd_per_month)
        if usd is None:
            continue
        rate = cell.median(Rates.CLUSTER)
        each = wording.money(usd / rate * 1000 if rate else None)
        if fails(cell):
            # A price per operation would rank it above what carries the load.
            each = f"does {wording.percent(carried(cell) or 0)} of the load"
        names = titled(matrix, cell) or ["all"]
        lines.append([*names, wording.money(usd), wording.rate(rate), each])
    if not lines:
        return None
    heads = [factor.title for factor in matrix.varying] or ["cell"]
    return Figures(
        (*heads, "USD a month", "ops/s, full cluster", "USD a month per 1,000 ops/s"), rows(lines)
    )


def credits_gone(subject: Subject) -> Figures:
    """Return where burst credits ran out in mid-run: when, the rates, and the next size."""
    matrix = subject.matrix
    lines = []
    for cell in matrix.cells.values():
        for result in cell.shown.usable:
            for one in result.credits_gone:
                size = one.next_size
                more = size.more_usd_per_month if size else None
                lines.append(
                    [
                        matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying})
                        or "all",
                        str(result.repeat + 1),
                        f"{one.volume} {one.limit}".strip(),
                        wording.span(one.at_s),
                        wording.span(one.full_at_s),
                        wording.rate(one.ops_per_s_before),
                        wording.rate(one.ops_per_s_after),
                        "" if size is None else f"{size.disks} ({size.iops:,} IOPS)",
                        wording.money(more),
                    ]
                )
    heads = (
        "cell", "repeat", "limit", "credits gone after", "on the full system", "ops/s before",
        "after", "next size", "USD a month more",
    )  # fmt: skip
    return Figures(heads, rows(lines))


def study(comparison: Comparison) -> Figures | None:
    """Return two runs in the columns in which a study published: each with its own figures.

    None when the first one has neither CPU nor disk figures.
    """
    lines = []
    for one in comparison.matched:
        name = comparison.second.matrix.phrase(one.cells[1].factors)
        for subject, cell in zip((comparison.first, comparison.second), one.cells, strict=True):
            lines.append([name, subject.label, *study_columns(cell.shown)])
    if not any(line[-1] or line[-2] for line in lines[::2]):
        return None
    heads = ("cell", "run", "latency", Rates.CLUSTER.unit, "CPU", "disk IOPS", "disk MB/s")
    return Figures(heads, rows(lines))


def study_columns(cell: Cell) -> list[str]:
    """Return mean latency, the cluster's rate, CPU, and what disks did: medians."""
    found = cell.usable
    cpu_ratio = over(found, server_cpu)
    return [
        wording.latency(over(found, lambda result: result.latency_ms.get("mean"))),
        wording.rate(cell.median(Rates.CLUSTER)),
        "" if cpu_ratio is None else wording.percent(cpu_ratio),
        wording.rate(over(found, lambda result: result.disk_iops)),
        wording.rate(over(found, lambda result: result.disk_mb_per_s)),
    ]


def server_cpu(result: TrialResult) -> float | None:
    """Return the share of its machine that the database used."""
    return result.telemetry.cpu_ratio.get("server")


def price_sources(subject: Subject) -> list[str]:
    """Return each price with region, date and source."""
    return [
        f"{one.item}: {one.currency} {one.amount:,.2f} a {one.per}"
        + "".join(f", {part}" for part in priced(one))
        for one in subject.info.prices
    ]


def priced(one: Price) -> list[str]:
    """Return region, terms, date and source of a price, as far as they are told."""
    source = load_catalog().sources.get(one.source or "")
    place = source.at if source is not None else one.source
    return [part for part in (one.region, one.terms, one.date, place) if part]


def price_dates(subjects: Sequence[Subject]) -> str:
    """Return the regions, terms and dates of all prices, each once."""
    told = dict.fromkeys(
        ", ".join(part for part in (one.region, one.terms, one.date) if part)
        for subject in subjects
        for one in subject.info.prices
    )
    return "; ".join(told)


def problems(subject: Subject) -> Figures:
    """Return every reason why results are no figures, with the cells that have it."""
    matrix = subject.matrix
    found: dict[tuple[str, str, str], list[str]] = {}
    for cell in matrix.cells.values():
        name = matrix.phrase(cell.factors)
        for result in cell.results:
            if result.usable:
                continue
            reason = str(result.reason) if result.reason else problem_of(result)
            several = len(cell.results) > 1
            told = f"{name} (repeat {result.repeat})" if several else name
            found.setdefault((result.status, reason, result.log_excerpt), []).append(told)
    lines = [
        [status, reason, " · ".join(cells), log] for (status, reason, log), cells in found.items()
    ]
    return Figures(("status", "reason", "cells", "log"), rows(lines))


def refusals(subject: Subject) -> list[str]:
    """Return each reason for which cells were refused, and how many it met."""
    counted: dict[str, int] = {}
    for cell in subject.matrix.cells.values():
        if cell.refused:
            reason = problem_of(cell.results[-1])
            counted[reason] = counted.get(reason, 0) + 1
    return [
        f"refused, {count} {'cell' if count == 1 else 'cells'}: {reason}"
        for reason, count in counted.items()
    ]


SLOW_MOTION = (
    "p99 is not judged: in slow motion the database's pauses appear shorter by the dilation, and "
    "the kernel writes back more often by as much"
)


def warnings(subject: Subject) -> list[str]:
    """Return what a reader must know beside the figures, each once."""
    told: list[str] = list(subject.run.torn)
    info = subject.info
    missing = missing_repeats(subject)
    if missing:
        told.append(missing)
    counted: dict[str, int] = {}
    for result in subject.run.results():
        for text in result.warnings:
            counted[text] = counted.get(text, 0) + 1
        wrong = result.errors.get("wrong_rows", 0)
        if wrong:
            told.append(f"trial {result.trial}: {wrong} rows were not what had been written")
        failed = sum(result.errors.values()) - wrong
        if failed:
            kinds = ", ".join(f"{n} {kind}" for kind, n in result.errors.items() if n)
            told.append(f"trial {result.trial}, repeat {result.repeat}: errors: {kinds}")
    told += [text + (f" ({count} times)" if count > 1 else "") for text, count in counted.items()]
    for cell in subject.matrix.cells.values():
        name = subject.matrix.phrase(cell.factors)
        told += [f"{name}: {text}" for text in late_clients(cell)]
    if any(slow_motion(one) for cell in subject.matrix.cells.values() for one in cell.usable):
        told.append(SLOW_MOTION)
    return [*told, *info.notes]


def missing_repeats(subject: Subject) -> str:
    """Return how much of the plan has no result; empty when all is there."""
    info, planned = subject.info, subject.run.planned()
    if not planned:
        return ""
    repeats = info.repeats or 1
    wanted = sum(1 if trial.refused else repeats for trial in planned)
    have = len(subject.run.results())
    if have >= wanted:
        return ""
    state = "was interrupted" if info.ended is None else "ended early"
    return f"the run {state}: {have} of {wanted} repeats have a result"


def side_by_side(comparison: Comparison) -> Figures:
    """Return the cells of two runs with the difference of each."""
    unit, path = comparison.rates.unit, comparison.rates.value
    matrix = comparison.second.matrix
    first, second = comparison.first.label, comparison.second.label
    word = "change" if comparison.is_history else "error"
    lines = []
    for one in comparison.matched:
        old, new = one.cells
        name = matrix.phrase(new.factors)
        line = [name]
        line += [wording.rate(old.median(path)), wording.rate(new.median(path))]
        line.append(change(one.judgements.get(Quantity.OPS)))
        for quantity in (Quantity.P50, Quantity.P99):
            if quantity not in one.judgements:
                line += ["", "", ""]
                continue
            line += [
                wording.latency(old.median(quantity.value)),
                wording.latency(new.median(quantity.value)),
                change(one.judgements.get(quantity)),
            ]
        verdict = wording.judged(one.judgement) if comparison.is_history else ""
        lines.append([*line, verdict, one.not_counted])
    heads = ["cell"]
    for name in (unit, "p50", "p99"):
        heads += [f"{name} {first}", second, word]
    figures = Figures((*heads, "verdict", "not counted"), rows(lines))
    return without_empty_columns(figures)


def scaled_loads(comparison: Comparison) -> str:
    """Return what was done to rates whose load shrinks with the data; empty when there are none."""
    found = {
        (figure.here, figure.full): None
        for one in comparison.matched
        for cell in one.cells
        for result in cell.usable
        if load_ratio(result) not in (None, 1)
        and result.share
        and (figure := result.share.warehouses)
    }
    told = ", ".join(f"{here:,g} here for {full:,g}" for here, full in found)
    if not told:
        return ""
    return (
        f"TPC-C's rate depends on its warehouses, so it is scaled up by their number ({told}); "
        "the figures of CPU and disks are not."
    )


def change(judgement: object) -> str:
    """Return the change of a judgement as a percentage."""
    ratio = getattr(judgement, "ratio", None)
    return "" if ratio is None else wording.change_range(ratio, ratio)


def without_empty_columns(figures: Figures) -> Figures:
    """Return the table without columns that hold nothing."""
    used = [
        number
        for number in range(len(figures.headings))
        if any(line[number] for line in figures.rows)
    ]
    return Figures(
        tuple(figures.headings[number] for number in used),
        tuple(tuple(line[number] for number in used) for line in figures.rows),
    )


def shares(results: Sequence[TrialResult]) -> list[str]:
    """Return what was scaled: `threads: 21 here for 128`; one entry for each different figure."""
    told: dict[str, None] = {}
    for result in results:
        share = result.share
        if share is None:
            continue
        for name in ("nodes", "rows", "operations", "threads", "rate_per_s", "at_most_per_s"):
            figure = getattr(share, name)
            if figure is not None and figure.full != figure.here:
                text = f"{name.replace('_', ' ')}: {figure.here:,.10g} here for {figure.full:,.10g}"
                told[text] = None
    return list(told)


KIB = 1024
GB = 1e9
OF_TRACES = (
    "trace", "I/Os", "reads", "block sizes", "in order", "range", "length", "offered",
    "busiest second",
)  # fmt: skip


def replayed(subject: Subject) -> Figures:
    """Return each trace that was replayed, once for each pace; no rows: none was."""
    seen: list[TraceRecord] = []
    for cell in subject.matrix.cells.values():
        for result in cell.shown.results:
            if result.trace is not None and result.trace not in seen:
                seen.append(result.trace)
    return Figures(OF_TRACES, rows([_row(one) for one in seen]))


def _row(one: TraceRecord) -> list[str]:
    sizes = ", ".join(
        f"{int(size) / KIB:g} KiB {share * 100:.0f} %" for size, share in one.block_sizes.items()
    )
    offered = "closed loop" if one.offered_per_s is None else f"{wording.rate(one.offered_per_s)}/s"
    return [
        one.file.rpartition("/")[2],
        f"{one.ios:,}",
        wording.percent(one.reads / one.ios),
        sizes,
        wording.percent(one.sequential_ratio),
        f"{one.touched_bytes / GB:.3g} GB",
        f"{one.duration_s:.3g} s",
        offered,
        f"{one.busiest_per_s:,}",
    ]
