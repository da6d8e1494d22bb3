"""The answer of a run: every comparison of its main factor, and the sentences that sum them up."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from math import log

import polars as pl

from disklab.report import faults, sentences, weather, wording
from disklab.report.axes import plain
from disklab.report.cells import Cell, Factor, Matrix
from disklab.report.pair import Kind, Pair, pairs_of
from disklab.report.reasons import (
    fails,
    leaders,
    limit_in_words,
    limited_by_machine,
    reasons_of_pair,
    ruled,
    sentence,
    spoiled,
    status_of,
    why,
)
from disklab.report.sentences import Names
from disklab.report.subject import RunLike, Subject
from disklab.report.verdict import Crossing, Outcome, Quantity
from disklab.results import (
    DEFAULT_OUT,
    Histogram,
    Level,
    PlannedTrial,
    Run,
    RunInfo,
    Second,
    TrialResult,
)
from disklab.spec import bundled

# What would tell when a run cannot: the command, and how long it takes. Pure.


def of(subject: Subject, pairs: Sequence[Pair]) -> list[str]:
    """Return the way to an answer, in at most one sentence; nothing when there is one already."""
    if subject.info.mode == "predict":
        return doubt(pairs)
    if subject.info.mode != "rehearse":
        return []
    kinds = [pair.kind for pair in pairs]
    if Kind.UNKNOWN in kinds:
        open_ = [pair.judgement.more_repeats for pair in pairs if pair.kind is Kind.UNKNOWN]
        return [more_repeats(subject, [one for one in open_ if one is not None], len(open_))]
    if set(kinds) == {Kind.MACHINE}:
        return [elsewhere(subject)]
    return []


def doubt(pairs: Sequence[Pair]) -> list[str]:
    """Return what most of a prediction's doubt is about; nothing when little is in doubt."""
    named = [pair.judgement.unknown for pair in pairs if pair.judgement.unknown]
    if not named:
        return []
    name = in_words(max(set(named), key=named.count))
    if any(pair.kind is Kind.UNKNOWN for pair in pairs):
        return [f"it depends on {name}"]
    return [f"most of the doubt is {name}"]


def in_words(name: str) -> str:
    """Return a value that is not known as a sentence names it."""
    kind, _, what = name.partition(": ")
    words = {"service time": "how long the disk takes", "limit": "the exact limit"}
    if kind in words:
        return f"{words[kind]} ({what})"
    return next((said for pattern, said in CALIBRATED if pattern.search(name)), UNNAMED)


CALIBRATED = tuple(
    (re.compile(pattern), said)
    for pattern, said in (
        ("pause|collector|allocated|kept|moved|young", "how long garbage collection stops a node"),
        ("^client", "how much processor time the client needs for an operation"),
        ("overhead_ns$", "how long an operation takes apart from what is modelled"),
        ("cpu_ns$|byte_ps$", "how much processor time the database needs for an operation"),
        ("^one_way|^spread|between_zones", "how long the network takes"),
        ("memory|page_cache", "how much memory is left for caches"),
        ("table_write|compaction|rewrites", "how fast tables are rewritten"),
    )
)
"""What a sentence calls the parameters of calibrations, whose names no reader knows."""

UNNAMED = "what was calibrated on other machines"


def named(subject: Subject) -> str:
    """Return a run as a command finds it: by its id, or by its folder where --out was given."""
    run = subject.run.whole if isinstance(subject.run, Part) else subject.run
    if isinstance(run, Run) and run.folder.name == run.info.id:
        return run.info.id if run.folder.parent == DEFAULT_OUT else str(run.folder)
    return run.info.id


def more_repeats(subject: Subject, wanted: Sequence[int], of_all: int) -> str:
    """Return how many repeats would tell, how long they take, and the command."""
    if len(wanted) < of_all or not wanted:
        return "The repeats differ so much that more of them would not settle it in reasonable time"
    info = subject.info
    have, total = info.repeats or 1, max(wanted)
    more = max(1, total - have)
    minutes = repeat_s(subject)
    time = f" ({wording.span(minutes * more)})" if minutes else ""
    count = wording.counted(more, "more repeat")
    run = named(subject)
    command = shlex.join(["disklab", "rehearse", "--resume", run, "--repeat", str(have + more)])
    return f"About {count} would tell{time}: {command}"


def repeat_s(subject: Subject) -> float | None:
    """Return how long a repeat of all cells took, seconds; None: the run did not end."""
    info = subject.info
    if not info.started or not info.ended:
        return None
    try:
        took = datetime.fromisoformat(info.ended) - datetime.fromisoformat(info.started)
    except (ValueError, TypeError):
        return None  # damaged: no time, or one of them has no zone
    seconds = took.total_seconds() / (info.repeats or 1)
    return seconds if seconds >= 1 else None


