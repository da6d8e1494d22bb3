"""A host of the user's, over SSH, as the host of a measured node.

Nothing is installed and no user is made there: what is missing is a problem of the plan.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from disklab.databases.asking import Question, Tls
from disklab.databases.log import LogForm, NodeLog
from disklab.databases.place import LogOf, Place, open_log
from disklab.databases.sql import ANSWER_SECONDS, CONNECT_SECONDS, Login, Sql
from disklab.databases.sql import MOST_LINES as MOST_SQL_LINES
from disklab.engine import Account, CqlLogin, CqlQuery
from disklab.errors import EngineError, MachineError
from disklab.machines import own_folders
from disklab.machines.protocol import Child, Command, Machine
from disklab.reading import digits

# initdb writes 40 MB; of a slow disk, and as rehearsals have it.
PROGRAM_SECONDS = 600.0
# A memtable's worth of dirty pages at the speed of a slow disk, as `page_cache.SYNC_SECONDS`.
SYNC_SECONDS = 300.0
KILL_SECONDS = 30.0
# The rest of what a server said is there when its process has ended.
FOLLOW_SECONDS = 30.0
# What curl takes beside its own time-out, on a busy host.
BESIDE_SECONDS = 30.0
MOST_LINES = 12
USERS = ("disklab", "postgres")
"""Who may run a server for root: our own user, else the one that PostgreSQL's packages make."""
CQL_USERS = ("disklab", "cassandra")
# Debian's bash reads ~/.bashrc where it finds itself below sshd, and what stands there takes its
# time (a pyenv's: a minute, on a busy machine).
BASH = ("bash", "--noprofile", "--norc", "-c")
_ADDRESS = re.compile(r"[0-9a-fA-F:.]{2,45}", re.ASCII)
_USER = re.compile(r"([a-z]+):[^:]*:(\d+):(\d+):", re.ASCII)
# $1, $2: address and port. What comes on standard input is said there, and what is answered told.
_EXCHANGE = 'exec 3<>"/dev/tcp/$1/$2" && cat >&3 && cat <&3'
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
        raise MachineError(
            f"{machine.name}: {name or words[0]} failed with {ended.code}: {ended.said}"
        )
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
        f"{machine.name}: we are root there, and there is no user {' or '.join(users)} to run our "
        "programs: log in as another user, or create one with `useradd --system disklab`"
    )


def listening(machine: Machine, ports: Sequence[int]) -> list[int]:
    """Return those of the ports of a host's private address at which a program listens."""
    said = ran(machine, *BASH, _ANSWERS, "disklab", machine.address, *map(str, ports))
    return [port for word in said.split() if (port := digits(word)) is not None]


