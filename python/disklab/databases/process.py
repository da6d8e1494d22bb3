"""The process of a database node: started in its group with our mark, watched, ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from disklab.databases.files import open_log
from disklab.databases.log import LogForm, NodeLog, watched
from disklab.databases.place import Place
from disklab.errors import MachineError
from disklab.hosts.addresses import taken_ports
from disklab.hosts.processes import MARK
from disklab.machines import programs
from disklab.machines.netns import NamespaceMachine
from disklab.waiting import Wait

KILL_SECONDS = 30.0
# The kernel closes sockets first and then takes a gigabyte of memory back.
DYING_SECONDS = 2.0
# What was killed closes its sockets within milliseconds; its children may take longer.
FREE_SECONDS = 5.0
FREE_POLL_SECONDS = 0.05


class DatabaseProcess:
    """A database server in the foreground, as a child of this process."""

    def __init__(
        self,
        what: str,
        place: Place,
        ports: Sequence[int],
        form: LogForm,
        inside: NamespaceMachine | None = None,
    ) -> None:
        """Take the database's name for messages, where it listens, and how it writes its log.

        `inside`: the emulated host that it runs in.
        """
        self._what = what
        self._place = place
        self._ports = ports
        self._log = NodeLog(place.log_dir, place.name, form)
        self._inside = inside
        self._process: programs.Process | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process; None: it does not run."""
        process = self._process
        return None if process is None else process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """The same, as its server's statistics are read by."""
        pid = self.pid
        return () if pid is None else (pid,)

    def launch(
        self,
        command: list[str],
        handles: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process, with these open files and variables; returns at once.

        Raises MachineError when another program listens at its ports: that one would answer, and
        it would be its rows that are read, written and truncated.
        """
        place = self._place
        self._await_ports()
        self._log = watched(self._log.from_now())
        inside = command if self._inside is None else self._inside.entering(command)
        # First into the group: its files are those of this machine.
        inside = inside if place.group is None else place.group.inside(inside)
        with os.fdopen(open_log(self._log.output, None), "ab") as output:
            self._process = programs.start(
                inside,
                handles=handles,
                stdout=output,
                stderr=output,
                variables={MARK: str(place.run_dir), "LC_ALL": "C.UTF-8", **(variables or {})},
            )

    def check(self) -> None:
        """Raise MachineError, with the end of its log, when the process has ended by itself."""
        # Another thread may be killing it.
        process = self._process
        if process is None:
            raise MachineError(f"{self._what} node {self._place.name} was not started")
        code = process.poll()
        if code is not None:
            raise self.failure(self._why(code))

    def await_death(self) -> None:
        """Raise as `check` does, for a process whose connections have just broken."""
        if self._process is not None:
            self._process.ended(DYING_SECONDS)
        self.check()

    def is_running(self) -> bool:
        """Return whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def finish(self, seconds: float) -> None:
        """Wait for a process that does one thing and ends. Raises MachineError unless it did it."""
        process = self._process
        if process is None:
            raise MachineError(f"{self._what} node {self._place.name} was ended meanwhile")
        with Wait(f"{self._what} node {self._place.name} is ready", seconds):
            code = process.ended(seconds)
        if code is None:
            raise self.failure(f"was not ready within {seconds:.0f} s")
        self._process = None
        if code:
            raise self.failure(self._why(code))

    def end(self, sign: signal.Signals, seconds: float) -> None:
        """End the process by a signal, and by SIGKILL when it takes longer."""
        if self._process is not None and self.is_running():
            self._process.send_signal(sign)
            with Wait(f"{self._what} node {self._place.name} ends", seconds):
                self._process.ended(seconds)
        self.kill()

    def kill(self) -> None:
        """End the process at once, as a crash would. Raises MachineError when it stays."""
        process = self._process
        if process is None:
            return
        process.kill()
        if process.ended(KILL_SECONDS) is None:
            # It waits for its disk: fail or resume the disk, or let `disklab clean` do it.
            raise self.failure("waits for its disk and cannot be killed")
        self._process = None

    def _await_ports(self) -> None:
        with Wait(f"the ports of {self._place.name} are free", FREE_SECONDS) as wait:
            while taken := self._taken_ports():
                if wait.is_over:
                    where = ", ".join(f"{self._place.address}:{port}" for port in taken)
                    raise MachineError(
                        f"{self._what} node {self._place.name} cannot start: another program "
                        f"listens at {where} (`ss -ltnp` names it); end it, or rehearse again, at "
                        "an address that is free then"
                    )
                wait.pause(FREE_POLL_SECONDS)

    def _taken_ports(self) -> list[int]:
        if self._inside is None:
            return taken_ports(self._place.address, self._ports)
        with self._inside.inside_network():
            return taken_ports(self._place.address, self._ports)

    def failure(self, what: str) -> MachineError:
        """Return an error that says what happened, with the end of the log."""
        place = self._place
        return MachineError(
            f"{self._what} node {place.name} ({place.address}) {what}\n{self._log.excerpt()}"
        )

    def _why(self, code: int) -> str:
        group = self._place.group
        if group is not None and group.was_short():
            return "was killed by the kernel: its memory group was full"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended by itself with code {code}"