def elsewhere(subject: Subject) -> str:
    """Return what answers when this machine is too small."""
    file = bundled.typed(subject.info.experiment.file or "EXPERIMENT")
    return (
        f"A machine with more processors could answer this, or a prediction: disklab predict {file}"
    )


MOST_REASONS = 2
DECIDED = (Kind.BETTER, Kind.WORSE, Kind.OVERLOAD)


@dataclass(frozen=True)
class Finding:
    """What is said of one pair of levels in one context, along the whole sweep."""

    text: str
    reason: str
    basis: str
    outcome: Outcome | None
    """None: it differs along the sweep."""
    pairs: tuple[Pair, ...]
    crossings: tuple[Crossing, ...] = ()

    @property
    def weight(self) -> tuple[int, float]:
        """How much it tells: what is decided before what is equal, then the larger difference."""
        kinds = {pair.kind for pair in self.pairs}
        if not kinds:
            return 0, 0.0
        if kinds & set(DECIDED):
            sizes = [abs(log(pair.judgement.ratio)) for pair in self.pairs if pair.kind in DECIDED]
            return 3, max(sizes)
        return (2, 0.0) if Kind.EQUAL in kinds else (1, 0.0)


@dataclass(frozen=True)
class Answer:
    """Everything that is said of one run."""

    subject: Subject
    pairs: tuple[Pair, ...]
    findings: tuple[Finding, ...]
    """The most telling first."""


def answer_of(subject: Subject) -> Answer:
    """Compare every level of the main factor with its first, the others held fixed."""
    matrix = subject.matrix
    pairs = pairs_of(subject)
    findings: list[Finding] = []
    if matrix.main is not None:
        baseline, *rest = matrix.main.levels
        # What does not last is told by itself, beside what each does afterwards.
        lasting = [pair for pair in pairs if not pair.rests_on_credits]
        for level in rest:
            of_level = [pair for pair in lasting if pair.second == level]
            findings += findings_of(subject, matrix.main, of_level)
            if not any(pair.second == level for pair in pairs):
                findings.append(_no_comparison(matrix, matrix.main, baseline, level))
    elif matrix.cells:
        findings = [_alone(cell) for cell in matrix.cells.values()]
    findings.sort(key=lambda one: one.weight, reverse=True)
    if matrix.main is not None and (summed := _of_all(matrix.main, lasting, findings)) is not None:
        findings.insert(0, summed)
    elif matrix.main is not None and matrix.varying == (matrix.main,):
        ranks = lasting == pairs
        text = sentences.ranked(matrix.main, list(matrix.cells.values())) if ranks else ""
        findings[:0] = [Finding(text, "", "", None, ())] if text else []
    # What the makers ask for is the first question, and the only one with a yes or no.
    rules = [sentence(matrix, rule, cells) for rule, cells in ruled(matrix)]
    findings[:0] = [
        *(Finding(text, reason, "", None, ()) for text, reason in rules),
        *(Finding(text, "", "", None, ()) for text in leaders(matrix)),
    ]
    # Who breaks nodes asks what that costs before what the load did.
    lost = [*weather.sentences(matrix), *faults.sentences(matrix)]
    findings[:0] = [Finding(text, reason, "", None, ()) for text, reason in lost]
    # What does not count is to be known before what does.
    findings[:0] = [Finding(text, reason, "", None, ()) for text, reason in spoiled(matrix)]
    return Answer(subject, tuple(pairs), tuple(findings))


FEWEST_LEVELS, FEWEST_PLACES = 2, 3
"""Levels beside the first, and places in which they were compared, from which on single sentences
say nearly the same again and again."""


