"""Commands of disklab as copies of a process that has imported it: they start in 30 ms, not in 600.

Where a test starts the program by its path, the command is such a copy: a process of its own and a
child of the test's, with the environment, the folder, the streams and the session that were asked
for. What asks for more (another user, other descriptors, settings of Python), or comes through a
shell as in `tests/test_ends.py`, starts the program itself.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import pickle
import platform
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from disklab import cli
from disklab.catalog import load_catalog
from disklab.cli.app import ROOMS
from disklab.databases.registry import records

DISKLAB = str(Path(sys.executable).with_name("disklab"))
# Python and libraries read these before any code of ours does.
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TERM", "FORCE_COLOR", "NO_COLOR", "PY_COLORS")
MOST_BYTES = 100_000
"""Of a request: a packet of a local socket may have twice as many."""
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid_for_children", "user", "uts")
TAKEN_OVER = (
    "Cap",
    "Cpus_allowed",
    "Gid",
    "Groups",
    "NoNewPrivs",
    "SigBlk",
    "SigIgn",
    "Uid",
    "Umask",
)
"""Lines of a thread's status."""
ROOM = 3000
"""Letters of the words under which a copy is listed."""
CLONE_PARENT = 0x8000
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
"""The number of clone(2). **Source:** asm/unistd_64.h and asm-generic/unistd.h of Linux."""


@dataclass(frozen=True)
class Request:
    """What a copy is to run."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    own_session: bool


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, which copies where it can."""

    # The one place where the standard library starts a program; releases differ in what comes last.
    def _execute_child(self, args: Any, executable: Any, *rest: Any) -> None:
        preexec_fn, close_fds, pass_fds, cwd, env, _, _, shell, *more = rest
        p2cread, _, _, c2pwrite, _, errwrite, _, gid, gids, uid, umask, session, *group = more
        environment = dict(os.environ if env is None else env)
        plain = (
            close_fds
            and not (executable or preexec_fn or pass_fds or shell)
            and (gid, gids, uid, umask) == (None, None, None, -1)
            and group in ([], [-1])
        )
        if not plain or not is_ours(args) or not starts_alike(environment):
            getattr(super(), "_execute_child")(args, executable, *rest)  # noqa: B009 - not declared
            return
        request = Request(
            list(map(os.fspath, args)),
            environment,
            os.fspath(cwd) if cwd is not None else os.getcwd(),
            session,
        )
        ends = (p2cread, c2pwrite, errwrite)
        streams = [end if end != -1 else number for number, end in enumerate(ends)]
        pid = original().copied(request, streams)
        if pid is None:
            getattr(super(), "_execute_child")(args, executable, *rest)  # noqa: B009 - as above
            return
        self.pid = pid
        self._child_created = True
        getattr(self, "_close_pipe_fds")(*more[:6])  # noqa: B009 - as above


def is_ours(args: object) -> bool:
    """Return whether words start disklab by its path."""
    return isinstance(args, list | tuple) and bool(args) and os.fspath(args[0]) == DISKLAB


def starts_alike(environment: dict[str, str]) -> bool:
    """Return whether Python would begin in an environment as it began in ours."""
    ours, asked = (
        {name: value for name, value in every.items() if name.startswith(READ_AT_START)}
        for every in (dict(os.environ), environment)
    )
    return ours == asked


class Original:
    """The process that is copied."""

    def __init__(self) -> None:
        """Start it; it ends with this process."""
        self.turn = threading.Lock()
        self.surroundings = surroundings()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Threads of a library would not be in the copies.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "2"}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno()), " " * ROOM],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[1],
            )

    def copied(self, request: Request, streams: list[int]) -> int | None:
        """Return the process of a copy; None: it must be started otherwise."""
        packed = pickle.dumps(request)
        if len(packed) > MOST_BYTES or self.surroundings != surroundings():
            return None
        try:
            with self.turn:
                socket.send_fds(self.socket, [packed], streams)
                answer = self.socket.recv(16)
        except OSError:  # one of the streams is closed
            return None
        except BaseException:
            # A test whose time is over: its answer is nobody else's.
            _ORIGINALS.clear()
            self.socket.close()
            raise
        return int(answer) if answer else None


