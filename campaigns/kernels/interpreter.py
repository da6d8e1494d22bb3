"""The Python environment of this checkout, packed for the emulated machine at the same paths."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from campaigns.kernels.machine import Archive, shared_objects

# What the environment's own interpreter says about itself after it has loaded what will be used.
QUESTION = """
import json, sys, sysconfig
import disklab
{load}
files = [getattr(module, "__file__", None) for module in sys.modules.values()]
print(json.dumps({{
    "program": sys.executable,
    "standard": sysconfig.get_paths()["stdlib"],
    "installed": sysconfig.get_paths()["purelib"],
    "package": disklab.__path__[0],
    "files": [file for file in files if file],
}}))
"""
# Nothing that is loaded at run time lies in these.
SKIPPED = {"__pycache__", "test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip"}


def pack_environment(archive: Archive, environment: Path, load: str) -> None:
    """Add a virtual environment: interpreter, disklab, and the packages that `load` makes it load.

    `load` is Python.
    """
    program = environment / "bin" / "python"
    question = QUESTION.format(load=load)
    asked = subprocess.run(
        [str(program), "-c", question], capture_output=True, text=True, check=True
    )
    answer = json.loads(asked.stdout.splitlines()[-1])
    installed = Path(answer["installed"])
    tops = {
        installed / Path(file).relative_to(installed).parts[0]
        for file in answer["files"]
        if Path(file).is_relative_to(installed)
    }
    # The .pth files lead to disklab, which is installed as editable.
    tops.update(installed.glob("*.pth"), installed.glob("*.dist-info"))
    tops.update({Path(answer["standard"]), Path(answer["package"]), environment / "pyvenv.cfg"})
    tops.update(environment / "bin" / name for name in ("disklab", "disklab-engine"))
    for path in sorted(tops):
        pack_files(archive, path)
    _add_links(archive, program)


def pack_files(archive: Archive, path: Path) -> None:
    """Add a file, or the files below a directory, at the same path."""
    for file in files_of(path):
        _add(archive, file)


def files_of(path: Path) -> Iterator[Path]:
    """Yield a file, or the files below a directory."""
    if path.is_file():
        yield path
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name not in SKIPPED]
        yield from (Path(folder, name) for name in names if not name.endswith((".a", ".pyc")))


def _add_links(archive: Archive, path: Path) -> None:
    """Add a program with every link on the way to it."""
    while path.is_symlink():
        target = Path(os.readlink(path))
        archive.add(str(path).lstrip("/"), stat.S_IFLNK | 0o777, str(target).encode())
        path = path.parent / target
    _add(archive, path)


def _add(archive: Archive, file: Path) -> None:
    if not file.is_file():
        return
    mode = stat.S_IMODE(file.stat().st_mode)
    archive.add(str(file).lstrip("/"), stat.S_IFREG | mode, file.read_bytes())
    if ".so" in file.suffixes or os.access(file, os.X_OK):
        for library in shared_objects(file):
            archive.add(str(library).lstrip("/"), stat.S_IFREG | 0o755, library.read_bytes())
