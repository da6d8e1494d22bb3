"""Why a cell is as fast as it is: the limit that bound it, the caches, credits, client. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from disklab.report import wording
from disklab.report.cells import Cell, Matrix, median
from disklab.report.wording import percent, rate, significant, span
from disklab.results import RuleFinding, TrialResult
from disklab.results.records import CEILING, OF_ANOTHER_NODE, SPOILABLE, STRETCHES
from disklab.results.required import carried_ratio, is_overloaded, told_apart

# Whether the disks are good enough by the rules that a database's makers publish.


@dataclass(frozen=True)
class Ruled:
    """One rule and one cell, over all its usable repeats."""

    cell: Cell
    found: tuple[RuleFinding, ...]

    @property
    def kept(self) -> bool | None:
        """Whether the rule is kept; None: repeats disagree, or this machine may be why not."""
        answers = {one.kept or (None if one.doubt else False) for one in self.found}
        return answers.pop() if len(answers) == 1 else None

    @property
    def sure(self) -> bool:
        """Whether no repeat's figure was too coarse for the answer."""
        return self.kept is not None and all(one.sure for one in self.found)

    @property
    def figure(self) -> str:
        """The median of the repeats: `3.1 ms`, or `11 ms; from 8 to 16 ms` where it is coarse."""
        doubts = ", ".join(dict.fromkeys(one.doubt for one in self.found if one.doubt))
        below_ms = self.found[0].below_ms
        shown = told_apart(median([one.found_ms for one in self.found]) or 0.0, below_ms, digits=2)
        if self.kept is None and doubts:
            return f"{shown} ms; {doubts}"
        ranges = [one.within_ms for one in self.found if one.within_ms is not None]
        if self.sure or not ranges:
            return f"{shown} ms"
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        return f"{shown} ms; from {wording.two_digits(low)} to {wording.two_digits(high)} ms"

    @property
    def answer(self) -> str:
        """`yes`, `no`, `probably`, `probably not` or `cannot tell`."""
        if self.kept is None:
            return "cannot tell"
        if self.sure:
            return "yes" if self.kept else "no"
        return "probably" if self.kept else "probably not"


def rules_of(cell: Cell) -> list[Ruled]:
    """Return each rule of a cell over its usable repeats."""
    found: dict[tuple[str, str], list[RuleFinding]] = {}
    for result in cell.usable:
        for one in result.rules:
            found.setdefault((one.subject, one.what), []).append(one)
    return [Ruled(cell, tuple(repeats)) for repeats in found.values()]


def ruled(matrix: Matrix) -> Iterator[tuple[RuleFinding, list[Ruled]]]:
    """Yield each rule of a run with what became of it in every usable cell."""
    rules: dict[tuple[str, str], RuleFinding] = {}
    cells: dict[tuple[str, str], list[Ruled]] = {}
    for cell in matrix.cells.values():
        for one in rules_of(cell):
            name = one.found[0].subject, one.found[0].what
            rules.setdefault(name, one.found[0])
            cells.setdefault(name, []).append(one)
    for name, rule in rules.items():
        yield rule, cells[name]


ANSWERS = ("yes", "probably", "cannot tell", "probably not", "no")
"""In the order in which they are told."""


def sentence(matrix: Matrix, rule: RuleFinding, cells: Sequence[Ruled]) -> tuple[str, str]:
    """Return the answer to a rule in one sentence, and what the rule is."""
    told = []
    for answer in ANSWERS:
        names = [
            f"{name_of(matrix, one.cell)} ({one.figure})" for one in cells if one.answer == answer
        ]
        if names:
            told.append(f"{answer}: {', '.join(names)}")
    text = f"Good enough for {rule.subject}? {wording.capital('; '.join(told))}"
    reason = f"{rule.subject} asks for a {rule.what} below {wording.two_digits(rule.below_ms)} ms"
    return text, f"{reason} ({rule.source})" if rule.source else reason


def leaders(matrix: Matrix) -> Iterator[str]:
    """Yield what disks cost who must hear from a leader in time, one sentence each."""
    fields = {"late heartbeats": "late_heartbeats_per_hour", "elections": "elections_per_hour"}
    for what, field in fields.items():
        counts: dict[str, float] = {}
        for cell in matrix.cells.values():
            each = [getattr(result.telemetry, field) for result in cell.usable]
            if (count := median([count for count in each if count is not None])) is not None:
                counts[name_of(matrix, cell)] = count
        some = [f"{name} {rate(count)}" for name, count in counts.items() if count]
        if some:
            yield f"{wording.capital(what)} an hour: {', '.join(some)}"
        elif counts:
            yield f"No {what}: no sync of the log delayed the leader long enough"


