"""Places on the machine: docs/contracts/2-places.md."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from disklab.errors import MachineError, Problem, UserError

DEFAULT_RUN_DIR = Path("/run/disklab")
DEFAULT_DATA_DIR = Path("/var/lib/disklab")

# The engine has the same rule: names become names of files.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
NAME_RULE = (
    "a name has 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
)

# Another disklab attaches for as long as mkfs takes on a slow disk.
LOCK_SECONDS = 120.0
LOCK_POLL_SECONDS = 0.1


Record = TypeVar("Record", bound=BaseModel)


def check_name(name: str, place: str) -> None:
    """Raise UserError for a name that cannot be that of a host or volume."""
    if NAME.fullmatch(name) is None:
        raise UserError(Problem(place, repr(name), NAME_RULE, "choose another name"))


class VolumeRecord(BaseModel):
    """What was asked for and done for one volume; `attached/<volume>.json`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    disks: str
    """The expression."""
    medium: str
    count: int
    local_disk: str | None = None
    """Which of the VM's own disks; None: data disks."""
    state: str = "attaching"
    """`attaching` until the last step is done: what a kill left half-made."""
    device: str | None = None
    filesystem: str | None = None
    mount_point: str | None = None
    made_mount_point: bool = False
    backing_file: str | None = None


class Owner(BaseModel):
    """A process that a host is to end with: a rehearsal, whose crash leaves an orphan."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    pid: int
    start_time: int
    """Field 22 of /proc/PID/stat: a number that is used again has another one."""

    @classmethod
    def this(cls) -> Owner:
        """Return the calling process."""
        start_time = _start_time(os.getpid())
        assert start_time is not None  # whoever asks is there
        return cls(pid=os.getpid(), start_time=start_time)

    def lives(self) -> bool:
        """Return whether the process still runs."""
        return _start_time(self.pid) == self.start_time


class HostRecord(BaseModel):
    """How a host was asked for; `host.json`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    vm: str | None = None
    host_cache_bytes: int | None = None
    scale: str = "1"
    owner: Owner | None = None
    """Whose host it is; None: the user's own, who ends it himself."""


@dataclass(frozen=True)
class HostPlace:
    """The run and data directories of one host."""

    name: str
    run: Path
    """`<run>/hosts/<name>`."""
    data: Path
    """`<data>/<name>`."""

    def is_orphan(self) -> bool:
        """Return whether the host was to end with a process that is gone."""
        record = self.host_record()
        return record is not None and record.owner is not None and not record.owner.lives()

    @property
    def pid(self) -> Path:
        """Process and start time."""
        return self.run / "pid"

    @property
    def socket(self) -> Path:
        """The control socket."""
        return self.run / "control.sock"

    @property
    def mount(self) -> Path:
        """The FUSE mount."""
        return self.run / "mnt"

    @property
    def log(self) -> Path:
        """What the engine said."""
        return self.run / "log"

    def data_file(self, volume: str) -> Path:
        """Return where the bytes of a volume are."""
        return self.data / f"{volume}.img"

    def volume_record(self, volume: str) -> VolumeRecord | None:
        """Return what was recorded about a volume."""
        return _read(self.run / "attached" / f"{volume}.json", VolumeRecord)

    def volume_records(self) -> dict[str, VolumeRecord]:
        """Return what was recorded about every volume, by name."""
        found = {}
        for path in sorted((self.run / "attached").glob("*.json")):
            record = _read(path, VolumeRecord)
            if record is not None:
                found[path.stem] = record
        return found

    def record_volume(self, volume: str, record: VolumeRecord) -> None:
        """Write the record of a volume."""
        _write(self.run / "attached" / f"{volume}.json", record)

    def forget_volume(self, volume: str) -> None:
        """Remove the record of a volume."""
        (self.run / "attached" / f"{volume}.json").unlink(missing_ok=True)

    def host_record(self) -> HostRecord | None:
        """Return how the host was asked for."""
        return _read(self.run / "host.json", HostRecord)

    def record_host(self, record: HostRecord) -> None:
        """Write how the host was asked for."""
        _write(self.run / "host.json", record)

    def remove(self) -> list[str]:
        """Remove the run directory, file by known file; return what stays.

        Never follows the mount: removing recursively could empty a disk.
        """
        for folder in ("attached", "volumes"):
            for path in (self.run / folder).glob("*.json*"):
                path.unlink(missing_ok=True)
        for name in ("pid", "control.sock", "profile.json", "lock", "log", "host.json"):
            (self.run / name).unlink(missing_ok=True)
        for folder in ("attached", "volumes", "mnt", ""):
            with suppress(OSError):
                (self.run / folder).rmdir()
        with suppress(OSError):
            self.data.rmdir()
        return sorted(str(path) for path in self.run.glob("*"))


