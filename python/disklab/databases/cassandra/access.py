"""Who may ask a node, and for what: its one role, and what Jolokia lets through.

Cassandra makes its well-known superuser (`cassandra`, password `cassandra`) when it first starts.
Ours replaces it before anybody is let in: the port of CQL opens for that alone, on one node, and
every connection that came meanwhile is closed. Should somebody have been quicker, it is seen.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from disklab.databases.cassandra.jolokia import (
    CLOSE_CQL,
    COMPACTED,
    COMPACTION_MANAGER,
    COMPLETED,
    DECOMMISSION,
    DRAIN,
    FLUSH,
    MESSAGING,
    OPEN_CQL,
    ORIGIN,
    PENDING,
    REPAIR,
    REPAIR_STATUS,
    STORAGE,
    STREAMED,
)
from disklab.databases.place import ServerHost
from disklab.engine import CqlLogin, CqlQuery, CqlTls, QueryError
from disklab.errors import MachineError
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command
from disklab.waiting import Wait

# The storage port, which Cassandra has no password for: closed by TLS with the cluster's own key.
#
# Both ends of a connection prove that they hold it, and nobody but the nodes does. Nodes on
# emulated hosts with a network talk in the clear, as those of the studies do: nobody of this
# machine has a way to them.

KEYSTORE_FILE = "storage.p12"
# The file is the secret; Java's key stores have a password all the same, and this one is told.
KEYSTORE_PASSWORD = "disklab"  # noqa: S105 - see above
SECONDS = 60.0


class StorageKey:
    """The key of one cluster, made when it is first asked for."""

    @cached_property
    def keystore(self) -> bytes:
        """Return the store that every node gets. Raises MachineError."""
        return new_keystore()


def new_keystore() -> bytes:
    """Return a PKCS 12 store with a new key and its certificate. Raises MachineError."""
    # Only this user may enter it.
    with tempfile.TemporaryDirectory(prefix="disklab-cassandra-") as name:
        key, certificate = Path(name) / "key.pem", Path(name) / "certificate.pem"
        made = ["openssl", "req", "-x509", "-nodes", "-days", "365", "-subj", "/CN=disklab"]
        made += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        _ran([*made, "-keyout", str(key), "-out", str(certificate)])
        packed = ["openssl", "pkcs12", "-export", "-passout", f"pass:{KEYSTORE_PASSWORD}"]
        return _ran([*packed, "-inkey", str(key), "-in", str(certificate)])


def closing_settings(keystore: Path) -> dict[str, object]:
    """Return the settings by which a node speaks to holders of its own key alone."""
    # Java believes certificates of a store's keys, so one file says who it is and whom it lets in.
    store = {"keystore": str(keystore), "truststore": str(keystore)}
    passwords = dict.fromkeys(("keystore_password", "truststore_password"), KEYSTORE_PASSWORD)
    return {
        "server_encryption_options": {
            "internode_encryption": "all",
            "optional": False,
            "require_client_auth": True,
            "store_type": "PKCS12",
            **store,
            **passwords,
        }
    }


def _ran(command: list[str]) -> bytes:
    ran = LocalMachine().run(Command(command), SECONDS)
    if ran.code != 0:
        raise MachineError(f"openssl failed with code {ran.code}\n{ran.said}")
    return ran.stdout


USER = "disklab"
WELL_KNOWN = CqlLogin("cassandra", "cassandra")
SECRET_BYTES = 24
POLL_SECONDS = 0.2
# A new node has these keyspaces: system, system_auth, system_schema, system_views, ...
SYSTEM = "system"
NOT_NORMAL = "not in normal state"
"""What a node answers to a new replication while another one has not told it its tokens.

**Source:** AlterKeyspaceStatement of Cassandra 4.0 to 5.0; seen of three nodes on a busy machine.
"""

# What a node is asked by JMX: attributes that are read, or read and written, and operations.
READ = {
    STORAGE: ("OperationMode", "LiveNodes", "SchemaVersion", "Keyspaces", "NativeTransportRunning"),
    PENDING: ("Value",),
    COMPLETED: ("Value",),
    COMPACTED: ("Count",),
    COMPACTION_MANAGER: ("Compactions",),
    MESSAGING: ("DroppedMessages",),
    STREAMED: ("Count",),
}
WRITTEN = {STORAGE: ("CompactionThroughputMbPerSec", "WriteRpcTimeout")}
CALLED = {
    STORAGE: (DRAIN, FLUSH, OPEN_CQL, CLOSE_CQL, DECOMMISSION, REPAIR, REPAIR_STATUS),
}


@dataclass(frozen=True)
class Secrets:
    """The passwords of one cluster, made when it is; in no result and on no command line."""

    cql: CqlLogin
    jolokia: str = field(repr=False)

    @classmethod
    def new(cls) -> Secrets:
        """Return random ones. Letters, digits, - and _: they need no quotes anywhere."""
        return cls(
            CqlLogin(USER, secrets.token_urlsafe(SECRET_BYTES)),
            secrets.token_urlsafe(SECRET_BYTES),
        )

    @property
    def text(self) -> str:
        """As they are kept beside data that were made for them."""
        return json.dumps([self.cql.user, self.cql.password, self.jolokia])

    @classmethod
    def of(cls, text: str) -> Secrets:
        """Return those that were kept."""
        user, password, jolokia = json.loads(text)
        return cls(CqlLogin(user, password), jolokia)


def policy() -> str:
    """Return jolokia-access.xml: what is not named is forbidden, and so is every web page.

    **Source:** jolokia.org, reference manual 2, chapter Security.
    """
    beans = []
    for bean, read in READ.items():
        attributes = [f'<attribute mode="read">{name}</attribute>' for name in read]
        attributes += [f"<attribute>{name}</attribute>" for name in WRITTEN.get(bean, ())]
        called = [f"<operation>{name}</operation>" for name in CALLED.get(bean, ())]
        inside = "".join([*attributes, *called])
        beans.append(f"<mbean><name>{bean}</name>{inside}</mbean>")
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        "<restrict><http><method>post</method></http><commands/>"
        f"<cors><allow-origin>{ORIGIN}</allow-origin><strict-checking/></cors>"
        f"<allow>{''.join(beans)}</allow></restrict>\n"
    )


def agent_options(address: str, port: int, secret: str, policy_file: str) -> str:
    """Return Jolokia's properties: the secret would stand on the command line otherwise."""
    options = {
        "host": address,
        "port": str(port),
        "discoveryEnabled": "false",
        "user": USER,
        "password": secret,
        "policyLocation": f"file://{policy_file}",
    }
    return "".join(f"{name}={value}\n" for name, value in options.items())