def _of_all(main: Factor, pairs: Sequence[Pair], findings: Sequence[Finding]) -> Finding | None:
    """Return one sentence on all levels, where several were compared in several places.

    None where they are too few, or where any answer is another than `more` or `equal`.
    """
    by_level: dict[Level, list[Pair]] = {}
    for pair in pairs:
        by_level.setdefault(pair.second, []).append(pair)
    places = {len(of_level) for of_level in by_level.values()}
    if len(by_level) < FEWEST_LEVELS or min(places) < FEWEST_PLACES or len(places) > 1:
        return None
    plain = all(
        pair.kind in (Kind.BETTER, Kind.EQUAL) and pair.deciding is Quantity.OPS for pair in pairs
    )
    if not plain or all(pair.kind is Kind.EQUAL for pair in pairs):
        return None
    (count,) = places
    base = Names.of(main, pairs[0].first, pairs[0].second).first
    told: list[str] = []
    none: list[str] = []
    for level, of_level in by_level.items():
        name = Names.of(main, pairs[0].first, level).second
        ratios = [pair.judgement.ratio for pair in of_level if pair.kind is Kind.BETTER]
        if not ratios:
            none.append(f"{name} in none")
            continue
        most = max(ratios)
        size = (
            f"{wording.significant(most, 2)} times as many"
            if most >= wording.TIMES_FROM
            else f"{wording.percent(most - 1)} more"
        )
        size = f"up to {size}" if len(ratios) > 1 else size
        does = f" does more operations than {base}" if not told else ""
        of_all = f" of {count} comparisons" if not told else ""
        told.append(f"{name}{does} in {len(ratios)}{of_all} ({size})")
    about = "about " if pairs[0].mode == sentences.PREDICTED else ""
    text = f"{', '.join([*told, *none])}; otherwise they are {about}equal"
    strongest = next((one.reason for one in findings if one.reason), "")
    basis = wording.basis_of([pair.judgement for pair in pairs])
    return Finding(text, strongest, basis, None, tuple(pairs))


def _no_comparison(matrix: Matrix, main: Factor, baseline: Level, level: Level) -> Finding:
    """Return why a level stands beside nothing: each reason once."""
    reasons: dict[str, None] = {}
    names = Names.of(main, baseline, level)
    for side, name in ((level, names.second), (baseline, names.first)):
        cells = [cell for cell in matrix.cells.values() if cell.factors[main.name] == side]
        bad = [cell for cell in cells if not cell.usable]
        if bad and len(bad) == len(cells):
            reasons |= dict.fromkeys(f"{name} {status_of(cell)}" for cell in bad)
    if not reasons:
        reasons = {"they share no cell with usable figures": None}
    text = f"No answer on {names.second} against {names.first}"
    return Finding(text, "; ".join(list(reasons)[:MOST_REASONS]), "", None, ())


def _alone(cell: Cell) -> Finding:
    """Return what a single cell gave: there is nothing to compare it with."""
    if not cell.usable:
        text = "No answer: the only cell has no valid figures"
        return Finding(text, status_of(cell), "", None, ())
    rate, tail = cell.median("ops_per_s"), cell.median("p99_ms")
    told = [f"{wording.rate(rate)} operations a second"] if rate is not None else []
    told += [f"a 99th percentile of {wording.latency(tail)}"] if tail is not None else []
    found = why(cell)
    if limited_by_machine(cell):
        text = "No answer: this machine's processor was the limit, not the disks"
        return Finding(text, f"it did {' with '.join(told)}", "", None, ())
    reasons = found.phrases()
    if found.bound_by:
        reasons = [f"the limit: {limit_in_words(found.bound_by)}", *reasons[1:]]
    return Finding(f"It does {' with '.join(told)}", "; ".join(reasons), "", None, ())


def findings_of(subject: Subject, main: Factor, pairs: Sequence[Pair]) -> list[Finding]:
    """Return the sentences on one level against the baseline: one if all agree, or by context."""
    if not pairs:
        return []
    matrix = subject.matrix
    names = Names.of(main, pairs[0].first, pairs[0].second)
    if len(pairs) > 1 and {pair.kind for pair in pairs} == {Kind.EQUAL}:
        counted = sentences.operations(pairs)
        text = sentences.equal(pairs, names, counted)
        return [_finding(subject, f"{text}, in all {len(pairs)} comparisons", pairs, names)]
    found = []
    for context in matrix.contexts():
        line = [pair for pair in pairs if all(pair.context[n] == v for n, v in context.items())]
        if line:
            found.append(_along(subject, context, names, line))
    return found


def _along(
    subject: Subject, context: Mapping[str, Level], names: Names, line: Sequence[Pair]
) -> Finding:
    """Return the sentence on one line of a sweep, or on a single pair."""
    matrix = subject.matrix
    fixed = sentences.place(matrix, context, sentences.operations(line))
    where = f"{wording.capital(fixed)}: " if fixed else ""
    if matrix.sweep is None or len(line) == 1:
        text = sentences.of_pair(line[0], names)
        at = ""
        if matrix.sweep is not None:
            at = f", at {matrix.sweep.phrase(line[0].context[matrix.sweep.name])}"
        return _finding(
            subject, f"{where}{wording.capital(text) if not where else text}{at}", line, names
        )
    text, crossed = sentences.of_line(matrix.sweep, names, line)
    made = _finding(subject, f"{where}{wording.capital(text) if not where else text}", line, names)
    return replace(made, crossings=tuple(crossed))


