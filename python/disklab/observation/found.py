"""What a window of looking tells of a database, in the terms of an experiment file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disklab.catalog.quantity import about_bytes
from disklab.database_facts import facts_of
from disklab.databases.observing import CacheSeen, Shape, TableSeen
from disklab.observation.blocks import BlocksSeen
from disklab.observation.machine import DiskReading, MachineSeen, Window

# Which share of the rows is asked for, as far as a cache tells.
#
# A cache that evicts holds the rows that were asked for lately. Were reads spread evenly over a
# share `w` of the rows, and did it hold a share `c` of all rows, then it would answer `c / w` of
# them; so its hit ratio `h` tells `w = c / h`. A cache with room left has evicted nothing: what it
# holds is what was asked for, as far as misses have become rare.
#
# **Divergence:** reads are never spread evenly over some rows and never come to the others. `w` is
# the working set that hits this cache as often; a larger cache would find a larger one. It is
# believed to a factor of two, as the policy of the cache, rows in several files and writes that
# fill
# it too are not known.

LEAST_REQUESTS = 1000
"""Fewer tell nothing: their hit ratio is off by several percent."""
RARE_RATIO = 0.05
"""With fewer misses than this a cache with room has seen most of what is asked for."""
TOLD_RATIO = 0.98
"""Of a full cache: with fewer misses than 2 % their number says little of what lies beyond."""
FACTOR = 2.0
"""Either way."""


@dataclass(frozen=True)
class WorkingSet:
    """What a cache tells."""

    ratio: float
    """The share of the rows that is asked for, 0 to 1."""
    least: float
    most: float
    why: str
    """How it was found, as a sentence without a full stop."""


def working_set(first: CacheSeen, last: CacheSeen, whole: float) -> WorkingSet | str:
    """Return what a cache tells between two readings, or why it tells nothing.

    `whole`: the rows, or the bytes, of all data that could be in it, copies included.
    """
    requests, hits = last.requests - first.requests, last.hits - first.hits
    if requests < LEAST_REQUESTS:
        return f"the {last.name} was asked {max(0.0, requests):,.0f} times, which is too few"
    if whole <= 0 or last.held <= 0:
        return f"the {last.name} holds nothing"
    hit = min(1.0, max(0.0, hits / requests))
    held = min(1.0, last.held / whole)
    words = f"the {last.name} holds {held * 100:.0f} % of the {last.of}, answered {hit * 100:.0f} %"
    if held >= TOLD_RATIO:
        return f"{words}, so it cannot show which are requested more often"
    return _of_full(held, hit, words) if last.full else _of_roomy(held, hit, words)


def _of_roomy(held: float, hit: float, words: str) -> WorkingSet | str:
    """Return what a cache tells that never had to evict: each miss may be one more row."""
    if hit < 1 - RARE_RATIO:
        return f"{words}, and it is still being filled"
    return _bounded(held, held, held * FACTOR, f"{words}, with room to spare")


def _of_full(held: float, hit: float, words: str) -> WorkingSet:
    if hit <= held:
        return _bounded(1.0, 1 / FACTOR, 1.0, f"{words}, no more than its share")
    if hit >= TOLD_RATIO:
        return _bounded(held, 0.0, held * FACTOR, f"{words}: nearly all reads")
    ratio = held / hit
    return _bounded(ratio, ratio / FACTOR, ratio * FACTOR, words)


def _bounded(ratio: float, least: float, most: float, why: str) -> WorkingSet:
    return WorkingSet(min(1.0, ratio), min(1.0, least), min(1.0, most), why)


ACTIVE_RATIO = 0.01
"""A table with fewer of the operations than this does not change what is bought."""
MOST_MEASURED = 8
"""Tables whose rows are measured: the busiest."""
STORED_RATIO = 1.17
"""What a row of 1 kB takes in a data file over its values. **Source:** docs/advise.md."""
SEVERAL = 1.5
"""With more copies asked for a read than this, a quorum of three is asked."""
SHARE_OF_LATENCY = 0.05
"""A table with fewer of the reads (or writes) has a percentile of too few."""


@dataclass(frozen=True)
class Found:
    """Everything that was found. Rates are of the whole database, a second."""

    engine: str
    window: Window
    shape: Shape
    machines: Sequence[MachineSeen]
    reads_per_s: float
    writes_per_s: float
    scans_per_s: float
    busiest_per_s: float
    """Reads and writes of the busiest interval."""
    copies: int
    row_bytes: float | None
    """Of the rows that operations ask for, in the mean; beside the key."""
    columns: int
    data_bytes: float
    """Values of all rows, copies not counted."""
    consistency: str | None
    p50_ms: Mapping[str, float]
    """By operation, of the slowest table that matters."""
    p99_ms: Mapping[str, float]
    asked: WorkingSet | None
    disk_per_s: DiskReading | None
    """What the disks of the nodes that are seen do, each in the mean."""
    unseen: tuple[str, ...]
    commits_per_s: float | None = None
    """Transactions that changed something; None: the server does not tell."""
    blocks: tuple[BlocksSeen, ...] = ()
    """What block traces of the disks tell, where they were asked for."""

    @property
    def engine_title(self) -> str:
        """As its makers write it."""
        return facts_of(self.engine).title

    @property
    def per_s(self) -> float:
        """Reads and writes."""
        return self.reads_per_s + self.writes_per_s

    @property
    def writes_per_commit(self) -> int:
        """Writes of a transaction in the mean; 1 where the server does not tell."""
        return max(1, round(self.writes_per_s / self.commits_per_s)) if self.commits_per_s else 1

    @property
    def read_ratio(self) -> float:
        """Reads among reads and writes; without any: all."""
        return self.reads_per_s / self.per_s if self.per_s else 1.0

    @property
    def rows(self) -> int:
        """Rows of `row_bytes` that all data make."""
        return max(1, round(self.data_bytes / max(1.0, self.row_bytes or 1000.0)))

    @property
    def worst_p99_ms(self) -> float | None:
        """The higher one of reads and writes."""
        return max(self.p99_ms.values(), default=None)

    def sentence(self) -> str:
        """Return the answer."""
        nodes = len(self.shape.nodes)
        count = f"{nodes} node{'s' if nodes != 1 else ''} of {self.shape.version}"
        serve = "serve" if nodes != 1 else "serves"
        row = "rows" if self.row_bytes is None else f"rows of {short_bytes(self.row_bytes)}"
        parts = [
            f"{count} {serve} {self.reads_per_s:,.0f} reads and {self.writes_per_s:,.0f} writes a "
            f"second of {row}"
        ]
        if self.p99_ms:
            told = " and ".join(f"{short(ms)} ms ({kind}s)" for kind, ms in self.p99_ms.items())
            parts.append(f"p99 {told}")
        elif self.shape.mean_ms:
            told = " and ".join(f"{short(ms)} ms ({k}s)" for k, ms in self.shape.mean_ms.items())
            parts.append(f"mean {told}")
        parts.append(
            f"{about_bytes(self.data_bytes)} of data in {self.copies} cop"
            f"{'ies' if self.copies != 1 else 'y'}"
        )
        if self.asked is not None:
            share = f"{self.asked.ratio * 100:.0f} %"
            parts.append(f"{share} of the rows asked for, estimated from the cache")
        return "; ".join(parts) + "."

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what was found, by its name: the rows of the table that people see."""
        yield from self._load()
        yield from self._rows()
        yield from self._answers()
        yield "working set", self.asked_in_words
        pending = [one.pending_compactions for one in self.window.readings]
        if pending[-1] is not None:
            yield "pending compactions", f"{max(one or 0.0 for one in pending):,.0f} at most"
        for seen in self.machines:
            yield f"machine of {seen.node}", " ".join(_machine(seen))
        if self.disk_per_s is not None:
            yield "each disk", disk_in_words(self.disk_per_s)
        for one in self.blocks:
            yield f"I/Os of disk {one.device}", f"{one.in_words()}; in {one.file}"

    def _load(self) -> Iterator[tuple[str, str]]:
        yield "reads", f"{self.reads_per_s:,.1f}/s"
        yield "writes", f"{self.writes_per_s:,.1f}/s"
        if self.commits_per_s is not None:
            each = self.writes_per_s / self.commits_per_s if self.commits_per_s else 0.0
            yield "commits", f"{self.commits_per_s:,.1f}/s, {each:,.1f} writes each"
        yield "mixture", f"{self.read_ratio * 100:.1f} % reads"
        yield "busiest interval", f"{self.busiest_per_s:,.1f}/s of {self._interval()}"
        if self.scans_per_s >= ACTIVE_RATIO:
            yield "scans", f"{self.scans_per_s:,.2f}/s, which an experiment file cannot have"

    def _rows(self) -> Iterator[tuple[str, str]]:
        if self.row_bytes is not None:
            yield "row", f"{self.row_bytes:,.0f} B in {self.columns} columns beside the key"
        rows = significant(self.rows)
        yield "data", f"{about_bytes(self.data_bytes)}, {rows:,.0f} rows, copies: {self.copies}"
        for one in self.shape.tables:
            if self.share(one) >= ACTIVE_RATIO:
                yield f"table {one.name}", self._of_table(one)

    def _answers(self) -> Iterator[tuple[str, str]]:
        for kind in ("read", "write"):
            if kind in self.p99_ms:
                figures = f"p50 {short(self.p50_ms[kind])} ms, p99 {short(self.p99_ms[kind])} ms"
                yield f"{kind}s answered in", figures
            elif kind in self.shape.mean_ms:
                yield f"{kind}s answered in", f"mean {short(self.shape.mean_ms[kind])} ms"
        if self.consistency is not None:
            yield "consistency", f"like {self.consistency}, by the copies that reads ask"

    @property
    def asked_in_words(self) -> str:
        """The working set with its range, or that nothing tells it."""
        if self.asked is None:
            return "no cache shows it, so all rows are assumed to be in use"
        one = self.asked
        return (
            f"{one.ratio * 100:.0f} % of the rows ({one.least * 100:.0f} to "
            f"{one.most * 100:.0f} %), estimated from the cache: {one.why}"
        )

    def _interval(self) -> str:
        parts = self.window.intervals
        return f"{len(parts)}, each {self.window.seconds / len(parts):.0f} s"

    def share(self, table: TableSeen) -> float:
        """Return a table's share of all reads and writes, 0 to 1."""
        return share_of(self.window, table.name)

    def _of_table(self, table: TableSeen) -> str:
        count = self.window.whole.tables[table.name]
        seconds = self.window.seconds
        parts = [f"{count.reads / seconds:,.0f} reads/s, {count.writes / seconds:,.0f} writes/s"]
        if table.rows is not None:
            parts.append(f"about {significant(table.rows):,.0f} rows")
        if table.row_bytes is not None:
            parts.append(f"{table.row_bytes:,.0f} B each")
        parts.append(f"{about_bytes(table.stored_bytes)} on disks")
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        window = self.window
        return {
            "answer": self.sentence(),
            "engine": self.engine,
            "version": self.shape.version,
            "seconds": round(window.seconds, 3),
            "interrupted": window.interrupted,
            "nodes": [one.address for one in self.shape.nodes],
            "copies": self.copies,
            "reads_per_s": self.reads_per_s,
            "writes_per_s": self.writes_per_s,
            "scans_per_s": self.scans_per_s,
            "commits_per_s": self.commits_per_s,
            "busiest_per_s": self.busiest_per_s,
            "intervals": [
                {
                    "seconds": round(one.seconds, 3),
                    "reads_per_s": one.count.reads / one.seconds,
                    "writes_per_s": one.count.writes / one.seconds,
                }
                for one in window.intervals
            ],
            "read_ratio": self.read_ratio,
            "row_bytes": self.row_bytes,
            "columns": self.columns,
            "rows": self.rows,
            "data_bytes": self.data_bytes,
            "consistency": self.consistency,
            "p50_ms": dict(self.p50_ms),
            "p99_ms": dict(self.p99_ms),
            "mean_ms": dict(self.shape.mean_ms),
            "working_set": None if self.asked is None else vars(self.asked),
            "tables": [
                {**vars(one), "options": dict(one.options), "share": self.share(one)}
                for one in self.shape.tables
            ],
            "settings": dict(self.shape.settings),
            "machines": [
                {
                    "node": one.node,
                    "cpus": one.cpus,
                    "memory_bytes": one.memory_bytes,
                    "page_cache_bytes": one.page_cache_bytes,
                    "disk_bytes": one.disk.size_bytes if one.disk else None,
                    "read_ahead_bytes": one.disk.read_ahead_bytes if one.disk else None,
                    "filesystem": one.disk.filesystem if one.disk else None,
                }
                for one in self.machines
            ],
            "disk_per_s": None if self.disk_per_s is None else vars(self.disk_per_s),
            "block_traces": [one.as_json() for one in self.blocks],
            "unseen": list(self.unseen),
        }


