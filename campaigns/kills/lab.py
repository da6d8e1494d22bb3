"""A run directory of the campaign's own among things that disklab did not make."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

from disklab.catalog import load_catalog
from disklab.cli import main as command_line
from disklab.engine.process import EngineProcess
from disklab.hosts.control_group import GroupRoot, marked_processes
from disklab.hosts.places import Places, VolumeRecord

from tests.hosts.conftest import groups_left

PREFIX = "disklab-campaign-"
OWNER = "owner"
# A command is done in two seconds; with a dead disk under a mount it waits for errors first.
MOST_SECONDS = 90.0
ENDING_SECONDS = 30.0
KNOWN = {"lock", "hosts", "databases", ".made", "envelope.json", "overheads.json", "mounts"}
"""What may stay in the run and data directories: nothing of a host or volume."""


class FoundError(Exception):
    """Something that must not be."""


@dataclass
class Lab:
    """Places of one crash point, with decoys around and among them."""

    root: Path
    name: str = "default"
    _owner: IO[str] | None = None

    @classmethod
    def make(cls) -> Lab:
        """Make one below the folder for temporary files; its path is short, for socket's sake."""
        read_once()
        lab = cls(Path(tempfile.mkdtemp(prefix=PREFIX)).resolve())
        # Databases run as a user who may not look into a folder of root's alone.
        lab.root.chmod(0o755)
        # Held until this process ends, whatever ends it.
        lab._owner = (lab.root / OWNER).open("w")
        fcntl.flock(lab._owner, fcntl.LOCK_EX)
        lab._make_decoys()
        return lab

    @property
    def places(self) -> Places:
        return Places(self.root / "run", self.root / "data")

    @property
    def point(self) -> Path:
        return self.root / "mnt"

    def _make_decoys(self) -> None:
        precious = self.root / "precious"
        for folder in (
            precious,
            self.root / "run/hosts/prod",
            self.root / "run/databases/prod",
            self.root / "data/prod",
        ):
            folder.mkdir(parents=True)
            (folder / "data.img").write_bytes(os.urandom(8192))
        (self.root / "run/databases/link").symlink_to(precious)
        (self.root / "data/link").symlink_to(precious)
        (self.root / "data/default").mkdir()
        (self.root / "data/default/other.img").write_bytes(b"the user's own")
        for folder in (self.root / "run", self.root / "data"):
            folder.chmod(0o755)
        self._decoys = self._seen()

    def _seen(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for place in ("precious", "run/hosts/prod", "run/databases/prod", "data/prod"):
            for path in [self.root / place, *sorted((self.root / place).iterdir())]:
                found[str(path)] = facts(path)
        for place in ("run/databases/link", "data/link", "data/default/other.img"):
            found[place] = facts(self.root / place)
        return found

    def child(self, arguments: Sequence[str]) -> Callable[[], None]:
        """Return what a fork does to be `disklab ARGUMENTS` in this lab."""

        def work() -> None:
            sys.argv = ["disklab", *self.words(arguments)]
            os.environ.update(self.environment())
            quiet = os.open(self.root / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            # Under pytest these are files of its own.
            sys.stdout = os.fdopen(1, "w", closefd=False)
            sys.stderr = os.fdopen(2, "w", closefd=False)
            os.write(quiet, f"\n$ disklab {' '.join(sys.argv[1:])}\n".encode())
            command_line()

        return work

    def words(self, arguments: Sequence[str]) -> list[str]:
        return [word.replace("LAB", str(self.root)) for word in arguments]

    def environment(self) -> dict[str, str]:
        return {
            "DISKLAB_RUN_DIR": str(self.root / "run"),
            "DISKLAB_DATA_DIR": str(self.root / "data"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
        }

    def run(self, *arguments: str, seconds: float = MOST_SECONDS) -> int:
        """Run a command in a fork; return its exit code. FoundError: it hangs."""
        child = os.fork()
        if child == 0:
            try:
                self.child(arguments)()
            except SystemExit as end:
                told = end.code if isinstance(end.code, int) else 1
            except BaseException:
                traceback.print_exc()
                told = 70
            else:
                told = 0
            sys.stdout.flush()
            os._exit(told)
        code = wait(child, seconds)
        if code is None:
            os.kill(child, signal.SIGKILL)
            wait(child, 10.0)
            raise FoundError(f"`disklab {' '.join(arguments)}` hangs")
        return code

    def must(self, *arguments: str) -> None:
        """Run a command that has to work."""
        if code := self.run(*arguments):
            raise FoundError(f"`disklab {' '.join(arguments)}` ended with {code}")

    def said(self) -> str:
        """Return what the commands printed."""
        with suppress(OSError):
            return (self.root / "said").read_text(errors="replace")
        return ""

    def engine(self) -> EngineProcess | None:
        """Return the living process of the lab's host."""
        return EngineProcess.of(self.places.host(self.name).run)

    def volume(self, name: str) -> VolumeRecord | None:
        """Return the record of a volume; None: it is not attached."""
        return self.places.host(self.name).volume_record(name)

    def check_half_made(self) -> None:
        """Raise when a volume is neither attached nor gone."""
        for host in self.places.hosts():
            for name, record in host.volume_records().items():
                if record.state != "attached":
                    raise FoundError(f"volume {name} is left {record.state}")
                if EngineProcess.of(host.run) is None:
                    raise FoundError(f"volume {name} is left without a host")

    def check_decoys(self) -> None:
        """Raise when a byte, a time or an owner of what is not ours has changed."""
        now = self._seen()
        changed = [name for name, was in self._decoys.items() if now.get(name) != was]
        if changed or now.keys() != self._decoys.keys():
            raise FoundError(f"decoys were changed: {changed}")

    def check_empty(self) -> None:
        """Raise when anything that disklab made is left."""
        found = [f"mount {one}" for one in self.mounts()]
        found += [f"device {one}" for one in self.devices()]
        # The engine's watchdog ends by itself when the engine has, and the keeper of a command's
        # disk when it finds nothing more to take away: within seconds on a machine at rest.
        deadline = time.monotonic() + ENDING_SECONDS
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        found += [f"process {one}" for one in self.processes()]
        found += [f"database process {one.pid}" for one in marked_processes(self.root / "run")]
        decoys = {"prod", "link"}
        for folder in ("run", "run/hosts", "run/databases", "run/mounts", "data", "data/.made"):
            place = self.root / folder
            if place.is_dir():
                left = {path.name for path in place.iterdir()} - KNOWN - decoys
                left -= {"default"} if folder == "data" else set()
                found += [f"{folder}/{name}" for name in sorted(left)]
        found += [
            f"data/default/{path.name}"
            for path in (self.root / "data/default").iterdir()
            if path.name != "other.img"
        ]
        if self.point.exists():
            found.append("mount point")
        if found:
            raise FoundError("left: " + ", ".join(found))

    def mounts(self) -> list[str]:
        """Return the mounts below this lab."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split()[4] for line in lines]
        return [point for point in points if Path(point).is_relative_to(self.root)]

    def devices(self) -> list[str]:
        """Return the loop devices that show a file of this lab."""
        found = []
        for block in Path("/sys/block").glob("loop*"):
            with suppress(OSError):
                shown = (block / "loop/backing_file").read_text().strip()
                if shown.startswith(f"{self.root}/"):
                    found.append(block.name)
        return found

    def processes(self) -> list[int]:
        """Return the engines that work in this lab."""
        found = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if process.name.isdigit() and os.fsencode(self.root / "run") in words:
                    found.append(int(process.name))
        return found

    def take_away(self) -> None:
        """Remove the lab; when disklab itself cannot, by force, so that no machine is left ill."""
        with suppress(FoundError):
            self.run("clean", "--all", "--data")
        for pid in self.processes():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for one in marked_processes(self.root / "run"):
            one.end(signal.SIGKILL, 10.0)
        for point in sorted(self.mounts(), reverse=True):
            for option in ("-f", "-l"):
                subprocess.run(["umount", option, point], check=False, capture_output=True)
        for device in self.devices():
            subprocess.run(["losetup", "-d", f"/dev/{device}"], check=False, capture_output=True)
        if not self.mounts():
            shutil.rmtree(self.root, ignore_errors=True)


@cache
def read_once() -> None:
    """Import the commands and read the catalogue, before the first of a thousand forks.

    Each fork did it again: two thirds of the processor time of an attach, and none of its steps.
    """
    for name in ("disk", "clean", "run"):
        import_module(f"disklab.cli.{name}")
    load_catalog()


def clear_left() -> None:
    """Take away the labs whose campaign was killed; those of a living one stay."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}"):
        with suppress(OSError), owner.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Lab(owner.parent.resolve()).take_away()


def facts(path: Path) -> tuple[object, ...]:
    """Return what can be told of a file or folder, following no link."""
    found = os.lstat(path)
    content = ""
    if stat.S_ISLNK(found.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(found.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    return (
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_uid,
        found.st_mtime_ns,
        content,
    )


def wait(child: int, seconds: float) -> int | None:
    """Wait for a child; return its exit status, None: it runs still."""
    deadline = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)


def memory_groups_of(conductor: int) -> list[str]:
    """Return the memory groups that a rehearsal with this process made and that are there."""
    root = GroupRoot.of_machine()
    left = [] if root is None else groups_left(root)
    return [one.name for one in left if f"-{conductor}-" in one.name]
