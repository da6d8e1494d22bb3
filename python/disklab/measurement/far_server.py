"""Servers on a host: who runs them, the files that are written for them, their processes.

Nothing is installed and no user is made there: what is missing is a problem of the plan.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disklab.databases import NodePlace
from disklab.databases.files import open_log
from disklab.databases.log import LogForm
from disklab.databases.process import KILL_SECONDS, DatabaseProcess
from disklab.engine import Account
from disklab.errors import MachineError
from disklab.machines.protocol import Child, Command, Machine

# initdb writes 40 MB; of a slow disk, and as rehearsals have it.
PROGRAM_SECONDS = 600.0
# A memtable's worth of dirty pages at the speed of a slow disk, as `page_cache.SYNC_SECONDS`.
SYNC_SECONDS = 300.0
MOST_LINES = 12
USERS = ("disklab", "postgres")
"""Who may run a server for root: our own user, else the one that PostgreSQL's packages make."""
# Debian's bash reads ~/.bashrc where it finds itself below sshd, and what stands there takes its
# time (a pyenv's: a minute, on a busy machine).
BASH = ("bash", "--noprofile", "--norc", "-c")
_USER = re.compile(r"([a-z]+):[^:]*:(\d+):(\d+):", re.ASCII)
# $1: an address, then ports. Says at which of them somebody answers.
_ANSWERS = """address=$1; shift
for port; do (exec 3<>"/dev/tcp/$address/$port") 2>/dev/null && echo "$port"; done; true"""


def ran(
    machine: Machine, *words: str, variables: Mapping[str, str] | None = None, name: str = ""
) -> str:
    """Run a program on a host and return what it wrote. Raises MachineError when it fails."""
    given = {"LC_ALL": "C", **(variables or {})}
    ended = machine.run(Command(words, variables=given), PROGRAM_SECONDS)
    if ended.code != 0:
        said = ended.stderr.decode(errors="replace").strip()
        raise MachineError(f"{machine.name}: {name or words[0]} failed with {ended.code}: {said}")
    return ended.stdout.decode(errors="replace")


def account(machine: Machine, users: Sequence[str] = USERS) -> Account | None:
    """Return who runs a program of ours for root on a host; None: we are not root there.

    Raises MachineError when there is no such user: root never runs one.
    """
    if ran(machine, "id", "-u").strip() != "0":
        return None
    for name in users:
        ended = machine.run(Command(["getent", "passwd", name]))
        entry = _USER.match(ended.stdout.decode(errors="replace"))
        if ended.code == 0 and entry is not None and int(entry[2]) and int(entry[3]):
            return Account(name, int(entry[2]), int(entry[3]))
    raise MachineError(
        f"{machine.name}: we are root there, and it has no user {' or '.join(users)} to run "
        "anything of ours: log in as another user, or make one by `useradd --system disklab`"
    )


def listening(machine: Machine, ports: Sequence[int]) -> list[int]:
    """Return those of the ports of a host's private address at which a program listens."""
    said = ran(machine, *BASH, _ANSWERS, "disklab", machine.address, *map(str, ports))
    return [int(word) for word in said.split() if word.isdigit()]


def sync(machine: Machine, place: NodePlace) -> None:
    """Write everything back that is dirty on the file systems of a node's volumes on its host."""
    for volume in place.volumes.values():
        ended = machine.run(Command(["sync", "-f", str(volume)]), SYNC_SECONDS)
        if ended.code != 0:
            said = ended.stderr.decode(errors="replace").strip()
            raise MachineError(f"{machine.name}: sync -f {volume}: {said}")