def busy(window: Window) -> list[str]:
    """Return the tables whose rows are worth to be measured, the busiest first."""
    names = [name for name in window.whole.tables if share_of(window, name) >= ACTIVE_RATIO]
    return sorted(names, key=lambda name: -share_of(window, name))[:MOST_MEASURED]


def share_of(window: Window, table: str) -> float:
    """Return a table's share of all reads and writes, 0 to 1."""
    whole = window.whole
    every = whole.count.reads + whole.count.writes
    one = whole.tables.get(table)
    return (one.reads + one.writes) / every if one is not None and every else 0.0


def found_of(engine: str, window: Window, shape: Shape, machines: Sequence[MachineSeen]) -> Found:
    """Return what the window tells, with the shape that was asked for at its end."""
    whole, seconds = window.whole, window.seconds
    count = whole.count
    known = {one.name: one for one in shape.tables}
    measured = [
        (share_of(window, name), known[name])
        for name in busy(window)
        if name in known and known[name].row_bytes is not None
    ]
    weight = sum(share for share, _ in measured)
    row_bytes = columns = None
    if weight:
        row_bytes = sum(share * (one.row_bytes or 0.0) for share, one in measured) / weight
        columns = round(sum(share * one.columns for share, one in measured) / weight)
    copies = (
        known[measured[0][1].name].copies
        if measured
        else max((one.copies for one in shape.tables), default=1)
    )
    data_bytes = sum(_values(one) for one in shape.tables)
    unseen = [*shape.unseen]
    asked, why = _asked(window, shape, machines)
    if why:
        unseen.append(why)
    if not machines:
        unseen.append(
            "the machines below were not seen: they are not this one, and no --hosts names them"
        )
    return Found(
        engine=engine,
        window=window,
        shape=shape,
        machines=machines,
        reads_per_s=count.reads / seconds,
        writes_per_s=count.writes / seconds,
        scans_per_s=count.scans / seconds,
        busiest_per_s=max(one.per_s for one in window.intervals),
        copies=copies,
        row_bytes=row_bytes,
        columns=columns or 1,
        data_bytes=data_bytes,
        consistency=_consistency(count.reads, count.copies_read, copies),
        p50_ms=_latencies(window, "p50_ms"),
        p99_ms=_latencies(window, "p99_ms"),
        asked=asked,
        disk_per_s=_disks(window),
        unseen=tuple(unseen),
        commits_per_s=_commits(window),
    )


