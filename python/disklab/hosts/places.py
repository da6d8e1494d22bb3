"""Places on the machine: docs/contracts/2-places.md."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from disklab import reading
from disklab.engine.locks import Life, is_here, keep_locked, life, pid_namespace
from disklab.engine.own_folder import (
    MARKER,
    ForeignError,
    boot_id,
    check_root,
    folder,
    make_folder,
    mark_file,
    remove_empty,
    remove_file,
    replace_file,
    unmark_gone,
    why_foreign,
)
from disklab.engine.process import start_time_of
from disklab.errors import MachineError, Problem, UserError
from disklab.names import NAME, NAME_RULE, is_name
from disklab.waiting import Wait

DEFAULT_RUN_DIR = Path("/run/disklab")
DEFAULT_DATA_DIR = Path("/var/lib/disklab")

# What a host's run directory holds beside its folders; `.new` while it is being written.
KNOWN = re.compile(
    r"(pid|control\.sock|profile\.json|lock|log|host\.json)(\.new)?|(pid|profile\.json)\.\d+\.new"
    r"|owner\.lock",
    re.ASCII,
)

# What an engine is writing in the run directory itself: the number is its process.
HALF_WRITTEN = re.compile(r"envelope\.json\.([0-9]{1,10})\.new", re.ASCII)

# Another disklab attaches for as long as mkfs takes on a slow disk.
LOCK_SECONDS = 120.0
OWNER_LOCK = "owner.lock"
"""A file of what is to end with a process, which holds its lock as long as it lives."""
LOCK_POLL_SECONDS = 0.1


Record = TypeVar("Record", bound=BaseModel)


def check_name(name: str, place: str) -> None:
    """Raise UserError for a name that cannot be that of a host or volume."""
    if not is_name(name):
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
    made_device: int | None = None
    """Device and inode of the mount point that we made: another directory there is not ours."""
    made_inode: int | None = None
    unfinished_mount_point: str | None = None
    """What it was called before it was recorded; the name is random, and nobody else's."""
    inode: int | None = None
    """Of the file that a loop device shows."""
    diskseq: int | None = None
    """The kernel's number for this use of the device; None: a kernel before Linux 5.15."""
    backing_file: str | None = None


