"""The files that a node starts with: cassandra.yaml, logback.xml, and the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import yaml

from disklab.databases.cassandra.access import Secrets, agent_options, policy
from disklab.databases.cassandra.distribution import Distribution, Java
from disklab.databases.cassandra.sizing import MIB, MemoryPlan
from disklab.databases.place import open_log, write
from disklab.databases.protocol import NodePlace
from disklab.engine import Account

# Token ranges: with one token a node and explicit places, data are spread evenly at once; random
# tokens need hundreds of nodes for that. Murmur3's range is -2^63 .. 2^63-1.
TOKENS = 1 << 64
# Ports of Cassandra itself. Each node has an address of its own, so they can stay the usual ones.
CQL_PORT = 9042
STORAGE_PORT = 7000
JOLOKIA_PORT = 8778
PORTS = (CQL_PORT, STORAGE_PORT, JOLOKIA_PORT)
JOLOKIA_FILE = "jolokia.properties"
# A node that finds no others to keep its roles logs a warning each time.
ROLE_DELAY_MS = {"one": 200, "several": 2000}
NEVER_MS = 365 * 86_400_000
# How long a node listens for others before it takes its place. A single one has none to listen
# for; three of them on two cores need some seconds until they have seen each other.
RING_DELAY_MS = {"one": 1000, "several": 5000}

# Opens of Cassandra's own conf/jvm17-server.options, without which it does not start or logs
# errors on every start. Java 11 and older have other ones.
EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.unsupported/sun.misc",
)
OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.compiler/com.sun.tools.javac",
    "jdk.management/com.sun.management.internal",
)

LOGBACK_TO_OUTPUT = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""
_LOGBACK = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""


@dataclass(frozen=True)
class Installation:
    """What a node is run with."""

    distribution: Distribution
    java: Java
    known: Mapping[str, str]
    """The names of all settings of this version: see `known_settings`."""
    account: Account | None = None
    """Who runs it; None: the user who runs disklab, who is not root."""
    collector: str | None = None
    """What collects garbage; None: G1, as Cassandra's own options for Java 17 have it."""


@dataclass(frozen=True)
class NodeFiles:
    """Where a node's own files are."""

    place: NodePlace

    @property
    def data(self) -> Path:
        """The folder of everything that Cassandra keeps on the data volume."""
        return self.place.volumes["data"] / "cassandra"

    @property
    def commitlog(self) -> Path:
        """The folder of the commit log: on its own volume where there is one."""
        volume = self.place.volumes.get("commitlog", self.place.volumes["data"])
        return volume / "cassandra-commitlog"

    @property
    def sstables(self) -> Path:
        """The folder of the data files."""
        return self.data / "data"

    @property
    def configuration(self) -> Path:
        """The folder of the generated files."""
        return self.place.run_dir / "conf"

    @property
    def temporary(self) -> Path:
        """The folder of the server's own temporary files."""
        return self.place.run_dir / "tmp"

    @property
    def log(self) -> Path:
        """What Cassandra logs."""
        return self.place.log_dir / f"{self.place.name}-system.log"

    @property
    def gc_log(self) -> Path:
        """Every stop of the JVM."""
        return self.place.log_dir / f"{self.place.name}-gc.log"


@dataclass(frozen=True)
class Replaced:
    """A dead node whose place an empty one takes."""

    address: str
    copies_lost: bool
    """Whether it had the only copies: then nobody has them to stream, and it starts without."""

    @property
    def options(self) -> list[str]:
        """Java options of the node in its place."""
        found = [f"-Dcassandra.replace_address_first_boot={self.address}"]
        return [*found, *(["-Dcassandra.consistent.rangemovement=false"] * self.copies_lost)]


@dataclass(frozen=True)
class Start:
    """How a node is started this time."""

    plan: MemoryPlan
    nodes: int
    """Of the cluster."""
    makes_role: bool
    """Whether this node makes the well-known role, which ours replaces."""
    replaced: Replaced | None = None
    """The dead node that this one takes the place of."""

    @property
    def role_delay_ms(self) -> int:
        """How soon it does, and looks again whether it can: every node must have come."""
        if not self.makes_role:
            return NEVER_MS
        return ROLE_DELAY_MS["one" if self.nodes == 1 else "several"]