def _commits(window: Window) -> float | None:
    """Return the commits a second of the whole window; None: the server does not tell."""
    first, last = window.readings[0].commits, window.readings[-1].commits
    if first is None or last is None:
        return None
    # A server that was restarted began at 0 again.
    return (last - first if last >= first else last) / window.seconds


def _values(table: TableSeen) -> float:
    """Return the bytes of a table's values without copies; from its files where nothing tells."""
    if table.rows is not None and table.row_bytes is not None:
        return table.rows * table.row_bytes
    return table.stored_bytes / table.copies / STORED_RATIO


def _consistency(reads: float, copies_read: float, copies: int) -> str | None:
    if copies < 2 or not reads or not copies_read:
        return None
    return "LOCAL_QUORUM" if copies_read / reads >= SEVERAL else "LOCAL_ONE"


def _latencies(window: Window, figure: str) -> dict[str, float]:
    """Return the highest figure by operation, of tables that have some share of it."""
    whole, found = window.whole, dict[str, float]()
    for one in window.readings[-1].latencies:
        kind = f"{one.operation}s"
        every = getattr(whole.count, kind)
        own = getattr(whole.tables[one.table], kind) if one.table in whole.tables else 0.0
        if every and own / every >= SHARE_OF_LATENCY:
            found[one.operation] = max(found.get(one.operation, 0.0), getattr(one, figure))
    return found


