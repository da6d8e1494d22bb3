"""Settings that cost nothing and move a limit: what else to try before buying more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from disklab.catalog import load_catalog, parse_disks
from disklab.catalog.provisioning import find_disk
from disklab.catalog.quantity import parse_bytes
from disklab.database_facts import Lever, facts_of, has_one_primary, names
from disklab.reading import digits
from disklab.results.required import MAY_BE_LOST
from disklab.setting_kinds import parts_of
from disklab.spec import ClusterTrial, feasible

if TYPE_CHECKING:
    from disklab.advice.candidates import Candidate

READ_AHEAD = "8KiB"
"""Of the device: Linux reads 128 KiB around a fault, of which a small row needs a page or two.
**Source:** Azure-Samples 2019, read ahead of 8 KiB was the fastest for rows of 4 KiB."""
READ_AHEAD_BYTES = 8 << 10

COMPACTION = "database.table.compaction"
"""Of Cassandra, whose default is size-tiered: how much room it wants beside the data, and how often
it writes them again, depend on it.

Unified is not tried separately: without parameters it is tiered (and simulated so)."""


COLLECTOR = "database.jvm.collector"
"""Of Cassandra, whose default is G1: ZGC stops a node for less than a millisecond, and takes
processor time all the while. **Source:** JEP 333 and 376; Java 17, which Cassandra 5.0 runs on, has
it for production (JEP 377)."""


SETTINGS = "database.settings."


def in_words(path: str, value: str | int) -> str:
    """Return a setting as people say it: `128 concurrent reads`."""
    words = {
        "cluster.volumes.data.read_ahead": "{} read-ahead",
        COMPACTION: "{} compaction",
        COLLECTOR: "{}",
    }
    amount = TITLES.get(str(value), in_amount(value))
    lever = _lever(path)
    usual = f"{path.rpartition('.')[2]} {{}}"
    return (lever.words if lever else words.get(path, usual)).format(amount)


def _lever(path: str) -> Lever | None:
    """Return the lever of whichever database has one at a path."""
    levers = (lever for name in names() for lever in facts_of(name).levers)
    return next((lever for lever in levers if path == SETTINGS + lever.setting), None)


TITLES = {"zgc": "ZGC", "g1": "G1", "shenandoah": "Shenandoah", "parnew": "ParNew", "cms": "CMS"}
"""Collectors as their makers write them."""


def collectors(spec: ClusterTrial) -> tuple[str, ...]:
    """Return the other collectors that are worth a try."""
    database = spec.database
    if not facts_of(database.engine).in_java:
        return ()
    required = spec.require
    if required is not None and required.storage_p99_ms is not None and not required.latencies():
        # Storage alone is asked for: stops of the JVM are none of it.
        return ()
    old = (database.version or "").partition(".")[0] == "3"
    return () if old or database.jvm.collector is not None else ("zgc",)


def compactions(spec: ClusterTrial) -> tuple[str, ...]:
    """Return the other strategies that are worth a try; the file's own is none of them.

    Leveled wants the least room, and the price of it, more writes in the background, is simulated.
    Size-tiered writes least, but a read may meet several tables of it, which the simulator does not
    count, so that it is tried only where most operations write.

    **Source:** Apache Cassandra documentation, "Compaction": leveled for loads that mostly read,
    size-tiered for those that mostly write.
    """
    database, work = spec.database, spec.workload.operations
    if not facts_of(database.engine).has_strategies:
        return ()
    if database.table.compaction != "leveled":
        return ("leveled",)
    return ("size-tiered",) if work is not None and work.write > work.read else ()


MOST_FILLED = 0.7
"""Of a data volume, by data that have grown. **Assumed:** alarms are set at 80 %, and making a
volume larger takes time."""


def rooms(spec: ClusterTrial, growth: float = 0.0) -> dict[str, float]:
    """Return how large a node's data volume must be in bytes, by strategy, the file's own first.

    `growth`: by what ratio data grow; with any, they may fill `MOST_FILLED` of it in the end.
    """
    stored = feasible.node_bytes(spec) * (1 + growth)
    least = 1 / MOST_FILLED if growth else 1.0
    table = spec.database.table
    tables = {
        name: table.model_copy(update={"compaction": name})
        for name in (table.compaction, *compactions(spec))
    }
    engine = spec.database.engine
    return {
        name: stored * max(least, feasible.headroom_of(engine, one)) for name, one in tables.items()
    }


def _rates(candidate: Candidate, spec: ClusterTrial) -> Iterator[tuple[str, str | int]]:
    facts, given = facts_of(spec.database.engine), spec.database.settings
    for lever in facts.levers:
        if lever.usual is not None:
            number = digits(given.get(lever.setting, lever.usual))
            turns = number is not None and number < int(lever.value)
        else:
            turns = lever.setting not in given
        if turns and _moves(lever, candidate, spec):
            yield SETTINGS + lever.setting, lever.value
    if facts.in_memory:
        return
    read_ahead = spec.cluster.volumes["data"].read_ahead_bytes
    if read_ahead is None or read_ahead > READ_AHEAD_BYTES:
        yield "cluster.volumes.data.read_ahead", READ_AHEAD


def _moves(lever: Lever, candidate: Candidate, spec: ClusterTrial) -> bool:
    """Return whether a lever moves anything of an option, and may be turned there."""
    database, work = spec.database, spec.workload.operations
    if lever.of_writes and work is not None and work.write <= 0:
        return False
    release = parts_of(database.version or "")
    if lever.since and release and release < parts_of(lever.since):
        return False
    if lever.before and (not release or release >= parts_of(lever.before)):
        return False
    copies = database.replication_factor
    if lever.of_all_primaries and has_one_primary(database.engine, copies):
        return False
    if lever.whole_page is None:
        return True
    # What a page torn by a power cut costs is a database: it is risked by those alone who say so.
    risks = spec.require is not None and spec.require.durability == MAY_BE_LOST
    is_usual = lever.whole_page not in database.settings
    return risks and is_usual and _never_tears(candidate, lever.page_bytes)


def _never_tears(candidate: Candidate, page_bytes: int) -> bool:
    """Return whether an option's disks write each page of a database as a whole.

    A stripe's chunks are of 64 KiB or more, so a page lies on one of its disks.
    """
    disks = parse_disks(candidate.disks.expression)
    if disks.is_local or candidate.disks.caching == "ReadWrite":
        return False
    entry = find_disk(load_catalog(), disks, candidate.made.volume.size_bytes, "")
    return (entry.family.whole_write_bytes or 0) >= page_bytes


def tuned(candidate: Candidate, spec: ClusterTrial) -> list[Candidate]:
    """Return the option with every lever turned, each compaction by itself; none: there is none.

    A compaction helps some loads and hurts others, so the option is tried without it too. What its
    disks are too small for is not tried.
    """
    settings = candidate.settings | dict(_rates(candidate, spec))
    ways = [settings, *(settings | one for one in _compactions_of(candidate, spec))]
    return [replace(candidate, settings=way) for way in ways if way != candidate.settings]


def cost_of(path: str, value: str | int, candidate: Candidate) -> str:
    """Return what turning a setting takes, as people say it; empty: nothing."""
    if (lever := _lever(path)) is not None and lever.is_replayed:
        seconds = parse_bytes(in_amount(value)) / candidate.strength.read_bytes_per_s
        minutes = ceil(seconds / 60)
        time = f"{minutes} minutes" if minutes > 1 else "a minute"
        return f"a crash leaves up to {in_amount(value)} of log to replay, {time} or more"
    return COSTS.get((path, str(value)), COSTS.get((path, ""), ""))


COSTS = {
    (COLLECTOR, ""): "15 % more processor time on the nodes (JEP 333; not measured here)",
    (COMPACTION, "leveled"): "more writes in the background",
    (COMPACTION, "size-tiered"): "room for twice the data during compaction",
    ("cluster.volumes.data.read_ahead", ""): "slower scans and backups",
    ("database.settings.innodb_doublewrite", ""): "a page torn by a power cut cannot be repaired",
}
"""By path, and value where it matters."""


def in_amount(value: str | int) -> str:
    """Return a value of a setting with its unit as people write it: `16 GB`; InnoDB's G is GiB."""
    return re.sub(r"(?<=\d)(?=[A-Za-z])", " ", re.sub(r"(?<=\d)([KMGT])$", r"\1iB", str(value)))


