"""A running MariaDB, looked at by its counters: one connection, and SELECT and SHOW alone.

The server counts rows and index lookups, not statements. A read of a row by its key is a lookup
that no UPDATE or DELETE needed. By table it counts only where `userstat` is on; no view tells a
percentile, and a mean only where `performance_schema` is on: of statements that clients send as
text. It forgets prepared ones with their sessions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from disklab.database_settings import Setting
from disklab.databases.mariadb.configuration import PORT, MariadbLogin
from disklab.databases.mariadb.installation import CLIENT
from disklab.databases.observing import (
    CacheSeen,
    Count,
    NodeSeen,
    Reading,
    Shape,
    TableSeen,
    Target,
    figure,
    mean_ms,
)
from disklab.databases.sql import LOOK_SECONDS, Sql
from disklab.hosts import requirements

USUAL: Mapping[str, Setting] = {
    "innodb_flush_log_at_trx_commit": "1",
    "sync_binlog": "0",
    "innodb_doublewrite": "ON",
    "innodb_io_capacity": "200",
    "innodb_buffer_pool_size": "134217728",
    "innodb_log_file_size": "100663296",
    "log_bin": "OFF",
}
"""Settings that decide what a disk has to do, as a server has them that nobody changed (10.11)."""
USERS = "NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
"""Of schemas: all but the server's own."""
TABLES = f"""
SELECT CONCAT(t.TABLE_SCHEMA, '.', t.TABLE_NAME), t.TABLE_ROWS, t.DATA_LENGTH + t.INDEX_LENGTH,
  COALESCE(c.many, 0)
FROM information_schema.TABLES t LEFT JOIN (
  SELECT TABLE_SCHEMA AS place, TABLE_NAME AS name, SUM(COLUMN_KEY <> 'PRI') AS many
  FROM information_schema.COLUMNS WHERE TABLE_SCHEMA {USERS} GROUP BY 1, 2
) c ON c.place = t.TABLE_SCHEMA AND c.name = t.TABLE_NAME
WHERE t.TABLE_TYPE = 'BASE TABLE' AND t.ENGINE = 'InnoDB'
  AND t.TABLE_SCHEMA {USERS}
"""  # noqa: S608 - text of ours
BY_TABLE = f"""
SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME), ROWS_READ, ROWS_CHANGED
FROM information_schema.TABLE_STATISTICS WHERE TABLE_SCHEMA {USERS}
"""  # noqa: S608 - text of ours
COLUMNS = """
SELECT COLUMN_NAME FROM information_schema.COLUMNS
WHERE CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) = {table} AND COLUMN_KEY <> 'PRI'
  AND PRIVILEGES LIKE '%select%'
"""
STATEMENTS = f"""
SELECT UPPER(SUBSTRING(LTRIM(DIGEST_TEXT), 1, 6)), SUM(COUNT_STAR), SUM(SUM_TIMER_WAIT) / 1e12
FROM performance_schema.events_statements_summary_by_digest
WHERE DIGEST_TEXT IS NOT NULL AND SCHEMA_NAME {USERS} GROUP BY 1
"""  # noqa: S608 - text of ours
SEES_STATEMENTS = """
SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'performance_schema'
  AND TABLE_NAME = 'events_statements_summary_by_digest' AND PRIVILEGES LIKE '%select%'
"""
SAMPLED_ROWS = 500
"""As many as PostgreSQL's fifty pages hold of a kB."""
FULL_RATIO = 0.02
"""A buffer pool keeps some pages free to write into: `innodb_lru_scan_depth` of each instance,
1,536 of the 131,072 pages of 2 GiB."""


