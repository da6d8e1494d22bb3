"""A run directory of the test's own, and the state of the machine as far as it is ours."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from disklab.hosts.control_group import PARENT, ControlGroup, GroupRoot

from tests import in_process
from tests.foreign import loop_device
from tests.programs import ended

DISKLAB = Path(sys.executable).with_name("disklab")


@dataclass(frozen=True)
class Lab:
    """A place where `disklab` works without meeting anybody else's devices."""

    root: Path

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def data_dir(self) -> Path:
        return self.root / "data"

    def host(self, name: str = "default") -> Path:
        return self.run_dir / "hosts" / name

    def environment(self) -> dict[str, str]:
        own = {"DISKLAB_RUN_DIR": str(self.run_dir), "DISKLAB_DATA_DIR": str(self.data_dir)}
        return {**os.environ, **own, "COLUMNS": "200"}

    def run(
        self, *arguments: str, code: int = 0, before: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        ran = ended([*before, str(DISKLAB), *arguments], env=self.environment(), code=code)
        assert "Traceback" not in ran.stderr
        return ran

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def attach(self, disks: str, *options: str) -> Any:
        return self.json("disk", "attach", disks, "--no-calibrate", *options)

    def refused(self, *arguments: str, before: tuple[str, ...] = ()) -> str:
        """Return the message of a mistake: exit code 2, and nothing has changed."""
        state = self.state()
        if before:
            message = self.run(*arguments, code=2, before=before).stderr
        else:
            ran = in_process.disklab(*arguments, environment=self.environment(), code=2)
            message = ran.stderr
        assert self.state() == state
        return message

    def engine(self, host: str = "default") -> int:
        """Return the process of a host."""
        return int((self.host(host) / "pid").read_text().split()[0])

    def devices(self) -> dict[str, str]:
        """Return the loop devices that show a file of this lab."""
        found = {}
        for block in Path("/sys/block").glob("loop*"):
            try:
                shown = (block / "loop/backing_file").read_text().strip()
            except OSError:
                continue
            if shown.startswith(str(self.root)):
                found[block.name] = shown
        return found

    def mounts(self) -> list[str]:
        """Return the mounts on directories of this lab."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line.split(" ", 2)[2] for line in lines if str(self.root) in line]

    def processes(self) -> list[int]:
        """Return the engines that work in this lab."""
        return self._with_word("emulate")

    def keepers(self) -> list[int]:
        """Return what takes this lab's hosts away when their owners are gone."""
        return self._with_word("keeper.py")

    def _with_word(self, end: str) -> list[int]:
        found = []
        for process in Path("/proc").iterdir():
            try:
                words = (process / "cmdline").read_text().split("\0")
            except (OSError, UnicodeDecodeError):
                continue
            if str(self.run_dir) in words and any(word.endswith(end) for word in words):
                found.append(int(process.name))
        return found

    def state(self) -> object:
        """Return everything of this lab that can be seen from outside."""
        files = []
        for place in (self.run_dir, self.data_dir):
            for path in sorted(place.rglob("*")):
                if path.name in ("lock", "envelope.json", "hosts") or "mnt" in path.parts:
                    continue
                files.append((str(path), path.stat().st_size if path.is_file() else -1))
        return self.devices(), self.mounts(), self.processes(), files


PREFIX = "disklab-test-"
OWNER = "owner"
"""A file of each lab, locked as long as the process that made the lab lives."""


@contextmanager
def new_lab() -> Iterator[Lab]:
    """Yield a lab that is taken away afterwards, whatever is still in it."""
    clear_once()
    # Not pytest's own directory: a control socket's path has at most 107 bytes.
    made = Lab(Path(tempfile.mkdtemp(prefix=PREFIX)).resolve())
    # Databases run as a user who may not look into a folder of root's alone.
    made.root.chmod(0o755)
    unlocked = made.root / "new"
    with unlocked.open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        # Under its name it is never seen unlocked.
        unlocked.rename(made.root / OWNER)
        try:
            yield made
        finally:
            take_away(made)


def take_away(lab: Lab) -> None:
    """Remove a lab with its databases, devices and mounts."""
    lab.run("clean", "--all", "--data")
    assert lab.devices() == {}
    assert lab.mounts() == []
    assert lab.processes() == []
    # Nothing of ours is mounted below, so this removes plain files only.
    shutil.rmtree(lab.root)


def clear_left(folder: Path) -> None:
    """Take the labs away whose processes were killed; their devices and databases live on."""
    for file in folder.glob(f"{PREFIX}*/{OWNER}"):
        with suppress(FileNotFoundError, BlockingIOError), file.open() as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                take_away(Lab(file.parent.resolve()))
            except AssertionError as error:
                # No fault of this run.
                warnings.warn(f"{file.parent} was left and stays: {error}", stacklevel=2)


@cache
def clear_once() -> None:
    """Clear what earlier runs of the tests left, before the first lab of this one."""
    clear_left(Path(tempfile.gettempdir()))


@pytest.fixture
def lab() -> Iterator[Lab]:
    with new_lab() as made:
        yield made


@pytest.fixture
def foreign(lab: Lab) -> Iterator[Path]:
    """A loop device that disklab did not make."""
    file = lab.root / "foreign.img"
    file.write_bytes(os.urandom(1 << 20))
    with loop_device(file) as made:
        yield made


def groups_left(root: GroupRoot) -> list[ControlGroup]:
    """Return every memory group of disklab's."""
    with suppress(OSError):
        folders = sorted((root.memory / PARENT).iterdir())
        return [ControlGroup(folder.name, root) for folder in folders if folder.is_dir()]
    return []
