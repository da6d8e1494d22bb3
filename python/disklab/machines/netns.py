"""An emulated host: namespaces of its own, held by a first process that we talk to.

Programs are started by that process, so they are in every namespace of the host and in its memory
group from their first instruction. Files are reached from outside, below the host's root.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from disklab.errors import MachineError
from disklab.machines.binary import find_engine
from disklab.machines.child import (
    END_SECONDS,
    KILL_SECONDS,
    Program,
    Tail,
    inside_network,
    open_bytes,
)
from disklab.machines.local import STDOUT_BYTES, LocalFiles
from disklab.machines.protocol import ClockOffset, Command, Counters, Finished
from disklab.machines.watched import FileCounters

# Files below a directory that is another's root: no link and no `..` leads out of it.

# openat2(2) has this number on every architecture (Linux 5.6); the C library has no function.
_OPENAT2 = 437
_RESOLVE_IN_ROOT = 0x10
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    """`struct open_how` of <linux/openat2.h>."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class RootedFiles(LocalFiles):
    """The `Files` of an emulated host, reached from outside through a descriptor of its root."""

    def __init__(self, root: int, machine: str) -> None:
        """Take an open directory, and the name of the machine for messages."""
        self._root = root
        self.where = f" on {machine}"

    def open(self, path: PurePosixPath, flags: int) -> int:
        """Return a descriptor of a path as a program in the host sees it. Raises OSError."""
        how = _How(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
        size = ctypes.sizeof(how)
        handle = _libc.syscall(_OPENAT2, self._root, os.fsencode(path), ctypes.byref(how), size)
        if handle < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        return int(handle)


_CHUNK_BYTES = 64 << 10
# The first process answers in about a millisecond; a busy machine takes its time.
START_SECONDS = 60.0
# A journal is replayed at the speed of an emulated disk.
MOUNT_SECONDS = 120.0
# The kernel closes all pipes of a host that goes within this.
GONE_SECONDS = 0.2
AZURE_DISKS = PurePosixPath("/dev/disk/azure/scsi1")
"""Where Azure's Linux images show data disks, by LUN."""


@dataclass(frozen=True)
class HeldHost:
    """The first process of a host, and what keeps its namespaces within reach."""

    process: subprocess.Popen[bytes]
    """Its parent in this machine's process namespace, which ends with it."""
    pid: int
    """Its number in this machine's process namespace."""
    link: socket.socket
    root: int
    """Its root directory."""
    network: int
    """Its network namespace."""

    def send(self, asked: dict[str, object], files: list[int] | None = None) -> None:
        """Send a message; raises MachineError when the host is gone."""
        message = json.dumps(asked).encode()
        try:
            socket.send_fds(self.link, [message], files or [])
        except OSError as error:
            raise MachineError(f"the emulated host is gone: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the host and wait for its end. Nothing when that is done."""
        if self.link.fileno() < 0:
            return
        with suppress(OSError):
            self.link.shutdown(socket.SHUT_RDWR)
        self.link.close()
        os.close(self.root)
        os.close(self.network)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            # The first process dies with its parent, and the host with it.
            self.process.kill()
            self.process.wait(KILL_SECONDS)


class NamespaceMachine:
    """An emulated host of this machine, as a `Machine`."""

    def __init__(self, name: str, address: str, held: HeldHost) -> None:
        """Take what the user calls it, its address, and its first process."""
        self._name = name
        self._address = address
        self._held = held
        self._files = RootedFiles(held.root, name)

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self._name

    @property
    def address(self) -> str:
        """Where the other hosts of its network reach it."""
        return self._address

    @property
    def is_here(self) -> bool:
        """It is a host of its own."""
        return False

    @property
    def engine(self) -> Sequence[str]:
        """The words that start this machine's engine, whose folder the host sees."""
        return (str(find_engine()),)

    @property
    def files(self) -> RootedFiles:
        """Its files."""
        return self._files

    @property
    def pid(self) -> int:
        """The number of its first process on this machine."""
        return self._held.pid

    def entering(self, command: Sequence[str]) -> list[str]:
        """Return the command that enters the host and then becomes `command`.

        For programs that this machine keeps track of itself: they are in the host's network and see
        its files, and have their numbers of this machine. They outlive the host.
        """
        spaces = ["--mount", "--net", "--uts", "--ipc"]
        entered = ["nsenter", "--target", str(self.pid), *spaces, "--"]
        # The host's /proc does not know processes that are outside of its own numbers, and a
        # program without /proc/self does not find its libraries ($ORIGIN): it sees this machine's.
        script = 'mount -t proc proc /proc && exec "$@"'
        return [*entered, "unshare", "--mount", "--", "sh", "-c", script, "disklab", *command]

    def run(self, command: Command, seconds: float = 60.0) -> Finished:
        """Run a program to its end. See `Machine.run`."""
        with self.start(command) as child:
            return child.communicate(seconds, STDOUT_BYTES)

    def start(self, command: Command) -> NamespaceChild:
        """Start a program in the host; it ends with the host, which ends with this process."""
        return NamespaceChild(self._held, self._name, command)

    def converse(self, command: Command) -> tuple[NamespaceChild, BinaryIO]:
        """Start a program; return it and its standard input, which stays open."""
        read, write = os.pipe()
        try:
            child = NamespaceChild(self._held, self._name, command, read)
        except BaseException:
            os.close(write)
            raise
        finally:
            os.close(read)
        return child, os.fdopen(write, "wb", buffering=0)

    def cached_bytes(self, paths: Sequence[PurePosixPath]) -> tuple[int, int]:  # noqa: ARG002 - see there
        """Refuse: nobody needs it, as the disks of its nodes are mounted on this machine too."""
        raise MachineError(f"{self._name}: its page cache cannot be asked for")

    def drop_pages(self, paths: Sequence[PurePosixPath]) -> None:  # noqa: ARG002 - see there
        """Refuse, as `cached_bytes` does."""
        raise MachineError(f"{self._name}: its page cache cannot be asked for")

    def counters(self, files: Sequence[PurePosixPath]) -> Counters:
        """Return what reads files when it is asked. See `Machine.counters`."""
        return FileCounters(self._files, files)

    def clock(self) -> ClockOffset:
        """Return 0: one kernel, one clock."""
        return ClockOffset(0.0, 0.0)

    def connect(self, address: str, port: int, seconds: float = 10.0) -> socket.socket:
        """Return a TCP connection of this process that begins in the host's network.

        Raises MachineError when nobody answers.
        """
        with self.inside_network():
            try:
                return socket.create_connection((address, port), seconds)
            except OSError as error:
                text = f"{address}:{port} from {self._name}: {error}"
                raise MachineError(text) from error

    @contextmanager
    def inside_network(self) -> Iterator[None]:
        """Put the calling thread into the host's network: sockets made meanwhile stay in it.

        Processes that the thread starts meanwhile are in it as well.
        """
        with inside_network(self._held.network):
            yield

    def show_disk(self, device: str, name: str, lun: int | None = None) -> PurePosixPath:
        """Show a block device of this machine as `/dev/<name>`, and where the cloud links it.

        Returns its path in the host. Raises MachineError when the device is not a block device.
        """
        found = os.stat(device)
        if not stat.S_ISBLK(found.st_mode):
            raise MachineError(f"{device} is not a block device")
        with self._files.folder(PurePosixPath("/dev")) as dev:
            os.mknod(name, stat.S_IFBLK | 0o660, found.st_rdev, dir_fd=dev)
            if lun is not None:
                _link_lun(dev, lun, name)
        return PurePosixPath("/dev") / name

    def mount(self, device: str, point: str, kind: str, options: str) -> None:
        """Mount a block device of this machine in the host alone. Raises MachineError.

        No node of it stays in the host, which nothing there would know what to do with.
        """
        name = f"disklab-{os.path.basename(device)}"
        shown = self.show_disk(device, name)
        try:
            self._do("mount", "-t", kind, "-o", options, str(shown), point)
        finally:
            self.hide_disk(name)

    def unmount(self, point: str) -> None:
        """Unmount a folder in the host alone; what uses it there still sees it.

        Raises MachineError. Where nothing is mounted nothing happens.
        """
        # 0: it is a mount, 1 (or 32, by the version of util-linux): it is none.
        if self.run(Command(["mountpoint", "-q", point])).code == 0:
            self._do("umount", "--lazy", point)

    def _do(self, *words: str) -> None:
        ran = self.run(Command(list(words)), MOUNT_SECONDS)
        if ran.code != 0:
            raise MachineError(f"{' '.join(words)} on {self._name}: {ran.said}")

    def hide_disk(self, name: str, lun: int | None = None) -> None:
        """Take a disk away again, as the cloud does on detaching. A mounted one stays mounted."""
        with self._files.folder(PurePosixPath("/dev")) as dev:
            os.unlink(name, dir_fd=dev)
        if lun is not None:
            with self._files.folder(AZURE_DISKS) as links:
                os.unlink(f"lun{lun}", dir_fd=links)


def _link_lun(dev: int, lun: int, name: str) -> None:
    """Make /dev/disk/azure/scsi1/lunN, step by step below /dev."""
    at = os.dup(dev)
    try:
        for part in AZURE_DISKS.relative_to("/dev").parts:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=at)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=at)
            os.close(at)
            at = inner
        os.symlink(f"../../../{name}", f"lun{lun}", dir_fd=at)
    finally:
        os.close(at)