def _asked(
    window: Window, shape: Shape, machines: Sequence[MachineSeen]
) -> tuple[WorkingSet | None, str]:
    """Return the working set that a cache tells, or why none does."""
    before = {one.name: one for one in window.readings[0].caches}
    pairs = [(before[one.name], one) for one in window.readings[-1].caches if one.name in before]
    whys = []
    for first, last in [*pairs, *_page_cache(window, shape, machines)]:
        # A key cache has an entry for each copy of a row; files have all that is stored.
        whole = sum(
            (one.rows or 0.0) * one.copies if last.of == "rows" else one.stored_bytes
            for one in shape.tables
        )
        told = working_set(first, last, whole)
        if isinstance(told, WorkingSet):
            return told, ""
        whys.append(told)
    return None, "; ".join(whys)


def _page_cache(
    window: Window, shape: Shape, machines: Sequence[MachineSeen]
) -> Iterator[tuple[CacheSeen, CacheSeen]]:
    """Yield the page cache of all nodes, where all are seen: a read that reached a disk missed it.

    Compactions read from the disks too, and other files are in memory: both make the working set
    larger than it is, which is the cautious side.
    """
    held = [one.page_cache_bytes for one in machines if one.disk is not None]
    if len(held) < len(shape.nodes) or not all(held):
        return
    stored = sum(one.stored_bytes for one in shape.tables)
    count = window.whole.count
    asked = count.copies_read or count.reads
    first, last = window.disks[0], window.disks[-1]
    missed = sum((last[node] - first[node]).reads for node in last)
    size = float(sum(one or 0 for one in held))
    yield (
        CacheSeen("page cache", "bytes", 0.0, size < stored, 0.0, 0.0),
        CacheSeen(
            "page cache",
            "bytes",
            min(size, stored),
            size < stored,
            max(0.0, asked - missed),
            asked,
        ),
    )