_ORIGINALS: dict[int, Original] = {}


def original() -> Original:
    """Return this process's own, which its first command starts; one that it forks has another."""
    if os.getpid() not in _ORIGINALS:
        _ORIGINALS[os.getpid()] = Original()
    return _ORIGINALS[os.getpid()]


def surroundings() -> tuple[object, ...]:
    """Return what a program takes over from the thread that starts it, as a copy does not."""
    thread = Path("/proc/thread-self")
    status = (thread / "status").read_text(encoding="ascii").splitlines()
    return (
        [os.readlink(thread / "ns" / name) for name in NAMESPACES],
        [line for line in status if line.startswith(TAKEN_OVER)],
        [(thread / name).read_text(encoding="utf-8") for name in ("cgroup", "limits")],
        os.getpriority(os.PRIO_PROCESS, 0),
    )


def install() -> None:
    """Let `subprocess` copy, where the kernel can give a copy our parent for its own."""
    if sys.platform == "linux" and CLONE is not None:
        setattr(subprocess, "Popen", Popen)  # noqa: B010 - mypy takes it for a type alone


def clone_beside() -> int:
    """Return 0 in a copy of this process, whose parent is this one's, and its number here."""
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    pid: int = libc.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def serve(requests: socket.socket) -> Request | None:
    """Make copies as long as somebody asks; return in a copy, with what it is to run."""
    while True:
        packed, streams, _, _ = socket.recv_fds(requests, 2 * MOST_BYTES, 3)
        if not packed:
            return None
        pid = clone_beside()
        if pid == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            requests.detach()
            os.closerange(3, 1 << 16)
            request: Request = pickle.loads(packed)
            return request
        for stream in streams:
            os.close(stream)
        requests.send(str(pid).encode())


def entitle(words: list[str]) -> None:
    """Be listed under these words, with which others look for a command.

    **Source:** get_mm_proctitle in Linux' fs/proc/base.c: with a last byte that is not zero, the
    first text counts.
    """
    Path("/proc/self/comm").write_text("disklab", encoding="ascii")
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    # proc(5): the 48th and the 49th, of which the first two stand before.
    begin, end = int(fields[45]), int(fields[46])
    text = " ".join([sys.executable, *words]).encode(errors="surrogateescape")
    room = end - begin - 1
    ctypes.memmove(begin, text[: room - 1].ljust(room, b"\0") + b"x", end - begin)


def run(request: Request) -> int:
    """Do what the program's own file does; return the exit code."""
    if request.own_session:
        os.setsid()
    entitle(request.words)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv = request.words
    # `python -m` is part of no usage that a command shows.
    main = sys.modules["__main__"]
    main.__package__, main.__spec__, main.__file__ = None, None, request.words[0]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())  # type: ignore[union-attr]
    code: object = 0
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 - as Python does
        code = 1
    return code or 0


def end(code: int) -> None:
    """End as Python does, but for taking apart what was copied."""
    getattr(threading, "_shutdown")()  # noqa: B009 - waits for threads
    getattr(atexit, "_run_exitfuncs")()  # noqa: B009 - not declared
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    os._exit(code & 0xFF)


def main() -> None:
    """Import, then be copied."""
    for place in ROOMS.values():
        import_module(f"disklab.cli.{place.partition(':')[0]}")
    load_catalog()
    assert all(records())
    sys.path.pop(0)
    del os.environ["OPENBLAS_NUM_THREADS"]
    del os.environ["POLARS_MAX_THREADS"]
    requests = socket.socket(fileno=int(sys.argv[1]))
    gc.collect()
    gc.freeze()
    request = serve(requests)
    if request is not None:
        end(run(request))


if __name__ == "__main__":
    main()
