"""Where a node of a database lives, and what is asked of the machine that it is on.

A node is written once, over a `ServerHost`. There are two: `this_machine` (rehearsals: emulated
disks, memory groups, hosts in namespaces) and `remote_host` (measurements: hosts over SSH).
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from disklab.databases.asking import Question
from disklab.databases.log import LogForm
from disklab.databases.sql import Login, Sql
from disklab.engine import Account, CqlLogin, CqlQuery
from disklab.errors import MachineError, Problem
from disklab.hosts.control_group import ControlGroup

# What root writes for a server, and hands over to the user that runs it.
#
# The server owns its data and may not be trusted with more: root follows no link of its, and
# writes nothing into a folder of its.

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def closed_program(
    host: ServerHost, account: Account | None, title: str, name: str, program: Path
) -> Problem | None:
    """Return that the server's user may not read its program; None: nothing keeps it from that.

    `title` and `name`: what the database and its program are called.
    """
    closed = host.unreadable(account, program)
    if account is None or closed is None:
        return None
    rule = f"{title} runs as the user {account.name}, who may not read it"
    return Problem(name, str(closed), rule, f"open it (chmod o+rx {closed})")


def open_run_dir(run_dir: Path) -> Path:
    """Make the run directory of a node, and the folder of its configuration in it; return that.

    Everybody may pass, so that the server finds its files; root alone may list or write.
    """
    folder = run_dir / "conf"
    folder.mkdir(parents=True, exist_ok=True)
    for one in (run_dir, folder):
        with _opened(one) as at:
            os.fchmod(at, 0o711)
    return folder


def own_folder(folder: Path, account: Account | None) -> None:
    """Make a folder for the server alone, mode 0700; the one above it is ours.

    Raises MachineError for one that belongs to somebody else.
    """
    with _opened(folder.parent) as above:
        with suppress(FileExistsError):
            os.mkdir(folder.name, 0o700, dir_fd=above)
        at = os.open(folder.name, _FOLDER, dir_fd=above)
        try:
            owner = os.fstat(at).st_uid
            if owner not in (os.geteuid(), owner if account is None else account.uid):
                raise MachineError(f"{folder} belongs to uid {owner}: remove it, or use another")
            if account is not None:
                os.fchown(at, account.uid, account.gid)
            os.fchmod(at, 0o700)
        finally:
            os.close(at)


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file that everybody may read, in the place of one of that name; return it."""
    with _new(folder, name) as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    return folder / name


def write_secret(folder: Path, name: str, text: str | bytes, account: Account | None) -> Path:
    """Write a file that the server alone may read, in the place of one of that name; return it."""
    with _new(folder, name) as file:
        file.buffer.write(text if isinstance(text, bytes) else text.encode())
        if account is not None:
            os.fchown(file.fileno(), account.uid, account.gid)
    return folder / name


def open_log(file: Path, account: Account | None) -> int:
    """Return a descriptor by which the server appends to a log, in a folder that is closed to it.

    Programs that take names only get `/proc/self/fd/N`. Raises MachineError when something else
    stands in its place.
    """
    try:
        with _opened(file.parent) as at:
            opened = os.open(file.name, _LOG, 0o644, dir_fd=at)
    except OSError as error:
        raise MachineError(f"{file} cannot be written: {error.strerror}") from error
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(opened)
        raise MachineError(f"{file} is not a plain file: remove it")
    if account is not None:
        os.fchown(opened, account.uid, account.gid)
    return opened


@contextmanager
def _new(folder: Path, name: str) -> Iterator[TextIO]:
    """Open a new file, mode 0600, in a folder of ours."""
    with _opened(folder) as at:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at)
        with open(os.open(name, _NEW, 0o600, dir_fd=at), "w", encoding="utf-8") as file:
            yield file


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    at = os.open(folder, _FOLDER)
    try:
        yield at
    finally:
        os.close(at)


@dataclass(frozen=True)
class Place:
    """Where one node of a database lives. The caller made all of it, and removes it."""

    name: str
    """Such as `n1`; unique on this machine while it runs."""
    address: str
    """Where it listens: that of its host in namespaces or over SSH, or without one an address of
    the loopback block that no other program uses, such as `127.64.0.1`."""
    volumes: Mapping[str, Path]
    """Directories by volume name. `data` is required; `commitlog` (or `wal`) may be missing and is
    then a directory on `data`."""
    run_dir: Path
    """For configuration and the process record; `Places.database(name)`, so that `clean` finds
    the process after a crash."""
    log_dir: Path
    """For the logs, which stay: inside the run folder. Absolute: a server runs elsewhere."""
    group: ControlGroup | None = None
    """Holds the database's memory and page cache; the provider sets its limit. None: none can be
    had here, and the page cache is that of the machine."""