def replace_well_known(
    query: CqlQuery, login: CqlLogin, copies: int, seconds: float, check: Callable[[], None]
) -> None:
    """Make our role in the place of the well-known one. CQL must be open on the node.

    `copies`: nodes that keep the roles; `check` raises when the node has died. Raises MachineError
    when it takes longer than so many seconds, or when somebody else was there before.
    """
    query.log_in(WELL_KNOWN)
    told = f"nobody could log in to the new node within {seconds:.0f} s"
    _ask_again(query, "SELECT release_version FROM system.local", (seconds, told), check)
    if copies > 1:
        # Every node asks for the role, and Cassandra 4.0 would keep it on one of them. A node that
        # the others see already may not have told them its tokens yet: then it is refused.
        _ask_again(
            query,
            "ALTER KEYSPACE system_auth WITH replication = "
            f"{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}",
            (seconds, f"the new node still refused after {seconds:.0f} s"),
            check,
            while_told=NOT_NORMAL,
        )
    _ask(
        query,
        f"CREATE ROLE {login.user} WITH SUPERUSER = true AND LOGIN = true "
        f"AND PASSWORD = '{login.password}'",
        shown=f"CREATE ROLE {login.user}",
    )
    query.log_in(login)
    _ask(query, f"DROP ROLE {WELL_KNOWN.user}")


def check_alone(query: CqlQuery) -> None:
    """Raise MachineError when there is more than our role and Cassandra's own keyspaces."""
    roles = {str(row["role"]) for row in _ask(query, "SELECT role FROM system_auth.roles")}
    names = _ask(query, "SELECT keyspace_name FROM system_schema.keyspaces")
    foreign = {str(row["keyspace_name"]) for row in names}
    foreign = {name for name in foreign if not name.startswith(SYSTEM)}
    if roles != {USER} or foreign:
        raise MachineError(
            f"somebody else used the new node: it has roles {sorted(roles)} and keyspaces "
            f"{sorted(foreign)}; look who works on this machine, then rehearse again"
        )


def _ask_again(
    query: CqlQuery,
    statement: str,
    limit: tuple[float, str],
    check: Callable[[], None],
    while_told: str = "",
) -> None:
    """Ask until there is an answer, or the error is another one than `while_told`.

    `limit`: seconds, and what is said when they are over.
    """
    seconds, told = limit
    with Wait("the new node takes statements", seconds) as wait:
        while True:
            check()
            try:
                query.ask(statement)
                return
            except QueryError as error:
                if while_told not in str(error):
                    raise MachineError(f"the new node refused: {error}") from error
                if wait.is_over:
                    raise MachineError(f"{told}: {error}") from error
            wait.pause(POLL_SECONDS)


def _ask(query: CqlQuery, statement: str, shown: str | None = None) -> list[dict[str, object]]:
    try:
        return query.ask(statement)
    except QueryError as error:
        said = str(error).replace(statement, shown or statement)
        # Without the cause: the statement may hold a password.
        raise MachineError(f"the new node refused: {said}") from None


# CQL statements for schema and readiness, through the engine: no driver in Python.

READY = "SELECT release_version FROM system.local"
# A schema change waits for every node, and TRUNCATE for a flush at the speed of a slow disk.
ANSWER_MS = 120_000
# A node that is being started refuses at once; a deaf one is asked again soon.
READY_MS = 3_000


@dataclass(frozen=True)
class Cql:
    """The CQL port of one node."""

    host: str
    port: int
    login: CqlLogin | None = None
    tls: CqlTls | None = None
    server: ServerHost | None = None
    """The machine that it is on, which asks it; None: this one asks."""

    def run(self, *statements: str) -> list[list[dict[str, Any]]]:
        """Run statements in order; return the rows of each. MachineError when one fails."""
        try:
            with self.connection(ANSWER_MS) as query:
                return [query.ask(statement) for statement in statements]
        except QueryError as error:
            raise MachineError(f"{self.host}:{self.port}: {error}") from error

    def connection(self, timeout_ms: int = READY_MS) -> CqlQuery:
        """Return a connection for several questions, to be used as a context manager."""
        if self.server is not None:
            return self.server.query(f"{self.host}:{self.port}", timeout_ms, self.login)
        points = [f"{self.host}:{self.port}"]
        return CqlQuery(points, timeout_ms=timeout_ms, login=self.login, tls=self.tls)
