"""Runs a command under ptrace(2) and kills one of its processes at a chosen step.

A step is a system call that can change something outside the process. The kernel stops the process
*before* the call, so killing it there at step 1, 2, 3 ... goes through every state that the machine
can be left in. Nothing in the product knows of this: what users run is what is tested.

Only for x86-64: the numbers of the system calls are that machine's.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# From <sys/ptrace.h>.
CONT, SYSCALL, SEIZE, LISTEN, SETOPTIONS, DETACH = 7, 24, 0x4206, 0x4208, 0x4200, 17
GET_SYSCALL_INFO, GETEVENTMSG = 0x420E, 0x4201
TRACE_SYSCALLS_AND_CHILDREN = 0x1 | 0x2 | 0x4 | 0x8 | 0x10
EVENT_EXEC, EVENT_STOP = 4, 128
ENTRY = 1
CHILD = " child"
"""What a program's own copies are called after it: the engine's watchdog, what will be mkfs."""
WAIT_ALL = 0x40000000
SYSCALL_STOP = signal.SIGTRAP | 0x80

# Numbers from <asm/unistd_64.h>; with each the argument that says what it acts on: a path, a file
# descriptor, or nothing that could be shown.
PATH = {
    "open": (2, 0), "creat": (85, 0), "openat": (257, 1), "rename": (82, 1), "renameat": (264, 3),
    "renameat2": (316, 3), "mkdir": (83, 0), "mkdirat": (258, 1), "rmdir": (84, 0),
    "unlink": (87, 0), "unlinkat": (263, 1), "link": (86, 1), "linkat": (265, 3),
    "symlink": (88, 1), "symlinkat": (266, 2), "chmod": (90, 0), "fchmodat": (268, 1),
    "chown": (92, 0), "lchown": (94, 0), "fchownat": (260, 1), "truncate": (76, 0),
    "mount": (165, 1), "umount2": (166, 0), "execve": (59, 0), "utimensat": (280, 1),
}  # fmt: skip
DESCRIPTOR = {
    "write": 1, "pwrite64": 18, "writev": 20, "pwritev": 296, "ioctl": 16, "fchmod": 91,
    "fchown": 93, "ftruncate": 77, "fsync": 74, "fdatasync": 75, "fallocate": 285, "close": 3,
    "connect": 42, "sendto": 44, "sendmsg": 46, "bind": 49, "listen": 50, "flock": 73,
    "copy_file_range": 326, "shutdown": 48, "syncfs": 306,
}  # fmt: skip
OTHER = {
    "fork": 57, "vfork": 58, "clone": 56, "clone3": 435, "kill": 62, "tgkill": 234,
    "pidfd_send_signal": 424, "exit_group": 231, "setsid": 112, "unshare": 272, "setns": 308,
    "io_uring_setup": 425, "io_uring_register": 427, "fsmount": 432, "move_mount": 429,
}  # fmt: skip
NAMES = {
    **{number: (name, "path", at) for name, (number, at) in PATH.items()},
    **{number: (name, "descriptor", 0) for name, number in DESCRIPTOR.items()},
    **{number: (name, "other", 0) for name, number in OTHER.items()},
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Loop devices, from <linux/loop.h>; every other ioctl of ours asks something or sets a timer.
LOOP_IOCTLS = range(0x4C00, 0x4C90)
BLOCK_IOCTLS = range(0x1200, 0x1300)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int, where: int = 0, data: int = 0) -> int:
    done = _libc.ptrace(request, pid, where, data)
    if done < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(done)


@dataclass(frozen=True)
class Step:
    """One system call that changes something."""

    program: str
    """Which process made it: `conductor`, `disklab-engine`, `mkfs.xfs`."""
    number: int
    """1 is the first of this program."""
    call: str
    what: str
    """The path or file that it acts on, with the lab's folder as `LAB`."""

    def kind(self) -> str:
        """Return what this step has in common with others, for choosing different ones first."""
        return re.sub(r"[0-9a-f]{32}|[0-9]+", "N", f"{self.program} {self.call} {self.what}")


