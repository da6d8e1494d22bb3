"""The page cache of a machine over files of ours there: what it holds, and letting go of it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from disklab.errors import MachineError
from disklab.hosts import page_cache
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Machine
from disklab.machines.ssh import SshMachine


def drop_pages(machine: Machine, folders: list[PurePosixPath]) -> None:
    """Let go of the clean pages of all files below. Raises MachineError."""
    if isinstance(machine, SshMachine):
        machine.drop_pages(folders)
        return
    for folder in _here(machine, folders):
        page_cache.drop(folder)


def cached_bytes(machine: Machine, files: list[PurePosixPath]) -> tuple[int, int]:
    """Return (bytes of the files, bytes of them in the page cache). Raises MachineError."""
    if not isinstance(machine, SshMachine):
        return page_cache.cached_bytes_of(_here(machine, files))
    found = machine.pages(files) if files else []
    counts = [(one.get("size_bytes"), one.get("resident_bytes")) for one in found]
    sizes = [size for size, _ in counts if isinstance(size, int)]
    cached = [there for _, there in counts if isinstance(there, int)]
    if len(sizes) != len(files) or len(cached) != len(files):
        raise machine.distrust("it does not say what its page cache holds of each file")
    return sum(sizes), sum(cached)


def cached_below(machine: Machine, folder: PurePosixPath) -> tuple[int, int]:
    """Return the same for all files below a folder."""
    if isinstance(machine, SshMachine):
        return cached_bytes(machine, [folder])
    (here,) = _here(machine, [folder])
    return page_cache.cached_bytes(here)


def _here(machine: Machine, paths: list[PurePosixPath]) -> list[Path]:
    if not isinstance(machine, LocalMachine):
        raise MachineError(f"{machine.name}: its page cache cannot be asked for")
    return [Path(path) for path in paths]