@dataclass(frozen=True)
class Places:
    """The run directory and the data directory of this machine."""

    run: Path
    data: Path

    @classmethod
    def usual(cls) -> Places:
        """Return the places of the environment: `$DISKLAB_RUN_DIR`, `$DISKLAB_DATA_DIR`."""
        run = Path(os.environ.get("DISKLAB_RUN_DIR") or DEFAULT_RUN_DIR)
        data = Path(os.environ.get("DISKLAB_DATA_DIR") or DEFAULT_DATA_DIR)
        # The kernel shows whole paths, so ownership is proved with whole paths.
        return cls(run.resolve(), data.resolve())

    def host(self, name: str) -> HostPlace:
        """Return the places of one host."""
        return HostPlace(name, self.run / "hosts" / name, self.data / name)

    def hosts(self) -> list[HostPlace]:
        """Return the hosts that have a run directory. Raises UserError when it is not readable."""
        folder = self.run / "hosts"
        try:
            names = sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError as error:
            rule = "only its owner may look into the run directory"
            raise UserError(Problem("this user", str(folder), rule, "run it with sudo")) from error
        return [self.host(name) for name in names]

    def database(self, node: str) -> Path:
        """Return the run directory of a database node; a node has the name of its host."""
        return self.run / "databases" / node

    def databases(self) -> list[Path]:
        """Return the run directories of database nodes."""
        folder = self.run / "databases"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def data_files(self) -> list[Path]:
        """Return every backing file."""
        return sorted(self.data.glob("*/*.img"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of whoever makes or removes anything."""
        try:
            self.run.mkdir(parents=True, exist_ok=True, mode=0o755)
            lock = os.open(self.run / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            rule = f"the run directory must be writable: {error.strerror}"
            way_out = "run it as root, or set DISKLAB_RUN_DIR"
            raise UserError(Problem("DISKLAB_RUN_DIR", str(self.run), rule, way_out)) from error
        try:
            _wait_for_lock(lock, self.run)
            yield
        finally:
            os.close(lock)


def _wait_for_lock(lock: int, run: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while not _try_lock(lock):
        if time.monotonic() > deadline:
            raise MachineError(
                f"{run}/lock: another disklab command has held it for {LOCK_SECONDS:.0f} s; "
                "wait for it to end, or see `ps` for one that hangs"
            )
        time.sleep(LOCK_POLL_SECONDS)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_mount_point(record: VolumeRecord) -> None:
    """Remove the mount point if we made it and nothing has been put there since."""
    if record.made_mount_point and record.mount_point is not None:
        with suppress(OSError):
            Path(record.mount_point).rmdir()


def _read(path: Path, model: type[Record]) -> Record | None:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, ValueError):
        return None


def _write(path: Path, record: BaseModel) -> None:
    """Replace a file in one step, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    next_path = path.with_name(path.name + ".new")
    next_path.write_text(json.dumps(record.model_dump()) + "\n", encoding="utf-8")
    next_path.replace(path)


def _start_time(pid: int) -> int | None:
    """Return when a process started, in the kernel's ticks; None: it is gone, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])