@dataclass
class Trace:
    """What was seen of a command."""

    steps: list[Step] = field(default_factory=list)
    reached: Step | None = None
    """Where it was killed; None: it ended before."""
    status: int | None = None
    """Exit status of the command, negative for a signal; None: it was ended for its time."""
    conductor: int = 0
    """Process number of the command."""


@dataclass
class Tracer:
    """Follows a command, its children of some programs, and engines that run already."""

    programs: frozenset[str]
    lab: str
    at: tuple[str, int] | None = None
    """Program and number of the step at which to kill; None: only record."""
    together: bool = False
    """Kill every followed process at once, and not only the one that makes the step."""
    halt_s: float = 0.0
    """Stop the process for so long with SIGSTOP before it is let go on, and kill nothing."""
    most_s: float = 120.0
    """The command is ended after so long."""
    trace: Trace = field(default_factory=Trace)
    _program: dict[int, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _halted: dict[int, float] = field(default_factory=dict)

    def run(self, command: Callable[[], None], engines: Sequence[int] = ()) -> Trace:
        """Run a function in a child under the tracer. The calling process has one thread."""
        for engine in engines:
            self._seize_all(engine)
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)
            try:
                command()
            except SystemExit as end:
                os._exit(end.code if isinstance(end.code, int) else 1)
            except BaseException:
                traceback.print_exc()
                os._exit(70)
            os._exit(0)
        os.close(ready)
        _ptrace(SEIZE, child, 0, TRACE_SYSCALLS_AND_CHILDREN)
        self._program[child] = "conductor"
        self.trace.conductor = child
        os.close(go)
        self._follow(child)
        return self.trace

    def _seize_all(self, pid: int) -> None:
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                _ptrace(SEIZE, int(task), 0, TRACE_SYSCALLS_AND_CHILDREN)
                self._program[int(task)] = program_of(pid)
                # A running process begins to report its calls after its next stop.
                _ptrace(0x4207, int(task))  # PTRACE_INTERRUPT

    def _follow(self, child: int) -> None:
        deadline = time.monotonic() + self.most_s
        late = False
        while True:
            try:
                pid, status = os.waitpid(-1, WAIT_ALL | os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                if time.monotonic() > deadline:
                    late = True
                    os.kill(child, signal.SIGKILL)
                    deadline += 10.0
                    continue
                self._let_go_on()
                # Nothing is stopped now; a stop is seen this much later.
                time.sleep(0.00005)
                continue
            if not os.WIFSTOPPED(status):
                self._program.pop(pid, None)
                if pid == child:
                    if not late:
                        self.trace.status = os.waitstatus_to_exitcode(status)
                    return
                continue
            with suppress(ProcessLookupError):
                self._stopped(pid, status)

    def _stopped(self, pid: int, status: int) -> None:
        sign, event = os.WSTOPSIG(status), status >> 16
        if sign == SYSCALL_STOP:
            if not self._at_call(pid):
                _ptrace(SYSCALL, pid)
            return
        if event == EVENT_STOP and sign != signal.SIGTRAP:
            _ptrace(LISTEN, pid)
            return
        if event == EVENT_EXEC:
            self._program[pid] = program_of(pid)
            if self._program[pid] not in self.programs:
                _ptrace(DETACH, pid)
                return
        if pid not in self._program:
            self._program[pid] = self._inherited(pid)
        _ptrace(SYSCALL, pid, 0, 0 if event or sign == signal.SIGTRAP else sign)

    def _inherited(self, pid: int) -> str:
        """Return the program of a new thread, or that of a child that has not called execve."""
        with suppress(OSError):
            if known := self._program.get(_status(pid, "Tgid")):
                return known
            return self._program.get(_status(pid, "PPid"), "conductor") + CHILD
        return "conductor"

    def _at_call(self, pid: int) -> bool:
        """Look at a call that begins; returns whether the process must not go on now."""
        step = None if self.trace.reached is not None else self._step(pid)
        if step is None:
            return False
        if self.at is None:
            self.trace.steps.append(step)
        if (step.program, step.number) != self.at:
            return False
        self.trace.reached = step
        if self.halt_s:
            self._halted[pid] = time.monotonic() + self.halt_s
            return True
        for victim in list(self._program) if self.together else [pid]:
            with suppress(OSError):
                os.kill(_status(victim, "Tgid"), signal.SIGKILL)
        return True

    def _step(self, pid: int) -> Step | None:
        """Return the step that a stopped process is about to make, and count it."""
        info = ctypes.create_string_buffer(88)
        _ptrace(GET_SYSCALL_INFO, pid, len(info), ctypes.addressof(info))
        number, *arguments = struct.unpack_from("<7Q", info.raw, 24)
        program = self._program[pid]
        if info.raw[0] != ENTRY or number not in NAMES or program not in self.programs:
            return None
        what = changed(pid, number, arguments)
        if what is None:
            return None
        count = self._counts[program] = self._counts.get(program, 0) + 1
        return Step(program, count, NAMES[number][0], what.replace(self.lab, "LAB"))

    def _let_go_on(self) -> None:
        for pid, until in list(self._halted.items()):
            if time.monotonic() >= until:
                del self._halted[pid]
                with suppress(ProcessLookupError):
                    _ptrace(SYSCALL, pid)


def changed(pid: int, number: int, arguments: list[int]) -> str | None:
    """Return what a call acts on, empty where nothing can be shown; None: it changes nothing."""
    name, kind, at = NAMES[number]
    if kind == "other":
        return ""
    if kind == "path":
        if name in ("open", "openat") and not arguments[at + 1] & WRITES:
            return None
        path = path_at(pid, arguments[at], arguments[at - 1] if "at" in name else None)
        return None if path.startswith(("/proc/", "/dev/null")) else path
    shown = file_of(pid, arguments[0])
    command = arguments[1] & 0xFFFF
    if name == "close":
        changes = shown.startswith(("/dev/loop", "/dev/fuse", "/dev/ublk"))
    elif name == "ioctl":
        changes = command in LOOP_IOCTLS or command in BLOCK_IOCTLS
        shown += f" {command:#x}"
    else:
        # Its own pipes, events and terminal are nothing that stays.
        inside = shown.startswith(("/dev/null", "/dev/pts", "/proc/", "/dev/tty"))
        changes = shown.startswith(("/", "socket:")) and not inside and arguments[0] not in (1, 2)
    if shown.startswith("socket:"):
        shown = "socket"
    return shown if changes else None


def program_of(pid: int) -> str:
    """Return the name of the program that a process runs."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        name = Path(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")).name
        return f"{name} {words[1].decode()}" if name == "disklab-engine" else name
    return "gone"


def text_at(pid: int, address: int) -> str:
    """Return the text at an address of a stopped process, at most a page of it."""
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            memory.seek(address)
            # Up to the end of the page: the next one may not be there.
            content = memory.read(4096 - address % 4096)
    except OSError:
        return "?"
    return content.split(b"\0")[0].decode(errors="replace")


def path_at(pid: int, address: int, folder: int | None) -> str:
    """Return a path at an address; a relative one after the folder that a descriptor is open on."""
    path = text_at(pid, address)
    # The engine's way to a file in a folder that it holds open.
    if path.startswith("/proc/self/fd/"):
        descriptor, _, rest = path.removeprefix("/proc/self/fd/").partition("/")
        return f"{file_of(pid, int(descriptor))}/{rest}" if descriptor.isdigit() else path
    if folder is not None and not path.startswith("/"):
        return f"{file_of(pid, folder)}/{path}" if path else file_of(pid, folder)
    return path


def file_of(pid: int, descriptor: int) -> str:
    """Return what a descriptor of a process is open on."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{ctypes.c_int(descriptor).value}")
    except OSError:
        return ""


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def different_first(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield every step once: first the first of each kind, then the second of each, and so on."""
    waiting: dict[str, list[Step]] = {}
    for step in steps:
        waiting.setdefault(step.kind(), []).append(step)
    while waiting:
        for kind in list(waiting):
            yield waiting[kind].pop(0)
            if not waiting[kind]:
                del waiting[kind]
