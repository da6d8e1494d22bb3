"""PostgreSQL on a host: the provider of rehearsals, with everything done through a machine.

Nothing is installed and no user is made there: what is missing is a problem of the plan.
"""

from __future__ import annotations

import re
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disklab.databases import NodePlace, Request
from disklab.databases.postgresql.cluster import PostgreSQL
from disklab.databases.postgresql.configuration import DATABASE, PORTS, USER, access
from disklab.databases.postgresql.installation import Installation
from disklab.databases.postgresql.log import LOG
from disklab.databases.postgresql.server import Server
from disklab.databases.postgresql.sizing import MemoryPlan
from disklab.databases.process import KILL_SECONDS, DatabaseProcess
from disklab.engine import Account
from disklab.errors import MachineError
from disklab.hosts import requirements
from disklab.machines.protocol import Child, Command, Machine
from disklab.measurement.far_pages import cached_bytes, drop_pages
from disklab.measurement.folders import end_processes

# initdb writes 40 MB; of a slow disk, and as rehearsals have it.
PROGRAM_SECONDS = 600.0
# A memtable's worth of dirty pages at the speed of a slow disk, as `page_cache.SYNC_SECONDS`.
SYNC_SECONDS = 300.0
MOST_LINES = 12
USERS = ("disklab", "postgres")
"""Who may run a server for root: our own user, else the one that PostgreSQL's packages make."""
# The newest of Debian's and Ubuntu's, then of Fedora's and the PostgreSQL project's own packages.
_FIND = """for d in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/bin; do
  [ -x "$d/initdb" ] && [ -x "$d/postgres" ] && echo "$d $("$d/postgres" --version)"
done; true"""
_FOUND = re.compile(r"(/\S+) .*\(PostgreSQL\) (\d+)", re.ASCII)
_USER = re.compile(r"([a-z]+):[^:]*:(\d+):(\d+):", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-fA-F:.]{2,45}", re.ASCII)


@dataclass(frozen=True)
class FarInstallation(Installation):
    """A server's programs on a host."""

    machine: Machine

    def run(self, command: list[str], variables: Mapping[str, str] | None = None) -> str:
        """Run a program there as the server's user. Raises MachineError when it fails."""
        words = self.alone(self.as_user(command))
        return ran(self.machine, *words, variables=variables, name=command[0])


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


def find(machine: Machine) -> FarInstallation | None:
    """Return the newest server of a host; None: it has none. Raises MachineError without a user."""
    found = [_FOUND.match(line) for line in ran(machine, "sh", "-c", _FIND).splitlines()]
    known = sorted((int(one[2]), one[1]) for one in found if one is not None)
    if not known:
        return None
    major, folder = known[-1]
    return FarInstallation(Path(folder), major, account(machine), machine)


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


class FarProcess(DatabaseProcess):
    """The process of a server on a host: a job of its agent, which ends with the job's lease."""

    def __init__(self, machine: Machine, place: NodePlace) -> None:
        super().__init__("PostgreSQL", place, PORTS, LOG)
        self._machine = machine
        self._where = place
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
        self._child = self._machine.start(Command(command, variables=given))

    def check(self) -> None:
        """Raise MachineError, with the end of its log, when it has ended by itself."""
        if self._child is None:
            raise MachineError(f"PostgreSQL on {self._machine.name} was not started")
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
        child.__exit__(None, None, None)
        self._keep(ended.stderr)

    def _keep(self, said: bytes) -> None:
        """Add the end of what it wrote, at most 64 KiB, to its log in the run's folder."""
        folder = self._where.log_dir
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self._where.name}-output.log").open("ab") as log:
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
        return MachineError(f"PostgreSQL on {where} {what}\n{said}".strip())


