"""One node: its process, its CQL, its JMX."""

from __future__ import annotations

import re
import signal
import time
from contextlib import suppress

from disklab.databases.cassandra.configuration import CQL_PORT, PORTS, NodeFiles
from disklab.databases.cassandra.gc_log import GcLog
from disklab.databases.cassandra.jolokia import MESSAGING, PENDING, STORAGE, Jolokia
from disklab.databases.cql import READY, Cql
from disklab.databases.log import LogForm
from disklab.databases.process import DatabaseProcess
from disklab.engine import QueryError
from disklab.errors import MachineError

# 5 s on an idle machine; three nodes on two busy cores and a slow disk took 80 s.
READY_SECONDS = 300.0
READY_POLL_SECONDS = 0.2
# After a drain a node ends within 8 s; without one it has its memtables to write first.
STOP_SECONDS = 60.0

LOG = LogForm(
    entry=re.compile(r"(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b"),
    bad=re.compile(r"(WARN|ERROR|FATAL)\b"),
    cause=re.compile(r"Caused by: |[\w.$]+(Exception|Error)\b"),
)


class Node:
    """One node of a cluster that we start and stop."""

    def __init__(self, files: NodeFiles) -> None:
        self.files = files
        self.process = DatabaseProcess("Cassandra", files.place, PORTS, LOG)
        self.jolokia = Jolokia(files.place.address)
        self.cql = Cql(files.place.address, CQL_PORT)
        self.gc_log = GcLog(files.gc_log)
        self.serves = False
        """Whether it has answered a query and nobody has begun to stop it."""

    def launch(self, command: list[str]) -> None:
        """Start the process; returns at once."""
        self._keep_gc_log()
        self.process.launch(command)

    def wait_until_ready(self) -> None:
        """Return when the first query is answered: an open port is not enough.

        Raises MachineError, with the end of the log, when the node dies or takes too long.
        """
        deadline = time.monotonic() + READY_SECONDS
        with self.cql.connection() as query:
            while not self.serves:
                self.process.check()
                try:
                    query.ask(READY)
                    self.serves = True
                except QueryError as error:
                    if time.monotonic() > deadline:
                        raise self.process.failure(
                            f"answered no query within {READY_SECONDS:.0f} s ({error})"
                        ) from error
                    time.sleep(READY_POLL_SECONDS)

    def observe(self) -> tuple[int, int] | None:
        """Return pending compactions and dropped messages; None: it does not serve now.

        Raises MachineError when it should and has died, or does not answer.
        """
        if not self.serves:
            return None
        self.process.check()
        try:
            pending, dropped = self.jolokia.read((PENDING, "Value"), (MESSAGING, "DroppedMessages"))
        except MachineError:
            if not self.serves:
                return None
            self.process.await_death()
            raise
        return int(pending), sum(int(count) for count in dropped.values())

    def stop(self) -> None:
        """Drain and end. What has died already is no error; what does not end is killed."""
        self.serves = False
        if self.process.is_running():
            with suppress(MachineError):
                self.jolokia.call(STORAGE, "drain()")
        self.process.end(signal.SIGTERM, STOP_SECONDS)

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self.serves = False
        self.process.kill()

    def _keep_gc_log(self) -> None:
        """Set the log of an earlier start aside: the JVM would empty it."""
        log = self.files.gc_log
        if log.exists():
            earlier = len(list(log.parent.glob(f"{log.stem}.*.log")))
            log.rename(log.with_name(f"{log.stem}.{earlier}.log"))
        self.gc_log = GcLog(log)
