"""The first process of an emulated host: makes its root, starts its programs, ends with its holder.

Run as a program, with the numbers of a socket and of a lock as arguments; imports nothing of
disklab. The first message on the socket describes the host, each one after it asks for a program or
a signal. When the socket ends, so does this process, and the kernel ends everything in the host
with it: namespaces, mounts and links are held by processes alone, and none outlives its holder.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

# From <linux/sched.h>, <linux/mount.h> and <linux/prctl.h>; Python has them from 3.12 on, in part.
NEW_MOUNTS, NEW_CGROUPS, NEW_NAME = 0x00020000, 0x02000000, 0x04000000
NEW_IPC, NEW_PROCESSES, NEW_NETWORK = 0x08000000, 0x20000000, 0x40000000
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, BIND = 1, 2, 4, 8, 4096
RECURSIVE, PRIVATE, REMOUNT = 16384, 1 << 18, 32
DETACH = 2
SIGNAL_AT_PARENTS_DEATH = 1

MOST_MESSAGE_BYTES = 1 << 20
STREAMS = 4
"""What comes with each program: standard input, output, error, and the pipe of its end."""

DEVICES = {  # name: (major, minor), from the kernel's list of devices
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
# What /proc/self/mounts says of a cgroup hierarchy beside its controllers and its name.
MOUNT_OPTIONS = {"rw", "ro", "nosuid", "nodev", "noexec", "relatime", "noatime", "xattr"}
# The kernel ends init last when memory is short: the group's own processes go first.
LEAST_LIKELY_TO_BE_KILLED = b"-1000"

_libc = ctypes.CDLL(None, use_errno=True)


class SetUpError(Exception):
    """A part of the host cannot be made; the text names it."""


def _call(what: str, function: str, *arguments: object) -> None:
    """Call a function of the C library; raises SetUpError with its errno's text."""
    if getattr(_libc, function)(*arguments) != 0:
        raise SetUpError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    place = Path(target)
    if not place.exists():
        place.mkdir(parents=True)
    words = [os.fsencode(text) for text in (source, target, kind)]
    _call(f"mount {kind or 'bind'} on {target}", "mount", *words, flags, options.encode())


def main() -> None:
    """Become the host that the first message describes."""
    link = socket.socket(fileno=int(sys.argv[1]))
    message = link.recv(MOST_MESSAGE_BYTES)
    if not message:
        return
    host = json.loads(message)
    groups = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in host["groups"]]
    try:
        _leave(host, groups)
        inside = os.fork()
    except (SetUpError, OSError) as error:
        link.send(json.dumps({"error": str(error)}).encode())
        return
    if inside == 0:
        _be_first(link, host, groups)
        os._exit(0)
    link.send(json.dumps({"pid": inside}).encode())
    # Only the first process of the host holds the socket: its end is the host's end.
    link.close()
    os.waitpid(inside, 0)


def _leave(host: dict[str, Any], groups: list[int]) -> None:
    """Enter namespaces of our own. The root of the cgroup namespace is the host's memory group."""
    homes = []
    for home in host["homes"]:
        with suppress(OSError):
            homes.append(os.open(home, os.O_WRONLY | os.O_CLOEXEC))
    for group in groups:
        os.write(group, b"0")
    spaces = NEW_NETWORK | NEW_MOUNTS | NEW_PROCESSES | NEW_NAME | NEW_IPC
    _call("namespaces", "unshare", spaces | (NEW_CGROUPS if groups else 0))
    # The memory of the VM is for what runs on it: this process goes back to where it came from.
    for file in homes:
        with suppress(OSError):
            os.write(file, b"0")
        os.close(file)


