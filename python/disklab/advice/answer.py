"""The advice as a whole: answer, reason, options, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from disklab.advice.candidates import PLAINER_RATIO, Field, searches_nodes, spec_of
from disklab.advice.levers import COMPACTION, rooms
from disklab.advice.options import EQUAL_RATIO, Option, groups, short
from disklab.advice.present import Present, present_of
from disklab.advice.question import Question
from disklab.advice.search import Ladder
from disklab.catalog import load_catalog
from disklab.catalog.price import Price, vm_price, volume_price
from disklab.database_facts import facts_of
from disklab.results.required import Outcome
from disklab.spec import feasible

MOST_REASONS = 6
GROWTH_RATIO = 1.5
"""Disks that hold less than so many times the data of the first day have little room to grow.

**Assumed:** the growth at which a higher rate is looked at too."""
CACHES = {"warm": "warm", "cold": "empty", "as-left": "as they were left"}


@dataclass
class Advice:
    """Everything that is said."""

    question: Question
    looked: Field
    """What was looked at, and why most of it is left out."""
    ladders: Sequence[Ladder]
    options: list[Option]
    """At full fidelity; the cheapest of what qualifies first, then by how near they come."""
    cells: int
    """How many cells were simulated quick."""
    calm: bool = False
    """Whether nothing keeps the promise, and the options are those that would without pauses."""
    changes: list[str] = field(default_factory=list)
    """At which rate, data or price the choice flips."""
    run: Path | None = None
    written: Path | None = None
    """The experiment file that a rehearsal takes."""
    now: Option | None = None
    """What runs now, simulated at full fidelity beside the options."""
    unknown: str = ""
    """Why it could not be."""

    @property
    def present(self) -> Present | None:
        """What runs now, if the file was observed."""
        return present_of(self.question, self.now, self.unknown)

    @property
    def chosen(self) -> Option | None:
        """The cheapest option that surely keeps the promise."""
        return next((one for one in self.options if one.kept.outcome is Outcome.MET), None)

    @property
    def perhaps(self) -> Option | None:
        """The cheapest option that may keep it, by its band."""
        kind = Outcome.CANNOT_TELL
        return next((one for one in self.options if one.kept.outcome is kind), None)

    def sentences(self) -> list[str]:
        """Return the answer, its reason, and what else must be known before money is spent."""
        best = self.chosen or self.perhaps
        if self.chosen is not None:
            found = self._buy(self.chosen)
        elif self.perhaps is not None:
            found = self._cannot_tell(self.perhaps)
        else:
            found = self._nothing()
        now = self.present
        if now is not None:
            return [found[0], now.does(best), *found[1:]]
        observed = self.question.observed
        if observed is not None:
            found.append(
                "What runs now is not compared: nobody stated its VM size and disks (`disklab "
                "observe --vm ... --disks ...`)."
            )
        return found

    def _buy(self, one: Option) -> list[str]:
        now = self.present
        verdict = f"Buy {one.name}" if now is None else now.verdict(one)
        headline = f"{verdict}: {one.price}, carries {one.carries}, p99 {self._p99(one)}."
        if self.of_storage is not None:
            headline = self._disks_first(one, self.of_storage, "" if now is None else verdict)
        difference = "" if now is None else now.difference(one)
        found = [
            f"{headline} {difference}".rstrip(),
            f"{limit_of(one)}{tail_of(one)}{cliff_of(one)}A stopped or lost VM loses {one.lost}. "
            f"{self._fills(one)}",
            self.state(),
        ]
        found += self._plainer(one)
        if one.local:
            keeping = next(
                (o for o in self.options if o.kept.outcome is Outcome.MET and not o.local), None
            )
            if keeping is not None:
                found.append(
                    f"The cheapest that keeps its data is {keeping.name}, {keeping.price}."
                )
        cheap = next((one for one in self.options if one.candidate.lossy), None)
        if cheap is not None and cheap.candidate.usd_per_month < one.candidate.usd_per_month:
            found.append(
                f"{cheap.name} would be {cheap.price}, and one lost or stopped VM loses the data: "
                "it is the answer only where the file says `durability: may be lost`."
            )
        cheaper = self.perhaps
        if cheaper and cheaper.candidate.usd_per_month < one.candidate.usd_per_month:
            found.append(
                f"Cheaper, if a rehearsal confirms it: {cheaper.name}, {cheaper.price} "
                f"({cheaper.kept})."
            )
        return found

    def _plainer(self, one: Option) -> list[str]:
        """Return why the option is the answer where it is not the cheapest; none: it is."""
        able = [option for option in self.options if option.kept.outcome is Outcome.MET]
        cheapest = min(able, key=lambda option: option.candidate.usd_per_month)
        why = one.candidate.plainer_than(cheapest.candidate)
        if cheapest is one or not why:
            return []
        limit = f"{(PLAINER_RATIO - 1) * 100:.0f} %"
        return [
            f"It {why} beside {cheapest.name} ({cheapest.price}): within {limit} of the price that "
            "is preferred."
        ]

    def state(self) -> str:
        """Return in which state of the system all this holds, as a sentence."""
        spec = self.question.spec
        database, before = spec.database, spec.before
        title = facts_of(database.engine).title
        name = f"{title} {database.version}" if database.version else title
        warm = f"{CACHES.get(before.page_cache, before.page_cache)} caches"
        left = f"{before.credits_ratio * 100:.0f} % of the burst credits left"
        if before.credits_ratio == 0:
            left = "burst credits spent"
        if before.page_cache == "warm" and before.credits_ratio == 0:
            return f"Simulated as {name} in its steady state: warm caches, burst credits spent."
        return f"Simulated as {name} with {warm} and {left}."

    def in_words(self) -> str:
        """Return the question: data, copies, nodes, rate."""
        spec, load = self.question.spec, self.question.spec.workload.load
        dataset, work = spec.dataset, spec.workload.operations
        parts = []
        if dataset is not None and dataset.rows is not None:
            row = dataset.columns * dataset.column_bytes
            parts.append(f"{in_decimals(dataset.rows * row)} in rows of {in_decimals(row)}")
        nodes, copies = spec.cluster.nodes, spec.database.replication_factor
        where = f"{nodes} node{'s' * (nodes > 1)}"
        grows = " or more" if self.question.more_nodes and searches_nodes(spec) else ""
        parts.append(f"{copies} cop{'ies' if copies > 1 else 'y'} on {where}{grows}")
        if load is not None and load.rate_per_s and work is not None:
            parts.append(
                f"{load.rate_per_s:,.0f} operations a second, {work.read * 100:.0f} % reads"
            )
        require = self.question.require
        parts += [
            f"{'' if kind == 'all' else kind + ' '}{name} at most {bound:g} ms"
            for kind, bounds in require.latencies().items()
            for name, bound in bounds.items()
        ]
        if require.storage_p99_ms is not None:
            parts.append(f"storage's share of p99 at most {require.storage_p99_ms:g} ms")
        return f"Asked: {'; '.join(parts)}."

    def next_step(self) -> str:
        """Return the command that tells more; empty: nothing was written for it."""
        if not self.written or self.chosen is None:
            return ""
        return f"Next: `disklab rehearse {self.written}` runs these options with real databases."

    @property
    def of_storage(self) -> float | None:
        """The bound on storage's share of p99 in ms, where no other latency is asked for."""
        require = self.question.require
        return None if require.latencies() else require.storage_p99_ms

    @staticmethod
    def _disks_first(one: Option, bound_ms: float, verdict: str) -> str:
        """Return a headline that begins with the disks: nothing else is asked about."""
        vms = f"{one.nodes} x {one.candidate.vm.rpartition('/')[2].removeprefix('Standard_')}"
        share = max((result.storage_p99_ms or 0.0 for result in one.results), default=0.0)
        head = f"Disks: {one.candidate.disks} of {vms} keep {bound_ms:g} ms"
        return (
            f"{verdict + '. ' if verdict else ''}{head} (storage's share of p99: {short(share)} "
            f"ms): {one.price}, carries {one.carries}; the whole p99 is {one.latency('p99')}."
        )

    @staticmethod
    def _p99(one: Option) -> str:
        """Return the 99th percentile with storage's share of it."""
        disks = "" if one.disks is None else f", {one.disks}"
        return one.latency("p99") + disks

    def _cannot_tell(self, one: Option) -> list[str]:
        now = self.present
        difference = "" if now is None else f" {now.difference(one)}".rstrip()
        way = f" {self._what_would_tell(one)}" if self.written else ""
        return [
            f"Cannot tell yet; the cheapest that may do is {one.name}: {one.price}, "
            f"p99 {self._p99(one)}.{difference}",
            f"{sentence(str(one.kept))}.{way}",
            f"{tail_of(one)}{cliff_of(one)}A stopped or lost VM loses {one.lost}. "
            f"{self._fills(one)}",
            self.state(),
        ]

    def _fills(self, one: Option) -> str:
        """Return how full the disks are on the first day, and when they must be larger."""
        spec = spec_of(self.question.spec, one.candidate)
        dataset, ratio = spec.the_dataset, self.question.growth_ratio
        stored = feasible.node_bytes(spec)
        size = one.candidate.made.volume.size_bytes
        compaction = one.candidate.settings.get(COMPACTION, spec.database.table.compaction)
        need = rooms(spec)[compaction]
        most = (dataset.rows or 0) * dataset.columns * dataset.column_bytes * size / need
        times = f"{size / need:.1f} times what" if size / need >= EQUAL_RATIO else "no more than"
        growth = (
            f"On the first day the data fill {stored / size * 100:.0f} % of its data disks; beside "
            f"what the database needs for itself, these hold {in_decimals(most)}, {times} is asked "
            "for"
        )
        if ratio:
            grown = stored * (1 + ratio) / size
            return f"{growth}; grown by {ratio * 100:.0f} % they fill {grown * 100:.0f} %."
        if size / need >= GROWTH_RATIO:
            return f"{growth}."
        return f"{growth}: `--growth` asks for room to grow."

    def _what_would_tell(self, one: Option) -> str:
        """Return the measurement that would tell, and what each outcome of it means."""
        doubt = next(point for point in one.kept.points if point.outcome is Outcome.CANNOT_TELL)
        others = [
            other
            for other in self.options
            if other is not one and other.kept.outcome is Outcome.CANNOT_TELL
        ]
        dear = f"look at {others[0].name}, {others[0].price}, next" if others else "ask for more"
        return (
            f"`disklab rehearse {self.written}` would tell: with {doubt.what} {doubt.asked} there, "
            f"buy it; otherwise {dear}."
        )

    def _nothing(self) -> list[str]:
        if not self.options:
            told = "; ".join(self.reasons()) or "no disks hold the data"
            return ["No option of the catalogue can do it.", f"{sentence(told)}."]
        best, *others = self.options
        able = [one for one in self.options if one.disks is not None and one.disks.keeps]
        if self.calm and able:
            return self._but_for_pauses(able)
        found = [
            f"Nothing qualifies: the nearest is {best.name}, {best.price}.",
            f"{sentence(str(best.kept))}. {limit_of(best)}{tail_of(best)}{cliff_of(best)}".rstrip(),
            self.state(),
        ]
        alike = [
            one
            for group in groups([best, *others])
            if best in group
            for one in others
            if one in group and not one.candidate.lossy
        ]
        if alike:
            dearer = ", ".join(f"{one.name} ({one.price})" for one in alike)
            found.append(f"Dearer, and no nearer within what is known: {dearer}.")
        return found

    def _but_for_pauses(self, able: Sequence[Option]) -> list[str]:
        """Return that disks would keep the promise, and garbage collection does not."""
        first, *others = able
        assert first.disks is not None
        collector = self.question.spec.database.jvm.collector
        now = f", now {collector}" if collector else ""
        found = [
            f"The disks of {first.name} keep the promise, and garbage collection does not: "
            f"{first.price}, p99 {first.latency('p99')}, of which storage takes "
            f"{short(first.disks.storage_ms)} ms.",
            f"Without stops of the JVM it would be {short(first.disks.p99_ms)} ms: choose another "
            f"collector or heap (`database.jvm`{now}), or allow more. {self.state()}",
        ]
        if others:
            ranked = "; ".join(f"{one.name}, {one.price}" for one in others)
            found.append(f"Disks that would keep it too, by price: {ranked}.")
        return found

    def reasons(self) -> list[str]:
        """Return why options were left out, the most frequent first."""
        counts: dict[str, int] = {}
        for reason in self.looked.ruled_out.values():
            counts[reason] = counts.get(reason, 0) + 1
        ordered = sorted(counts.items(), key=lambda one: -one[1])
        return [f"{reason} ({count} options)" for reason, count in ordered[:MOST_REASONS]]

    def price_doubts(self, today: date | None = None) -> list[str]:
        """Return which prices of the options may not be those to pay, and why, each once."""
        region, terms = self.question.region, self.question.terms
        catalog = load_catalog()
        doubts: dict[str, list[str]] = {}
        for one in (option.candidate for option in self.options):
            for name, price in (
                (one.vm, vm_price(catalog, one.vm, region=region, terms=terms)),
                (
                    one.disks.expression,
                    volume_price(catalog, one.disks.expression, region=region, terms=terms),
                ),
            ):
                if isinstance(price, Price):
                    doubt = price.doubt(region, today or date.today())
                    if doubt is not None:
                        doubts.setdefault(doubt, []).append(name)
        return [
            f"Prices {doubt}: {', '.join(dict.fromkeys(names))}. `disklab prices` takes today's."
            for doubt, names in doubts.items()
        ]

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        now = self.present
        return {
            "answer": self.sentences(),
            "now": None if now is None else now.as_json(self.chosen or self.perhaps),
            "options": [one.as_json() for one in self.options],
            "changes": self.changes,
            "price_doubts": self.price_doubts(),
            "considered": self.looked.considered,
            "possible": len(self.looked.candidates),
            "simulated": self.cells,
            "ruled_out": self.looked.ruled_out,
            "refused": dict(self.looked.refused.most_common()),
            "quick": [
                {
                    "option": one.candidate.name,
                    "usd_per_month": one.candidate.usd_per_month,
                    "ops_per_s": one.result.ops_per_s,
                    "p99_ms": one.result.latency_ms.get("p99"),
                    "why": str(one.kept),
                }
                for ladder in self.ladders
                for one in ladder.tried
            ],
            "run": None if self.run is None else str(self.run),
            "experiment": None if self.written is None else str(self.written),
        }


