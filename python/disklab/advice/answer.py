"""The advice as a whole: answer, reason, options, and what would change it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from pathlib import Path
from typing import Any

from disklab.advice.bounds import node_data_bytes
from disklab.advice.candidates import PLAINER_RATIO, Candidate, Field, searches_nodes, spec_of
from disklab.advice.levers import COMPACTION, rooms
from disklab.advice.options import Option, groups, short
from disklab.advice.present import Present, present_of
from disklab.advice.promise import fullest_limit, limit_is
from disklab.advice.question import Question
from disklab.advice.rows import Row, alternatives, reason, rows_of
from disklab.advice.search import Ladder
from disklab.advice.simulator import Tried
from disklab.catalog import load_catalog
from disklab.catalog.facts import GIB
from disklab.catalog.price import Price, vm_price, volume_price
from disklab.catalog.quantity import about_bytes
from disklab.database_facts import facts_of
from disklab.results import TrialResult
from disklab.results.required import CLIFF_RATIO, Outcome, fullest
from disklab.spec import ClusterTrial, feasible
from disklab.spec.amounts import scale

MOST_REASONS = 6
REHEARSED_BYTES = 4 << 30
"""How much data a rehearsal of advice has."""
LEAST_REHEARSED_BYTES = 64 << 20
"""Of a node's memory. **Assumed:** what is less is no cache whose misses tell anything."""
GROWTH_RATIO = 1.5
"""Disks that hold less than so many times the data of the first day have little room to grow.

**Assumed:** the growth at which a higher rate is looked at too."""
OUTSIDE = "outside the calibrated range: "
"""How the warnings of a calibration begin."""
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
    tried: Sequence[Tried] = ()
    """Everything that was simulated at full fidelity, the options with it."""
    calm: bool = False
    """Whether nothing keeps the promise, and the options are those that would without pauses."""
    changes: list[str] = field(default_factory=list)
    """At which rate, data or price the choice flips."""
    run: Path | None = None
    written: Path | None = None
    """The experiment file that a rehearsal takes."""
    without_room: Candidate | None = None
    """The cheapest that would do, had the data no room to grow; None: the answer itself, or so."""
    smaller: Candidate | None = None
    """What would do with more and smaller nodes than were asked for; None: nothing for less."""
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
                "The current system is not compared, because its VM size and disks were not "
                "stated (`disklab "
                "observe --vm ... --disks ...`)."
            )
        return found

    def _buy(self, one: Option) -> list[str]:
        now = self.present
        verdict = f"Buy {one.name}" if now is None else now.verdict(one)
        lossy = [word for word in one.needs if word.startswith("doublewrite")]
        if one.local and not one.copied:
            lossy.append("whose data are lost with the VM")
        headline = f"{', '.join([verdict, *lossy])}: {one.price}."
        if self.of_storage is not None:
            headline = self._disks_first(one, self.of_storage, "" if now is None else verdict)
        difference = "" if now is None else now.difference(one)
        return [
            f"{headline} {difference}".rstrip(),
            *self._in_detail(one),
            *self._rule(one),
            *self._plainer(one),
            *self._more_nodes(),
            self.state(),
        ]

    def _in_detail(self, one: Option) -> list[str]:
        room_ratio = self.question.require.head_room_ratio
        return [
            f"{self._does(one)} {cliff_of(one)}".rstrip(),
            f"{self._fills(one)} A stopped or lost VM loses {one.lost}.",
            *settings_of(one, room_ratio),
            *alternatives(self.rows(), room_ratio),
        ]

    def rows(self) -> list[Row]:
        """Return each hardware that was simulated once, in the order of the answer."""
        quick = (one for ladder in self.ladders for one in ladder.tried)
        nodes = self.question.spec.cluster.nodes
        return rows_of(self.options, [*self.tried, *quick], nodes)

    def _does(self, one: Option) -> str:
        """Return what an option does under the load that is asked for, and with the head-room."""
        rate = f"At {self.question.rate_per_s:,.0f} operations a second"
        if self.question.spec.workload.tpcc is not None:
            rate = f"At {data_of(self.question.spec)}"
        used = fullest(one.results[0])
        parts = []
        if used is not None:
            limit = limit_is(fullest_limit(one.results[0]), f"{used * 100:.0f} %")
            parts.append(f"{limit} on average and nothing is fuller")
        parts += [latency] if (latency := self._latency(one)) else []
        return f"{rate} {'; '.join(parts) or 'it keeps up'}."

    def _latency(self, one: Option) -> str:
        """Return the first latency that is asked for, as it is and with the head-room."""
        bounds = [
            (kind, name, bound)
            for kind, some in self.question.require.latencies().items()
            for name, bound in some.items()
        ]
        kind, name, bound = bounds[0] if bounds else ("all", "p99", None)
        kind = kind if kind in one.results[0].per_operation else "all"
        value = latency_of(one.results[0], kind, name)
        if value is None or one.kept.achieved_ratio is not None:
            return ""
        what = "operations" if kind == "all" else f"{kind}s"
        band = one.results[0].bands and one.results[0].bands.figures.get(f"{name}_ms")
        limits = [] if bound is None else [f"you asked for {bound:g}"]
        if band and band.high <= CLIFF_RATIO:
            limits.insert(0, f"{short(value * band.low)} to {short(value * band.high)}")
        text = f"{share_of(name)} of {what} take at most {short(value)} ms"
        text += f" ({'; '.join(limits)})" if limits else ""
        if one.disks is not None:
            text += f", of which storage {short(one.disks.storage_ms)} ms"
        more = None if one.raised is None else latency_of(one.raised, kind, name)
        if more is not None:
            room = self.question.require.head_room_ratio
            text += f"; with {room * 100:.0f} % more load {short(more)} ms"
        return text

    def _rule(self, one: Option) -> list[str]:
        """Return what room for growth costs, where sizes come in steps; none: little."""
        if self.without_room is None:
            return []
        cost = one.candidate.usd_per_month - self.without_room.usd_per_month
        name = self.without_room.ordered(one.nodes)
        return [
            f"{cost:,.0f} USD a month of this pay for room to grow: {name} would do "
            "for today's data (`--growth 0`)."
        ]

    def _more_nodes(self) -> list[str]:
        """Return what more and smaller nodes would do; none: they were looked through."""
        question, nodes = self.question, self.question.spec.cluster.nodes
        if not question.nodes_asked or not searches_nodes(question.spec):
            return []
        if self.smaller is None:
            return [f"{2 * nodes} smaller nodes would save less than a tenth, or fail."]
        return [
            f"At first glance {self.smaller.hardware} would do it for "
            f"{self.smaller.usd_per_month:,.0f} USD a month: `--nodes {nodes}+` also considers "
            f"{2 * nodes} smaller nodes."
        ]

    def _plainer(self, one: Option) -> list[str]:
        """Return why the option is the answer where it is not the cheapest; none: it is."""
        able = [option for option in self.options if option.kept.outcome is Outcome.MET]
        cheapest = min(able, key=lambda option: option.candidate.usd_per_month)
        why = one.candidate.plainer_than(cheapest.candidate)
        if cheapest is one or not why:
            return []
        limit = f"{(PLAINER_RATIO - 1) * 100:.0f} %"
        return [
            f"It costs at most {limit} more than {cheapest.name} ({cheapest.price}), but {why}."
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
        spec, rate = self.question.spec, self.question.rate_per_s
        dataset, work = spec.dataset, spec.workload.operations
        parts = []
        if dataset is not None and dataset.rows is not None:
            row = in_decimals(dataset.columns * dataset.column_bytes)
            parts.append(f"{data_of(spec)} in rows of {row}")
        elif spec.workload.tpcc is not None:
            parts.append(f"TPC-C with {data_of(spec)}")
        nodes, copies = spec.cluster.nodes, spec.database.replication_factor
        where = f"{nodes} node{'s' * (nodes > 1)}"
        grows = " or more" if self.question.more_nodes and searches_nodes(spec) else ""
        parts.append(f"{copies} cop{'ies' if copies > 1 else 'y'} on {where}{grows}")
        if rate and work is not None:
            parts.append(f"{rate:,.0f} operations a second, {work.read * 100:.0f} % reads")
        elif rate:
            parts.append(f"at least {rate:,.0f} new orders a second")
        require = self.question.require
        parts += [
            f"{'' if kind == 'all' else kind + ' '}{name} at most {bound:g} ms"
            for kind, bounds in require.latencies().items()
            for name, bound in bounds.items()
        ]
        if require.storage_p99_ms is not None:
            parts.append(f"storage's share of p99 at most {require.storage_p99_ms:g} ms")
        return f"You asked for: {'; '.join(parts)}."

    @property
    def shrinks_by(self) -> int:
        """By how much a rehearsal of the advice is smaller."""
        given = (self.question.tree.get("rehearse") or {}).get("scale")
        if given is not None:
            return max(1, round(1 / scale(given)))
        spec = self.question.spec
        whole = node_data_bytes(spec) * spec.cluster.nodes / spec.database.replication_factor
        return max(1, ceil(whole / REHEARSED_BYTES))

    def shows_something(self, one: Option) -> bool:
        """Return whether a rehearsal would: it can be, and its memory is not all but gone."""
        if not self.written or self.question.spec.workload.writes_per_commit is not None:
            return False
        return one.candidate.strength.memory_gib * GIB / self.shrinks_by >= LEAST_REHEARSED_BYTES

    def next_step(self) -> str:
        """Return the command that tells more; empty: none would."""
        one = self.chosen
        if one is None or not self.shows_something(one):
            return ""
        memory = one.candidate.strength.memory_gib
        here = about_bytes(memory * GIB / self.shrinks_by)
        return (
            f"Next: `disklab rehearse {self.written}` runs these options with real databases at "
            f"1/{self.shrinks_by} of the data ({here} of memory stand for {memory:g} GiB)."
        )

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

    def _cannot_tell(self, one: Option) -> list[str]:
        now = self.present
        difference = "" if now is None else f" {now.difference(one)}".rstrip()
        way = f" {self._what_would_tell(one)}" if self.shows_something(one) else ""
        return [
            f"Cannot tell yet. The cheapest that may be enough is {one.name}: "
            f"{one.price}.{difference}",
            f"It {reason(self.rows()[0])}.{way}",
            *self._in_detail(one),
            self.state(),
        ]

    def _fills(self, one: Option) -> str:
        """Return how full the disks are on the first day, and when they must be larger."""
        spec = spec_of(self.question.spec, one.candidate)
        ratio = self.question.growth_ratio
        stored = feasible.node_bytes(spec)
        size = one.candidate.made.volume.size_bytes
        compaction = one.candidate.settings.get(COMPACTION, spec.database.table.compaction)
        need = rooms(spec)[compaction]
        full = f"The disks are {stored / size * 100:.0f} % full on the first day"
        if ratio:
            full += (
                f" and {stored * (1 + ratio) / size * 100:.0f} % once the data have grown by "
                f"{ratio * 100:.0f} %"
            )
        most = data_of(spec, size / need)
        hold = f"{full}; they hold {most} in addition to what the database itself needs"
        return f"{hold}." if ratio or size / need >= GROWTH_RATIO else f"{hold} (`--growth 30`)."

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
            f"`disklab rehearse {self.written}` would tell: if {doubt.what} is {doubt.asked} "
            f"there, buy it; otherwise {dear}."
        )

    def _nothing(self) -> list[str]:
        if not self.options:
            told = "; ".join(self.reasons()) or "no disks hold the data"
            budget, dear = self.question.require.budget_usd_per_month, self.looked.dear
            if dear is not None and budget is not None:
                least = f"{dear.ordered(self.question.spec.nodes)}, {dear.usd_per_month:,.0f} USD"
                return [
                    f"Nothing can do it for {budget:,.0f} USD a month.",
                    f"The cheapest whose limits may allow it is {least} a month (not simulated); "
                    "ask again without the budget to learn what does it.",
                ]
            return ["Nothing in the catalogue can do it.", f"{sentence(told)}."]
        best, *others = self.options
        able = [one for one in self.options if one.disks is not None and one.disks.keeps]
        if self.calm and able:
            return self._but_for_pauses(able)
        found = [
            f"Nothing qualifies. The closest is {best.name}, {best.price}.",
            f"It {reason(self.rows()[0])}. {tail_of(best)}{cliff_of(best)}".rstrip(),
            *settings_of(best)[:1],
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
            found.append(f"Dearer, and as far as we can tell no closer: {dearer}.")
        return found

    def _but_for_pauses(self, able: Sequence[Option]) -> list[str]:
        """Return that disks would keep the promise, and garbage collection does not."""
        first, *others = able
        assert first.disks is not None
        collector = self.question.spec.database.jvm.collector
        now = f", now {collector}" if collector else ""
        found = [
            f"The disks of {first.name} are fast enough, but garbage collection is not: "
            f"{first.price}, p99 {first.latency('p99')}, of which storage takes "
            f"{short(first.disks.storage_ms)} ms.",
            f"Without JVM pauses it would be {short(first.disks.p99_ms)} ms: choose another "
            f"collector or heap (`database.jvm`{now}), or allow more. {self.state()}",
        ]
        if others:
            ranked = "; ".join(f"{one.name}, {one.price}" for one in others)
            found.append(f"Other disks that would be fast enough, by price: {ranked}.")
        return found

    def reasons(self) -> list[str]:
        """Return why options were left out, the most frequent first."""
        counts: dict[str, int] = {}
        for why in self.looked.ruled_out.values():
            counts[why] = counts.get(why, 0) + 1
        ordered = sorted(counts.items(), key=lambda one: -one[1])
        return [f"{why} ({count} options)" for why, count in ordered[:MOST_REASONS]]

    def search_in_words(self) -> str:
        """Return how many options there were, and what became of them."""
        field, full = self.looked, len({one.candidate.name for one in self.tried})
        return (
            f"{field.considered:,} combinations from the catalogue: "
            f"{sum(field.refused.values()):,} are "
            f"impossible, {len(field.ruled_out):,} are ruled out by their limits or the file; "
            f"{self.cells} cells were simulated, {full} options at full fidelity."
        )

    def raised_in_words(self) -> str:
        """Return under which load options were judged; empty: under the asked one."""
        room = self.question.require.head_room_ratio
        if not room:
            return ""
        return (
            f"Every option was judged with {room * 100:.0f} % more load, "
            f"{self.question.raised_per_s:,.0f}/s; figures below the finalists are for that load."
        )

    def uncalibrated(self) -> str:
        """Return what of the options no measured run had, as one sentence; empty: nothing."""
        parts: dict[str, None] = {}
        for one in self.options:
            for warning in one.results[0].warnings:
                if warning.startswith(OUTSIDE):
                    # What stands in brackets may have a semicolon too.
                    outside = re.sub(r" \([^()]*\)", "", warning.removeprefix(OUTSIDE))
                    parts |= dict.fromkeys(outside.split("; "))
        if not parts:
            return ""
        return f"Take latencies as a sketch: no measured run had {', or '.join(parts)}."

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
            f"Prices {doubt}: {', '.join(dict.fromkeys(names))}. `disklab prices` fetches today's."
            for doubt, names in doubts.items()
        ]

    def unpriced(self) -> str:
        """Return what was left out because nobody knows its price; empty: nothing was."""
        vms, kinds = load_catalog().vms, Counter[str]()
        for name in self.looked.unpriced:
            kinds[f"{vms[name].series_name} (sizes: #)" if name in vms else name] += 1
        if not kinds:
            return ""
        names = ", ".join(kind.replace("#", str(kinds[kind])) for kind in sorted(kinds))
        return f"Left out, because no price is known: {names}. `--prices FILE` adds yours."

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        now = self.present
        return {
            "answer": self.sentences(),
            "now": None if now is None else now.as_json(self.chosen or self.perhaps),
            "options": [one.as_json() for one in self.options],
            "others": [row.as_json() for row in self.rows() if row.option is None],
            "changes": self.changes,
            "price_doubts": self.price_doubts(),
            "unpriced": sorted(self.looked.unpriced),
            "considered": self.looked.considered,
            "possible": len(self.looked.candidates),
            "simulated": self.cells,
            "ruled_out": self.looked.ruled_out,
            "refused": dict(self.looked.refused.most_common()),
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
        "Its p99 is close to a cliff: if the system is slightly slower than calibrated, work "
        f"queues up{cause} and it becomes {in_time(one.cliff_ms)}. "
    )