def name_of(matrix: Matrix, cell: Cell) -> str:
    """Return a cell by the levels of the factors that vary."""
    return matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying}) or "this disk"


MOSTLY = 0.5
"""A cache that serves the greater part of the reads decides how fast they are."""
CREDITS_LOW = 0.2
"""Below that share of its credits a volume is about to fall to its baseline."""
CLIENT_LATE_SHARE = 0.1
"""A client that sends later than a tenth of the median latency shapes what it measures."""
LATENCY = "latency"
"""What predictions name as the bottleneck when operations waited for nothing but service.

Rehearsals, which see the disks, name the volume before it: `data latency`.
"""
BUSY = 0.9
"""Share of a resource from which on it is the limit."""

THIS_MACHINE = "this machine's CPU"
"""What rehearsals name as the bottleneck when the machine and not a disk was it."""
LIMITS = (
    (
        re.compile(r"^(?:(\w+) )?vm (cached|uncached|shared) ([\d.]+) (IOPS|MB/s)$"),
        "the VM's {1} {2} {3}",
    ),
    (re.compile(r"^(?:(\w+) )?disk (\d+) ([\d.]+) (IOPS|MB/s)$"), "the disk's {2} {3}"),
    (re.compile(r"^(client|node) CPU$"), "the processors of the {0}"),
    (re.compile(r"^TPC-C.s terminals$"), "the keying and think times of TPC-C's terminals"),
    (re.compile(rf"^{CEILING}$"), "the ceiling that its load was given"),
    (re.compile(r"^flush writers$"), "flushes of memtables, which wait for the disk"),
    (re.compile(r"^this machine's CPU$"), "this machine's processor"),
    (
        re.compile(rf"^{STRETCHES[OF_ANOTHER_NODE]}$"),
        "another node, which applies each change with its own disks",
    ),
)
"""Limits as the emulator and the simulator name them, and what a sentence calls them."""

ABOVE_BASELINE = 1.05
"""Share of a baseline above which it was burst, and not the rounding of a short run."""


@dataclass(frozen=True)
class Why:
    """What is known of one cell's limits; None where nobody looked."""

    bound_by: str | None
    utilisation: float | None
    hit_ratio: float | None
    credits_left: float | None
    """Lowest of the limits that it explains, share of the capacity; see `lowest_credits`."""
    client_cpu: float | None
    emulator_late: float | None
    delayed_share: float | None
    """Time that I/Os waited at the binding limit, over the time that operations took."""
    credits_gone: str = ""
    """When burst credits ran out in mid-run, and the rates before and after; else empty."""
    credits_of: str = ""
    """Whose `credits_left` are: the disk's or the VM's."""

    @property
    def is_machine(self) -> bool:
        """Whether this machine's processor was the limit, and nothing of the described system."""
        return self.bound_by == THIS_MACHINE

    def sentence(self, name: str) -> str:
        """Return what held a cell back, in a sentence about `name`; empty: nobody knows."""
        if not self.bound_by:
            return ""
        if self.bound_by == LATENCY:
            subject = "neither" if name == "both" else name
            limit = "a limit" if name == "both" else "no limit"
            return f"{subject} reached {limit}: each operation takes that long without a queue"
        if self.bound_by.endswith(f" {LATENCY}"):
            volume = self.bound_by.removesuffix(f" {LATENCY}")
            share = f" for {percent(self.utilisation)} of its time" if self.utilisation else ""
            return f"{name}: each operation waits for the {volume} disk{share}"
        used = self.used()
        return f"{name} was limited by {limit_in_words(self.bound_by)}" + (
            f" ({used})" if used else ""
        )

    def bound(self) -> str:
        """Return which limit bound, and how much of it was used."""
        if self.bound_by == LATENCY:
            return "no limit was reached: latency alone set the rate"
        if self.bound_by and self.bound_by.endswith(f" {LATENCY}"):
            volume, share = self.bound_by.removesuffix(f" {LATENCY}"), self.utilisation
            took = f": {percent(share)} of an operation's time" if share else ""
            return f"limited by the latency of {volume}{took}"
        used = self.used()
        return f"limited by {limit_in_words(self.bound_by or '')}" + (f" ({used})" if used else "")

    def used(self) -> str:
        """Return how much of the binding limit was used; empty: nobody knows.

        A share is of the baseline. What is more than all of it was burst, on credits.
        """
        if self.utilisation is None:
            return ""
        if self.bound_by == STRETCHES[OF_ANOTHER_NODE]:
            return f"{percent(self.utilisation)} of an operation's time"
        if self.utilisation > ABOVE_BASELINE:
            return f"burst to {significant(self.utilisation, 2)} times its baseline"
        return f"{percent(min(self.utilisation, 1.0))} used"

    def phrases(self) -> list[str]:
        """Return the reasons, the most telling first."""
        told = []
        if self.bound_by:
            told.append(self.bound())
        if self.hit_ratio is not None:
            told.append(f"{percent(self.hit_ratio)} of reads came from the host cache")
        if self.credits_gone:
            told.append(self.credits_gone)
        elif self.credits_left is not None and self.credits_left < CREDITS_LOW:
            told.append(
                f"{percent(self.credits_left)} of {self.credits_of} burst credits were left"
            )
        if self.client_cpu is not None and self.client_cpu >= BUSY:
            told.append(f"the client used {percent(self.client_cpu)} of the machine")
        return told


