"""Finding a PostgreSQL server, the user that runs it, and the settings that it knows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.engine import Account, server_account
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import how_to_get
from disklab.machines.environment import minimal

# Debian and Ubuntu, then Fedora and the PostgreSQL project's own RPMs.
WHERE = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/bin")
PROGRAMS = ("initdb", "postgres", "psql", "pg_basebackup")
SECONDS = 60.0
_MAJOR = re.compile(r"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True)
class Installation:
    """A server's programs, and who runs them."""

    folder: Path
    major: int
    account: Account | None
    """None: the user who runs disklab, who is not root."""

    def program(self, name: str) -> str:
        """Return the path of a program."""
        return str(self.folder / name)

    def as_user(self, command: list[str]) -> list[str]:
        """Return the command that gives up root first."""
        return command if self.account is None else self.account.command(command)

    def alone(self, command: list[str]) -> list[str]:
        """Return the command with System V shared memory that ends when its processes have.

        Without root there is no such namespace, and what a killed server leaves stays until its
        data directory is used again.
        """
        return command if self.account is None else ["unshare", "--ipc", "--", *command]

    def run(self, command: list[str], variables: Mapping[str, str] | None = None) -> str:
        """Run a program as the server's user and return what it wrote. MachineError if it fails."""
        name = Path(command[0]).name
        return _run(name, self.alone(self.as_user(command)), variables)

    def certificate(self, address: str) -> tuple[str, str]:
        """Return a new certificate for an address, and its key (PEM)."""
        made = _run(
            "openssl",
            [
                *("openssl", "req", "-new", "-x509", "-nodes", "-days", "365"),
                *("-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"),
                # A client may name it as the authority; some refuse an authority's own as a
                # server's.
                *("-addext", "basicConstraints=critical,CA:FALSE"),
                *("-out", "/dev/stdout", "-keyout", "/dev/stdout"),
            ],
        )
        begin = made.index("-----BEGIN CERTIFICATE-----")
        end = "-----END CERTIFICATE-----\n"
        certificate = made[begin : made.index(end) + len(end)]
        return certificate, made.replace(certificate, "")

    def known_settings(self) -> frozenset[str]:
        """Return the settings of this version, without those that are fixed when it is built."""
        lines = self.run([self.program("postgres"), "--describe-config"]).splitlines()
        return frozenset(line.split("\t")[0] for line in lines)


def _run(name: str, command: list[str], variables: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS * 10,
        check=False,
        cwd="/",
        env=minimal({"LC_ALL": "C", **(variables or {})}),
    )
    if ran.returncode != 0:
        said = (ran.stderr or ran.stdout).strip()
        raise MachineError(f"{name} failed with code {ran.returncode}\n{said}")
    return ran.stdout


def checks() -> Iterator[Check]:
    """Look for a server: for `disklab doctor`."""
    try:
        found = find_postgresql()
        yield Check("PostgreSQL", f"{found.major} in {found.folder}", True, False)
    except UserError as error:
        (problem,) = error.problems
        yield Check("PostgreSQL", problem.rule, False, False, problem.way_out)


def find_postgresql(where: tuple[str, ...] = WHERE) -> Installation:
    """Return the newest server of this machine. Raises UserError when there is none."""
    found = sorted(_servers(where), key=lambda one: one[0], reverse=True)
    if not found:
        rule = "no PostgreSQL server is installed"
        raise UserError(
            Problem("postgres", "not found", rule, f"install it: {how_to_get('postgres')}")
        )
    major, folder = found[0]
    return Installation(folder, major, server_account())


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
                    env=minimal(),
                )
                version = _MAJOR.search(ran.stdout)
                if version is not None:
                    yield int(version[1]), folder