class Owner(BaseModel):
    """A process that a host is to end with: a rehearsal, whose crash leaves an orphan."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    pid: int
    start_time: int
    """Field 22 of /proc/PID/stat: a number that is used again has another one."""
    namespace: int | None = None
    """Inode of the PID namespace in which it has this number; None: noted by an older release."""
    boot: str | None = None

    @classmethod
    def this(cls) -> Owner:
        """Return the calling process."""
        start_time = start_time_of(os.getpid())
        assert start_time is not None  # whoever asks is there
        return cls(
            pid=os.getpid(), start_time=start_time, namespace=pid_namespace(), boot=boot_id()
        )

    @classmethod
    def keeping(cls, root: Path, *names: str) -> Owner:
        """Return the calling process, which from now on keeps the lock of what is its own."""
        keep_locked(root, *names, OWNER_LOCK)
        return cls.this()

    @classmethod
    def recorded(cls, file: Path) -> Owner | None:
        """Return the process that a file names; None: there is none, or it says nothing."""
        told = reading.record_text(file, reading.RECORD)
        with suppress(reading.NotAsExpectedError):
            return None if told is None else reading.parse(cls, told.encode())
        return None

    def life(self, place: Path) -> Life:
        """Return whether the process whose this folder is still runs."""
        return life(place / OWNER_LOCK, self.namespace, self.boot, self._runs)

    def why_elsewhere(self, place: Path) -> str | None:
        """Return why only its own namespace may end what is its own; None: it need not be asked."""
        if is_here(self.namespace, self.boot) or self.life(place) is Life.GONE:
            return None
        return f"it belongs to process {self.pid} of another PID namespace: clean it there"

    def _runs(self) -> bool:
        """Return whether the process has its number still.

        One that is ending has not: it has let go of its memory and of its locks, in this order.
        """
        if start_time_of(self.pid) != self.start_time:
            return False
        with suppress(PermissionError):
            try:
                os.readlink(f"/proc/{self.pid}/exe")
            except FileNotFoundError:
                return False
        return True


class HostRecord(BaseModel):
    """How a host was asked for; `host.json`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    vm: str | None = None
    host_cache_bytes: int | None = None
    scale: str = "1"
    fuse_device: str | None = None
    """`major:minor` of its FUSE mount; None: not started yet, or it has none."""
    boot: str | None = None
    """The boot in which `fuse_device` is the number of its mount; None: an older release's."""
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
        owner = self.owner()
        return owner is not None and owner.life(self.run) is Life.GONE

    def owner(self) -> Owner | None:
        """Return the process that the host is to end with; None: it is the user's own."""
        record = self.host_record()
        return None if record is None else record.owner

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

    @property
    def root(self) -> Path:
        """The run directory that the host's is in."""
        return self.run.parent.parent

    def make(self) -> None:
        """Make the run and data directories, marked as ours.

        Raises UserError when the run directory holds something that disklab did not put there.
        """
        rule = None
        try:
            if not make_folder(self.root, "host", "hosts", self.name):
                rule = "it is not empty, and disklab did not create it"
        except (ForeignError, OSError) as error:
            rule = f"disklab cannot create it: {error}"
        if rule is not None:
            way_out = "move it away or remove it, or choose another name with --host"
            raise UserError(Problem("--host", str(self.run), rule, way_out))
        # What an earlier release left, or somebody's link, is used and never removed.
        with suppress(ForeignError, OSError):
            make_folder(self.data.parent, "data", self.name)

    def why_foreign(self) -> str | None:
        """Return why the run directory is not proved to be ours; None: it is."""
        return why_foreign(self.root, "host", "hosts", self.name)

    def mark_image(self, volume: str) -> None:
        """Mark the disk image of a volume that is there, or about to be made, as ours."""
        with suppress(ForeignError, OSError):
            mark_file(self.data.parent, "disk image", self.name, f"{volume}.img")

    def unmark_images(self) -> None:
        """Remove the markers of disk images that are gone."""
        unmark_gone(self.data.parent, self.name)

    def why_foreign_image(self, volume: str) -> str | None:
        """Return why a disk image is not proved to be ours; None: it is."""
        return why_foreign(self.data.parent, "disk image", self.name, f"{volume}.img")

    def remove_image(self, volume: str) -> str | None:
        """Remove a disk image of ours, and its folder with the last one; return why it stays."""
        why = None
        # A host that ends in order has removed the images of its VM's own disks.
        if os.path.lexists(self.data_file(volume)):
            why = remove_file(self.data.parent, self.name, f"{volume}.img")
        self._remove_data_folder()
        return why

    def _remove_data_folder(self) -> None:
        self.unmark_images()
        with suppress(ForeignError, OSError):
            remove_empty(self.data.parent, "data", self.name)

    def record_volume(self, volume: str, record: VolumeRecord) -> None:
        """Write the record of a volume."""
        with folder(self.root, "hosts", self.name) as at, suppress(FileExistsError):
            os.mkdir("attached", 0o700, dir_fd=at)
        with folder(self.root, "hosts", self.name, "attached") as at:
            replace_file(at, f"{volume}.json", record.model_dump_json() + "\n")

    def forget_volume(self, volume: str) -> None:
        """Remove the record of a volume."""
        (self.run / "attached" / f"{volume}.json").unlink(missing_ok=True)

    def host_record(self) -> HostRecord | None:
        """Return how the host was asked for."""
        return _read(self.run / "host.json", HostRecord)

    def record_host(self, record: HostRecord) -> None:
        """Write how the host was asked for."""
        with folder(self.root, "hosts", self.name) as at:
            replace_file(at, "host.json", record.model_dump_json() + "\n")

    def remove(self) -> list[str]:
        """Remove the run directory, file by known file, and the data directory when it is empty.

        Returns what stays, or why all of it does. Never follows the mount: removing recursively
        could empty a disk.
        """
        self._remove_data_folder()
        try:
            if (reason := self.why_foreign()) is not None:
                return [reason] if os.path.lexists(self.run) else []
            with folder(self.root, "hosts", self.name) as at:
                for name in ("attached", "volumes"):
                    with suppress(FileNotFoundError, ForeignError):
                        _empty(self.root, self.name, name)
                for name in os.listdir(at):
                    if name != MARKER and KNOWN.fullmatch(name):
                        os.unlink(name, dir_fd=at)
                for name in ("attached", "volumes", "mnt"):
                    with suppress(OSError):
                        os.rmdir(name, dir_fd=at)
            return remove_empty(self.root, "host", "hosts", self.name)
        except (ForeignError, OSError) as error:
            return [str(error)]


