"""How program files are fetched or built: by the user's own Maven, Go, pip and apt."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from disklab import reading
from disklab.databases.program_cache import run_tool
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.requirements import find_program, how_to_get

FETCH_SECONDS = 1200.0
UNPACK_SECONDS = 300.0
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
"""Pinned, so that every machine resolves the same files."""
OWN_GO = "/usr/local/go/bin/go"
"""Where Go's own archive puts it, which is on few users' PATH and not on root's."""
LEAST_GO = "1.21"
"""From here on Go gets the newer Go that a module asks for by itself."""
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def _ignore(_: str) -> None:
    """Hear nothing."""


def _fetch(
    command: list[str],
    what: str,
    otherwise: str,
    hear: Callable[[str], None] = _ignore,
    folder: Path | None = None,
) -> None:
    variables = {} if os.environ.get("HOME") or folder is None else {"HOME": str(folder)}
    code, said = run_tool(command, FETCH_SECONDS, hear, variables, folder)
    if code != 0:
        reasons = [line for line in said if line.startswith("[ERROR]")] or said[-3:]
        why = " ".join(reasons[:3])
        raise MachineError(f"{Path(command[0]).name} could not fetch {what}: {why}; {otherwise}")


def _dependency(artifact: str, *, alone: bool) -> str:
    """Return an artifact, `group:name:version[:type[:classifier]]`, as Maven reads it."""
    parts = dict(
        zip(
            ("groupId", "artifactId", "version", "type", "classifier"),
            artifact.split(":"),
            strict=False,
        )
    )
    inside = "".join(f"<{name}>{part}</{name}>" for name, part in parts.items())
    return f"<dependency>{inside}{_ALONE if alone else ''}</dependency>"


def by_maven(  # noqa: PLR0913, PLR0917 - what to fetch, and what to say of it
    whole: Iterable[str],
    alone: Iterable[str],
    folder: Path,
    what: str,
    otherwise: str = "",
    hear: Callable[[str], None] = _ignore,
) -> None:
    """Fetch artifacts into a folder: whole with what they need at run time, and others alone.

    `otherwise`: another way to have them. Raises UserError without Maven, MachineError.
    """
    maven = find_program("mvn")
    if maven is None:
        rule = f"{what} is fetched from Maven Central, and Maven is not installed"
        way_out = f"install it: {how_to_get('mvn')}{otherwise}"
        raise UserError(Problem("mvn", "not found", rule, way_out))
    wanted = [_dependency(artifact, alone=False) for artifact in whole]
    wanted += [_dependency(artifact, alone=True) for artifact in alone]
    pom = folder.parent / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>disklab</groupId><artifactId>fetched</artifactId><version>1</version>"
        f"<dependencies>{''.join(wanted)}</dependencies></project>",
        encoding="utf-8",
    )
    # -C fails on a wrong checksum instead of warning.
    command = [maven, "-B", "-C", "-f", str(pom), MAVEN_PLUGIN]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    _fetch(command, what, f"check the network and ~/.m2/settings.xml{otherwise}", hear)


def go(what: str, otherwise: str = "") -> str:
    """Return the path of Go. Raises UserError without it."""
    program = find_program("go") or shutil.which(OWN_GO)
    if program is None:
        rule = f"{what} is built from its Go modules, and Go is not installed"
        way_out = f"install Go {LEAST_GO} or newer{otherwise}"
        raise UserError(Problem("go", "not found", rule, way_out))
    return program


def by_go(module: str, folder: Path) -> None:
    """Build a program of a Go module, `path@version`, into a folder."""
    options = [f"GOBIN={folder}", "GOFLAGS=-trimpath -buildvcs=false"]
    command = ["env", *options, go(module), "install", "-p", "1", module]
    _fetch(command, module, "can the Go proxy be reached?", folder=folder.parent)


def by_pip(wheel: str, folder: Path) -> None:
    """Fetch a wheel, `name==version`, into a folder."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "-q", "-d", str(folder), wheel]
    _fetch(command, wheel, "can the package index be reached, and does this Python have pip?")


def by_apt(package: str, folder: Path) -> None:
    """Fetch a Debian package, `name=version`, into a folder; nothing is installed."""
    # Its own user could not write there; as root it would warn of that.
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package]
    _fetch(
        command, package, "does this system have apt, and its mirror this version?", folder=folder
    )


def check_sums(what: str, folder: Path, sha256: str | None, lock: str | None) -> None:
    """Hold what was fetched against the sum of its single file, or a list of sums and names.

    Raises MachineError, with the sums that it has.
    """
    files = {
        file.name: hashlib.sha256(reading.contents(file, reading.PROGRAM)).hexdigest()
        for file in sorted(folder.iterdir())
    }
    lines = (line.partition("  ") for line in (lock or "").splitlines())
    wanted = {name: digest for digest, _, name in lines}
    if lock is None:
        wanted = dict.fromkeys([*files][:1], str(sha256))
    wrong = sorted(name for name in {*files, *wanted} if files.get(name) != wanted.get(name))
    if wrong or not files:
        sums = "".join(f"\n{digest}  {name}" for name, digest in files.items())
        raise MachineError(
            f"{what}: {', '.join(wrong[:3]) or 'nothing'} has not the sum that it should have; if "
            f"you trust what was fetched, these are its sums:{sums}"
        )


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive where it lies; nothing of it leads out of the folder."""
    try:
        if archive.suffix == ".deb":
            code, lines = run_tool(["dpkg-deb", "-x", str(archive), str(folder)], UNPACK_SECONDS)
            if code != 0:
                raise OSError(" ".join(lines[-2:]))
        elif zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                for each in opened.infolist():
                    # What is packed on Unix has its mode in the upper half; what is not has none.
                    path, mode = (
                        Path(opened.extract(each, folder)),
                        each.external_attr >> 16 & 0o777,
                    )
                    path.chmod((mode or (0o755 if path.is_dir() else 0o644)) | 0o644)
        else:
            with tarfile.open(archive) as opened:
                opened.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise MachineError(f"{archive.name} cannot be unpacked: {error}") from error