def collected(ways: Iterable[Candidate], spec: ClusterTrial) -> list[Candidate]:
    """Return the ways, and each with another collector that is worth a try."""
    made = list(ways)
    names = [{COLLECTOR: name} for name in collectors(spec)]
    return made + [replace(way, settings=name | way.settings) for way in made for name in names]


def uncollected(candidate: Candidate) -> Candidate:
    """Return the option with the collector of the file."""
    left = {path: way for path, way in candidate.settings.items() if path != COLLECTOR}
    return replace(candidate, settings=left)


def one_more(candidate: Candidate, spec: ClusterTrial) -> list[tuple[Candidate, str, str]]:
    """Return the option with each setting that it does not have: that setting, and what it takes.

    What may lose data is none of them.
    """
    more = [*_rates(candidate, spec)]
    more += [pair for way in _compactions_of(candidate, spec) for pair in way.items()]
    more += [(COLLECTOR, name) for name in collectors(spec)]
    return [
        (
            replace(candidate, settings=candidate.settings | {path: value}),
            in_words(path, value),
            cost_of(path, value, candidate),
        )
        for path, value in more
        if path not in candidate.settings and not _may_lose(path)
    ]


def _may_lose(path: str) -> bool:
    lever = _lever(path)
    return lever is not None and lever.whole_page is not None


def singly(candidate: Candidate, spec: ClusterTrial) -> list[Candidate]:
    """Return the option with no lever turned, and with each of them by itself.

    Where its disks hold the data by another compaction alone, that stays.
    """
    bare = replace(candidate, settings=dict(candidate.fixed))
    alone = [{path: value} for path, value in _rates(candidate, spec)]
    alone += _compactions_of(candidate, spec)
    alone += [{COLLECTOR: name} for name in collectors(spec)]
    return [bare, *(replace(bare, settings=candidate.fixed | one) for one in alone)]


def _compactions_of(candidate: Candidate, spec: ClusterTrial) -> list[dict[str, str | int]]:
    """Return the compactions that an option's disks have room for, beside the one it has."""
    if COMPACTION in candidate.fixed:
        return []
    need = rooms(spec)
    return [
        {COMPACTION: strategy}
        for strategy in compactions(spec)
        if candidate.made.volume.size_bytes >= need[strategy]
    ]