@dataclass
class MariadbObserver:
    """A server: alone, a primary, or a node of a Galera cluster."""

    sql: Sql
    address: str
    sample: bool
    """Whether some rows may be read to learn their lengths."""
    means: bool
    """Whether the server keeps times of statements, and lets this user see them."""
    by_table: bool
    """Whether it counts by table."""
    logs: bool = False
    """Whether it has a binary log, whose commits it counts."""
    _before: dict[str, tuple[float, float]] = field(default_factory=dict)
    _tables: tuple[TableSeen, ...] = ()

    @classmethod
    def connect(cls, target: Target) -> MariadbObserver:
        """Connect to the first address. Raises MachineError when it does not answer."""
        host, port = target.points(PORT)[0]
        program = requirements.required_program(CLIENT, "disklab observe mariadb")
        login = MariadbLogin(
            host,
            port,
            str(target.user),
            "information_schema",
            target.tls,
            target.password,
            ca_file=target.ca_file,
            is_guarded=True,
        )
        sql = Sql(program, login, answer_s=LOOK_SECONDS)
        try:
            # Statements of ours shall neither wait for long nor write.
            sql.ask("SET SESSION max_statement_time = 10")
            sql.ask("SET SESSION TRANSACTION READ ONLY")
            switches = {
                row[0]: row[1].upper() in ("ON", "1")
                for row in sql.ask(
                    "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
                    "('userstat', 'performance_schema', 'log_bin')"
                )
            }
            made = cls(
                sql,
                f"{host}:{port}",
                target.sample,
                means=switches.get("performance_schema", False)
                and sql.ask(SEES_STATEMENTS) != [["0"]],
                by_table=switches.get("userstat", False),
                logs=switches.get("log_bin", False),
            )
            made._before = made._statements()
            made._tables = tuple(made._listed(made._status("GLOBAL STATUS")))
        except BaseException:
            sql.close()
            raise
        return made

    def read(self) -> Reading:
        """Return the counters."""
        status = self._status("GLOBAL STATUS")
        return Reading(
            time.monotonic(),
            dict(self._shared(count_of(status))),
            (self._buffer_pool(status),),
            # Without a binary log it counts commits of reads with those of writes.
            commits=figure(status["Binlog_commits"]) if self.logs else None,
        )

    def _shared(self, whole: Count) -> Iterator[tuple[str, Count]]:
        """Yield each table's part of all operations: by its rows, else by its bytes."""
        reads = {one.name: one.stored_bytes for one in self._tables}
        writes = reads
        if self.by_table:
            rows = self.sql.ask(BY_TABLE)
            reads = {row[0]: figure(row[1]) for row in rows}
            writes = {row[0]: figure(row[2]) for row in rows}
        of_reads, of_writes = sum(reads.values()) or 1.0, sum(writes.values()) or 1.0
        for name in reads:
            read, written = reads[name] / of_reads, writes[name] / of_writes
            yield name, Count(whole.reads * read, whole.writes * written)

    def _buffer_pool(self, status: Mapping[str, str]) -> CacheSeen:
        """Return the buffer pool. A lookup misses it once at most: inner pages are in memory."""
        held = figure(status["Innodb_buffer_pool_bytes_data"])
        pages, free = (
            figure(status[f"Innodb_buffer_pool_pages_{name}"]) for name in ("total", "free")
        )
        requests = figure(status["Handler_read_key"])
        misses = min(requests, figure(status["Innodb_buffer_pool_reads"]))
        stored = sum(one.stored_bytes for one in self._tables)
        return CacheSeen(
            "buffer pool",
            "bytes",
            min(held, stored),
            free < pages * FULL_RATIO and held < stored,
            requests - misses,
            requests,
        )

    def shape(self, tables: Collection[str]) -> Shape:
        """Return server, tables and settings."""
        version = self.sql.ask("SELECT VERSION()")[0][0].partition("-")[0]
        variables = self._status("GLOBAL VARIABLES")
        settings: dict[str, Setting] = {
            name: variables[name]
            for name, usual in USUAL.items()
            if variables.get(name, usual) != usual
        }
        status = self._status("GLOBAL STATUS")
        self._tables = tuple(self._listed(status))
        measured = tuple(self._measured(one) if one.name in tables else one for one in self._tables)
        unseen = ["MariaDB reports no percentiles of its response times"]
        if not self.logs:
            unseen.append(
                "how many writes a transaction has: without a binary log it is not counted, and "
                "each write counts as a commit of its own"
            )
        if not self.by_table and len(self._tables) > 1:
            unseen.append(
                "operations are divided among the tables by their size: the server counts by table "
                "with userstat=1 alone"
            )
        unseen += [
            f"the rows of {one.name} could not be measured: {self.user} may not read it"
            for one in measured
            if one.name in tables and one.row_bytes is None
        ]
        nodes = (NodeSeen(self.address, (variables["datadir"],)), *_others(status))
        means = mean_ms(self._before, self._statements())
        return Shape(f"MariaDB {version}", nodes, measured, settings, means, tuple(unseen))

    def _listed(self, status: Mapping[str, str]) -> Iterator[TableSeen]:
        """Yield the tables, without the lengths of their rows."""
        copies = max(
            int(status.get("wsrep_cluster_size", 0)), int(status.get("Slaves_connected", 0)) + 1
        )
        for name, rows, stored, columns in self.sql.ask(TABLES):
            yield TableSeen(
                name, copies, figure(rows) or None, None, int(columns), figure(stored) * copies
            )

    def _measured(self, table: TableSeen) -> TableSeen:
        """Return a table with the length of its rows, from some of them."""
        if not self.sample:
            return table
        columns = [row[0] for row in self.sql.ask(COLUMNS.format(table=_text(table.name)))]
        if not columns:
            return table
        lengths = " + ".join(f"COALESCE(LENGTH({_name(column)}), 0)" for column in columns)
        schema, _, name = table.name.partition(".")
        rows = f"SELECT {lengths} AS bytes FROM {_name(schema)}.{_name(name)} LIMIT {SAMPLED_ROWS}"  # noqa: S608
        mean = self.sql.ask(f"SELECT AVG(bytes) FROM ({rows}) AS sampled")[0][0]  # noqa: S608
        return table if mean == "NULL" else replace(table, row_bytes=figure(mean))

    @property
    def user(self) -> str:
        """Who looks."""
        return self.sql.ask("SELECT CURRENT_USER()")[0][0]

    def _status(self, of: str) -> dict[str, str]:
        return {row[0]: row[1] if len(row) > 1 else "" for row in self.sql.ask(f"SHOW {of}")}

    def _statements(self) -> dict[str, tuple[float, float]]:
        """Return calls and seconds of all statements so far, by their first word."""
        if not self.means:
            return {}
        return {row[0]: (figure(row[1]), figure(row[2])) for row in self.sql.ask(STATEMENTS)}

    def close(self) -> None:
        """End the connection."""
        self.sql.close()


def count_of(status: Mapping[str, str]) -> Count:
    """Return operations from index lookups, and rows written, updated and deleted.

    An INSERT that changes a row which is there already counts as written and as updated; such rows
    are those that more were updated than UPDATE statements ran. Whole scans are not counted: they
    pass rows without a lookup.
    """
    lookups, written, updated, deleted = (
        figure(status[f"Handler_{name}"]) for name in ("read_key", "write", "update", "delete")
    )
    by_update = figure(status["Com_update"]) + figure(status["Com_update_multi"])
    by_insert = figure(status["Com_insert"]) + figure(status["Com_replace"])
    twice = min(by_insert, max(0.0, updated - by_update))
    return Count(
        reads=max(0.0, lookups - updated - deleted), writes=written + updated + deleted - twice
    )


def _others(status: Mapping[str, str]) -> Iterator[NodeSeen]:
    """Yield the other nodes of a Galera cluster."""
    listed = status.get("wsrep_incoming_addresses", "").split(",")
    own = int(status.get("wsrep_local_index", 0))
    if len(listed) > 1:
        yield from (NodeSeen(address) for number, address in enumerate(listed) if number != own)


def _text(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "''") + "'"


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
