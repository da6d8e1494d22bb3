"""One node: its process, from start to end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress

from disklab.databases.cassandra.configuration import CQL_PORT, NodeFiles
from disklab.databases.cassandra.gc_log import GcLog
from disklab.databases.cassandra.jolokia import MESSAGING, PENDING, STORAGE, Jolokia
from disklab.databases.cassandra.log import NodeLog
from disklab.databases.cql import READY, Cql
from disklab.engine import QueryError
from disklab.errors import MachineError
from disklab.hosts.processes import MARK

# 5 s on an idle machine; three nodes on two busy cores and a slow disk took 60 s.
READY_SECONDS = 300.0
READY_POLL_SECONDS = 0.2
# SIGTERM after a drain takes 8 s at most; without one it replays the drain itself.
STOP_SECONDS = 60.0
KILL_SECONDS = 30.0
# The kernel closes sockets first and then takes a gigabyte of memory back.
DYING_SECONDS = 2.0


class Node:
    """One node of a cluster that we start and stop."""

    def __init__(self, files: NodeFiles) -> None:
        self.files = files
        self.jolokia = Jolokia(files.place.address)
        self.cql = Cql(files.place.address, CQL_PORT)
        self.gc_log = GcLog(files.gc_log)
        self.serves = False
        """Whether it has answered a query and nobody has begun to stop it."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log = NodeLog(files.log, files.output)

    @property
    def pid(self) -> int | None:
        """The number of the process; None: it does not run."""
        return None if self._process is None else self._process.pid

    def launch(self, command: list[str]) -> None:
        """Start the process; returns at once."""
        place = self.files.place
        self._log = NodeLog.from_now(self.files.log, self.files.output)
        self._keep_gc_log()
        inside = command if place.group is None else place.group.inside(command)
        with self.files.output.open("ab") as output:
            self._process = subprocess.Popen(
                inside,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
                env={**os.environ, MARK: str(place.run_dir), "LC_ALL": "C.UTF-8"},
            )

    def _keep_gc_log(self) -> None:
        """Set the log of an earlier start aside: the JVM would empty it."""
        log = self.files.gc_log
        if log.exists():
            earlier = len(list(log.parent.glob(f"{log.stem}.*.log")))
            log.rename(log.with_name(f"{log.stem}.{earlier}.log"))
        self.gc_log = GcLog(log)

    def wait_until_ready(self) -> None:
        """Return when the first query is answered: an open port is not enough.

        Raises MachineError, with the end of the log, when the node dies or takes too long.
        """
        deadline = time.monotonic() + READY_SECONDS
        with self.cql.connection() as query:
            while not self.serves:
                self.check()
                try:
                    query.ask(READY)
                    self.serves = True
                except QueryError as error:
                    if time.monotonic() > deadline:
                        raise self._failure(
                            f"answered no query within {READY_SECONDS:.0f} s ({error})"
                        ) from error
                    time.sleep(READY_POLL_SECONDS)

    def check(self) -> None:
        """Raise MachineError, with the end of its log, when the node has died."""
        if self._process is None:
            raise MachineError(f"node {self.files.place.name} was not started")
        code = self._process.poll()
        if code is not None:
            raise self._failure(_why(code, self.files.place.group is not None and self._short()))

    def observe(self) -> tuple[int, int] | None:
        """Return pending compactions and dropped messages; None: it does not serve now.

        Raises MachineError when it should and has died, or does not answer.
        """
        if not self.serves:
            return None
        self.check()
        try:
            pending, dropped = self.jolokia.read((PENDING, "Value"), (MESSAGING, "DroppedMessages"))
        except MachineError:
            if not self.serves:
                return None
            self.await_death()
            raise
        return int(pending), sum(int(count) for count in dropped.values())

    def stop(self) -> None:
        """Drain, end, and wait for the end. A node that does not end in time is killed."""
        process = self._process
        self.serves = False
        if process is None:
            return
        if process.poll() is None:
            with suppress(MachineError):
                self.jolokia.call(STORAGE, "drain()")
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """End the process at once, as a crash would. Raises MachineError when it stays."""
        self.serves = False
        if self._process is None:
            return
        self._process.kill()
        try:
            self._process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired as error:
            # It waits for its disk: fail or resume the disk, or let `disklab clean` do it.
            raise self._failure("waits for its disk and cannot be killed") from error
        self._process = None

    def await_death(self) -> None:
        """Raise MachineError when the node has died: connections break before the process ends."""
        with suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(DYING_SECONDS)
        self.check()

    def _short(self) -> bool:
        group = self.files.place.group
        return group is not None and group.was_short() > 0

    def _failure(self, what: str) -> MachineError:
        place = self.files.place
        return MachineError(
            f"Cassandra node {place.name} ({place.address}) {what}\n{self._log.excerpt()}"
        )


def _why(code: int, out_of_memory: bool) -> str:
    if out_of_memory:
        return "was killed by the kernel: its memory group was full"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended by itself with code {code}"