class NamespaceChild(Program):
    """A `Child` in an emulated host."""

    def __init__(
        self, held: HeldHost, machine: str, command: Command, stdin: int | None = None
    ) -> None:
        """Start the program; raises MachineError when it cannot be, or the host is gone.

        `stdin` is a file of the caller's in place of the command's bytes.
        """
        self._held = held
        self._machine = machine
        self._name = f"{os.path.basename(command.words[0])} on {machine}"
        self._ended: int | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._pending = b""
        read_out, write_out = os.pipe()
        read_err, write_err = os.pipe()
        self._end, write_end = os.pipe()
        given = open_bytes(command.stdin)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        asked: dict[str, object] = {
            "words": list(command.words),
            "variables": dict(command.variables or {}),
            "folder": str(command.folder or "/"),
        }
        try:
            first = stdin if stdin is not None else null if given < 0 else given
            held.send(asked, [first, write_out, write_err, write_end])
        except MachineError:
            for file in (read_out, read_err, self._end):
                os.close(file)
            raise
        finally:
            for file in (null, write_out, write_err, write_end, *([given] if given >= 0 else [])):
                os.close(file)
        self._stdout = os.fdopen(read_out, "rb")
        self._ahead = bytearray()
        self._stderr = Tail(os.fdopen(read_err, "rb"))
        said = self._told(START_SECONDS)
        if said is None or "pid" not in said:
            self._stdout.close()
            os.close(self._end)
            why = "the host is gone" if said is None else said.get("error")
            raise MachineError(f"{command.words[0]} cannot be started on {machine}: {why}")
        self._pid = int(str(said["pid"]))

    @property
    def pid(self) -> int:
        """Its number in the host, and that of its process group."""
        return self._pid

    def lines(self) -> Iterator[bytes]:
        """Yield each line as it comes; raises MachineError for one that never ends."""
        yield from super().lines()
        # A host that goes closes the pipes as well: that does not mean that the program has ended.
        self._wait(GONE_SECONDS)

    def signal(self, number: int) -> None:
        """Send a signal to it and its children; none when it has ended."""
        if self._ended is None:
            self._held.send({"pid": self._pid, "signal": int(number)})

    def wait(self, seconds: float | None = None) -> Finished | None:
        """Wait for its end; None: it still runs after so many seconds. `stdout` is empty.

        Raises MachineError when the host is gone.
        """
        code = self._wait(seconds)
        return None if code is None else Finished(code, b"", self._stderr.whole())

    def end(self) -> None:
        """End it and its children: SIGTERM, 5 seconds, SIGKILL. Nothing when that is done."""
        if self._closed:
            return
        self._closed = True
        try:
            # With the host the program is gone as well.
            with suppress(MachineError):
                self.signal(signal.SIGTERM)
                self._wait(END_SECONDS)
                self._held.send({"pid": self._pid, "signal": int(signal.SIGKILL), "last": True})
                if self._wait(KILL_SECONDS) is None:
                    return
            self._stderr.whole()
        finally:
            self._stdout.close()
            os.close(self._end)

    def __enter__(self) -> NamespaceChild:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it as `end` does."""
        self.end()

    def _wait(self, seconds: float | None) -> int | None:
        with self._lock:
            if self._ended is None:
                try:
                    said = self._told(seconds)
                except TimeoutError:
                    return None
                if said is None:
                    raise MachineError(f"{self._machine} is gone, and its programs with it")
                self._ended = int(str(said["code"]))
            return self._ended

    def _told(self, seconds: float | None) -> dict[str, object] | None:
        """Return the next word about the program; None: the host is gone. Raises TimeoutError."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._end], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(self._end, 4096)
            if not chunk:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        word: dict[str, object] = json.loads(line)
        return word