def _finding(subject: Subject, text: str, pairs: Sequence[Pair], names: Names) -> Finding:
    """Return a finding with its reason, what it rests on, and what would tell more."""
    outcomes = {pair.judgement.outcome for pair in pairs}
    reasons = [*_reasons(pairs, names), *of(subject, pairs)]
    return Finding(
        text=text,
        reason=". ".join(wording.capital(one) for one in reasons),
        basis=wording.basis_of([pair.judgement for pair in pairs]),
        outcome=next(iter(outcomes)) if len(outcomes) == 1 else None,
        pairs=tuple(pairs),
    )


def _reasons(pairs: Sequence[Pair], names: Names) -> list[str]:
    """Return why: each different reason of the pairs once, with the span of its percentages."""
    told: list[str] = []
    for pair in pairs:
        if pair.kind in (Kind.MACHINE, Kind.UNKNOWN):
            continue
        if pair.kind is Kind.OVERLOAD:
            told += overload_reasons(pair, names)
            continue
        told += reasons_of_pair(*pair.cells, pair.better, (names.first, names.second))
    return wording.with_spans(told)[:MOST_REASONS]


def overload_reasons(pair: Pair, names: Names) -> list[str]:
    """Return what held back each side that cannot carry the offered rate."""
    sides = zip((names.first, names.second), pair.cells, strict=True)
    return [text for name, cell in sides if fails(cell) and (text := why(cell).sentence(name))]


# A part of a run that is too large to be read: its first cells, and all of them as a table.

MOST_CELLS = 400
"""Cells of a run that a report compares and shows. Nobody reads more rows, the pairs to compare
grow faster than the cells, and a page of more megabytes opens slowly."""


@dataclass
class Part:
    """The first cells of a run, as a run."""

    whole: RunLike
    trials: frozenset[int]
    cells: int
    """Of the whole run."""

    @cached_property
    def info(self) -> RunInfo:
        """What is known of the run, and that this is a part of it."""
        notes = [*self.whole.info.notes, self.told()]
        return self.whole.info.model_copy(update={"notes": notes})

    def told(self) -> str:
        """Return the sentence that says what is left out."""
        shown = f"{len(self.trials):,} of {self.cells:,} cells"
        return f"{shown} are compared and shown here; the CSV file has all of them"

    @property
    def torn(self) -> tuple[str, ...]:
        """Lines that are no results."""
        return self.whole.torn

    def results(self) -> list[TrialResult]:
        """Return the results of the part."""
        return [one for one in self.whole.results() if one.trial in self.trials]

    def planned(self) -> list[PlannedTrial]:
        """Return the plan of the part."""
        return [one for one in self.whole.planned() if one.trial in self.trials]

    def seconds(self, trial: int, repeat: int) -> Iterator[Second]:
        """Yield the seconds of a repeat."""
        return self.whole.seconds(trial, repeat)

    def response(self, trial: int, repeat: int) -> Histogram | None:
        """Return the response times of a repeat."""
        return self.whole.response(trial, repeat)

    def telemetry(self, trial: int, repeat: int) -> pl.LazyFrame:
        """Return the telemetry of a repeat."""
        return self.whole.telemetry(trial, repeat)


def bounded(run: RunLike) -> RunLike:
    """Return a run, or its first cells when it has more than a report shows."""
    trials = list(dict.fromkeys(one.trial for one in run.results()))
    if len(trials) <= MOST_CELLS:
        return run
    return Part(run, frozenset(trials[:MOST_CELLS]), len(trials))


def table(run: RunLike) -> str:
    """Return every result of a run as CSV: factors, status, rate, latencies, price."""
    results = run.results()
    names = list(dict.fromkeys(name for one in results for name in one.factors))
    latencies = list(dict.fromkeys(name for one in results for name in one.latency_ms))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    told = ["trial", "repeat", "status", *names, "ops_per_s"]
    told += [*(f"{name}_ms" for name in latencies), "price_usd_per_month"]
    writer.writerow(map(plain, told))
    for one in results:
        row = [one.trial, one.repeat, one.status, *(one.factors.get(name, "") for name in names)]
        times = [one.latency_ms.get(name, "") for name in latencies]
        writer.writerow([*map(plain, row), one.ops_per_s, *times, one.price_usd_per_month])
    return text.getvalue()