def _disks(window: Window) -> DiskReading | None:
    first, last = window.disks[0], window.disks[-1]
    grown = [last[node] - first[node] for node in last if node in first]
    if not grown:
        return None
    names = ("reads", "read_bytes", "writes", "written_bytes")
    whole = [sum(getattr(one, name) for one in grown) for name in names]
    return DiskReading(*(one / window.seconds / len(grown) for one in whole))


def _machine(seen: MachineSeen) -> Iterator[str]:
    if seen.cpus is not None and seen.memory_bytes is not None:
        yield f"{seen.cpus} CPUs, {about_bytes(seen.memory_bytes)}"
    if seen.page_cache_bytes is not None:
        yield f"({about_bytes(seen.page_cache_bytes)} page cache);"
    if seen.disk is not None:
        yield (
            f"data on {about_bytes(seen.disk.size_bytes)} {seen.disk.filesystem}, "
            f"read-ahead {about_bytes(seen.disk.read_ahead_bytes)}"
        )


def disk_in_words(one: DiskReading) -> str:
    """Return what a disk does a second."""
    return (
        f"{one.reads:,.0f} reads/s ({about_bytes(one.read_bytes)}/s), "
        f"{one.writes:,.0f} writes/s ({about_bytes(one.written_bytes)}/s)"
    )


def short(value: float) -> str:
    """Return a latency with what is known of it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def short_bytes(value: float) -> str:
    """Return a row's length as people say it: `1.1 kB`."""
    return f"{value / 1000:.1f} kB" if value >= 1000 else f"{value:.0f} B"


def significant(value: float) -> float:
    """Return a number with three digits: a sample knows no more."""
    return float(f"{value:.3g}")