class OnHosts:
    """Where a cluster stands that was built on hosts, and where its load comes from."""

    _built_on: str
    _loaded_from = "the machine that disklab runs on"

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts. Who has its secret is let in, from anywhere."""
        del addresses
        self._loaded_from = ", ".join(clients)

    def built_note(self, title: str) -> str:
        """Return what a reader of its figures should know of the way to it."""
        return (
            f"{title} was built on {self._built_on}; the load came from {self._loaded_from}, so "
            "the way between them is in every latency"
        )


@dataclass(frozen=True)
class ServerFiles:
    """What is written on a host for a server, and handed over to the user that runs it."""

    machine: Machine
    account: Account | None
    """None: the user who is logged in there, who is not root."""

    def folder(self, folder: Path, mode: str = "0711") -> None:
        """Make a folder of ours, where it is not there yet."""
        ran(self.machine, "mkdir", "-p", "-m", mode, "--", str(folder))

    def own_folder(self, folder: Path) -> None:
        """Make a folder for the server alone, where it is not there yet."""
        self.folder(folder, "0700")
        self._hand_over(folder)

    def put(self, file: Path, text: str) -> None:
        """Write a file that everybody may read."""
        self.machine.files.write(PurePosixPath(file), text.encode(), 0o644)

    def put_secret(self, file: Path, text: str) -> None:
        """Write a file that the server alone may read."""
        self.machine.files.write(PurePosixPath(file), text.encode(), 0o600)
        self._hand_over(file)

    def remove(self, file: Path) -> None:
        """Remove a file, or a folder of ours with all that is in it."""
        ran(self.machine, "rm", "-rf", "--one-file-system", "--", str(file))

    def _hand_over(self, path: Path) -> None:
        if self.account is not None:
            owner = f"{self.account.uid}:{self.account.gid}"
            ran(self.machine, "chown", "-h", owner, "--", str(path))


class FarProcess(DatabaseProcess):
    """The process of a server on a host: a job of its agent, which ends with the job's lease."""

    def __init__(
        self, what: str, machine: Machine, place: NodePlace, ports: Sequence[int], form: LogForm
    ) -> None:
        super().__init__(what, place, ports, form)
        self._machine = machine
        self._where = place
        self._listens = ports
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process on its host; None: it does not run."""
        return None if self._child is None else self._child.pid

    def launch(
        self,
        command: list[str],
        handles: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it there; returns at once. A port that is taken ends it."""
        assert not handles, "no open file goes to another machine"
        given = {"LC_ALL": "C.UTF-8", **(variables or {})}
        # By its working directory it is found when we are gone.
        folder = PurePosixPath(self._where.run_dir)
        self._child = self._machine.start(Command(command, variables=given, folder=folder))

    def check(self) -> None:
        """Raise MachineError, with the end of its log, when it has ended by itself."""
        if self._child is None:
            raise MachineError(f"{self._what} on {self._machine.name} was not started")
        ended = self._child.wait(0.0)
        if ended is not None:
            raise self.failure(f"ended by itself with code {ended.code}")

    def await_death(self) -> None:
        """Raise as `check` does, for a server whose connections have just broken."""
        if self._child is not None:
            self._child.wait(2.0)
        self.check()

    def is_running(self) -> bool:
        """Return whether it was started and has not ended."""
        return self._child is not None and self._child.wait(0.0) is None

    def end(self, sign: signal.Signals, seconds: float) -> None:
        """End it by a signal to the server alone, and by SIGKILL when it takes longer."""
        if self._child is not None and self.is_running():
            # Its backends must not get the signal: to them it means something else.
            number = str(self._child.pid)
            self._machine.run(Command(["kill", f"-{int(sign)}", number]))
            self._child.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it at once. Raises MachineError when it stays."""
        child, self._child = self._child, None
        if child is None:
            return
        child.signal(signal.SIGKILL)
        ended = child.wait(KILL_SECONDS)
        if ended is None:
            self._child = child
            raise self.failure("waits for its disk and cannot be killed")
        self._drain()
        child.__exit__(None, None, None)
        self._keep(ended.stderr)

    def _drain(self) -> None:
        """Take what else it has said, before the host forgets it."""

    def _keep(self, said: bytes) -> None:
        """Add the end of what it wrote, at most 64 KiB, to its log in the run's folder."""
        folder = self._where.log_dir
        folder.mkdir(parents=True, exist_ok=True)
        output = open_log(folder / f"{self._where.name}-output.log", None)
        with os.fdopen(output, "ab") as log:
            log.write(said)

    def failure(self, what: str) -> MachineError:
        """Return an error that says what happened, with the end of what it wrote."""
        said = ""
        if self._child is not None:
            with suppress(MachineError):
                ended = self._child.wait(0.0)
                text = b"" if ended is None else ended.stderr
                said = "\n".join(text.decode(errors="replace").splitlines()[-MOST_LINES:])
        where = f"{self._machine.name} ({self._where.address})"
        return MachineError(f"{self._what} on {where} {what}\n{said}".strip())
