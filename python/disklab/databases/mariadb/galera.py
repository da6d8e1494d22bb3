"""A Galera cluster: every server has each commit certified by all before it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from disklab.database_settings import Setting
from disklab.databases.mariadb.cluster import METRICS, MariaDB
from disklab.databases.mariadb.configuration import (
    CHANGES_PORT,
    COPY_PORT,
    GROUP_PORT,
    PERIODS,
    PORT,
    USER,
    Role,
)
from disklab.databases.mariadb.installation import GALERA
from disklab.databases.mariadb.server import Server
from disklab.databases.nodes import POLL_SECONDS
from disklab.waiting import Wait

# A whole copy is bound by disks, and its sender sleeps 10 s before it.
JOIN_SECONDS = 1800.0
# A node that joined applies what it was sent at the speed of its disk.
FOLLOW_SECONDS = 300.0
ONE_WRITER = (
    "all reads and writes go to one node of the Galera cluster, and to another one when that is "
    "away; each commit waits until all nodes have it"
)
FIRST = "--wsrep-new-cluster"
SYNCED = 4.0
"""Of `wsrep_local_state`."""


class Galera(MariaDB):
    """A cluster of nodes that all have all rows. See `Database` for what each method promises.

    **Source:** MariaDB's documentation, "MariaDB Galera Cluster".
    """

    metrics: Mapping[str, str] = {
        **METRICS,
        "wsrep_cluster_size": "members",
        "wsrep_local_recv_queue": "waiting_changes",
        "wsrep_flow_control_paused": "paused_ratio",
    }
    counters: Mapping[str, str] = {
        **MariaDB.counters,
        "wsrep_replicated_bytes": "replicated_bytes",
        "wsrep_replicated": "replicated_commits",
        "wsrep_local_cert_failures": "certification_failures",
        "wsrep_local_bf_aborts": "aborted_by_replication",
        "wsrep_flow_control_paused_ns": "paused_ns",
    }

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in, and what a commit waits for."""
        return (*super().notes, ONE_WRITER)

    @property
    def primary(self) -> Server:
        """The node that the load goes to: the first of the list that is there."""
        living = (one for one in self.servers if one.place.name not in self._away)
        return next(living, self.servers[0])

    def _role(self, server: Server) -> Role:
        address, conf = server.place.address, server.files.configuration
        slow = self.request.sizes.time_dilation
        options = {
            "gmcast.listen_addr": f"ssl://{address}:{GROUP_PORT}",
            "ist.recv_addr": f"ssl://{address}:{CHANGES_PORT}",
            "gcache.size": str(self.plan.gcache),
            "repl.causal_read_timeout": f"PT{FOLLOW_SECONDS:.0f}S",
            "socket.ssl": "yes",
            "socket.ssl_cert": str(conf / "server.crt"),
            "socket.ssl_key": str(conf / "server.key"),
            "socket.ssl_ca": str(conf / "believed.crt"),
            **({name: f"PT{slow * s}S" for name, s in PERIODS.items()} if slow > 1 else {}),
        }
        known = ",".join(f"{one.place.address}:{GROUP_PORT}" for one in self.servers)
        settings: dict[str, Setting] = {
            "server_id": self.servers.index(server) + 1,
            "wsrep_on": True,
            "wsrep_provider": server.installation.programs[GALERA],
            "wsrep_provider_options": ";".join(
                f"{name}={value}" for name, value in options.items()
            ),
            "wsrep_cluster_name": "disklab",
            "wsrep_cluster_address": f"gcomm://{known}",
            "wsrep_node_name": server.place.name,
            "wsrep_node_address": address,
            "wsrep_sst_method": "mariabackup",
            "wsrep_sst_receive_address": f"{address}:{COPY_PORT}",
            "binlog_format": "ROW",
            "innodb_autoinc_lock_mode": 2,
        }
        tls = "ssl = 1" if self.request.tls else "skip-ssl"
        sections = (
            "[sst]\n"
            # Both sides show a certificate of the cluster's, and the receiver its own secret.
            "encrypt = 3\nssl-mode = VERIFY_CA\n"
            f"tkey = {conf / 'server.key'}\ntcert = {conf / 'server.crt'}\n"
            f"tca = {conf / 'believed.crt'}\n"
            # What is received is listened for at this server's address alone.
            f"sockopt = ,bind={address}\n"
            "sst-log-archive = 0\n"
            f"tmpdir = {server.files.temporary}\n"
            "[mariadb-backup]\n"
            f"host = {address}\nport = {PORT}\nprotocol = tcp\n{tls}\n"
        )
        secret = f'[mariadbd]\nwsrep_sst_auth = "{USER}:{self._password}"\n'
        believed = [one.certificate for one in self.servers]
        return Role(settings, sections, secret, believed)

    @contextmanager
    def fills(self) -> Iterator[None]:
        """Fill the first node alone; the others begin again with its files.

        So each row goes through one server and not through all, which share this machine.
        """
        first, *others = self.servers
        if any(server.place.host.elsewhere for server in self.servers):
            with super().fills():
                yield
            return
        self._away.update(server.place.name for server in others)
        for server in others:
            server.stop()
        with super().fills():
            yield
        first.stop()
        for server in others:
            server.seed(first)
        self.start()

    def _start_all(self) -> None:
        first, *others = self.servers
        if not first.is_made:
            first.make(self._role(first))
            # It writes down which cluster it is of, and up to where it has its changes.
            first.launch(self._role(first), FIRST)
            first.wait_until_ready()
            first.stop()
        for server in others:
            if not server.is_made:
                server.seed(first)
        first.launch(self._role(first), FIRST)
        first.wait_until_ready()
        # One after the other: of two that join at once one finds no place in the other's view, and
        # tries again a period later (26 s with periods twelve times as long).
        for server in others:
            server.launch(self._role(server))
            server.wait_until_ready(JOIN_SECONDS)

    def _start_again(self, server: Server) -> None:
        role = self._role(server)
        recovered = server.recovered(role)
        words = [] if recovered is None else [f"--wsrep-start-position={recovered}"]
        server.launch(role, *words)
        server.wait_until_ready(JOIN_SECONDS)
        self._wait_until_synced(server)

    def _wait_until_synced(self, server: Server) -> None:
        """Return when a node has applied what it was sent as it joined."""
        state = "wsrep_local_state"
        with Wait(f"{server.place.name} has what the others have", FOLLOW_SECONDS) as wait:
            while server.status([state])[state] != SYNCED:
                if wait.is_over:
                    raise server.process.failure(
                        f"was not in step with the others within {FOLLOW_SECONDS:.0f} s"
                    )
                wait.pause(POLL_SECONDS)

    def wait_until_whole(self) -> None:
        """Return when every node has applied what the others have."""
        for server in self.servers:
            if server.place.name not in self._away:
                self._wait_until_synced(server)
                self._read_all(server)

    @staticmethod
    def _read_all(server: Server) -> None:
        """Have a node answer behind all changes that the cluster has taken."""
        sql = server.connection()
        sql.ask("SET SESSION wsrep_sync_wait = 1")
        sql.ask("SELECT count(*) FROM mysql.global_priv")
        sql.ask("SET SESSION wsrep_sync_wait = 0")

    def replace_node(self, name: str) -> None:
        """Start a node on empty disks: another one sends it a whole copy by mariadb-backup (SST).

        Returns when it answers.
        """
        begun = time.monotonic()
        server = self._named(name)
        server.kill()
        server.empty()
        server.launch(self._role(server))
        server.wait_until_ready(JOIN_SECONDS * self.request.sizes.time_dilation)
        self._note_copy(server, begun)
        self._wait_until_synced(server)
        self._away.discard(name)