@dataclass(frozen=True)
class RemoteHost:
    """A host of the user's; see `ServerHost`. Our folders there were made, and go with the run."""

    machine: Machine

    @property
    def elsewhere(self) -> str:
        """What the hosts file calls it."""
        return self.machine.name

    @property
    def has_network(self) -> bool:
        """It is another machine."""
        return True

    def process(
        self,
        what: str,
        place: Place,
        ports: Sequence[int],
        form: LogForm,
        log_of: LogOf | None = None,
    ) -> ServerJob:
        """Return a job of its agent."""
        return ServerJob(what, self.machine, place, ports, form, log_of)

    def program(self, name: str) -> str | None:
        """Return the path of a program."""
        ended = self.machine.run(Command(["sh", "-c", f"command -v {name}"]))
        return ended.stdout.decode(errors="replace").strip() or None

    def run(
        self, words: Sequence[str], variables: Mapping[str, str] | None = None, name: str = ""
    ) -> str:
        """Run a program to its end; see `ServerHost.run`."""
        return ran(self.machine, *words, variables=variables, name=name)

    def said(self, *words: str) -> str:
        """Return what a program writes."""
        ended = self.machine.run(Command(words, variables={"LC_ALL": "C"}))
        return (ended.stdout + ended.stderr).decode(errors="replace")

    def account(self, users: Sequence[str]) -> Account | None:
        """Return the first of the users that the host has; nobody is made there."""
        return account(self.machine, users)

    def unreadable(self, account: Account | None, path: Path) -> None:
        """Return nothing: programs of packages are open to all."""
        del account, path

    def open_run_dir(self, run_dir: Path) -> Path:
        """Make the folders, which everybody may pass."""
        folder = run_dir / "conf"
        for one in (run_dir, folder):
            self.folder(one)
        return folder

    def folder(self, folder: Path, mode: str = "0711") -> None:
        """Make a folder of ours, where it is not there yet."""
        ran(self.machine, "mkdir", "-p", "-m", mode, "--", str(folder))

    def own_folder(self, folder: Path, account: Account | None) -> None:
        """Make a folder for the server alone."""
        self.folder(folder, "0700")
        self._hand_over(folder, account)

    def write(self, folder: Path, name: str, text: str) -> Path:
        """Write a file that everybody may read."""
        self.machine.files.write(PurePosixPath(folder / name), text.encode(), 0o644)
        return folder / name

    def write_secret(
        self, folder: Path, name: str, text: str | bytes, account: Account | None
    ) -> Path:
        """Write a file that this account alone may read; None: who is logged in there."""
        data = text if isinstance(text, bytes) else text.encode()
        self.machine.files.write(PurePosixPath(folder / name), data, 0o600)
        self._hand_over(folder / name, account)
        return folder / name

    def _hand_over(self, path: Path, account: Account | None) -> None:
        if account is not None:
            owner = f"{account.uid}:{account.gid}"
            ran(self.machine, "chown", "-h", owner, "--", str(path))

    def put(self, source: Path, path: Path) -> None:
        """Send a file; nothing is sent when it is there with this content."""
        self.machine.files.put(source, PurePosixPath(path), 0o644)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder of ours with all that is in it."""
        ran(self.machine, "rm", "-rf", "--one-file-system", "--", str(path))

    def exists(self, path: Path) -> bool:
        """Return whether it is there."""
        return self.machine.run(Command(["test", "-e", str(path)])).code == 0

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""
        return self.machine.files.names(PurePosixPath(folder))

    def end_remains(self, folder: Path, program: str) -> list[int]:
        """End what works in the folder, which is ours, whatever it runs; raises when one stays."""
        del program
        own_folders.end_processes(self.machine, str(folder))
        return []

    def sync(self, place: Place) -> None:
        """Write everything back."""
        for volume in place.volumes.values():
            ended = self.machine.run(Command(["sync", "-f", str(volume)]), SYNC_SECONDS)
            if ended.code != 0:
                raise MachineError(f"{self.machine.name}: sync -f {volume}: {ended.said}")

    def drop_pages(self, folders: Sequence[Path]) -> None:
        """Drop clean pages."""
        self.machine.drop_pages([PurePosixPath(folder) for folder in folders])

    def cached_bytes(self, paths: Sequence[Path]) -> tuple[int, int]:
        """Ask its agent."""
        return self.machine.cached_bytes([PurePosixPath(path) for path in paths])

    def ask(self, question: Question) -> tuple[int, bytes]:
        """Ask by a program of the host, so that no port is open to this machine."""
        return (
            _asked_by_bash(self.machine, question)
            if question.tls is None
            else _asked_by_curl(self.machine, question, question.tls)
        )

    def sql(self, program: str, login: Login, account: Account | None) -> Sql:
        """Return what asks by a psql for each statement: a link that is lost delays an answer."""
        words = login.words(program)
        return SqlByAgent(self.machine, words if account is None else account.command(words), login)

    def query(self, point: str, timeout_ms: int, login: CqlLogin | None) -> CqlQuery:
        """Return what asks by the engine that is its agent, as the user that runs servers."""
        runs_it = account(self.machine, CQL_USERS)
        return QueryByAgent(self.machine, runs_it, point, timeout_ms, login)

    def visitors(self) -> Sequence[str]:
        """Return where our SSH connection comes from."""
        ended = self.machine.run(Command(["printenv", "SSH_CONNECTION"]))
        words = ended.stdout.decode(errors="replace").split()
        return words[:1] if words and _ADDRESS.fullmatch(words[0]) else ()


def _asked_by_bash(machine: Machine, question: Question) -> tuple[int, bytes]:
    """Put a question without TLS. Raises OSError: nobody answers."""
    body = (question.body or "").encode()
    given = {"Host": f"{question.host}:{question.port}", "Content-Length": str(len(body))}
    headers = "".join(f"{key}: {text}\r\n" for key, text in {**given, **question.headers}.items())
    request = f"{question.method} {question.path} HTTP/1.0\r\n{headers}\r\n".encode() + body
    words = [*BASH, _EXCHANGE, "disklab", question.host, str(question.port)]
    ended = machine.run(Command(words, stdin=request), question.seconds + BESIDE_SECONDS)
    if ended.code != 0:
        raise OSError(f"{machine.name}: {ended.stderr.decode(errors='replace').strip()}")
    response = http.client.HTTPResponse(cast("Any", _Said(ended.stdout)))
    try:
        response.begin()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise OSError(f"{machine.name}: {error!r}") from error


def _asked_by_curl(machine: Machine, question: Question, tls: Tls) -> tuple[int, bytes]:
    """Put a question through TLS. Raises OSError: nobody answers, or not so."""
    words = ["curl", "-q", "-sS", "--noproxy", "*", "--max-time", f"{question.seconds:g}"]
    words += ["-X", question.method, "--cacert", str(tls.authority)]
    words += ["--cert", str(tls.certificate), "--key", str(tls.key)]
    for name, text in question.headers.items():
        words += ["-H", f"{name}: {text}"]
    words += [] if question.body is None else ["--data-binary", "@-"]
    # The status comes as the last line.
    words += ["-w", "\\n%{http_code}"]
    words.append(f"https://{question.host}:{question.port}{question.path}")
    stdin = (question.body or "").encode()
    asked = Command(words, stdin=stdin, variables={"LC_ALL": "C"})
    ended = machine.run(asked, question.seconds + BESIDE_SECONDS)
    if ended.code != 0:
        raise OSError(f"{machine.name}: {ended.stderr.decode(errors='replace').strip()}")
    body, _, status = ended.stdout.rpartition(b"\n")
    return int(status), body


class _Said:
    """An answer that is there as a whole, where `HTTPResponse` wants a socket."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, mode: str) -> io.BytesIO:
        """Return it as a file."""
        assert mode == "rb"
        return io.BytesIO(self._content)


