"""The machine that disklab runs on as the host of a rehearsed node."""

from __future__ import annotations

import os
import select
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disklab.databases import asking
from disklab.databases.asking import Question
from disklab.databases.log import LogForm, NodeLog, reason, watched
from disklab.databases.place import (
    LogOf,
    Place,
    open_log,
    open_run_dir,
    own_folder,
    write,
    write_secret,
)
from disklab.databases.sql import Login, Sql
from disklab.engine import Account, CqlLogin, CqlQuery, server_account, unreachable
from disklab.errors import MachineError
from disklab.hosts.addresses import taken_ports
from disklab.hosts.control_group import MARK
from disklab.hosts.requirements import find_program
from disklab.machines import programs
from disklab.machines.local import LocalMachine, drop, sync
from disklab.machines.netns import NamespaceMachine
from disklab.machines.protocol import Command
from disklab.waiting import Wait

# Processes of a server that was killed, which might still write to its data directory.
#
# PostgreSQL sees them by its System V shared memory. Ours has that in a namespace of its own, so
# that
# nothing of it stays (`Installation.alone`), and looks for them itself. They do not show our mark:
# PostgreSQL writes what it is doing over the environment.


def end_remains(data: Path, program: Path, seconds: float) -> list[int]:
    """End every process of a server on this data directory; returns those that stay.

    Each of them has the directory as its working directory and runs `program`, the server's. One
    that waits for its disk stays as long as that does not answer; `seconds`: for all of them.
    """
    places = (str(data.resolve()), str(program.resolve()))
    with ExitStack() as open_handles:
        killed = {}
        for pid in _numbers():
            handle = _killed(pid, places)
            if handle is not None:
                open_handles.callback(os.close, handle)
                killed[handle] = pid
        with Wait("what is left of a server ends", seconds, f"{len(killed)} processes") as wait:
            while killed:
                ended, _, _ = select.select([*killed], [], [], wait.left_s)
                if not ended:
                    break
                for handle in ended:
                    del killed[handle]
        return sorted(killed.values())


def _numbers() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _killed(pid: int, places: tuple[str, str]) -> int | None:
    """Kill a process that is there; returns a handle of it, or None: it is none of the server's."""
    # The handle holds on to the process: no other one can get its number after we have looked.
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    if (_link(pid, "cwd"), _link(pid, "exe")) != places:
        os.close(handle)
        return None
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    return handle


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


# The process of a database node: started in its group with our mark, watched, ended.

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
            f"{self._what} node {place.name} ({place.address}) {what}{self._log.why()}\n"
            f"{self._log.excerpt()}"
        )

    def _why(self, code: int) -> str:
        group = self._place.group
        if group is not None and group.was_short():
            return "was killed by the kernel: its memory group was full"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended by itself with code {code}"


PROGRAM_SECONDS = 30.0
# initdb writes 40 MB, and pg_basebackup a copy: of a slow disk.
WORK_SECONDS = 600.0


@dataclass(frozen=True)
class ThisMachine:
    """See `ServerHost`. The server owns its data and may not be trusted with more."""

    inside: NamespaceMachine | None = None
    """The emulated host that its nodes run on; None: they run beside disklab, on loopback."""

    @property
    def elsewhere(self) -> None:
        """It is here."""

    @property
    def has_network(self) -> bool:
        """Whether the nodes run on an emulated host."""
        return self.inside is not None

    def process(
        self,
        what: str,
        place: Place,
        ports: Sequence[int],
        form: LogForm,
        log_of: LogOf | None = None,
    ) -> DatabaseProcess:
        """Return a child of this process."""
        del log_of
        return DatabaseProcess(what, place, ports, form, self.inside)

    def program(self, name: str) -> str | None:
        """Return the path of a program."""
        return find_program(name)

    def run(
        self, words: Sequence[str], variables: Mapping[str, str] | None = None, name: str = ""
    ) -> str:
        """Run a program to its end; see `ServerHost.run`."""
        given = {"LC_ALL": "C", **(variables or {})}
        command = words if self.inside is None else self.inside.entering(words)
        ended = LocalMachine().run(Command(command, variables=given), WORK_SECONDS)
        if ended.code != 0:
            said = (ended.stderr or ended.stdout).decode(errors="replace").strip()
            failed = f"{name or words[0]} failed with code {ended.code}: {reason(said)}"
            raise MachineError(f"{failed}\n{said}")
        return ended.stdout.decode(errors="replace")

    def said(self, *words: str) -> str:
        """Return what a program writes."""
        ended = LocalMachine().run(Command(words), PROGRAM_SECONDS)
        return (ended.stdout + ended.stderr).decode(errors="replace")

    def account(self, users: Sequence[str]) -> Account | None:
        """Return disklab's own user, who is made where there is none."""
        del users
        return server_account()

    def unreadable(self, account: Account | None, path: Path) -> Path | None:
        """Return the folder that is closed to the user."""
        return unreachable(account, [path])

    def open_run_dir(self, run_dir: Path) -> Path:
        """Make the folders, which everybody may pass, and root alone list."""
        return open_run_dir(run_dir)

    def own_folder(self, folder: Path, account: Account | None) -> None:
        """Make a folder for the server alone."""
        own_folder(folder, account)

    def write(self, folder: Path, name: str, text: str) -> Path:
        """Write a file that everybody may read."""
        return write(folder, name, text)

    def write_secret(
        self, folder: Path, name: str, text: str | bytes, account: Account | None
    ) -> Path:
        """Write a file that this account alone may read; None: who disklab runs as."""
        return write_secret(folder, name, text, account)

    def put(self, source: Path, path: Path) -> None:
        """Copy a file."""
        LocalMachine().files.put(source, PurePosixPath(path), 0o644)

    def remove(self, path: Path) -> None:
        """Remove a folder or a file."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def exists(self, path: Path) -> bool:
        """Return whether it is there."""
        return path.exists()

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""
        return [path.name for path in folder.iterdir()]

    def end_remains(self, folder: Path, program: str) -> list[int]:
        """End processes by their working directory and program."""
        return end_remains(folder, Path(program), KILL_SECONDS)

    def sync(self, place: Place) -> None:
        """Write everything back."""
        for volume in place.volumes.values():
            sync(volume)

    def drop_pages(self, folders: Sequence[Path]) -> None:
        """Drop clean pages; for mapped ones see `ControlGroup.reclaim`."""
        for folder in folders:
            drop(folder)

    def cached_bytes(self, paths: Sequence[Path]) -> tuple[int, int]:
        """Ask mincore."""
        return LocalMachine().cached_bytes([PurePosixPath(path) for path in paths])

    def ask(self, question: Question) -> tuple[int, bytes]:
        """Ask by a process without root, where this one has it."""
        return asking.ask(question)

    def sql(self, program: str, login: Login, account: Account | None) -> Sql:
        """Return one psql that stays."""
        return Sql(program, login, account)

    def query(self, point: str, timeout_ms: int, login: CqlLogin | None) -> CqlQuery:
        """Return one engine that stays."""
        return CqlQuery([point], timeout_ms=timeout_ms, login=login)

    def visitors(self) -> Sequence[str]:
        """Return nothing: we are here."""
        return ()
