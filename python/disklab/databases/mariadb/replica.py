"""A primary whose commits a replica confirms: semi-synchronous replication by GTID."""

from __future__ import annotations

import time
from collections.abc import Mapping

from disklab.database_settings import Setting
from disklab.databases.mariadb.cluster import METRICS, MariaDB
from disklab.databases.mariadb.configuration import CONFIRM_SECONDS, COPY_PORT, PORT, USER, Role
from disklab.databases.mariadb.server import Server
from disklab.databases.nodes import POLL_SECONDS
from disklab.waiting import Wait

# A replica follows at the speed of its disk.
FOLLOW_SECONDS = 300.0
# A thread that has just begun, or that changes its state, is not in the list of threads for a
# moment; one that gave up stays away. Seen once beside a load of ten.
GIVEN_UP_SECONDS = 3.0
# A copy of the primary's data is bound by disks, and is as small as what this machine can hold.
COPY_SECONDS = 1800.0
LISTEN_TRIES = 100
"""Of the sender, a tenth of a second apart: until the receiver is there."""
_COPIED = "mariadb-copy"
_SEND = (
    'mariadb-backup --defaults-file="$1" --backup --stream=mbstream --target-dir="$2" '
    '--tmpdir="$2" --user="$3" --host="$4" --port="$5" --protocol=tcp $6 2>"$2/backup.log" '
    '| socat -u STDIO "$7" || { tail -n 20 "$2/backup.log" >&2; exit 1; }'
)
_RECEIVE = (
    'socat -u "$1" STDIO | mbstream -x -C "$2" && '
    'mariadb-backup --prepare --use-memory="$3" --target-dir="$2" && '
    'mariadb-backup --defaults-file="$4" --move-back --force-non-empty-directories '
    '--target-dir="$2"'
)
CONFIRMED = (
    "MariaDB reads and writes on its primary; each commit waits until the replica has it in its "
    "relay log, but for no longer than {seconds} s: without a replica the primary then goes on "
    "alone (rpl_semi_sync_master_timeout)"
)


