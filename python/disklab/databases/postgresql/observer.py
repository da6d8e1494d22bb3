"""A running PostgreSQL, looked at by its statistics views: one connection, and SELECT alone.

The views count rows and index scans, not statements. A read of a row by its key is an index scan
that no write asked for: an UPDATE, a DELETE and an INSERT ... ON CONFLICT scan an index as well.
Where `pg_stat_statements` is installed it tells how long statements took in the mean; no view tells
a percentile.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from disklab.database_settings import Setting
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
from disklab.databases.postgresql.configuration import PORT
from disklab.databases.sql import LOOK_SECONDS, Login, Sql
from disklab.hosts import requirements

USUAL: Mapping[str, Setting] = {
    "max_wal_size": "1GB",
    "checkpoint_timeout": "5min",
    "effective_io_concurrency": "1",
}
"""Settings that a rehearsal takes as they are, as a server has them that nobody changed (15)."""

COUNTS = """
SELECT s.schemaname || '.' || s.relname, coalesce(s.idx_scan, 0), coalesce(s.seq_scan, 0),
  s.n_tup_ins, s.n_tup_upd, s.n_tup_del, io.heap_blks_hit, io.heap_blks_read,
  pg_total_relation_size(s.relid)
FROM pg_stat_user_tables s JOIN pg_statio_user_tables io USING (relid)
"""
TABLES = """
SELECT s.schemaname || '.' || s.relname, s.n_live_tup, pg_total_relation_size(s.relid),
  (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = s.relid AND a.attnum > 0
    AND NOT a.attisdropped AND NOT a.attnum = ANY (coalesce(i.indkey::smallint[], '{}'))),
  (SELECT sum(p.avg_width * (1 - p.null_frac)) FROM pg_stats p JOIN pg_attribute a
    ON a.attrelid = s.relid AND a.attname = p.attname AND p.inherited = false
    WHERE p.schemaname = s.schemaname AND p.tablename = s.relname
    AND NOT a.attnum = ANY (coalesce(i.indkey::smallint[], '{}')))
FROM pg_stat_user_tables s LEFT JOIN pg_index i ON i.indrelid = s.relid AND i.indisprimary
"""
STATEMENTS = """
SELECT upper(substring(ltrim(query) FROM 1 FOR 6)), sum(calls), sum(total_exec_time) / 1000
FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
GROUP BY 1
"""
SAMPLED = """
SELECT (SELECT string_agg('coalesce(pg_column_size(' || quote_ident(a.attname) || '), 0)', ' + ')
    FROM pg_attribute a
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = {which} AND a.attnum > 0 AND NOT a.attisdropped
    AND NOT a.attnum = ANY (coalesce(i.indkey::smallint[], '{{}}'))),
  CASE WHEN has_table_privilege({which}, 'SELECT') THEN {which}::text END,
  pg_relation_size({which}) / current_setting('block_size')::bigint