def data_of(spec: ClusterTrial, times: float = 1.0) -> str:
    """Return so many times the data, without copies, as people ask for them."""
    tpcc = spec.workload.tpcc
    if tpcc is not None:
        return f"{tpcc.warehouses * times:,.0f} warehouses"
    dataset = spec.the_dataset
    return in_decimals((dataset.rows or 0) * dataset.columns * dataset.column_bytes * times)


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


def settings_of(one: Option, room_ratio: float = 0.0) -> list[str]:
    """Return what an option needs to be set, and what would help it; none: nothing."""
    found = []
    if one.needs:
        usual = one.disks.usual_p99_ms if one.disks is not None else None
        load = f" with {room_ratio * 100:.0f} % more load" if room_ratio else ""
        other = "" if usual is None else f" (99 % take {short(usual)} ms{load})"
        price = f" The price of that: {'; '.join(one.costs)}." if one.costs else ""
        found.append(
            f"It needs {and_(one.needs)}; without, it misses what you ask for{other}.{price}"
        )
    if one.levers:
        found.append(f"Would help: {'; '.join(str(lever) for lever in one.levers)}.")
    return found


def latency_of(result: TrialResult, kind: str, name: str) -> float | None:
    """Return a latency of all operations, of reads or of writes in ms; None: there is none."""
    if kind == "all":
        return result.latency_ms.get(name)
    one = result.per_operation.get(kind)
    return None if one is None else one.latency_ms.get(name)


def share_of(name: str) -> str:
    """Return what a percentile is a share of: `99 %`; of a mean: `the mean`."""
    return f"{name.removeprefix('p')} %" if name.startswith("p") else "the mean"


def and_(words: Sequence[str]) -> str:
    """Return words as a list in a sentence."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def sentence(text: str) -> str:
    """Return a text that begins with a capital."""
    return text[:1].upper() + text[1:]