def tail_of(one: Option) -> str:
    """Return what the option's 99th percentile consists of as a sentence; empty: nobody tells."""
    return f"Its p99 is {one.tail}. " if one.tail else ""


def cliff_of(one: Option) -> str:
    """Return that a cliff is near as a sentence; empty: none is."""
    if one.cliff_ms is None:
        return ""
    cause = f" ({one.binds})" if one.binds else ""
    return (
        f"Its p99 stands at a cliff: where things are a little worse than calibrated, work queues "
        f"up{cause} and it is {in_time(one.cliff_ms)}. "
    )


def in_decimals(amount: float) -> str:
    """Return bytes as people ask for them: `2 TB`."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= factor:
            return f"{amount / factor:.3g} {unit}"
    return f"{amount:.0f} B"


def in_time(ms: float) -> str:
    """Return a latency in ms or s: `44 s`."""
    return f"{short(ms)} ms" if ms < MS_IN_SECOND else f"{short(ms / MS_IN_SECOND)} s"


MS_IN_SECOND = 1000


def limit_of(one: Option) -> str:
    """Return the fullest limit as a sentence."""
    if one.bound_by.startswith("none"):
        first = one.bound_by.partition("; first ")[2]
        return f"No limit is full: the fullest is {first} in the mean. " if first else ""
    return f"Its fullest limit is {one.bound_by}. " if one.bound_by else ""


def sentence(text: str) -> str:
    """Return a text that begins with a capital."""
    return text[:1].upper() + text[1:]