def why(cell: Cell) -> Why:
    """Return what a cell's repeats say of its limits; medians over them."""
    usable = cell.usable or cell.results
    bottlenecks = [result.bottleneck for result in usable if result.bottleneck is not None]
    names = [one.resource for one in bottlenecks]
    common = max(set(names), key=names.count) if names else None
    used = [one.utilisation for one in bottlenecks if one.resource == common]
    buckets = [bucket for result in usable if (bucket := lowest_credits(result))]
    return Why(
        bound_by=common,
        utilisation=median([value for value in used if value is not None]),
        hit_ratio=None if only_writes(cell) else over(usable, hit_ratio_of),
        credits_left=median([share for share, _ in buckets]),
        credits_of=min(buckets, default=(0.0, ""))[1],
        client_cpu=over(usable, lambda result: result.telemetry.cpu_ratio.get("client")),
        emulator_late=over(usable, lambda result: result.telemetry.late_ratio),
        delayed_share=over(usable, delayed_share),
        credits_gone=credits_gone(usable),
    )


def credits_gone(results: Sequence[TrialResult]) -> str:
    """Return when credits ran out, of the first repeat in which they did; empty: in none."""
    for result in results:
        for one in result.credits_gone[:1]:
            return (
                f"burst credits last {span(one.at_s)}: {rate(one.ops_per_s_before)} ops/s before, "
                f"{rate(one.ops_per_s_after)} after"
            )
    return ""


def over(
    results: tuple[TrialResult, ...], of: Callable[[TrialResult], float | None]
) -> float | None:
    """Return the median of a figure over the repeats that have it."""
    return median([value for result in results if (value := of(result)) is not None])


def lowest_credits(result: TrialResult) -> tuple[float, str] | None:
    """Return the lowest share of credits left at the end, and whose; None: they explain nothing.

    They do where the load spent some, or where it was held by a limit that had none to begin with:
    a bucket that fills again beside a load which asks for little is no reason.
    """
    bound_by = result.bottleneck.resource if result.bottleneck else None
    shares = [
        (
            limit.credits_left / (limit.credits_capacity or 1),
            "the VM's" if limit.limit.startswith("vm ") else "the disk's",
        )
        for limit in result.telemetry.limits
        if limit.credits_left is not None
        # A bucket holds whole I/Os or bytes; in a damaged file it may hold next to nothing.
        and (limit.credits_capacity or 0) >= 1
        and (
            f"{limit.volume} {limit.limit}".strip() == bound_by
            or limit.credits_start is None
            or limit.credits_left < limit.credits_start
        )
    ]
    return min(shares, default=None)


def delayed_share(result: TrialResult) -> float | None:
    """Return the wait at all limits over the time that all operations took, up to 1."""
    waited = sum(limit.delayed_ms for limit in result.telemetry.limits)
    mean = result.latency_ms.get("mean")
    if not result.telemetry.limits or not mean or not result.ops_per_s or not result.duration_s:
        return None
    return min(1.0, waited / (result.ops_per_s * result.duration_s * mean))


def hit_ratio_of(result: TrialResult) -> float | None:
    """Return the share of reads that the host cache served."""
    return result.host_cache_hit_ratio


def only_writes(cell: Cell) -> bool:
    """Return whether a cell's load reads nothing, so that no cache of reads explains its rate."""
    kinds = {name for result in cell.results for name in result.per_operation}
    return bool(kinds) and kinds <= {"write", "insert", "update", "delete"}


