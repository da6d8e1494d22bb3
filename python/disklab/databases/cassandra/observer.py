"""A running Cassandra, looked at by its virtual tables: CQL alone, no JMX and no nodetool.

Virtual tables (`system_views`, since 4.0) tell of the node that is asked and of no other, so each
node has a connection of its own. They cost a node what a metrics agent costs it: a handful of small
answers per reading.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from disklab.database_settings import Setting
from disklab.databases.cassandra.configuration import CQL_PORT
from disklab.databases.cassandra.settings import COMPACTION, COMPRESSION
from disklab.databases.observing import (
    CacheSeen,
    Count,
    Latency,
    NodeSeen,
    Reading,
    Shape,
    TableSeen,
    Target,
)
from disklab.engine import CqlLogin, CqlQuery, CqlTls, QueryError
from disklab.errors import MachineError
from disklab.reading import digits

# How many rows a table has and how long they are, from a few reads at random tokens.
#
# A partition's token is a hash of its key, so partitions lie on the ring as events of a Poisson
# process: from any token on, the k-th of them is k mean distances away. Some dozens of such
# distances give the number of partitions, whatever compression, memtables and the age of the
# server's own estimates are. The rows that are met on the way are measured inside of the engine:
# their lengths leave it, their values do not.

PLACES = 64
ROWS_OF_PLACE = 16
"""64 x 16 distances: a standard error of 3 %, for 64 reads of ranges."""
LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""Tokens of Murmur3Partitioner."""
PARTITIONER = "Murmur3Partitioner"
TOKEN = "disklab_token"  # noqa: S105 - the name of a column


@dataclass(frozen=True)
class Sample:
    """What the sample tells of a table."""

    rows: float | None
    """None: a partition holds several rows, or tokens are no hashes, so it cannot tell."""
    row_bytes: float | None
    """Bytes of the values of a row beside its key, in the mean; None: the table is empty."""
    columns: int
    measured: int
    """Rows that were measured."""


def sampled(query: CqlQuery, name: str, chance: random.Random) -> Sample:
    """Return a sample of a table (`keyspace.table`). Raises QueryError, such as for no right."""
    keyspace, _, table = name.partition(".")
    # Names come from the database itself, which has no quotes in those of keyspaces and tables.
    where = f"keyspace_name = '{keyspace}' AND table_name = '{table}'"
    shown = "column_name, kind, position"
    columns = query.ask(f"SELECT {shown} FROM system_schema.columns WHERE {where}")  # noqa: S608
    key = [one for one in columns if one["kind"] == "partition_key"]
    key.sort(key=lambda one: int(one["position"]))
    values = [str(one["column_name"]) for one in columns if one["kind"] in ("regular", "static")]
    clustered = any(one["kind"] == "clustering" for one in columns)
    partitioner = str(query.ask("SELECT partitioner FROM system.local")[0]["partitioner"])
    token = f"token({', '.join(_quoted(str(one['column_name'])) for one in key)})"
    shown = ", ".join([f"{token} AS {TOKEN}", *map(_quoted, values)])
    source = f"{_quoted(keyspace)}.{_quoted(table)}"
    asked = f"SELECT {shown} FROM {source} WHERE {token} > "  # noqa: S608 - quoted
    places = [chance.randint(LEAST, MOST - 1) for _ in range(PLACES)]
    found = [(place, query.measure(f"{asked}{place} LIMIT {ROWS_OF_PLACE}")) for place in places]
    hashed = partitioner.endswith(PARTITIONER) and not clustered
    rows = [row for _, rows in found for row in rows]
    return Sample(
        partitions(found) if hashed else None,
        mean_bytes(rows),
        len(values),
        len(rows),
    )


def partitions(found: Sequence[tuple[int, Sequence[dict[str, Any]]]]) -> float:
    """Return how many partitions there are, from tokens and the rows that follow each."""
    met, width = 0, 0
    for place, rows in found:
        # Where the ring ended before the limit, its end is how far was looked.
        whole = len(rows) >= ROWS_OF_PLACE
        last = int(rows[-1][TOKEN]) if whole else MOST
        met += len(rows)
        width += last - place
    return met * (MOST - LEAST) / width if width else 0.0