class QueryByAgent(CqlQuery):
    """Statements to one node, each by a run of the engine on its host."""

    def __init__(
        self,
        machine: Machine,
        account: Account | None,
        point: str,
        timeout_ms: int,
        login: CqlLogin | None,
    ) -> None:
        """Take the host, who the engine runs as there, the node, and who asks."""
        self._machine = machine
        self._seconds = timeout_ms / 1000 + BESIDE_SECONDS
        rights = [] if account is None else account.arguments()
        asked = ["query", "--timeout-ms", str(timeout_ms), "--consistency", "LOCAL_ONE"]
        self._words = [*machine.engine, *asked, "--contact-point", point, *rights]
        self._login: dict[str, str] | None = None
        if login is not None:
            self.log_in(login)

    def _say(self, line: str | dict[str, str]) -> dict[str, Any]:
        if isinstance(line, dict) and "user" in line:
            self._login = line
            return {}
        lines = [*([] if self._login is None else [self._login]), line]
        said = "".join(f"{json.dumps(one)}\n" for one in lines).encode()
        ended = self._machine.run(Command(self._words, stdin=said), self._seconds)
        try:
            answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        except (ValueError, IndexError) as error:
            raise EngineError(
                f"{self._machine.name}: disklab-engine query ended with {ended.code}: {ended.said}"
            ) from error
        return answer

    def __exit__(self, *_: object) -> None:
        """Do nothing: no process stands behind it."""