class FarServer(Server):
    """A server on a host. Its folder there was made for it and is removed with it."""

    def __init__(  # noqa: PLR0913, PLR0917 - what `Server` takes, and where
        self,
        request: Request,
        place: NodePlace,
        installation: Installation,
        plan: MemoryPlan,
        password: str,
        machine: Machine,
    ) -> None:
        super().__init__(request, place, installation, plan, password)
        self._machine = machine
        self._clients: Sequence[str] = ()
        self.process = FarProcess(machine, place)

    def let_in(self, clients: Sequence[str]) -> None:
        """Let in these IP addresses too, from the next start on."""
        self._clients = clients

    def adopt(self) -> None:
        """Use the data directory that a killed run has left, made for the same password."""
        self._made_here = True

    @property
    def is_made(self) -> bool:
        """Whether it has a data directory: its folder was new, or was adopted."""
        return self._made_here

    def drop_page_cache(self) -> None:
        """Drop what the host's page cache holds of its files, and of no others. It is stopped."""
        self.sync()
        drop_pages(self._machine, [PurePosixPath(one) for one in self.place.volumes.values()])

    def sync(self) -> None:
        """Write everything back that is dirty on the file systems of its volumes."""
        for volume in self.place.volumes.values():
            ended = self._machine.run(Command(["sync", "-f", str(volume)]), SYNC_SECONDS)
            if ended.code != 0:
                said = ended.stderr.decode(errors="replace").strip()
                raise MachineError(f"{self._machine.name}: sync -f {volume}: {said}")

    def cached_bytes(self, folder: str, names: Set[str]) -> tuple[int, int]:
        """See `Server.cached_bytes`."""
        below = PurePosixPath(self.files.data / "base" / folder)
        there = self._machine.files.names(below)
        own = [below / name for name in there if name.split(".")[0] in names]
        return cached_bytes(self._machine, own)

    def pids(self) -> Iterator[int]:
        """Yield nothing: they are numbers of another machine."""
        yield from ()

    def _put(self, name: str, text: str) -> None:
        self._machine.files.write(self._conf(name), text.encode(), 0o644)

    def _put_secret(self, name: str, text: str) -> Path:
        file = self._conf(name)
        self._machine.files.write(file, text.encode(), 0o600)
        self._hand_over(str(file))
        return Path(file)

    def _conf(self, name: str) -> PurePosixPath:
        folder = self.files.configuration
        ran(self._machine, "mkdir", "-p", "-m", "0711", "--", str(folder))
        return PurePosixPath(folder / name)

    def _remove(self, file: Path) -> None:
        ran(self._machine, "rm", "-f", "--", str(file))

    def _own_folder(self, folder: Path) -> None:
        ran(self._machine, "mkdir", "-m", "0700", "--", str(folder))
        self._hand_over(str(folder))

    def _hand_over(self, path: str) -> None:
        user = self._installation.account
        if user is not None:
            ran(self._machine, "chown", "-h", f"{user.uid}:{user.gid}", "--", path)

    def _end_remains(self, program: str) -> list[int]:
        del program
        end_processes(self._machine, str(self.files.data))
        return []

    def _access(self) -> str:
        """Let in the host's own network, the clients, and where we come from."""
        text = access(tls=self.request.tls)
        near = text.replace("127.0.0.0/8", "samenet")
        kind = "hostssl" if self.request.tls else "hostnossl"
        near += "".join(_entry(kind, one) for one in self._clients)
        ended = self._machine.run(Command(["printenv", "SSH_CONNECTION"]))
        words = ended.stdout.decode(errors="replace").split()
        if not words or _ADDRESS.fullmatch(words[0]) is None:
            return near
        return near + _entry(kind, words[0])

    def _psql(self) -> str:
        return requirements.required_program("psql", "this machine")


def _entry(kind: str, address: str) -> str:
    """Return the line of pg_hba.conf that lets our user in from an address."""
    bits = 128 if ":" in address else 32
    return f"{kind} all {USER} {address}/{bits} scram-sha-256\n"


class FarPostgreSQL(PostgreSQL):
    """PostgreSQL on a host, filled and loaded from here or from client hosts."""

    def __init__(
        self,
        request: Request,
        place: NodePlace,
        installation: FarInstallation,
        plan: MemoryPlan,
        password: str | None = None,
    ) -> None:
        """Take what is asked for and where; `password`: of data that are there already."""
        told = password or secrets.token_urlsafe(24)
        self.machine = machine = installation.machine

        def make(
            request: Request, place: NodePlace, has: Installation, plan: MemoryPlan, _: str
        ) -> Server:
            return FarServer(request, place, has, plan, told, machine)

        super().__init__(request, [place], installation, plan, make)
        self._password = told
        self._loaded_from: Sequence[str] = ()
        if password is not None:
            server = self.primary
            assert isinstance(server, FarServer)
            server.adopt()

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts, at these IP addresses."""
        self._loaded_from = clients
        server = self.primary
        assert isinstance(server, FarServer)
        server.let_in(addresses)

    @property
    def password(self) -> str:
        """What the server was made for; kept beside its data."""
        return self._password

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its figures should know."""
        place = self.primary.place
        where = f"on {self.machine.name} ({place.address})"
        source = ", ".join(self._loaded_from) or "the machine that disklab runs on"
        return (
            f"PostgreSQL ({DATABASE}) was built {where}; the load came from {source}, so the way "
            "between them is in every latency",
            *self.plan.reasons,
        )