def mean_bytes(rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the bytes of a row's values in the mean; None: there are no rows."""
    if not rows:
        return None
    told = [sum(size or 0 for name, size in row.items() if name != TOKEN) for row in rows]
    return sum(told) / len(told)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


ANSWER_MS = 12_000
"""A node in a long garbage collection answers late; one that takes longer is not well."""
MIB = 1 << 20
FULL_RATIO = 0.95
"""A cache evicts a little before its capacity."""
SEED = 1

GRANT = "GRANT SELECT ON KEYSPACE system_views TO {user}"

MOST_COPIES = 1000
"""As an experiment file has it; more would be no number of hosts."""

SETTINGS = ("concurrent_reads", "concurrent_writes")
"""Settings that an experiment file takes and predictions follow; both are numbers."""
USUAL_THREADS = 32
"""Of both: what a file need not say."""

SECONDS_CALLED_MS = ("4.1.", "5.0.")
"""Lines whose latency views are a thousand times too small: their timers count microseconds since
4.1, and the views still divide by a million. What is left has three decimals: whole milliseconds.
**Source:** our own measurement beside a load engine, 2026-11-24, with 4.0.18, 4.1.10 and 5.0.6."""

COUNTED = (
    ("reads", "coordinator_read_latency"),
    ("scans", "coordinator_scan_latency"),
    ("writes", "coordinator_write_latency"),
    ("copies_read", "local_read_latency"),
)
"""What is counted, and the virtual table that does."""


@dataclass(frozen=True)
class Told:
    """What one node tells: a virtual table's rows by its name."""

    release: str
    views: Mapping[str, list[dict[str, Any]]]

    @property
    def ms_per_unit(self) -> float:
        """What one of its latency views' `_ms` is in milliseconds."""
        return 1000.0 if self.release.startswith(SECONDS_CALLED_MS) else 1.0


@dataclass
class CassandraObserver:
    """A cluster, each node by a connection of its own."""

    target: Target
    user: str | None
    nodes: dict[str, CqlQuery]
    """By HOST:PORT."""
    releases: dict[str, str]
    silent: dict[str, str]
    """Nodes that could not be asked, and why."""
    data_center: str
    """That of the first node; nodes of others are left out, as they hold copies of their own."""
    elsewhere: tuple[str, ...]
    """The other data centres."""
    _undo: ExitStack
    _pool: ThreadPoolExecutor

    @classmethod
    def connect(cls, target: Target) -> CassandraObserver:
        """Connect to every node of the cluster. Raises MachineError when none answers."""
        login = None if target.user is None else CqlLogin(target.user, target.password or "")
        tls = CqlTls(target.ca_file) if target.tls else None
        # A node is asked itself: what it says of itself, no other one knows.
        asking = partial(CqlQuery, timeout_ms=ANSWER_MS, login=login, tls=tls, only=True)
        undo = ExitStack()
        found: dict[str, CqlQuery] = {}
        releases: dict[str, str] = {}
        silent: dict[str, str] = {}
        points = [f"{host}:{port}" for host, port in target.points(CQL_PORT)]
        ring = next((told for one in points if (told := _ring(asking([one]))) is not None), None)
        try:
            for point in points:
                for name in (point, *(ring.others if ring is not None else ())):
                    if name in found or name in silent:
                        continue
                    query = asking([name])
                    undo.enter_context(query)
                    try:
                        (row,) = query.ask("SELECT release_version FROM system.local")
                        found[name], releases[name] = query, str(row["release_version"])
                    except QueryError as error:
                        silent[name] = str(error)
            if not found:
                raise MachineError("; ".join(f"{one}: {why}" for one, why in silent.items()))
        except BaseException:
            undo.close()
            raise
        pool = undo.enter_context(ThreadPoolExecutor(len(found)))
        return cls(
            target,
            target.user,
            found,
            releases,
            silent,
            "" if ring is None else ring.data_center,
            () if ring is None else ring.elsewhere,
            undo,
            pool,
        )

    def read(self) -> Reading:
        """Return the counters of all nodes together."""
        told = list(self._pool.map(self._views, self.nodes))
        return reading(told, time.monotonic())

    def _views(self, node: str) -> Told:
        views = ("caches", *(view for _, view in COUNTED))
        asked = {view: f"SELECT * FROM system_views.{view}" for view in views}  # noqa: S608 - ours
        asked["thread_pools"] = "SELECT name, pending_tasks FROM system_views.thread_pools"
        told = {view: self._ask(node, text) for view, text in asked.items()}
        return Told(self.releases[node], told)

    def shape(self, tables: Collection[str]) -> Shape:
        """Return nodes, tables and settings; of `tables` also rows and their bytes, by a sample."""
        first = next(iter(self.nodes))
        settings = {
            node: {
                str(row["name"]): row["value"]
                for row in self._ask(node, "SELECT name, value FROM system_views.settings")
            }
            for node in self.nodes
        }
        unseen = [
            f"{node} could not be asked, so operations that came to it are missing: {why}"
            for node, why in self.silent.items()
        ]
        if self.elsewhere:
            unseen.append(f"nodes of {', '.join(self.elsewhere)} are left out: other data centres")
        seen = []
        stored = self._stored()
        for name, options in self._tables(first).items():
            sample = None
            if name in tables and self.target.sample:
                try:
                    sample = sampled(self.nodes[first], name, _stream(name))
                except QueryError as error:
                    unseen.append(f"the rows of {name} could not be measured: {error}")
            copies = copies_of(options["replication"], self.data_center)
            seen.append(_table(name, options, copies, (stored.get(name, 0.0), sample)))
        return Shape(
            f"Cassandra {self.releases[first]}",
            (
                *(NodeSeen(node, folders_of(told)) for node, told in settings.items()),
                *map(NodeSeen, self.silent),
            ),
            tuple(seen),
            settings_of(settings[first]),
            unseen=tuple(unseen),
        )

    def _tables(self, node: str) -> dict[str, dict[str, Any]]:
        """Return the users' tables with their options and their keyspaces' replication."""
        names = self._ask(node, "SELECT keyspace_name, replication FROM system_schema.keyspaces")
        replication = {str(row["keyspace_name"]): row["replication"] for row in names}
        statement = (
            "SELECT keyspace_name, table_name, compaction, compression FROM system_schema.tables"
        )
        return {
            f"{row['keyspace_name']}.{row['table_name']}": {
                **row,
                "replication": replication.get(str(row["keyspace_name"]), {}),
            }
            for row in self._ask(node, statement)
            if not is_system(str(row["keyspace_name"]))
        }

    def _stored(self) -> dict[str, float]:
        """Return the bytes of each table on the disks of all nodes."""
        found: dict[str, float] = {}
        for node in self.nodes:
            for row in self._ask(node, "SELECT * FROM system_views.disk_usage"):
                name = f"{row['keyspace_name']}.{row['table_name']}"
                found[name] = found.get(name, 0.0) + float(row["mebibytes"]) * MIB
        return found

    def _ask(self, node: str, statement: str) -> list[dict[str, Any]]:
        try:
            return self.nodes[node].ask(statement)
        except QueryError as error:
            hint = ""
            if "permission" in str(error).lower() and "system_views" in statement:
                hint = f"; an administrator may allow it: {GRANT.format(user=self.user)}"
            raise MachineError(f"{node}: {error}{hint}") from error

    def close(self) -> None:
        """End the connections."""
        self._undo.close()


def _stream(name: str) -> random.Random:
    """Return the chance that samples a table: the same places each time."""
    return random.Random(f"{SEED} {name}")  # noqa: S311 - no secret


@dataclass(frozen=True)
class Ring:
    """What a node knows of the others."""

    data_center: str
    others: tuple[str, ...]
    """HOST:PORT of the nodes of its own data centre."""
    elsewhere: tuple[str, ...]
    """Other data centres."""


def _ring(asked: CqlQuery) -> Ring | None:
    """Return what a node knows of the others; None where it does not answer."""
    peers = "SELECT native_address, native_port, data_center FROM system.peers_v2"
    with asked as query:
        try:
            (own,) = query.ask("SELECT data_center FROM system.local")
            rows = query.ask(peers)
        except QueryError:
            # It is asked again, and told to the user then.
            return None
    return ring_of(str(own["data_center"]), rows)


def ring_of(data_center: str, peers: list[dict[str, Any]]) -> Ring:
    """Return the ring from a node's own data centre and its rows of `system.peers_v2`."""
    others = [one for one in peers if str(one["data_center"]) == data_center]
    return Ring(
        data_center,
        tuple(f"{one['native_address']}:{one['native_port']}" for one in others),
        tuple(sorted({str(one["data_center"]) for one in peers} - {data_center})),
    )


def is_system(keyspace: str) -> bool:
    """Return whether a keyspace is Cassandra's own."""
    return keyspace == "system" or keyspace.startswith("system_")


def reading(told: Collection[Told], at_s: float) -> Reading:
    """Return what all nodes tell, together."""
    tables: dict[str, Count] = {}
    for node in told:
        for kind, view in COUNTED:
            for row in node.views[view]:
                if is_system(str(row["keyspace_name"])):
                    continue
                name = f"{row['keyspace_name']}.{row['table_name']}"
                counted = Count(**{kind: float(row["count"] or 0)})
                tables[name] = tables.get(name, Count()) + counted
    pending = [
        float(row["pending_tasks"] or 0)
        for node in told
        for row in node.views["thread_pools"]
        if row["name"] == "CompactionExecutor"
    ]
    return Reading(at_s, tables, tuple(_caches(told)), tuple(_latencies(told)), sum(pending))


def _caches(told: Collection[Told]) -> Iterator[CacheSeen]:
    """Yield the key cache of all nodes together. The others hold no rows by their key."""
    rows = [row for node in told for row in node.views["caches"] if row["name"] == "keys"]
    if any(row["capacity_bytes"] for row in rows):
        full = any(
            row["size_bytes"] >= FULL_RATIO * row["capacity_bytes"]
            for row in rows
            if row["capacity_bytes"]
        )
        yield CacheSeen(
            "key cache",
            "rows",
            sum(float(row["entry_count"]) for row in rows),
            full,
            sum(float(row["hit_count"]) for row in rows),
            sum(float(row["request_count"]) for row in rows),
        )


def _latencies(told: Collection[Told]) -> Iterator[Latency]:
    """Yield each table's percentiles, of the node that is slowest."""
    for operation, view in (("read", COUNTED[0][1]), ("write", COUNTED[2][1])):
        slowest: dict[str, tuple[float, float]] = {}
        for node in told:
            for row in node.views[view]:
                if is_system(str(row["keyspace_name"])) or not row["count"]:
                    continue
                name = f"{row['keyspace_name']}.{row['table_name']}"
                found = (_ms(row["p99th_ms"], node), _ms(row["p50th_ms"], node))
                slowest[name] = max(found, slowest.get(name, (0.0, 0.0)))
        for name, (p99, p50) in slowest.items():
            yield Latency(name, operation, p50, p99)  # type: ignore[arg-type]


def _ms(told: float | None, node: Told) -> float:
    """Return a latency; one that was rounded to nothing is at most one step of the view."""
    return max(float(told or 0.0), STEP) * node.ms_per_unit


STEP = 0.001
"""The views round to three decimals."""


def folders_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the data folders of a node, as `system_views.settings` prints them."""
    text = str(settings.get("data_file_directories") or "").strip()
    # A list as Python or as Java prints it; what a server says is never evaluated.
    folders = [one.strip().strip("'\"") for one in text.strip("[]()").split(",")]
    return tuple(one for one in folders if one.startswith("/"))


def settings_of(told: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the settings that an experiment file takes, where somebody changed them."""
    numbers = {name: digits(told.get(name)) for name in SETTINGS}
    return {name: one for name, one in numbers.items() if one not in (None, USUAL_THREADS)}


def _table(
    name: str, row: Mapping[str, Any], copies: int, found: tuple[float, Sample | None]
) -> TableSeen:
    stored, sample = found
    return TableSeen(
        name,
        copies,
        None if sample is None else sample.rows,
        None if sample is None else sample.row_bytes,
        0 if sample is None else sample.columns,
        stored,
        options_of(row["compaction"] or {}, row["compression"] or {}),
    )


def copies_of(replication: Mapping[str, str], data_center: str = "") -> int:
    """Return the copies of each row that a data centre has, by a keyspace's replication."""
    factors = {
        key: copies
        for key, value in replication.items()
        if key != "class" and (copies := digits(str(value).partition("/")[0], MOST_COPIES))
    }
    return factors.get(data_center, max(factors.values(), default=1))


def options_of(compaction: Mapping[str, str], compression: Mapping[str, str]) -> dict[str, Setting]:
    """Return compression and compaction in the words of an experiment file, where it has them."""
    found: dict[str, Setting] = {}
    kind = str(compaction.get("class", "")).rpartition(".")[2]
    known = {name: word for word, name in COMPACTION.items()}
    if kind in known:
        found["compaction"] = known[kind]
    made = str(compression.get("class", "")).rpartition(".")[2]
    words = [word for word, text in COMPRESSION.items() if made and f"'{made}'" in text]
    found["compression"] = words[0] if words else "none"
    length = str(compression.get("chunk_length_in_kb", ""))
    if words and digits(length):
        found["chunk_length"] = f"{length}KiB"
    return found