class SqlByAgent(Sql):
    """Statements to one server, each by a run of its own psql on its host."""

    def __init__(self, machine: Machine, words: list[str], login: Login) -> None:
        """Take the host, the command of a psql there, and who asks."""
        self._machine = machine
        self._words = words
        self._login = login

    def ask(self, statement: str) -> list[list[str]]:
        """Return the rows of a statement, as texts. Raises MachineError with the server's words."""
        variables = {**self._login.variables(), "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
        variables["PGCONNECT_TIMEOUT"] = str(CONNECT_SECONDS)
        asked = Command(self._words, variables=variables, stdin=f"{statement};\n".encode())
        ended = self._machine.run(asked, ANSWER_SECONDS + BESIDE_SECONDS)
        if ended.code != 0:
            told = ended.stderr.decode(errors="replace").splitlines()[-MOST_SQL_LINES:]
            said = "; ".join(told) or f"psql ended with {ended.code}"
            raise MachineError(f"{self._machine.name}: {statement}: {said}")
        text = ended.stdout.decode(errors="replace")
        return [line.split("\t") for line in text.split("\n")[:-1]]

    def close(self) -> None:
        """Do nothing: no process stands behind it."""


class ServerJob:
    """The process of a server on a host: a job of its agent, which ends with the job's lease."""

    def __init__(  # noqa: PLR0913, PLR0917 - as `ServerHost.process`, and where
        self,
        what: str,
        machine: Machine,
        place: Place,
        ports: Sequence[int],
        form: LogForm,
        log_of: LogOf | None = None,
    ) -> None:
        self._what = what
        self._log = NodeLog(place.log_dir, place.name, form)
        self._machine = machine
        self._place = place
        self._ports = ports
        self._log_of = log_of
        self._child: Child | None = None
        self._follower: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process on its host; None: it does not run."""
        return None if self._child is None else self._child.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """None: they are numbers of another machine."""
        return ()

    def launch(
        self,
        command: list[str],
        handles: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it there; returns at once. A port that is taken ends it."""
        assert not handles, "no open file goes to another machine"
        taken = [] if self._log_of is None else listening(self._machine, self._ports)
        if taken:
            where = ", ".join(f"{self._place.address}:{port}" for port in taken)
            raise MachineError(
                f"{self._machine.name}: another program listens at {where} (`ss -ltnp` names it); "
                "end it there"
            )
        self._log = self._log.from_now()
        given = {"LC_ALL": "C.UTF-8", **(variables or {})}
        # By its working directory it is found when we are gone.
        folder = PurePosixPath(self._place.run_dir)
        self._child = self._machine.start(Command(command, variables=given, folder=folder))
        if self._log_of is not None:
            told = (self._child, self._log_of)
            name = f"log of {self._machine.name}"
            self._follower = threading.Thread(target=_follow, args=told, name=name, daemon=True)
            self._follower.start()

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

    def finish(self, seconds: float) -> None:
        """Wait for a job that does one thing and ends; raises unless it did it."""
        if self._child is None:
            raise MachineError(f"{self._what} on {self._machine.name} was ended meanwhile")
        ended = self._child.wait(seconds)
        if ended is None:
            raise self.failure(f"was not ready within {seconds:.0f} s")
        if ended.code:
            raise self.failure(f"ended by itself with code {ended.code}")
        self.kill()

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
        """Wait until all that it said is in the logs, before the host forgets it."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.join(FOLLOW_SECONDS)

    def _keep(self, said: bytes) -> None:
        """Add the end of what it wrote, at most 64 KiB, to its log in the run's folder."""
        folder = self._place.log_dir
        folder.mkdir(parents=True, exist_ok=True)
        output = open_log(folder / f"{self._place.name}-output.log", None)
        with os.fdopen(output, "ab") as log:
            log.write(said)

    def failure(self, what: str) -> MachineError:
        """Return an error that says what happened, with the end of what it wrote."""
        where = f"{self._machine.name} ({self._place.address})"
        if self._log_of is not None:
            if self._child is not None and not self.is_running():
                self._drain()
            return MachineError(
                f"{self._what} on {where} {what}{self._log.why()}\n{self._log.excerpt()}"
            )
        said = ""
        if self._child is not None:
            with suppress(MachineError):
                ended = self._child.wait(0.0)
                text = b"" if ended is None else ended.stderr
                said = "\n".join(text.decode(errors="replace").splitlines()[-MOST_LINES:])
        return MachineError(f"{self._what} on {where} {what}\n{said}".strip())


def _follow(child: Child, log_of: LogOf) -> None:
    """Copy what a job says to the run's logs, as it comes."""
    with suppress(MachineError), ExitStack() as undo:
        logs: dict[Path, IO[bytes]] = {}
        for line in child.lines():
            file = log_of(line)
            if file not in logs:
                logs[file] = undo.enter_context(os.fdopen(open_log(file, None), "ab", buffering=0))
            logs[file].write(line + b"\n")
