"""The programs of a kit: fetched once with their sums, installed, or in a folder of the user's."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import zipfile
from pathlib import Path

from disklab import reading
from disklab.databases.fetching import by_apt, by_go, by_maven, by_pip
from disklab.databases.place import ServerHost
from disklab.databases.program_cache import kept, run_tool
from disklab.databases.protocol import Progress
from disklab.errors import MachineError, Problem, UserError
from disklab.kits import KitFolder, folders
from disklab.kits.schema import Program

FILES = "files"
"""The folder of what was fetched, in the cache."""
UNPACK_SECONDS = 300.0


def look(program: Program, host: ServerHost) -> Problem | None:
    """Return how an installed program is had, which a host lacks; None: it has it."""
    name = program.path or program.name
    if program.debian is None or host.program(name) is not None:
        return None
    fedora = f", dnf install {program.fedora}" if program.fedora else ""
    rule = f"the package {program.debian} has it"
    if host.elsewhere is not None:
        rule = f"is missing on {host.elsewhere}, where disklab installs nothing; {rule}"
    return Problem(name, "not found", rule, f"install it: apt-get install {program.debian}{fedora}")


def path_of(of: KitFolder, program: Program, host: ServerHost, progress: Progress) -> str:
    """Return the path of a program on a host; what is fetched lies in this machine's cache.

    Raises UserError when it is not there, MachineError when it cannot be fetched or is another one.
    """
    missing = look(program, host)
    if missing is not None:
        raise UserError(missing)
    if program.debian is not None:
        return str(host.program(program.path or program.name))
    folder = folder_on_this_machine(of, program, progress)
    files = sorted(folder.glob(program.path)) if program.path else [folder]
    if not files:
        place, rule = f"program {program.name}", f"{folder} holds no {program.path}"
        raise UserError(Problem(place, str(folder), rule, "name another folder"))
    return str(files[0])


def folder_on_this_machine(of: KitFolder, program: Program, progress: Progress) -> Path:
    """Return the folder of a program that is not installed; it is fetched where that is missing."""
    if program.folder:
        if program.name not in folders:
            rule = f"{of.kit.title} has to be had by yourself"
            way_out = f"name its folder: --program {program.name}=FOLDER"
            raise UserError(Problem(f"program {program.name}", "not named", rule, way_out))
        return folders[program.name]
    lock = of.beside.get(program.lock or "", "")
    spec = program.model_dump_json(exclude_defaults=True) + lock
    digest = hashlib.sha256(spec.encode()).hexdigest()[:12]

    def make(made: Path) -> None:
        progress(f"fetching {program.wheel or program.maven or program.go or program.deb} (once)")
        files = _fetched(program, made)
        if program.go is None:
            # Go has held its own against its checksum database.
            _check_sums(program, lock, files)
        for pattern in ("*.whl" if program.wheel else "*.deb", *program.unpack):
            for archive in sorted(files.rglob(pattern)):
                unpack(archive, files)
                archive.unlink()
        for file in files.glob(program.path) if program.path else ():
            file.chmod(0o755)

    return kept(f"kits/{of.kit.kit}", f"{program.name}-{digest}", FILES, make) / FILES


def _fetched(program: Program, made: Path) -> Path:
    """Fetch a program anew into a folder; return the folder of its files."""
    files = made / FILES
    files.mkdir()
    if program.maven is not None:
        artifacts = program.maven.split()
        whole, alone = (artifacts, []) if program.lock else ([], artifacts)
        by_maven(whole, alone, files, program.maven)
    for way, fetch in (("wheel", by_pip), ("go", by_go), ("deb", by_apt)):
        if (named := getattr(program, way)) is not None:
            fetch(named, files)
    return files


def _sums(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(reading.contents(file, reading.PROGRAM)).hexdigest()
        for file in sorted(folder.iterdir())
    }


def sums_of(program: Program) -> str:
    """Fetch a program anew and return the sums of its files: its lock."""
    with tempfile.TemporaryDirectory(prefix="disklab-kit-") as name:
        sums = _sums(_fetched(program, Path(name)))
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())


def _check_sums(program: Program, lock: str, folder: Path) -> None:
    """Hold what was fetched against the kit's sums: one of a single file, or a list."""
    files = _sums(folder)
    listed = {
        name: digest for digest, _, name in (line.partition("  ") for line in lock.splitlines())
    }
    wanted = listed or dict.fromkeys([*files][:1], str(program.sha256))
    wrong = sorted(name for name in {*files, *wanted} if files.get(name) != wanted.get(name))
    if wrong or not files:
        raise MachineError(
            f"program {program.name}: {', '.join(wrong[:3]) or 'nothing'} is not what the kit has "
            f"the sums of ({len(files)} files were fetched)"
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