def limit_in_words(limit: str) -> str:
    """Return a limit as a sentence names it: `the VM's cached 64,000 IOPS`."""
    for pattern, words in LIMITS:
        found = pattern.match(limit.strip())
        if found:
            parts = [part or "" for part in found.groups()]
            return words.format(*(f"{int(p):,}" if p.isdecimal() else p for p in parts))
    return limit.strip()


def offered(cell: Cell) -> float | None:
    """Return the rate that an open loop offered, operations a second; None of a closed loop."""
    rates = {one.loop.get("rate_per_s") for one in cell.usable if one.loop.get("kind") == "open"}
    found = [float(rate) for rate in rates if rate]
    return found[0] if len(found) == 1 else None


def carried(cell: Cell) -> float | None:
    """Return the share of an offered rate that was done; None of a closed loop."""
    return carried_ratio(cell.usable)


def fails(cell: Cell) -> bool:
    """Return whether a cell cannot carry the rate that was offered to it."""
    return is_overloaded(cell.usable)


def limited_by_machine(cell: Cell) -> bool:
    """Return whether this machine's processor was the limit of a cell."""
    return why(cell).is_machine


def reasons_of_pair(first: Cell, second: Cell, better: int, names: tuple[str, str]) -> list[str]:
    """Return why two cells differ, or do not; nothing when nothing was seen that tells.

    `better`: 1 when the second one is, -1 when the first one is, 0 when neither is.
    """
    one, other = why(first), why(second)
    if better == 0:
        told = [served(side, name) for side, name in zip((one, other), names, strict=True)]
        if any(told):
            return [text for text in told if text][:1]
        if one.bound_by and one.bound_by == other.bound_by:
            return [one.sentence("both").replace("both was", "both were")]
        return []
    slow, fast = (one, other) if better > 0 else (other, one)
    slow_name, fast_name = names if better > 0 else names[::-1]
    told = [served(fast, fast_name)]
    if slow.bound_by and slow.bound_by != fast.bound_by:
        told.append(slow.sentence(slow_name))
    if slow.credits_gone:
        told.append(f"{slow_name}: {slow.credits_gone}")
    elif slow.credits_left is not None and slow.credits_left < CREDITS_LOW:
        left = f"{percent(slow.credits_left)} of {slow.credits_of} burst credits"
        told.append(f"{slow_name} had {left} left")
    return [text for text in told if text]


def served(side: Why, name: str) -> str:
    """Return that the host's own disks served the reads; empty when they served the fewer."""
    if side.hit_ratio is None or side.hit_ratio < MOSTLY:
        return ""
    return f"{percent(side.hit_ratio)} of the reads of {name} came from the host's own SSD"


def status_of(cell: Cell) -> str:
    """Return why a cell has no figures: `invalid: the emulator was late`."""
    result = cell.results[-1]
    return f"{result.status}: {problem_of(result)}".rstrip(": ")


def spoiled(matrix: Matrix) -> list[tuple[str, str]]:
    """Return which figures count in no repeat, for other programs disturbed them, and how."""
    cells: dict[str, list[str]] = {}
    reasons: dict[str, None] = {}
    for cell in matrix.cells.values():
        usable = cell.usable
        names = [name for kind, name in SPOILABLE.items() if usable and _is_in_all(kind, usable)]
        if names:
            place = matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying})
            cells.setdefault(" and the ".join(names), []).append(place)
            reasons |= dict.fromkeys(why for one in usable for why in one.spoiled.values())
    if not cells:
        return []
    told = []
    for figures, places in cells.items():
        where = ", ".join(place for place in places[:MOST_PLACES] if place)
        more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        told.append(f"the {figures}" + (f" of {where}{more}" if where else ""))
    text = f"No answer on {'; '.join(told)}: other work on this machine disturbed it"
    return [(text, next(iter(reasons)))]


MOST_PLACES = 4


def _is_in_all(kind: str, results: Sequence[TrialResult]) -> bool:
    return all(kind in one.spoiled for one in results)


def problem_of(result: TrialResult) -> str:
    """Return what was wrong with a result; the rule only, since the place is in the table."""
    if result.invalid_reasons:
        return "; ".join(result.invalid_reasons)
    return result.reason.rule if result.reason else ""


def late_clients(cell: Cell) -> list[str]:
    """Return a warning for each repeat whose client sent late."""
    told = []
    for result in cell.usable:
        late, half = result.telemetry.client_late_p99_ms, result.latency_ms.get("p50")
        if late is not None and half and late > half * CLIENT_LATE_SHARE:
            told.append(
                f"repeat {result.repeat}: the client sent late, p99 {late:.3g} ms at a median "
                f"latency of {half:.3g} ms"
            )
    return told
