"""A PostgreSQL of our own: one server, or a primary whose commits a quorum of standbys confirms."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from disklab.databases.copies import Copies, new_password
from disklab.databases.nodes import POLL_SECONDS
from disklab.databases.postgresql.configuration import (
    DATABASE,
    PORT,
    POSTGRESQL,
    USER,
    MemoryPlan,
    Role,
    plan_memory,
)
from disklab.databases.postgresql.installation import Installation, find_postgresql
from disklab.databases.postgresql.server import Server
from disklab.databases.protocol import Database, NodePlace, Observation, Progress, Request
from disklab.databases.sql import Sql
from disklab.errors import MachineError, refuse
from disklab.waiting import Wait

VACUUM_POLL_SECONDS = 0.5
# Commits wait for a standby for as long as none is there. A standby that restarts is back in 2 s;
# after this time it will not come by itself. Of the described system: its disks are as slow as its
# clock.
QUORUM_SECONDS = 10.0
# A standby answers once a second, when its disk lets it.
ANSWER_SECONDS = 5
# A standby follows at the speed of its disk; what it has not replayed is bounded by max_wal_size.
FOLLOW_SECONDS = 300.0
# A standby that starts asks for log at once, and each 5 s. With 31 programs waiting for two cores
# one took 15 s to do so.
RETURN_SECONDS = 60.0
ONE_PRIMARY = (
    "PostgreSQL reads and writes on its primary: one node does what the nodes of a distributed "
    "database share, and the standbys only confirm commits ({quorum})"
)
# A standby answers once a second (wal_receiver_status_interval); one that hangs on its disk stays
# "streaming" for a minute and answers nothing.
_SEEN = """SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'),
 (SELECT count(*) FROM pg_stat_replication
  WHERE state = 'streaming' AND reply_time > now() - interval '{answer_s} s'),
 d.blks_read, d.blks_hit, d.deadlocks, d.temp_bytes, pg_current_wal_lsn() - '0/0'
 FROM pg_stat_database d WHERE datname = current_database()"""
METRICS = ("running_vacuums", "streaming_standbys")
COUNTERS = ("blocks_read", "blocks_hit", "deadlocks", "temp_bytes", "wal_bytes")
"""Of `_SEEN`, in its order."""
REPLAYED = "SELECT application_name, coalesce(replay_lsn, '0/0') FROM pg_stat_replication"


class PostgreSQL(Copies[Server]):
    """A server, or several, that disklab makes, starts and stops.

    See `Database` for what each method promises.
    """

    title = "PostgreSQL"
    protocol = "postgresql"
    port = PORT
    database = DATABASE
    user = USER
    cached = "data are"

    def __init__(
        self,
        request: Request,
        nodes: Sequence[tuple[NodePlace, Installation]],
        plan: MemoryPlan,
    ) -> None:
        """Take what is asked for and where, with the programs of each place."""
        password = new_password(request)
        servers = [Server(request, *node, plan, password) for node in nodes]
        super().__init__(request, servers, password, plan.page_cache, plan.reasons)
        for server in self.servers:
            server.know([place.address for place, _ in nodes])
        self.plan = plan
        self._major = nodes[0][1].major
        self._promoted = False
        self._connections = 0
        self._alone_since: float | None = None

    @property
    def standbys(self) -> list[Server]:
        """The servers that confirm commits."""
        return self.others

    @property
    def needed(self) -> int:
        """How many standbys confirm a commit: with the primary they are a majority."""
        return len(self.servers) // 2

    @property
    def quorum(self) -> str:
        """`synchronous_standby_names`; empty for a single server."""
        return self._quorum_behind(self.primary)

    def _quorum_behind(self, primary: Server) -> str:
        others = (server.place.name for server in self.servers if server is not primary)
        names = ", ".join(others)
        return f"ANY {self.needed} ({names})" if names else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in, and where it is not a distributed database."""
        alone = [ONE_PRIMARY.format(quorum=self.quorum)] if self.standbys else []
        return (*super().notes, *alone)

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts, at these IP addresses."""
        super().let_in(clients, addresses)
        for server in self.servers:
            server.let_in(addresses)

    @property
    def versions(self) -> Mapping[str, str]:
        """The server's."""
        return {"PostgreSQL": str(self._major)}

    def _bring_up(self) -> None:
        """Start the primary, then the standbys."""
        self._alone_since = None
        if not self.primary.is_made:
            self.primary.make()
        self.primary.launch(self._role(self.primary))
        self.primary.wait_until_ready(makes_schema=True)
        for standby in self.standbys:
            if not standby.is_made:
                standby.make_copy_of(self.primary)
            standby.launch(self._role(standby))
        for standby in self.standbys:
            standby.wait_until_ready(makes_schema=False)

    def _start_again(self, server: Server) -> None:
        server.launch(self._role(server))
        server.wait_until_ready(makes_schema=server is self.primary)
        if self._promoted and server is not self.primary:
            self._wait_until_it_follows(server)

    def replace_node(self, name: str) -> None:
        """Copy the primary's data to an empty standby; returns when it answers queries.

        **Source:** PostgreSQL's manual, 27.2.5 and the page of pg_basebackup.
        """
        server = self._named(name)
        if server is self.primary:
            told = "cannot be replaced: it is the primary, and standbys are copies of it"
            raise server.process.failure(told)
        sql = self.primary.connection()
        self._drop_slot(sql, name)
        begun = time.monotonic()
        server.replace_by_copy_of(self.primary)
        self._note_copy(server, begun)
        self.start_node(name)

    def promote_node(self, name: str) -> None:
        """Make a standby the primary in place of one that is away, and have the others follow it.

        First it gets what another standby has received and it has not: with a quorum, a commit that
        a client was told of may be on any of them, and none of them could follow one that has less.
        **Source:** PostgreSQL's manual, 27.2.7 (cascading) and 27.3 (failover).
        """
        server, former = self._named(name), self.primary
        if server is former or former.place.name not in self._away:
            told = f"cannot be promoted: {former.place.name} is the primary, and there would be two"
            raise server.process.failure(told)
        others = [one for one in self.standbys if one is not server]
        living = [one for one in others if one.place.name not in self._away]
        self._bring_up_to(server, living)
        sql = server.connection()
        kept = {slot for (slot,) in sql.ask("SELECT slot_name FROM pg_replication_slots")}
        for one in others:
            # It keeps from now on what they have not seen yet.
            if one.place.name not in kept:
                sql.ask(f"SELECT pg_create_physical_replication_slot('{one.place.name}', true)")
        # Before it takes a change, so that none is confirmed by itself alone.
        server.reconfigure(Role(self.request.connections, quorum=self._quorum_behind(server)))
        server.expect(self._connections)
        server.promote()
        # Not before: a look at the cluster asks the primary what a standby cannot answer.
        self._primary, self._promoted = server, True
        for one in living:
            one.reconfigure(self._role(one))

    def _bring_up_to(self, server: Server, others: list[Server]) -> None:
        """Let a standby receive what the furthest of the others has, from that one."""
        if not others:
            return
        furthest = max(others, key=lambda one: position(one.received()))
        wanted = furthest.received()
        if position(server.received()) >= position(wanted):
            return
        server.reconfigure(replace(self._following(server, furthest), has_slot=False))
        with Wait(
            f"{server.place.name} receives what {furthest.place.name} has", FOLLOW_SECONDS
        ) as wait:
            while position(has := server.received()) < position(wanted):
                if wait.is_over:
                    missing = position(wanted) - position(has)
                    raise server.process.failure(
                        f"cannot be promoted: {furthest.place.name} has received {missing} bytes "
                        "of log more, which did not come from there within "
                        f"{FOLLOW_SECONDS:.0f} s; promote {furthest.place.name}"
                    )
                wait.pause(POLL_SECONDS)

    def _wait_until_it_follows(self, server: Server) -> None:
        """Return when a standby that came back gets log from the promoted primary."""
        limit_s = RETURN_SECONDS * self._slow
        with Wait(f"{server.place.name} follows {self.primary.place.name}", limit_s) as wait:
            # One whose log goes another way is connected at times, to the end of the timeline
            # before.
            now = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"
            ((timeline,),) = self.primary.connection().ask(now)
            asked = "SELECT received_tli FROM pg_stat_wal_receiver"
            while server.connection().ask(asked) != [[str(int(timeline, 16))]]:
                if wait.is_over:
                    raise server.process.failure(
                        f"did not follow {self.primary.place.name} within {limit_s:.0f} s: its "
                        f"log may have "
                        "something that the promoted one's does not, so it has to be replaced"
                    )
                wait.pause(POLL_SECONDS)

    def _drop_slot(self, sql: Sql, name: str) -> None:
        """Remove what the primary keeps for a standby that is gone: its copy makes its own."""
        slot = f"FROM pg_replication_slots WHERE slot_name = '{name}'"
        ended = f"SELECT pg_terminate_backend(active_pid) {slot} AND active_pid IS NOT NULL"
        # The machine may have vanished without a word: its sender waits for it for a minute.
        with Wait(f"the primary sends nothing to {name}, which is gone", QUORUM_SECONDS) as wait:
            while sql.ask(ended):
                if wait.is_over:
                    raise MachineError(f"the primary still sends log to {name}, which is gone")
                wait.pause(POLL_SECONDS)
        sql.ask(f"SELECT pg_drop_replication_slot(slot_name) {slot}")

    def streamed(self) -> Mapping[str, int]:
        """Return what each standby has got by copies of the primary's data."""
        return {server.place.name: self._copied_bytes[server.place.name] for server in self.others}

    def _role(self, server: Server) -> Role:
        if server is self.primary:
            # Our own connections commit without the standbys; those of clients wait for them.
            return Role(self.request.connections, quorum=self.quorum)
        return self._following(server, self.primary)

    def _following(self, server: Server, other: Server) -> Role:
        # PostgreSQL wants at least as many connections on a standby as on its primary.
        return Role(
            self.request.connections,
            follows=other.place.address,
            name=server.place.name,
            passwords=server.files.passwords,
        )

    def expect(self, connections: int) -> None:
        """Hold room in the primary's memory group for the backends of so many clients."""
        self._connections = connections
        self.primary.expect(connections)

    def _compact(self, sql: Sql, limit_s: float) -> None:
        self._wait_for_vacuums(sql, limit_s)
        # Otherwise the first reads after a fill write: they note in every row that its
        # transaction is committed. pgbench does the same after its own fill.
        sql.ask("VACUUM (ANALYZE)")

    def _flush(self, sql: Sql) -> None:
        # Checkpoints begin at the ends of segments of 16 MiB, which do not shrink with the
        # scale: without this, where a fill had ended decided whether one fell into a pass
        # of writes. Source: `XLogCheckpointNeeded` of xlog.c; seen in PostgreSQL 15.
        sql.ask("SELECT pg_switch_wal()")
        sql.ask("CHECKPOINT")
        self.wait_until_whole()
        for standby in self.standbys:
            standby.connection().ask("CHECKPOINT")
        for server in self.servers:
            server.sync()

    def _cached(self) -> list[tuple[int, int]]:
        # The system's tables are read at every start; the user's lie in the database's own folder.
        with self._with_the_reason() as sql:
            ((folder,),) = sql.ask("SELECT oid FROM pg_database WHERE datname = current_database()")
            ((files,),) = sql.ask(
                "SELECT string_agg(relfilenode::text, ',') FROM pg_class "
                "JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE nspname IN ('public', 'disklab_tpcc') AND relfilenode <> 0"
            )
        # On standbys they have the same names.
        names = frozenset(files.split(","))
        found = [server.cached_bytes(folder, names) for server in self.servers]
        if self.request.columns:
            self._look_up_the_table()
        return found

    def _look_up_the_table(self) -> None:
        """Have the primary read what its catalogues say of the table, and no row of it.

        Backends of a server that has run for long find that in memory. Here the first of a load
        read it from the disk, which counted as reads of the load: four blocks for a SELECT and six
        with an INSERT beside, each with what Linux reads ahead of it (`pg_stat_database`,
        PostgreSQL 15, 2026-11-26). Catalogues do not shrink with the scale.
        """
        table = self.request.table_name
        columns = [f"c{number}" for number in range(self.request.columns)]
        names, values = ", ".join(columns), ", ".join(f"${at + 2}" for at in range(len(columns)))
        types = ", ".join(["bigint", *("bytea" for _ in columns)])
        changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
        given = ", ".join(["1", *("''" for _ in columns)])
        with self._with_the_reason() as sql:
            sql.ask(
                f"PREPARE one_row (bigint) AS SELECT {names} FROM {table} WHERE key = $1; "  # noqa: S608 - our own names
                "EXPLAIN EXECUTE one_row (1); DEALLOCATE one_row"
            )
            sql.ask(
                f"PREPARE changed_row ({types}) AS INSERT INTO {table} (key, {names}) "  # noqa: S608 - our own names
                f"VALUES ($1, {values}) ON CONFLICT (key) DO UPDATE SET {changes}; "
                f"EXPLAIN EXECUTE changed_row ({given}); DEALLOCATE changed_row"
            )

    def stop(self) -> None:
        """End the primary, which waits until its standbys have everything, then the standbys."""
        for server in (self.primary, *self.standbys):
            server.stop()

    def _observed_away(self) -> Observation:
        return Observation(tuple(self.primary.pids()), {}, {})

    def _counts(self, sql: Sql) -> Mapping[str, float]:
        (counts,) = sql.ask(_SEEN.format(answer_s=ANSWER_SECONDS * self._slow))
        names = (*METRICS, *COUNTERS)
        return dict(zip(names, map(float, counts), strict=True))

    def _observation(self, counts: Mapping[str, float]) -> Observation:
        """Return vacuums that run, blocks read and hit, WAL written.

        Raises MachineError when too few standbys follow for any commit to be confirmed.
        """
        self._check_quorum(int(counts["streaming_standbys"]))
        for server in self.servers:
            server.fit_group()
        shown = METRICS if self.standbys else METRICS[:1]
        return Observation(
            pids=tuple(pid for server in self.servers for pid in server.pids()),
            metrics={name: counts[name] for name in shown},
            counters={name: counts[name] for name in COUNTERS},
        )

    def _check_quorum(self, streaming: int) -> None:
        """Raise MachineError when commits have had nobody to confirm them for too long."""
        now = time.monotonic()
        if streaming >= self.needed or self._away:
            self._alone_since = None
            return
        if self._alone_since is None:
            self._alone_since = now
        limit_s = QUORUM_SECONDS * self._slow
        if now - self._alone_since < limit_s:
            return
        # A death that the check before just missed is the reason; the quorum is its consequence.
        for one in self.standbys:
            one.process.await_death()
        silent = "\n".join(str(one.process.failure("does not follow")) for one in self.standbys)
        raise MachineError(
            f"no commit was confirmed for {limit_s:.0f} s: {streaming} of the "
            f"{self.needed} standbys that synchronous_standby_names = '{self.quorum}' needs "
            f"follow the primary\n{silent}"
        )

    def wait_until_whole(self) -> None:
        """Return when every standby has replayed what the primary had written at the call."""
        if not self.standbys:
            return
        with Wait("standbys follow the primary", FOLLOW_SECONDS) as wait:
            sql = self.primary.connection()
            ((written,),) = sql.ask("SELECT pg_current_wal_lsn()")
            while True:
                for standby in self.standbys:
                    standby.process.check()
                # A standby that has just connected has replayed nothing yet that it could tell.
                seen = dict(sql.ask(REPLAYED))
                late = [
                    server.place.name
                    for server in self.standbys
                    if position(seen.get(server.place.name, "0/0")) < position(written)
                ]
                if not late:
                    return
                if wait.is_over:
                    raise MachineError(
                        f"standbys {', '.join(late)} did not follow the primary within "
                        f"{FOLLOW_SECONDS:.0f} s: {seen or 'none is connected'}"
                    )
                wait.pause(POLL_SECONDS, ", ".join(late))

    def _wait_for_vacuums(self, sql: Sql, limit_s: float) -> None:
        with Wait("vacuums end", limit_s) as wait:
            query = "SELECT relid::regclass, phase FROM pg_stat_progress_vacuum"
            while running := sql.ask(query):
                if wait.is_over:
                    shown = "; ".join(" ".join(row) for row in running)
                    raise MachineError(f"vacuums did not end within {limit_s:.0f} s: {shown}")
                wait.pause(VACUUM_POLL_SECONDS, "; ".join(" ".join(row) for row in running))


def position(lsn: str) -> int:
    """Return a place in the write-ahead log, such as 0/16B3748, as a number of bytes."""
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a server that is ready to start."""
    problems = list(POSTGRESQL.check(request, nodes))
    refuse(problems)
    found = {
        host: find_postgresql(host, request.version, progress)
        for host in dict.fromkeys(node.host for node in nodes)
    }
    told = [f"{host.elsewhere} {one.major}" for host, one in found.items() if host.elsewhere]
    majors = {one.major for one in found.values()}
    if len(majors) > 1:
        shown = ", ".join(told)
        raise MachineError(f"a standby has the version of its primary, and there are {shown}")
    first = found[nodes[0].host]
    problems = POSTGRESQL.check_settings(request.settings, first.known_settings(), first.major)
    if not problems:
        refusal = first.refusal(request.settings, tls=request.tls)
        problems += [] if refusal is None else [refusal]
    refuse(problems)
    if told:
        progress(f"PostgreSQL on {', '.join(told)}")
    plan = plan_memory(request.sizes, request.row_bytes)
    return PostgreSQL(request, [(node, found[node.host]) for node in nodes], plan)
