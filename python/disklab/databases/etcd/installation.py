"""Finding etcd, its version, the settings that it knows, and who runs it; or building a release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from disklab.catalog.suggest import did_you_mean
from disklab.databases.etcd.configuration import PORTS
from disklab.databases.fetching import LEAST_GO, go
from disklab.databases.installed import names_release
from disklab.databases.place import ServerHost, closed_program
from disklab.databases.program_cache import cache_folder, kept, run_tool
from disklab.databases.protocol import Progress, say_nothing
from disklab.databases.record import Needed
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account
from disklab.errors import MachineError, Problem, usable
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import how_to_get

PROGRAM = "etcd"
LEAST = (3, 4)
"""The first version whose JSON gateway answers below `/v3/`."""
TOO_OLD = "etcd 3.4 is the first whose gateway disklab speaks to"
USERS = ("disklab", "etcd")
"""Who may run a member for root: our own user, else the one that etcd's packages make."""
_VERSION = re.compile(r"etcd Version: ((\d+)\.(\d+)\S*)")
_FLAG = re.compile(r"^ {2,4}--([a-z0-9-]+)", re.MULTILINE)

RELEASES = {"3.6": "3.6.16", "3.5": "3.5.35"}
"""Those that are built: by line, the release of `build/LINE/go.mod`, whose `go.sum` has the
checksum of each module. Each was started, filled and replaced here."""
BUILD_SECONDS = 1800.0
LINES_A_LINE = 100
"""Of what Go says, a line for each module that it gets and each package that it compiles."""
BIN = "bin"
"""The folder of the program in the cache."""
OPTIONS = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
"""go.sum decides what is built, and paths of this machine are not part of it."""


@dataclass(frozen=True)
class Installation:
    """The program, and who runs it."""

    program: str
    version: str
    account: Account | None
    """None: the user who runs disklab, or is logged in, who is not root."""
    host: ServerHost

    def command(self, arguments: list[str]) -> list[str]:
        """Return the command of a member, which gives up root first."""
        command = [self.program, *arguments]
        return command if self.account is None else self.account.command(command)

    def known_settings(self) -> frozenset[str]:
        """Return the flags of this version, without their dashes."""
        return frozenset(_FLAG.findall(self.host.said(self.program, "--help")))


def look_for_etcd(
    host: ServerHost, version: str | None = None, progress: Progress = say_nothing
) -> Installation | Problem:
    """Return an etcd of a machine, or why none can be used: its own, or a release of our own.

    `version`: of an experiment file, such as 3.5; what this machine has not is built once. Raises
    MachineError.
    """
    installed = _installed(host)
    if version is None:
        return installed
    has = installed.version if isinstance(installed, Installation) else None
    if has is not None and names_release(version, has):
        return installed
    release = RELEASES.get(version, version)
    shown = "none is installed" if has is None else f"{has} is installed"
    if host.elsewhere is not None:
        rule = f"on a host disklab runs the etcd that is installed there; {shown}"
        return Problem("database.version", version, rule, "install that release there")
    if release not in RELEASES.values():
        rule = f"disklab builds etcd {' and '.join(sorted(RELEASES.values()))}; {shown}"
        way_out = did_you_mean(version, RELEASES, f"write {' or '.join(sorted(RELEASES))}")
        return Problem("database.version", version, rule, way_out)
    return _usable(host, str(built(release, progress)), release)


def built(release: str, progress: Progress = say_nothing) -> Path:
    """Return the program of a release from the cache; build it there first when it is missing.

    After the first time no network is used. Raises UserError without Go, MachineError when it
    fails or the file in the cache is not the one that was built.
    """
    return kept(PROGRAM, release, BIN, lambda made: _build(release, made, progress)) / BIN / PROGRAM


def _build(release: str, made: Path, progress: Progress) -> None:
    """Build into a folder, from the modules that `build/` names with their checksums."""
    program = go(
        f"etcd {release}", "; or leave database.version out, and the etcd that is installed is run"
    )
    source = made / "source"
    source.mkdir()
    line = next(line for line, each in RELEASES.items() if each == release)
    files = resources.files("disklab.databases.etcd") / "build"
    for file in (files / "main.go", files / line / "go.mod", files / line / "go.sum"):
        (source / file.name).write_bytes(file.read_bytes())
    target = made / BIN / PROGRAM
    target.parent.mkdir()
    progress(f"building etcd {release} from its Go modules (minutes, once)")
    # The modules' own C is left out: with it the program would need this machine's libraries.
    own = {"CGO_ENABLED": "0", "GO111MODULE": "on", "GOWORK": "off", "GOFLAGS": ""}
    command = [program, "build", "-v", *OPTIONS, "-o", str(target), "."]
    count = 0

    def hear(_: str) -> None:
        nonlocal count
        count += 1
        if count % LINES_A_LINE == 0:
            progress(f"building etcd {release}: {count} modules and packages")

    code, said = run_tool(command, BUILD_SECONDS, hear, own, source)
    if code != 0 or not target.exists():
        reasons = " ".join(line for line in said[-3:] if line)
        raise MachineError(
            f"Go could not build etcd {release}: {reasons}; check `go version` ({LEAST_GO} or "
            "newer) and `go env GOPROXY`, or leave database.version out"
        )


def _installed(host: ServerHost) -> Installation | Problem:
    needed = (PROGRAM,) if host.elsewhere is None else (PROGRAM, "curl")
    programs = {name: host.program(name) for name in needed}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        rule = "the program is not installed"
        way_out = f"install it: {how_to_get(PROGRAM)}"
        if host.elsewhere is not None:
            rule = "is missing on the host; disklab installs nothing"
            way_out = "install it there: apt-get install etcd-server curl, dnf install etcd curl"
        return Problem("database.engine", ", ".join(missing), rule, way_out)
    program = str(programs[PROGRAM])
    text = host.said(program, "--version")
    version = _VERSION.search(text)
    if version is None or (int(version[2]), int(version[3])) < LEAST:
        value = (text.splitlines() or [program])[0]
        return Problem("database.engine", value, TOO_OLD, "install a newer one")
    return _usable(host, program, version[1])


def _usable(host: ServerHost, program: str, version: str) -> Installation | Problem:
    account = host.account(USERS)
    closed = closed_program(host, account, "etcd", "etcd", Path(program))
    return closed or Installation(program, version, account, host)


def find_etcd(
    host: ServerHost | None = None,
    version: str | None = None,
    progress: Progress = say_nothing,
) -> Installation:
    """Return an etcd of a machine, of this one. Raises UserError when none can be used."""
    return usable(look_for_etcd(ThisMachine() if host is None else host, version, progress))


def needed_on(host: ServerHost, version: str | None) -> Needed | Problem:
    """Return what a member will need of a host, or what that lacks."""
    installation = look_for_etcd(host, version)
    if isinstance(installation, Problem):
        return installation
    return Needed(f"an etcd {installation.version} member", installation.account, PORTS, by_ip=True)


def checks() -> Iterator[Check]:
    """Look for etcd: for `disklab doctor`."""
    installation = look_for_etcd(ThisMachine())
    ready = [each for each in RELEASES.values() if (cache_folder() / PROGRAM / each).exists()]
    beside = f"; {', '.join(ready)} built" if ready else ""
    if isinstance(installation, Problem):
        yield Check("etcd", installation.rule + beside, False, False, installation.way_out)
    else:
        yield Check("etcd", f"{installation.version}, {installation.program}{beside}", True, False)
