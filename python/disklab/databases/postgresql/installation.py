"""Finding a PostgreSQL server, the user that runs it, and the settings that it knows."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.errors import MachineError, Problem, UserError

# Debian and Ubuntu, then Fedora and the PostgreSQL project's own RPMs.
WHERE = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/bin")
PROGRAMS = ("initdb", "postgres", "psql", "pg_basebackup")
# The server refuses root. The first of these users that the machine has runs it.
USERS = ("postgres", "nobody")
SECONDS = 60.0
_MAJOR = re.compile(r"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True)
class Installation:
    """A server's programs, and who runs them."""

    folder: Path
    major: int
    user: str | None
    """None: the user who runs disklab, who is not root."""

    def program(self, name: str) -> str:
        """Return the path of a program."""
        return str(self.folder / name)

    def as_user(self, command: list[str]) -> list[str]:
        """Return the command that gives up root first."""
        if self.user is None:
            return command
        group = str(pwd.getpwnam(self.user).pw_gid)
        return [
            *("setpriv", f"--reuid={self.user}", f"--regid={group}", "--clear-groups", "--"),
            # libpq looks for certificates in root's home otherwise, and may not.
            *("env", "HOME=/nonexistent"),
            *command,
        ]

    def alone(self, command: list[str]) -> list[str]:
        """Return the command with System V shared memory that ends when its processes have.

        Without root there is no such namespace, and what a killed server leaves stays until its
        data directory is used again.
        """
        return command if self.user is None else ["unshare", "--ipc", "--", *command]

    def own(self, folder: Path) -> None:
        """Make a folder for the server alone: it refuses one that others may read."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.user is not None:
            entry = pwd.getpwnam(self.user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)

    def run(self, command: list[str], variables: Mapping[str, str] | None = None) -> str:
        """Run a program as the server's user and return what it wrote. MachineError if it fails."""
        ran = subprocess.run(
            self.as_user(command),
            capture_output=True,
            text=True,
            timeout=SECONDS * 10,
            check=False,
            cwd="/",
            env={**os.environ, "LC_ALL": "C", **(variables or {})},
        )
        if ran.returncode != 0:
            said = (ran.stderr or ran.stdout).strip()
            raise MachineError(f"{Path(command[0]).name} failed with code {ran.returncode}\n{said}")
        return ran.stdout

    def known_settings(self) -> frozenset[str]:
        """Return the settings of this version, without those that are fixed when it is built."""
        lines = self.run([self.program("postgres"), "--describe-config"]).splitlines()
        return frozenset(line.split("\t")[0] for line in lines)


def find_postgresql(where: tuple[str, ...] = WHERE) -> Installation:
    """Return the newest server of this machine. Raises UserError when there is none."""
    found = sorted(_servers(where), key=lambda one: one[0], reverse=True)
    if not found:
        rule = "no PostgreSQL server is installed"
        packages = (
            "dnf install postgresql-server"
            if shutil.which("dnf")
            else ("apt-get install postgresql")
        )
        raise UserError(Problem("postgres", "not found", rule, f"install it: sudo {packages}"))
    major, folder = found[0]
    return Installation(folder, major, _user())


def _servers(where: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    for pattern in where:
        for folder in Path("/").glob(pattern.lstrip("/")):
            if all((folder / name).exists() for name in PROGRAMS):
                ran = subprocess.run(
                    [str(folder / "postgres"), "--version"],
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    check=False,
                )
                version = _MAJOR.search(ran.stdout)
                if version is not None:
                    yield int(version[1]), folder


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    found = next((name for name in USERS if name in known), None)
    if found is None:
        rule = "PostgreSQL refuses to run as root, and there is no other user for it"
        way_out = "make one: sudo useradd --system postgres"
        raise UserError(Problem("this machine", "no user postgres or nobody", rule, way_out))
    return found
