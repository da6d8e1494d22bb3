"""One node: its process, its CQL, its JMX."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from disklab.databases.cassandra.access import (
    KEYSTORE_FILE,
    READY,
    USER,
    Cql,
    Secrets,
    StorageKey,
    check_alone,
    closing_settings,
    replace_well_known,
)
from disklab.databases.cassandra.configuration import (
    CQL_PORT,
    JOLOKIA_PORT,
    LOGBACK_TO_OUTPUT,
    PORTS,
    Installation,
    NodeFiles,
    Start,
    command_line,
    name_of,
    opened_logs,
    write_files,
)
from disklab.databases.cassandra.jolokia import (
    CLOSE_CQL,
    DECOMMISSION,
    DRAIN,
    MESSAGING,
    OPEN_CQL,
    PENDING,
    REPAIR,
    REPAIR_STATUS,
    STORAGE,
    STREAMED,
    Jolokia,
)
from disklab.databases.log import LogForm
from disklab.engine import Account, QueryError
from disklab.errors import MachineError
from disklab.waiting import Wait

# Stops of a JVM, from its unified log (-Xlog:gc,safepoint).

# Every stop of all threads ends with such a line; a collection has the name of its collector.
# Source: JDK 17 and 21, src/hotspot/share/runtime/safepoint.cpp (SafepointTracing::end).
# The database's user writes it, and root may read it: a line of theirs has 250 characters, and 18
# digits of nanoseconds are 31 years.
_STOP = re.compile(rb'Safepoint "(\w{1,100})",.{0,1000}?\bTotal: {1,100}(\d{1,18}) ns')
_COLLECTION = re.compile(rb"^(G1|Gen|Parallel|Serial|Z|Shenandoah|CollectForMetadata)")
# What a collection found and left in the heap, in whole MiB. What lies between the end of one and
# the beginning of the next was allocated, as far as no concurrent cycle freed anything meanwhile.
# Source: JDK 17, src/hotspot/share/gc/shared/gcTraceTime.cpp ("512M->40M(1024M) 5.123ms").
_HEAP = re.compile(
    rb"GC\(\d{1,9}\) Pause (?:Young|Full|Remark|Cleanup)\b[^\n]{0,200}? "
    rb"(\d{1,9})M->(\d{1,9})M\(\d{1,9}M\)"
)
MIB = 1 << 20

PIECE_BYTES = 1 << 20
"""Read at a time, and more than any line of the JVM has."""
MOST_PIECES = 16
"""In one turn; a second's stops are some kilobytes. What is more is read the next time."""
# Stops are told for as long after they were read; whoever looks once a second misses none.
RECENT_SECONDS = 1.0


@dataclass
class GcLog:
    """Reads on where it left off; totals since it began. Several threads may ask."""

    path: Path
    pauses: int = 0
    """Stops for garbage collection."""
    pause_s: float = 0.0
    stopped_s: float = 0.0
    """All stops, those for collections included."""
    allocated_bytes: int = 0
    """Between the first collection that was read and the last one."""
    _left: int | None = None
    """What the last pause left in the heap, in bytes; None: none was read."""
    _offset: int = 0
    _recent: list[tuple[float, float]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self, now_s: float) -> None:
        """Read what was written since the last time. `now_s` is monotonic."""
        with self._lock:
            self._recent = [one for one in self._recent if one[0] > now_s - RECENT_SECONDS]
            self._read(now_s)

    def longest_s(self) -> float:
        """Return the longest of the stops that were read within the last second."""
        with self._lock:
            return max((seconds for _, seconds in self._recent), default=0.0)

    def _read(self, now_s: float) -> None:
        """Take the whole lines from where the last ended; they are the database user's writing."""
        try:
            with self.path.open("rb") as log:
                log.seek(self._offset)
                for _ in range(MOST_PIECES):
                    content = log.read(PIECE_BYTES)
                    whole = content[: content.rfind(b"\n") + 1]
                    if not whole and len(content) < PIECE_BYTES:
                        return
                    # A piece without an end of line is a part of no line of the JVM's: passed over.
                    self._offset += len(whole) or len(content)
                    self._take(whole, now_s)
                    log.seek(self._offset)
        except OSError:
            return

    def _take(self, lines: bytes, now_s: float) -> None:
        for name, nanoseconds in _STOP.findall(lines):
            seconds = int(nanoseconds) / 1e9
            self.stopped_s += seconds
            self._recent.append((now_s, seconds))
            if _COLLECTION.match(name):
                self.pauses += 1
                self.pause_s += seconds
        for found, left in _HEAP.findall(lines):
            if self._left is not None:
                self.allocated_bytes += max(int(found) * MIB - self._left, 0)
            self._left = int(left) * MIB


# 5 s on an idle machine; three nodes on two busy cores and a slow disk took 80 s.
READY_SECONDS = 300.0
READY_POLL_SECONDS = 0.2
# After a drain a node ends within 8 s; without one it has its memtables to write first.
STOP_SECONDS = 60.0

