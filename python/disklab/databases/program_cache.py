"""Program files of databases, fetched or built once, and kept with their checksums."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from disklab import reading
from disklab.errors import MachineError, UserError
from disklab.machines import programs

MANIFEST = "manifest.json"
_SUMS = TypeAdapter(dict[str, str])
LAST_LINES = 200
"""Of a tool's output, which may hold the reason of its failure."""


def _ignore(_: str) -> None:
    """Hear nothing."""


def run_tool(
    command: Sequence[str],
    limit_s: float,
    hear: Callable[[str], None] = _ignore,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[int, list[str]]:
    """Run a tool of the user's, with his proxies and settings; return its code and last lines.

    `hear` is given each line as it comes; `folder` None: where this process is. Raises
    MachineError when it was killed after so many seconds.
    """
    said: list[str] = []
    with programs.start(
        command,
        stdout=programs.PIPE,
        stderr=programs.STDOUT,
        folder=None if folder is None else str(folder),
        inherits=True,
        variables=variables,
    ) as tool:
        # A connection that hangs prints nothing, so the limit is kept from outside.
        limit = threading.Timer(limit_s, tool.kill)
        limit.start()
        try:
            for part in programs.piped(tool.stdout):
                line = part.decode(errors="replace").rstrip()
                said = [*said, line][-LAST_LINES:]
                hear(line)
            tool.wait()
        except BaseException:
            tool.kill()
            raise
        finally:
            limit.cancel()
    if tool.returncode == -signal.SIGKILL:
        raise MachineError(
            f"{Path(command[0]).name} did not end within {limit_s:.0f} s; can its registry be "
            f"reached?"
        )
    return tool.returncode, said


def cache_folder() -> Path:
    """Return where program files are kept: `$XDG_CACHE_HOME/disklab`.

    Where root has not said otherwise, where the user that runs servers may read them.
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache is None and os.geteuid() == 0:
        cache = "/var/cache"
    return Path(cache or Path.home() / ".cache") / "disklab"


def kept(database: str, release: str, part: str, make: Callable[[Path], None]) -> Path:
    """Return the cache's folder of a release; `make` is given an empty one where there is none.

    `part`: the folder in it whose files are program files, each with its sum in the manifest.
    After the first time nothing is made. Raises MachineError when the files are not those that
    were made, and what `make` raises.
    """
    folder = cache_folder() / database / release
    if not folder.exists():
        _make(folder, part, make)
    _verify(folder, part)
    return folder


def _make(folder: Path, part: str, make: Callable[[Path], None]) -> None:
    """Make a folder beside, and rename it when it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
        made = Path(name)
        made.chmod(0o755)
        make(made)
        files = sorted(file for file in (made / part).rglob("*") if file.is_file())
        sums = {str(file.relative_to(made / part)): _sum(file) for file in files}
        (made / MANIFEST).write_text(json.dumps(sums, indent=1), encoding="utf-8")
        try:
            made.rename(folder)
        except OSError:
            # Another disklab was quicker: its files are as good.
            if not (folder / MANIFEST).exists():
                raise
            return
        # TemporaryDirectory expects its folder.
        made.mkdir()


def _verify(folder: Path, part: str) -> None:
    """Hold the files against the manifest; tenths of a second for 66 MB."""
    sums: dict[str, str] = {}
    with suppress(UserError, ValidationError):
        sums = _SUMS.validate_json(reading.contents(folder / MANIFEST, reading.MANIFEST))
    wrong = [name for name, sum_ in sums.items() if _sum(folder / part / name) != sum_]
    if wrong or not sums:
        which = ", ".join(wrong[:3]) or MANIFEST
        raise MachineError(
            f"{folder}: {which} is not what was fetched; remove the folder to fetch it again"
        )


def _sum(file: Path) -> str:
    if not file.exists():
        return "missing"
    with reading.opened(file, reading.PROGRAM) as opened:
        digest = hashlib.sha256()
        while chunk := opened.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