def _be_first(link: socket.socket, host: dict[str, Any], groups: list[int]) -> None:
    _libc.prctl(SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL, 0, 0, 0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(LEAST_LIKELY_TO_BE_KILLED)
    try:
        name = host["name"].encode()
        _call("host name", "sethostname", name, len(name))
        _make_root(host)
        _write_names(host)
    except (SetUpError, OSError) as error:
        link.send(json.dumps({"error": str(error)}).encode())
        return
    link.send(b'{"ready": true}')
    _Programs(link, groups).serve()


def _make_root(host: dict[str, Any]) -> None:
    """Make the root file system and step into it: this machine's below, a tmpfs above."""
    _call("mounts of its own", "mount", b"", b"/", b"", RECURSIVE | PRIVATE, None)
    os.chdir(host["folder"])
    _mount("tmpfs", "root", "tmpfs", NO_SUID, f"mode=755,size={host['root_bytes']}")
    os.chdir("root")
    for name in ("upper", "work"):
        Path(name).mkdir()
    # The upper layer takes the mode of its root from here.
    Path("upper").chmod(0o755)
    _mount("overlay", "merged", "overlay", 0, "lowerdir=/,upperdir=upper,workdir=work")
    os.chdir("merged")
    _mount("proc", "proc", "proc", NO_SUID | NO_DEVICES | NO_EXEC)
    _mount("sysfs", "sys", "sysfs", NO_SUID | NO_DEVICES | NO_EXEC)
    _mount_groups(host)
    for name, mode in (("run", "755"), ("tmp", "1777")):
        _mount("tmpfs", name, "tmpfs", NO_SUID | NO_DEVICES, f"mode={mode}")
    for shared in host["shared"]:
        _show(shared)
    _make_devices()
    _call("its root", "pivot_root", b".", b".")
    _call("this machine's root", "umount2", b".", DETACH)
    os.chdir("/")


def _show(shared: dict[str, Any]) -> None:
    """Show a file system or a folder of this machine at its place, to read or to write."""
    path = shared["path"]
    # Relative to the new root: the path itself is one of this machine.
    target = f".{path}"
    _mount(path, target, "", BIND)
    if not shared["write"]:
        flags = BIND | REMOUNT | READ_ONLY
        _call(f"mount {path} read-only", "mount", b"", os.fsencode(target), b"", flags, None)


def _mount_groups(host: dict[str, Any]) -> None:
    version = host["group_version"]
    if version == 2:
        _mount("cgroup2", "sys/fs/cgroup", "cgroup2", NO_SUID | NO_DEVICES | NO_EXEC)
    elif version == 1:
        flags = NO_SUID | NO_DEVICES | NO_EXEC
        # All of them: a Java machine that misses one gives up at the first look.
        hierarchies = _hierarchies()
        _mount("tmpfs", "sys/fs/cgroup", "tmpfs", flags, "mode=755")
        for name, controllers in hierarchies.items():
            _mount("cgroup", f"sys/fs/cgroup/{name}", "cgroup", flags, controllers)


def _hierarchies() -> dict[str, str]:
    """Return the controllers of each cgroup v1 hierarchy of this machine, by its folder's name."""
    found = {}
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, point, kind, options, *_ = line.split(" ")
        if kind == "cgroup":
            controllers = [one for one in options.split(",") if one not in MOUNT_OPTIONS]
            found[Path(point).name] = ",".join(controllers)
    return found


def _make_devices() -> None:
    _mount("tmpfs", "dev", "tmpfs", NO_SUID | NO_EXEC, "mode=755,size=16m")
    before = os.umask(0)
    for name, (major, minor) in DEVICES.items():
        os.mknod(f"dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    os.umask(before)
    for name, target in DEVICE_LINKS.items():
        Path(f"dev/{name}").symlink_to(target)
    flags = NO_SUID | NO_EXEC
    _mount("devpts", "dev/pts", "devpts", flags, "newinstance,ptmxmode=0666,mode=620,gid=5")
    _mount("tmpfs", "dev/shm", "tmpfs", NO_SUID | NO_DEVICES, "mode=1777")


def _write_names(host: dict[str, Any]) -> None:
    Path("/etc/hostname").write_text(host["name"] + "\n", encoding="ascii")
    own = ["127.0.0.1 localhost", "::1 localhost"]
    lines = own + [f"{address} {name}" for name, address in host["addresses"].items()]
    Path("/etc/hosts").write_text("\n".join(lines) + "\n", encoding="ascii")


OWN_SIGNALS = (signal.SIGCHLD, signal.SIGPIPE)
ENDING_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)


class _Programs:
    """The programs of the host: started on request, their ends reported, all others reaped."""

    def __init__(self, link: socket.socket, groups: list[int]) -> None:
        self._link = link
        self._groups = groups
        self._ends: dict[int, int] = {}
        """Of each program that was asked for: the pipe that waits for its end."""
        self._ended: set[int] = set()
        """Those that have ended and were not let go of."""

    def serve(self) -> None:
        """Serve the holder until it is gone."""
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._link.fileno(), read], [], [])
            if read in ready:
                os.read(read, 4096)
                self._reap()
            if self._link.fileno() in ready and not self._answer():
                return

    def _answer(self) -> bool:
        """Do what the next message asks for; returns False when there is none to come."""
        message, files, _, _ = socket.recv_fds(self._link, MOST_MESSAGE_BYTES, STREAMS)
        if not message:
            return False
        asked = json.loads(message)
        if "words" in asked:
            self._start(asked, files)
        else:
            self._signal(asked)
        return True

    def _signal(self, asked: dict[str, Any]) -> None:
        """Signal a program's group; the last signal reaches children that outlived it, too."""
        pid = asked["pid"]
        # A group's number stays taken while one of its processes lives.
        if pid in self._ends or (pid in self._ended and asked.get("last")):
            with suppress(ProcessLookupError):
                os.killpg(pid, asked["signal"])
        if asked.get("last"):
            self._ended.discard(pid)

    def _start(self, asked: dict[str, Any], files: list[int]) -> None:
        end = files[STREAMS - 1]
        told, tell = os.pipe2(os.O_CLOEXEC)
        child = os.fork()
        if child == 0:
            _become(asked, files, tell, self._groups)
        os.close(tell)
        for file in files[: STREAMS - 1]:
            os.close(file)
        error = os.read(told, 4096)
        os.close(told)
        word: dict[str, object] = {"error": error.decode()} if error else {"pid": child}
        _tell(end, word)
        self._ends[child] = end

    def _reap(self) -> None:
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if child == 0:
                return
            end = self._ends.pop(child, None)
            if end is not None:
                _tell(end, {"code": os.waitstatus_to_exitcode(status)})
                os.close(end)
                self._ended.add(child)


def _become(asked: dict[str, Any], files: list[int], tell: int, groups: list[int]) -> None:
    """Become the program, in a session of its own. Never returns."""
    try:
        for group in groups:
            os.write(group, b"0")
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_bytes(b"0")
        os.setsid()
        for number in range(STREAMS - 1):
            os.dup2(files[number], number)
        # Whoever started disklab may ignore some, as a script's `&` does.
        for number in (*OWN_SIGNALS, *ENDING_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(asked["folder"])
        os.execvpe(  # noqa: S606 - words, no shell
            asked["words"][0], asked["words"], {**os.environ, **asked["variables"]}
        )
    except (OSError, ValueError) as error:
        os.write(tell, str(error).encode()[:4096])
    os._exit(127)


def _tell(pipe: int, word: dict[str, object]) -> None:
    # Who asked may have gone.
    with suppress(OSError):
        os.write(pipe, json.dumps(word).encode() + b"\n")


if __name__ == "__main__":
    main()