def even_tokens(nodes: int) -> list[int]:
    """Return one token for each node, so that all have the same share."""
    return [TOKENS * index // nodes - TOKENS // 2 for index in range(nodes)]


def token_for_newcomer(tokens: list[int], near: int | None) -> int:
    """Return the token of a node that joins.

    Just below that of the node which it is to follow, whose rows it has then; otherwise in the
    middle of the largest share.
    """
    if near is not None:
        return near - 1
    ordered = sorted(tokens)
    ends = [*ordered[1:], ordered[0] + TOKENS]
    start, end = max(zip(ordered, ends, strict=True), key=lambda share: share[1] - share[0])
    middle = (start + end) // 2
    return middle if middle < TOKENS // 2 else middle - TOKENS


def node_settings(
    files: NodeFiles,
    addresses: list[str],
    token: int,
    *,
    replaces: bool = False,
    joins: bool = False,
) -> dict[str, object]:
    """Return what disklab sets itself; `addresses` are those of all nodes, in order.

    `replaces`: it takes a dead node's tokens and data. `joins`: it streams its share.
    """
    place = files.place
    own: dict[str, object] = {
        "cluster_name": "disklab",
        "num_tokens": 1,
        "initial_token": str(token),
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "data_file_directories": [str(files.sstables)],
        "commitlog_directory": str(files.commitlog),
        "saved_caches_directory": str(files.data / "saved_caches"),
        "hints_directory": str(files.data / "hints"),
        "cdc_raw_directory": str(files.data / "cdc_raw"),
        "endpoint_snitch": "SimpleSnitch",
        "listen_address": place.address,
        "rpc_address": place.address,
        "native_transport_port": CQL_PORT,
        "storage_port": STORAGE_PORT,
        "auto_bootstrap": False,
        # One role, which may do everything: nothing is looked up for a request.
        "authenticator": "PasswordAuthenticator",
        "authorizer": "AllowAllAuthorizer",
        "role_manager": "CassandraRoleManager",
        "seed_provider": _seeds(addresses[0]),
    }
    if replaces or joins:
        # A node that is its own seed streams nothing; one that replaces has the dead one's token.
        if replaces:
            del own["initial_token"]
        others = [address for address in addresses if address != place.address]
        own |= {"auto_bootstrap": True, "seed_provider": _seeds(",".join(others))}
    return own


def _seeds(addresses: str) -> list[dict[str, object]]:
    name = "org.apache.cassandra.locator.SimpleSeedProvider"
    return [{"class_name": name, "parameters": [{"seeds": addresses}]}]


def access_settings(known: Mapping[str, str]) -> dict[str, object]:
    """Return how long a node believes what it has read of roles, in the names of its version.

    Passwords are read at each login: the well-known one must not outlive its role.
    """
    roles = {"roles_validity": "60000ms"}
    if "roles_validity" not in known:
        return {"roles_validity_in_ms": 60000, "credentials_validity_in_ms": 0}
    return {**roles, "credentials_validity": "0ms"}


def default_settings(
    plan: MemoryPlan, known: Mapping[str, str], version: str | None
) -> dict[str, object]:
    """Return what a user may change, in the names of the version whose settings are `known`.

    Sizes that follow the scale, and the shipped cassandra.yaml where the code's defaults differ.
    `version`: what was asked for; then it keeps its own way to read files. Otherwise they are
    mapped, as 3.11 and 4.x do and the published studies did.
    """
    period: dict[str, object] = (
        {"commitlog_sync_period": "10000ms"}
        if "commitlog_sync_period" in known
        else {"commitlog_sync_period_in_ms": 10000}
    )
    return {
        "commitlog_sync": "periodic",
        **period,
        **({"disk_access_mode": "mmap"} if version is None else {}),
        # A node whose disk fails shall end, and be noticed: "stop" leaves a process that is deaf.
        "disk_failure_policy": "die",
        "commit_failure_policy": "die",
        # Truncating would otherwise keep the old data files, and fill the disk trial by trial.
        "auto_snapshot": False,
        **_sized(plan, known),
    }


def _sized(plan: MemoryPlan, known: Mapping[str, str]) -> dict[str, object]:
    """Return the sizes that follow the scale; 4.0 has other names for them than 4.1 and 5.0."""
    names = {
        "memtable_heap_space": ("memtable_heap_space_in_mb", plan.memtable),
        "commitlog_total_space": ("commitlog_total_space_in_mb", plan.commitlog),
        "key_cache_size": ("key_cache_size_in_mb", plan.key_cache),
    }
    return {
        new if new in known else old: f"{size // MIB}MiB" if new in known else size // MIB
        for new, (old, size) in names.items()
    }


def write_files(
    files: NodeFiles,
    own: Mapping[str, object],
    settings: Mapping[str, object],
    secrets: Secrets,
    account: Account | None,
) -> None:
    """Write the configuration of a node and make its folders."""
    host = files.place.host
    configuration = host.open_run_dir(files.place.run_dir)
    assert configuration == files.configuration
    for folder in (files.temporary, files.data, files.commitlog):
        host.own_folder(folder, account)
    text = yaml.safe_dump({**own, **settings}, sort_keys=True)
    rules = str(configuration / "jolokia-access.xml")
    agent = agent_options(files.place.address, JOLOKIA_PORT, secrets.jolokia, rules)
    host.write(configuration, "cassandra.yaml", text)
    host.write(configuration, "jolokia-access.xml", policy())
    host.write_secret(configuration, JOLOKIA_FILE, agent, account)
    # What a run keeps of it, which has no secret.
    files.place.log_dir.mkdir(parents=True, exist_ok=True)
    write(files.place.log_dir, f"{files.place.name}-cassandra.yaml", text)


@contextmanager
def opened_logs(files: NodeFiles, account: Account | None) -> Iterator[tuple[int, int]]:
    """Yield descriptors of the node's log and of its GC log, for the process that writes them.

    The run's folder is often closed to the server's user, such as below a home directory.
    """
    with ExitStack() as undo:
        opened = []
        for file in (files.log, files.gc_log):
            opened.append(open_log(file, account))
            undo.callback(os.close, opened[-1])
        log, gc_log = opened
        logback = _LOGBACK.format(file=escape(name_of(log)))
        write(files.configuration, "logback.xml", logback)
        yield log, gc_log


def name_of(descriptor: int) -> str:
    """Return the name that an open file has for the process that inherits it."""
    return f"/proc/self/fd/{descriptor}"


COLLECTORS = {
    "g1": (
        "-XX:+UseG1GC",
        "-XX:+ParallelRefProcEnabled",
        "-XX:MaxGCPauseMillis=300",
        "-XX:InitiatingHeapOccupancyPercent=70",
    ),
    "zgc": ("-XX:+UseZGC",),
    "shenandoah": ("-XX:+UseShenandoahGC",),
}
"""Those of Java 17 that Cassandra runs with. **Source:** jvm17-server.options of Cassandra 5.0 for
G1; the others choose their own sizes (JEP 333, JEP 379)."""


def collector_options(name: str | None) -> tuple[str, ...]:
    """Return the Java options of a collector; None: Cassandra's own."""
    return COLLECTORS[name or "g1"]


def command_line(
    files: NodeFiles, installation: Installation, start: Start, gc_output: str
) -> list[str]:
    """Return the command that runs a node in the foreground.

    `gc_output`: of the JVM's log of its stops, as -Xlog has it: `stdout`, or `file=` and a name
    that the node's process can open.
    """
    nodes, plan = start.nodes, start.plan
    configuration = files.configuration
    java, distribution = installation.java, installation.distribution
    heap = plan.heap // MIB
    rotation = ":filecount=0" if gc_output.startswith("file=") else ""
    command = [
        str(java.program),
        "-ea",
        "-da:net.openhft...",
        *collector_options(installation.collector),
        "-XX:+PerfDisableSharedMem",
        # All of the heap is taken at once: otherwise the page cache would have its place at first.
        "-XX:+AlwaysPreTouch",
        "-XX:+ExitOnOutOfMemoryError",
        "-Xss512k",
        f"-Xms{heap}M",
        f"-Xmx{heap}M",
        # As cassandra-env.sh: direct buffers up to half of the heap.
        f"-XX:MaxDirectMemorySize={heap // 2}M",
        f"-Xlog:gc=info,safepoint=info:{gc_output}:time,uptimenanos{rotation}",
        "-Djava.net.preferIPv4Stack=true",
        "-Djdk.attach.allowAttachSelf=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.useCacheForAllThreads=true",
        "-Dio.netty.allocator.maxOrder=11",
        *(f"--add-exports={name}=ALL-UNNAMED" for name in EXPORTS),
        *(f"--add-opens={name}=ALL-UNNAMED" for name in OPENS),
        *java.options,
        f"-javaagent:{distribution.jamm}",
        f"-javaagent:{distribution.jolokia}=config={configuration / JOLOKIA_FILE}",
        f"-Dcassandra.config=file://{configuration / 'cassandra.yaml'}",
        f"-Dlogback.configurationFile={configuration / 'logback.xml'}",
        f"-Dcassandra.storagedir={files.data}",
        f"-Dcassandra.logdir={files.temporary}",
        f"-Djava.io.tmpdir={files.temporary}",
        # CQL opens when our role is there: see `access`.
        "-Dcassandra.start_native_transport=false",
        f"-Dcassandra.superuser_setup_delay_ms={start.role_delay_ms}",
        f"-Dcassandra.system_auth.default_rf={nodes}",
        # A random password needs no stretching, which takes a tenth of a second at each login.
        "-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",
        "-Dcassandra-foreground=yes",
        # Nobody is there whose gossip could settle.
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        f"-Dcassandra.ring_delay_ms={RING_DELAY_MS['one' if nodes == 1 else 'several']}",
        # Before it ends, a node tells the others and gives them two seconds.
        *(["-Dcassandra.shutdown_announce_in_ms=0"] if nodes == 1 else []),
        *([] if start.replaced is None else start.replaced.options),
        "-cp",
        f"{configuration}:{distribution.libraries}/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]
    if installation.account is None:
        return command
    # Root has no such limit. Without one, Cassandra locks its heap in memory, as it should; where a
    # container forbids that, it warns.
    unlimited = 'ulimit -l unlimited 2>/dev/null; exec "$@"'
    return ["/bin/sh", "-c", unlimited, "disklab", *installation.account.command(command)]