LOG = LogForm(
    entry=re.compile(r"(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b"),
    bad=re.compile(r"(WARN|ERROR|FATAL)\b"),
    cause=re.compile(r"Caused by: |[\w.$]+(Exception|Error)\b"),
    error=re.compile(r"(ERROR|FATAL)\b"),
)


class Node:
    """One node of a cluster that we start and stop."""

    def __init__(self, files: NodeFiles, secrets: Secrets, installation: Installation) -> None:
        """Take its files, the cluster's passwords, and the programs of its host."""
        self.files = files
        self.host = host = files.place.host
        self.installation = installation
        self.process = host.process("Cassandra", files.place, PORTS, LOG, self._log_of)
        self.jolokia = Jolokia(files.place.address, JOLOKIA_PORT, USER, secrets.jolokia, host)
        self.cql = Cql(files.place.address, CQL_PORT, secrets.cql, server=host)
        self.gc_log = GcLog(files.gc_log)
        self.serves = False
        """Whether it has answered a query and nobody has begun to stop it."""
        self.is_reachable = True
        """Whether this machine has a way to it."""

    @property
    def dropped_by(self) -> str:
        """How `drop_page_cache` does it while the node runs, for `Coldness`."""
        return "in place" if self.host.elsewhere else "group reclaim"

    def _log_of(self, line: bytes) -> Path:
        # The JVM's own lines begin with their time; those of the log with their level.
        return self.files.gc_log if line.startswith(b"[") else self.files.log

    def configure(
        self,
        own: Mapping[str, object],
        settings: Mapping[str, object],
        secrets: Secrets,
        account: Account | None,
    ) -> None:
        """Write its configuration and make its folders."""
        write_files(self.files, own, settings, secrets, account)

    def close_storage_port(self, key: StorageKey) -> dict[str, object]:
        """Give it the key of the storage port; return the settings by which it is asked for."""
        folder = self.host.open_run_dir(self.files.place.run_dir)
        account = self.installation.account
        return closing_settings(
            self.host.write_secret(folder, KEYSTORE_FILE, key.keystore, account)
        )

    def launch(self, start: Start) -> None:
        """Start the process; returns at once. On this machine it writes its logs itself."""
        self.keep_gc_log()
        files, installation = self.files, self.installation
        if self.host.elsewhere:
            self.host.write(files.configuration, "logback.xml", LOGBACK_TO_OUTPUT)
            self.process.launch(command_line(files, installation, start, "stdout"))
            return
        with opened_logs(files, installation.account) as (log, gc_log):
            output = f"file={name_of(gc_log)}"
            command = command_line(files, installation, start, output)
            self.process.launch(command, (log, gc_log))

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes on this machine."""
        return self.process.pids

    def sync(self) -> None:
        """Write everything back that is dirty on its volumes."""
        self.host.sync(self.files.place)

    def drop_page_cache(self) -> None:
        """Drop what the page cache holds of its files, written back before."""
        self.sync()
        if self.files.place.group is not None:
            self.files.place.group.reclaim()
        # Pages that an earlier process read are charged to its group, or to nobody's.
        self.host.drop_pages([self.files.data])

    def cached_bytes(self, keyspace: str) -> tuple[int, int]:
        """Return the size of a keyspace's files, and how much of it the page cache holds."""
        return self.host.cached_bytes([self.files.sstables / keyspace])

    def wait_until_up(self, limit_s: float = READY_SECONDS) -> None:
        """Return when the node has taken its place in the ring; CQL is closed then.

        Raises MachineError, with the end of the log, when the node dies or takes too long.
        """
        self._until("did not start", self._is_up, limit_s)

    def open_cql(self) -> None:
        """Let clients in: whoever knows the password."""
        self._until("did not open CQL", lambda: self._switch_cql(opened=True))

    def close_cql(self) -> None:
        """Let nobody in, and end every connection."""
        self._until("did not close CQL", lambda: self._switch_cql(opened=False))

    def make_role(self, secrets: Secrets, nodes: int) -> None:
        """Make our role in the place of the well-known one; CQL is open for that alone.

        Raises MachineError when that cannot be done, or somebody else was quicker.
        """
        self.open_cql()
        with self.cql.connection() as query:
            replace_well_known(query, secrets.cql, nodes, READY_SECONDS, self.process.check)
        # With every connection that was made meanwhile, whoever has it.
        self.close_cql()
        self.open_cql()
        with self.cql.connection() as query:
            check_alone(query)

    def wait_until_ready(self) -> None:
        """Return when the first query is answered: an open port is not enough.

        Raises MachineError, with the end of the log, when the node dies or takes too long.
        """
        name = f"{self.files.place.name} answers its first query"
        with Wait(name, READY_SECONDS) as wait, self.cql.connection() as query:
            while not self.serves:
                self.process.check()
                try:
                    query.ask(READY)
                    self.serves = True
                except QueryError as error:
                    if wait.is_over:
                        raise self.process.failure(
                            f"answered no query within {READY_SECONDS:.0f} s ({error})"
                        ) from error
                    wait.pause(READY_POLL_SECONDS)

    def observe(self) -> tuple[int, int] | None:
        """Return pending compactions and dropped messages; None: it does not serve now.

        A JVM one thread of which waits for a stalled disk stands still as a whole and answers
        nobody. Raises MachineError when it should serve and has died.
        """
        if not self.serves:
            return None
        if not self.is_reachable:
            self.process.check()
            return None
        try:
            self.process.check()
            pending, dropped = self.jolokia.read((PENDING, "Value"), (MESSAGING, "DroppedMessages"))
        except MachineError:
            if self.serves and self.is_reachable:
                self.process.await_death()
            return None
        return int(pending), sum(int(count) for count in dropped.values())

    def streamed_bytes(self) -> int | None:
        """Return what it has got from others since it started; None: it does not serve now."""
        if not (self.serves and self.is_reachable):
            return None
        try:
            return int(self.jolokia.read((STREAMED, "Count"))[0])
        except MachineError:
            # The figure is there from the first stream on.
            self.process.check()
            return 0

    def stop(self) -> None:
        """Drain and end. What has died already is no error; what does not end is killed."""
        self.serves = False
        if self.process.is_running() and self.is_reachable:
            with suppress(MachineError):
                self.jolokia.call(STORAGE, DRAIN)
        self.process.end(signal.SIGTERM, STOP_SECONDS)

    def leave(self, *, forced: bool) -> None:
        """Decommission: stream all to the others, then end.

        `forced`: fewer nodes are left than Cassandra's own tables have copies.
        **Source:** Cassandra's documentation, "Adding, replacing, moving and removing nodes".
        """
        # Its JMX does one thing at a time, so nobody can look at it until it has left.
        self.serves = False
        self.jolokia.call(STORAGE, DECOMMISSION, forced)
        self.process.end(signal.SIGTERM, STOP_SECONDS)

    def repair(self, keyspace: str, limit_s: float) -> None:
        """Compare the copies of a keyspace in full, as `nodetool repair -full` does.

        Raises MachineError when it fails or takes too long.
        """
        options = {"incremental": "false", "primaryRange": "false", "parallelism": "parallel"}
        number = self.jolokia.call(STORAGE, REPAIR, keyspace, options)
        # 0: there is nothing to compare, as with one copy.
        with Wait(f"{self.files.place.name} is repaired", limit_s) as wait:
            while number:
                self.process.check()
                said = self.jolokia.call(STORAGE, REPAIR_STATUS, number) or ["IN_PROGRESS"]
                if said[0] == "COMPLETED":
                    return
                if said[0] == "FAILED":
                    raise self.process.failure(f"could not be repaired: {'; '.join(said[1:])}")
                if wait.is_over:
                    raise self.process.failure(f"was not repaired within {limit_s:.0f} s")
                wait.pause(READY_POLL_SECONDS)

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self.serves = False
        self.process.kill()

    def empty(self) -> None:
        """Remove what a dead node has on its disks: another one takes its place."""
        self.kill()
        for folder in (self.files.data, self.files.commitlog):
            self.host.remove(folder)

    def _is_up(self) -> bool:
        return str(self.jolokia.read((STORAGE, "OperationMode"))[0]) == "NORMAL"

    def _switch_cql(self, *, opened: bool) -> bool:
        """Ask for CQL to be opened or closed; return whether it is."""
        if self._is_cql_open() is not opened:
            self.jolokia.call(STORAGE, OPEN_CQL if opened else CLOSE_CQL)
        return self._is_cql_open() is opened

    def _is_cql_open(self) -> bool:
        return bool(self.jolokia.read((STORAGE, "NativeTransportRunning"))[0])

    def _until(self, failed: str, done: Callable[[], bool], limit_s: float = READY_SECONDS) -> None:
        """Return when it is done; what JMX refuses is tried again."""
        with Wait(f"{self.files.place.name}: {failed.removeprefix('did not ')}", limit_s) as wait:
            while True:
                self.process.check()
                said = ""
                try:
                    if done():
                        return
                except MachineError as error:
                    said = f" ({error})"
                if wait.is_over:
                    raise self.process.failure(f"{failed} within {limit_s:.0f} s{said}")
                wait.pause(READY_POLL_SECONDS)

    def keep_gc_log(self) -> None:
        """Set the log of an earlier start aside: the JVM would empty it."""
        log = self.files.gc_log
        if log.exists():
            earlier = len(list(log.parent.glob(f"{log.stem}.*.log")))
            log.rename(log.with_name(f"{log.stem}.{earlier}.log"))
        self.gc_log = GcLog(log)