class ServerProcess(Protocol):
    """The process of a node. What fails raises MachineError with the end of the node's log."""

    @property
    def pid(self) -> int | None:
        """Its number on its machine; None: it does not run."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The same, where it is a process of this machine."""

    def launch(
        self,
        command: list[str],
        handles: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, with these open files and variables; returns at once."""

    def check(self) -> None:
        """Raise MachineError when it has ended by itself."""

    def await_death(self) -> None:
        """Raise as `check` does, for a process whose connections have just broken."""

    def is_running(self) -> bool:
        """Return whether it was started and has not ended."""

    def finish(self, seconds: float) -> None:
        """Wait for a process that does one thing and ends; raises unless it did it."""

    def end(self, sign: signal.Signals, seconds: float) -> None:
        """End it by a signal, and by SIGKILL when it takes longer."""

    def kill(self) -> None:
        """End it at once, as a crash would."""

    def failure(self, what: str) -> MachineError:
        """Return an error that says what happened, with the end of the log."""


LogOf = Callable[[bytes], Path]


class ServerHost(Protocol):
    """The machine that a node is on. Paths are its own; what fails raises MachineError."""

    @property
    def elsewhere(self) -> str | None:
        """What the user calls it, where it is a host of his; None: this machine."""

    @property
    def has_network(self) -> bool:
        """Whether it has a network of its own, to which this machine's programs have no way."""

    def process(
        self,
        what: str,
        place: Place,
        ports: Sequence[int],
        form: LogForm,
        log_of: LogOf | None = None,
    ) -> ServerProcess:
        """Return the process of a node, not yet started. `what`: the database, for messages.

        `log_of`: in which of the run's logs a line belongs that a server elsewhere writes to its
        standard output. One on this machine writes them itself.
        """

    def program(self, name: str) -> str | None:
        """Return the path of a program; None: it is not installed."""

    def run(
        self, words: Sequence[str], variables: Mapping[str, str] | None = None, name: str = ""
    ) -> str:
        """Run a program to its end and return what it wrote; raises when it fails.

        `name`: what it is called then, where another one starts it.
        """

    def said(self, *words: str) -> str:
        """Return what a program writes to its standard output and error."""

    def account(self, users: Sequence[str]) -> Account | None:
        """Return who runs servers for root there: the first of the users that there is.

        None: we are not root there.
        """

    def unreadable(self, account: Account | None, path: Path) -> Path | None:
        """Return what keeps the server's user from a program or folder; None: nothing does."""

    def open_run_dir(self, run_dir: Path) -> Path:
        """Make a node's run directory and the folder of its configuration in it; return that."""

    def own_folder(self, folder: Path, account: Account | None) -> None:
        """Make a folder for the server alone, where it is not there yet."""

    def write(self, folder: Path, name: str, text: str) -> Path:
        """Write a file that everybody may read; return it."""

    def write_secret(
        self, folder: Path, name: str, text: str | bytes, account: Account | None
    ) -> Path:
        """Write a file that this account alone may read; return it."""

    def put(self, source: Path, path: Path) -> None:
        """Copy a file of this machine there, which everybody may read."""

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it; nothing when it is not there."""

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or folder."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""

    def end_remains(self, folder: Path, program: str) -> list[int]:
        """End what a killed server has left that works in this folder; return what stays.

        `program`: the server's, which each of them runs.
        """

    def sync(self, place: Place) -> None:
        """Write everything back that is dirty on the file systems of a node's volumes."""

    def drop_pages(self, folders: Sequence[Path]) -> None:
        """Let go of the clean pages of the files below these folders, and of no others."""

    def cached_bytes(self, paths: Sequence[Path]) -> tuple[int, int]:
        """Return (bytes of files and of what is below folders, bytes of it in the page cache)."""

    def ask(self, question: Question) -> tuple[int, bytes]:
        """Return status and body of an HTTP answer. Raises OSError: nobody answers, or not so."""

    def sql(self, program: str, login: Login, account: Account | None) -> Sql:
        """Return a connection to a server by a psql on its host."""

    def query(self, point: str, timeout_ms: int, login: CqlLogin | None) -> CqlQuery:
        """Return what asks a node on it (`HOST:PORT`) by CQL, to be used as a context manager."""

    def visitors(self) -> Sequence[str]:
        """Return the IP addresses from which this machine comes to it, where it is elsewhere."""


def send_folder(host: ServerHost, folder: Path, there: Path) -> None:
    """Send a folder with the modes of its files, which everybody there may read."""
    sent = there / "sent.tar"
    with tempfile.TemporaryDirectory() as packed:
        tar = shutil.make_archive(f"{packed}/sent", "tar", folder)
        host.run(["mkdir", "-p", "-m", "711", str(there.parent), str(there)])
        host.put(Path(tar), sent)
    host.run(["tar", "-x", "--no-same-owner", "-C", str(there), "-f", str(sent)])
    host.remove(sent)


class Way:
    """From where the load comes to a cluster, for a reader of its figures."""

    def __init__(self, title: str, hosts: Sequence[tuple[ServerHost, Place]]) -> None:
        """Take the database's name and its nodes."""
        self._title = title
        self._built_on = [
            f"{host.elsewhere} ({place.address})" for host, place in hosts if host.elsewhere
        ]
        self._clients = "the machine that disklab runs on"

    def let_in(self, clients: Sequence[str]) -> None:
        """Have the load come from these client hosts."""
        self._clients = ", ".join(clients)

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing of a cluster on this machine."""
        if not self._built_on:
            return ()
        return (
            f"{self._title} was built on {', '.join(self._built_on)}; the load came from "
            f"{self._clients}, so every latency includes the network between them",
        )
