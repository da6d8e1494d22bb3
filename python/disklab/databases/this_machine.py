"""The machine that disklab runs on as the host of a rehearsed node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disklab.databases import asking, files
from disklab.databases.asking import Question
from disklab.databases.log import LogForm
from disklab.databases.place import LogOf, Place
from disklab.databases.process import KILL_SECONDS, DatabaseProcess
from disklab.databases.remains import end_remains
from disklab.databases.sql import Login, Sql
from disklab.engine import Account, CqlLogin, CqlQuery, server_account, unreachable
from disklab.errors import MachineError
from disklab.hosts.requirements import find_program
from disklab.machines import page_cache
from disklab.machines.local import LocalMachine
from disklab.machines.netns import NamespaceMachine
from disklab.machines.protocol import Command

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
        ended = LocalMachine().run(Command(words, variables=given), WORK_SECONDS)
        if ended.code != 0:
            said = (ended.stderr or ended.stdout).decode(errors="replace").strip()
            raise MachineError(f"{name or words[0]} failed with code {ended.code}\n{said}")
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
        return files.open_run_dir(run_dir)

    def own_folder(self, folder: Path, account: Account | None) -> None:
        """Make a folder for the server alone."""
        files.own_folder(folder, account)

    def write(self, folder: Path, name: str, text: str) -> Path:
        """Write a file that everybody may read."""
        return files.write(folder, name, text)

    def write_secret(
        self, folder: Path, name: str, text: str | bytes, account: Account | None
    ) -> Path:
        """Write a file that this account alone may read; None: who disklab runs as."""
        return files.write_secret(folder, name, text, account)

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
            page_cache.sync(volume)

    def drop_pages(self, folders: Sequence[Path]) -> None:
        """Drop clean pages; for mapped ones see `ControlGroup.reclaim`."""
        for folder in folders:
            page_cache.drop(folder)

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