def _empty(root: Path, host: str, name: str) -> None:
    """Remove the records in a folder of a host."""
    with folder(root, "hosts", host, name) as at:
        for file in os.listdir(at):
            if file.endswith((".json", ".new")):
                os.unlink(file, dir_fd=at)


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

    def room(self) -> tuple[Path, int]:
        """Return the data directory, or the nearest above it that exists, and its free bytes."""
        folder = self.data
        while not folder.exists():
            folder = folder.parent
        return folder, shutil.disk_usage(folder).free

    def host(self, name: str) -> HostPlace:
        """Return the places of one host."""
        return HostPlace(name, self.run / "hosts" / name, self.data / name)

    def hosts(self) -> list[HostPlace]:
        """Return the hosts that have a run directory. Raises UserError when it is not readable."""
        try:
            return [self.host(name) for name in _names(self.run / "hosts")]
        except PermissionError as error:
            rule = "only its owner may look into the run directory"
            place = str(self.run / "hosts")
            raise UserError(Problem("this user", place, rule, "run it with sudo")) from error

    def database(self, node: str) -> Path:
        """Return the run directory of a database node; a node has the name of its host."""
        return self.run / "databases" / node

    def databases(self) -> list[Path]:
        """Return the run directories of database nodes."""
        return [self.database(name) for name in _names(self.run / "databases")]

    def network(self, name: str) -> Path:
        """Return the run directory of a set of emulated hosts on one network."""
        return self.run / "networks" / name

    def networks(self) -> list[Path]:
        """Return the run directories of sets of emulated hosts."""
        return [self.network(name) for name in _names(self.run / "networks")]

    def data_files(self) -> list[Path]:
        """Return every file that looks like a disk image, proved to be ours or not."""
        folders = [self.data / name for name in _names(self.data)]
        return sorted(path for folder in folders for path in folder.glob("*.img"))

    def remove_half_written(self) -> None:
        """Remove what engines were writing in the run directory when they were killed."""
        with suppress(FileNotFoundError, ForeignError), folder(self.run) as at:
            for name in os.listdir(at):
                written = HALF_WRITTEN.fullmatch(name)
                # One that was started by hand may be at it: it holds no lock of ours.
                if written is None or start_time_of(int(written[1])) is not None:
                    continue
                found = os.stat(name, dir_fd=at, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                    os.unlink(name, dir_fd=at)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that each command which makes or removes something holds.

        Raises UserError for directories into which another user could put something.
        """
        check_root(self.run, "DISKLAB_RUN_DIR")
        check_root(self.data, "DISKLAB_DATA_DIR")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self.run.mkdir(parents=True, exist_ok=True, mode=0o755)
            lock = os.open(self.run / "lock", flags, 0o600)
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
    with Wait("another disklab command lets go", LOCK_SECONDS, f"{run}/lock") as wait:
        while not _try_lock(lock):
            if wait.is_over:
                raise MachineError(
                    f"{run}/lock: another disklab command has held it for {LOCK_SECONDS:.0f} s; "
                    "wait for it to end, or see `ps` for one that hangs"
                )
            wait.pause(LOCK_POLL_SECONDS)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_mount_point(record: VolumeRecord) -> bool:
    """Remove the mount point if it is the directory that we made, and nothing is in it."""
    if record.unfinished_mount_point is not None:
        # A kill came before it had its name.
        with suppress(OSError):
            Path(record.unfinished_mount_point).rmdir()
    if not has_mount_point(record):
        return False
    point = Path(str(record.mount_point))
    with suppress(OSError):
        folder = os.open(point.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # A link in the place of a folder above would lead to a folder of somebody else's.
            if _is_made(os.stat(point.name, dir_fd=folder, follow_symlinks=False), record):
                os.rmdir(point.name, dir_fd=folder)
                return True
        finally:
            os.close(folder)
    return False


def has_mount_point(record: VolumeRecord) -> bool:
    """Return whether a mount point that we made is there. One that is in use shows its disk."""
    if not record.made_mount_point or record.mount_point is None:
        return False
    with suppress(OSError):
        return _is_made(os.lstat(record.mount_point), record)
    return False


def _is_made(found: os.stat_result, record: VolumeRecord) -> bool:
    return (found.st_dev, found.st_ino) == (record.made_device, record.made_inode)


def _names(place: Path) -> list[str]:
    """Return the names in a folder that a host may have; a link is no folder of ours."""
    try:
        with os.scandir(place) as entries:
            found = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in found if NAME.fullmatch(name))


def _read(path: Path, model: type[Record]) -> Record | None:
    told = reading.record_text(path, reading.RECORD)
    with suppress(reading.NotAsExpectedError):
        return None if told is None else reading.parse(model, told.encode())
    return None