class Replicated(MariaDB):
    """A primary and a replica. See `Database` and `Promoting` for what each method promises.

    **Source:** MariaDB's documentation, "Semisynchronous Replication" and "Global Transaction ID".
    """

    metrics: Mapping[str, str] = {
        **METRICS,
        "Rpl_semi_sync_master_clients": "confirming_replicas",
        "Rpl_semi_sync_master_status": "waits_for_replica",
    }
    counters: Mapping[str, str] = {
        **MariaDB.counters,
        "Rpl_semi_sync_master_yes_tx": "confirmed_commits",
        "Rpl_semi_sync_master_no_tx": "unconfirmed_commits",
    }

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in, and what a commit waits for."""
        return (*super().notes, CONFIRMED.format(seconds=CONFIRM_SECONDS))

    @property
    def replica(self) -> Server:
        """The server that confirms commits."""
        (server,) = self.others
        return server

    def _role(self, server: Server) -> Role:
        is_primary = server is self.primary
        settings: dict[str, Setting] = {
            "server_id": self.servers.index(server) + 1,
            "log_bin": True,
            # As a primary it has to send what it got from another one.
            "log_slave_updates": True,
            "relay_log": str(server.files.binlog / "relay"),
            "relay_log_recovery": True,
            "gtid_strict_mode": True,
            "skip_slave_start": True,
            "read_only": not is_primary,
            "rpl_semi_sync_master_enabled": is_primary,
            "rpl_semi_sync_master_timeout": self._patience_ms,
            "rpl_semi_sync_slave_enabled": True,
        }
        return Role(settings, believed=[one.certificate for one in self.servers])

    @property
    def _patience_ms(self) -> int:
        return CONFIRM_SECONDS * 1000 * self.request.sizes.time_dilation

    def _start_all(self) -> None:
        for server in self.servers:
            if not server.is_made:
                server.make(self._role(server))
            server.launch(self._role(server))
        for server in self.servers:
            server.wait_until_ready()
        self._follow(self.replica)

    def _start_again(self, server: Server) -> None:
        super()._start_again(server)
        if server is not self.primary:
            self._follow(server)
        elif self.replica.place.name not in self._away:
            # It looks for its primary once a minute by itself.
            self._follow(self.replica)

    def _follow(self, server: Server) -> None:
        """Have a server follow the primary; returns when it confirms commits."""
        sql = server.connection()
        sql.ask("STOP SLAVE")
        tls = 1 if self.request.tls else 0
        sql.ask(
            f"CHANGE MASTER TO MASTER_HOST = '{self.primary.place.address}', "
            f"MASTER_PORT = {PORT}, MASTER_USER = '{USER}', MASTER_PASSWORD = '{self._password}', "
            f"MASTER_SSL = {tls}, MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos"
        )
        sql.ask("START SLAVE")
        clients = "Rpl_semi_sync_master_clients"
        with Wait(f"{server.place.name} confirms commits", FOLLOW_SECONDS) as wait:
            while not self.primary.status([clients])[clients]:
                self._check_follows(server)
                if wait.is_over:
                    raise server.process.failure(
                        f"did not follow {self.primary.place.name} within {FOLLOW_SECONDS:.0f} s"
                    )
                wait.pause(POLL_SECONDS)

    @staticmethod
    def _check_follows(server: Server) -> None:
        """Raise MachineError when a replica has given up: it has what the primary has not."""
        applies = "SELECT 1 FROM information_schema.PROCESSLIST WHERE COMMAND = 'Slave_SQL'"
        with Wait(f"{server.place.name} applies changes", GIVEN_UP_SECONDS) as wait:
            while not server.connection().ask(applies):
                if wait.is_over:
                    raise server.process.failure(
                        "does not follow: its log may have something that the primary's does "
                        "not, so it has to be replaced"
                    )
                wait.pause(POLL_SECONDS)

    def wait_until_whole(self) -> None:
        """Return when the replica has applied what the primary had written at the call."""
        ((written,),) = self.primary.connection().ask("SELECT @@gtid_binlog_pos")
        replica = self.replica
        with Wait("the replica follows the primary", FOLLOW_SECONDS) as wait:
            while replica.connection().ask(f"SELECT MASTER_GTID_WAIT('{written}', 1)") != [["0"]]:
                self._check_follows(replica)
                if wait.is_over:
                    raise replica.process.failure(
                        f"did not follow the primary within {FOLLOW_SECONDS:.0f} s"
                    )
                wait.pause(POLL_SECONDS)

    def replace_node(self, name: str) -> None:
        """Copy the primary's data to an empty replica by mariadb-backup; returns when it follows.

        **Source:** MariaDB's documentation, "Setting up a Replica with Mariabackup".
        """
        server = self._named(name)
        if server is self.primary:
            failure = "cannot be replaced: it is the primary, and a replica is a copy of it"
            raise server.process.failure(failure)
        begun = time.monotonic()
        server.kill()
        server.empty()
        position = self._copy(server)
        server.launch(self._role(server))
        server.wait_until_ready()
        server.connection().ask(f"SET GLOBAL gtid_slave_pos = '{position}'")
        self._note_copy(server, begun)
        self._follow(server)
        self._away.discard(name)

    def _copy(self, server: Server) -> str:
        """Stream the primary's data to a server, which makes them whole in its own memory group.

        Returns up to where it has the primary's changes, as a GTID.
        """
        primary, host = self.primary, server.place.host
        configured = server.configure(self._role(server))
        copy = server.place.volumes["data"] / _COPIED
        host.own_folder(copy, server.installation.account)
        conf = server.files.configuration
        shown = f"cert={conf}/server.crt,key={conf}/server.key,cafile={conf}/believed.crt,verify=1"
        listens = f"OPENSSL-LISTEN:{COPY_PORT},bind={server.place.address},reuseaddr,{shown}"
        command = ["bash", "-o", "pipefail", "-c", _RECEIVE, "disklab", listens, str(copy)]
        command += [str(self.plan.pool), configured]
        server.process.launch(server.installation.as_user(command))
        self._send(primary, server)
        server.process.finish(COPY_SECONDS * self.request.sizes.time_dilation)
        # Binary log, place in it, GTID, which is missing before the first change.
        _, _, *gtid = host.said("cat", str(copy / "xtrabackup_binlog_info")).split()
        host.remove(copy)
        return gtid[0] if gtid else ""

    def _send(self, primary: Server, server: Server) -> None:
        conf = primary.files.configuration
        scratch = primary.files.temporary / _COPIED
        primary.place.host.own_folder(scratch, primary.installation.account)
        address = server.place.address
        shown = f"cert={conf}/server.crt,key={conf}/server.key,cafile={conf}/believed.crt,verify=1"
        sends = f"OPENSSL:{address}:{COPY_PORT},{shown},commonname={address}"
        sends += f",retry={LISTEN_TRIES},interval=0.1"
        words = [str(conf / "my.cnf"), str(scratch), USER, primary.place.address, str(PORT)]
        words += ["--ssl" if self.request.tls else "--skip-ssl", sends]
        words = ["-o", "pipefail", "-c", _SEND, "disklab", *words]
        primary.run("bash", *words, variables={"MYSQL_PWD": self._password})
        primary.place.host.remove(scratch)

    def promote_node(self, name: str) -> None:
        """Make the replica the primary in place of one that is away.

        It applies what it has received first: a commit that a client was told of is there.
        """
        server, former = self._named(name), self.primary
        if server is former or former.place.name not in self._away:
            failure = f"cannot be promoted: {former.place.name} is the primary"
            raise server.process.failure(f"{failure}, and there would be two")
        sql = server.connection()
        sql.ask("STOP SLAVE IO_THREAD")
        state = "SELECT STATE FROM information_schema.PROCESSLIST WHERE COMMAND = 'Slave_SQL'"
        with Wait(f"{name} applies what it has received", FOLLOW_SECONDS) as wait:
            while not any("has read all relay log" in text for (text,) in sql.ask(state)):
                if wait.is_over:
                    raise server.process.failure("did not apply what it has received")
                wait.pause(POLL_SECONDS)
        sql.ask("STOP SLAVE")
        sql.ask("RESET SLAVE ALL")
        sql.ask("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        sql.ask("SET GLOBAL read_only = OFF")
        self._primary = server