"""
SAMPLED_PAGES = 50
"""Some hundred rows of 1 kB."""


@dataclass
class PostgresqlObserver:
    """A server, or the primary of several."""

    sql: Sql
    address: str
    sample: bool
    """Whether some rows may be read, where the server has no statistics of their lengths."""
    statements: bool
    """Whether pg_stat_statements can be read."""
    _before: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def connect(cls, target: Target) -> PostgresqlObserver:
        """Connect to the first address. Raises MachineError when it does not answer."""
        host, port = target.points(PORT)[0]
        program = requirements.required_program("psql", "disklab observe postgresql")
        login = Login(
            host,
            port,
            str(target.user),
            target.database,
            target.tls,
            target.password,
            # Statements of ours shall not wait for long, nor write.
            options="-c default_transaction_read_only=on -c statement_timeout=10000 "
            "-c application_name=disklab-observe",
            ca_file=target.ca_file,
            is_guarded=True,
        )
        sql = Sql(program, login, answer_s=LOOK_SECONDS)
        try:
            found = sql.ask(
                "SELECT count(*) FROM pg_extension WHERE extname = 'pg_stat_statements'"
            )
            visible = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'usage')"
            statements = found == [["1"]] and sql.ask(visible) == [["t"]]
        except BaseException:
            sql.close()
            raise
        made = cls(sql, f"{host}:{port}", target.sample, statements)
        made._before = made._statements()
        return made

    def read(self) -> Reading:
        """Return the counters."""
        rows = self.sql.ask(COUNTS)
        tables = {row[0]: counted([figure(one) for one in row[1:6]]) for row in rows}
        return Reading(time.monotonic(), tables, tuple(self._caches(rows)))

    def _caches(self, rows: list[list[str]]) -> Iterator[CacheSeen]:
        """Yield the shared buffers, as far as they hold tables."""
        hits = sum(figure(row[6]) for row in rows)
        misses = sum(figure(row[7]) for row in rows)
        size = figure(
            self.sql.ask(
                "SELECT setting::bigint * 8192 FROM pg_settings WHERE name = 'shared_buffers'"
            )[0][0]
        )
        whole = sum(figure(row[8]) for row in rows)
        yield CacheSeen(
            "buffer cache", "bytes", min(size, whole), whole > size, hits, hits + misses
        )

    def shape(self, tables: Collection[str]) -> Shape:
        """Return server, tables and settings."""
        version = self.sql.ask("SHOW server_version")[0][0].split()[0]
        shown = {name: self.sql.ask(f"SHOW {name}")[0][0] for name in USUAL}
        settings = {name: value for name, value in shown.items() if value != USUAL[name]}
        unseen = ["PostgreSQL reports no percentiles of its response times"]
        standbys = int(self.sql.ask("SELECT count(*) FROM pg_stat_replication")[0][0])
        seen = tuple(
            self._measured(one) if one.name in tables else one
            for one in (table_of(row, standbys + 1) for row in self.sql.ask(TABLES))
        )
        unseen += [
            f"the rows of {one.name} could not be measured: it was never analysed, or {self.user} "
            "may not read it"
            for one in seen
            if one.name in tables and one.row_bytes is None
        ]
        nodes = (NodeSeen(self.address, self._folders()),)
        means = mean_ms(self._before, self._statements())
        return Shape(f"PostgreSQL {version}", nodes, seen, settings, means, tuple(unseen))

    def _measured(self, table: TableSeen) -> TableSeen:
        """Return a table with the length of its rows, from some of its pages where need be."""
        if table.row_bytes is not None or not self.sample:
            return table
        schema, _, name = table.name.partition(".")
        which = f"quote_ident({_text(schema)}) || '.' || quote_ident({_text(name)})"
        (found,) = self.sql.ask(SAMPLED.format(which=f"({which})::regclass"))
        sums, source, pages = found
        if not sums or not source or int(pages) == 0:
            return table
        percent = min(100.0, 100.0 * SAMPLED_PAGES / int(pages))
        asked = f"SELECT avg({sums}) FROM {source} TABLESAMPLE SYSTEM ({percent:.6f})"  # noqa: S608
        ((mean,),) = self.sql.ask(asked)
        return replace(table, row_bytes=figure(mean)) if mean else table

    @property
    def user(self) -> str:
        """Who asks."""
        return self.sql.ask("SELECT current_user")[0][0]

    def _folders(self) -> tuple[str, ...]:
        """Return the data directory; empty: only members of pg_read_all_settings see it."""
        found = self.sql.ask("SELECT setting FROM pg_settings WHERE name = 'data_directory'")
        return (found[0][0],) if found and found[0][0] else ()

    def _statements(self) -> dict[str, tuple[float, float]]:
        """Return calls and seconds of all statements so far, by their first word.

        Their texts lie in a file of the server, so this is asked at the beginning and at the end.
        """
        if not self.statements:
            return {}
        return {row[0]: (figure(row[1]), figure(row[2])) for row in self.sql.ask(STATEMENTS)}

    def close(self) -> None:
        """End the connection."""
        self.sql.close()


def counted(told: list[float]) -> Count:
    """Return operations from index scans, whole scans, and rows inserted, updated and deleted."""
    index_scans, whole_scans, inserted, updated, deleted = told
    writes = inserted + updated + deleted
    return Count(
        reads=max(0.0, index_scans - updated - deleted),
        writes=writes,
        scans=whole_scans,
    )


def table_of(row: list[str], copies: int) -> TableSeen:
    """Return a table from a row of `TABLES`."""
    name, live, whole, columns, width = row
    rows = figure(live)
    told = figure(width) if width else None
    return TableSeen(name, copies, rows or None, told, int(columns), figure(whole) * copies)


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
