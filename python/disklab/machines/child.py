"""A program that runs on this machine: in a process group of its own, ended with its children."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import PurePosixPath
from queue import SimpleQueue
from typing import IO, Any, Protocol

from disklab.errors import MachineError
from disklab.machines.protocol import Finished


class Started(subprocess.Popen[bytes]):
    """A program that can be waited for after a signal of ours has ended an earlier wait.

    Popen takes a lock for each look at its child. A KeyboardInterrupt between the lock and the
    block that gives it back leaves it taken, and the next wait never ends: the thread that took it
    may take it again.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._waitpid_lock = threading.RLock()

    def send_signal(self, sig: int) -> None:
        """Send it a signal; Popen's own looks at it first, and takes its code from a wait."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)


# Whether a program of this machine has ended: by a descriptor of it, where there are such.


class Ending(Protocol):
    """How a program's end is awaited."""

    def come(self, seconds: float | None) -> bool:
        """Wait for it at most so long; None: as long as it takes. Returns whether it is over."""

    def code(self) -> int:
        """Return the exit code, or the negative number of a signal, of what has ended."""

    def close(self) -> None:
        """Give back what was opened for it."""


class ByDescriptor:
    """On Linux: not reaped, so its number stays taken until its whole group was ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._handle = os.pidfd_open(process.pid)

    def come(self, seconds: float | None) -> bool:
        """See `Ending`."""
        if self._process.returncode is not None:
            return True
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def code(self) -> int:
        """See `Ending`."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def close(self) -> None:
        """See `Ending`."""
        os.close(self._handle)


class ByReaping:
    """On other systems, where only an engine that simulates is started: it has no children."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def come(self, seconds: float | None) -> bool:
        """See `Ending`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def code(self) -> int:
        """See `Ending`."""
        return self._process.wait()

    def close(self) -> None:
        """See `Ending`."""


END_SECONDS = 5.0
"""What a program has for its end after SIGTERM."""
KILL_SECONDS = 30.0
"""What was killed takes a gigabyte of memory back; one that waits for its disk stays."""
START_SECONDS = 60.0
"""Until a program runs: a busy machine takes seconds, a folder on a disk that hangs all of it."""
STDERR_BYTES = 64 << 10
LINE_BYTES = 64 << 20
"""The longest line: fio's JSON with histograms is a few MiB."""
_CHUNK_BYTES = 64 << 10
ENDING_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
"""By which programs are ended; SIGPIPE, which Python ignores, `subprocess` gives back by itself."""

UNLESS_ORPHANED = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'
"""Becomes a program whose parent lives: one that was killed before setpriv ran ends nothing."""


def piped(stream: IO[bytes] | None) -> IO[bytes]:
    """Return our end of a pipe that a program was started with. Raises ValueError without one."""
    if stream is None:
        raise ValueError("the program was started without this pipe")
    return stream


class Program:
    """A program whose output comes by pipes of this process: what children have in common."""

    _name: str
    _stdout: IO[bytes]
    _stderr: Tail
    _ahead: bytearray
    """What was read and not given out yet: less than a line."""

    def lines(self) -> Iterator[bytes]:
        """Yield each line as it comes; raises MachineError for one that never ends."""
        while (line := self.line()) is not None:
            yield line

    def line(self, seconds: float | None = None, most_bytes: int = LINE_BYTES) -> bytes | None:
        """Return the next line; None: there is none any more. Ctrl-C is heeded at once.

        Raises MachineError for one that has not ended after so many seconds, or so many bytes.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        searched = 0
        while (end := self._ahead.find(b"\n", searched)) < 0:
            searched = len(self._ahead)
            if searched > most_bytes:
                raise MachineError(f"{self._name} wrote a line of more than {most_bytes} bytes")
            if deadline is not None and not self._comes(deadline - time.monotonic()):
                raise self._silent(seconds or 0.0)
            chunk = os.read(self._stdout.fileno(), _CHUNK_BYTES)
            if not chunk:
                rest = bytes(self._ahead)
                self._ahead.clear()
                return rest or None
            self._ahead += chunk
        line = bytes(self._ahead[:end])
        del self._ahead[: end + 1]
        return line

    def _comes(self, seconds: float) -> bool:
        """Wait until something can be read, at most so long."""
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def _silent(self, seconds: float) -> MachineError:
        return MachineError(f"{self._name} said nothing more within {seconds:.0f} s")

    def wait(self, seconds: float | None = None) -> Finished | None:
        """Wait for its end; None: it still runs after so many seconds. `stdout` is empty."""
        raise NotImplementedError

    def communicate(self, seconds: float, most_bytes: int) -> Finished:
        """Read all its standard output and wait for its end.

        Raises MachineError when it still runs after so many seconds, or writes more than this.
        """
        deadline = time.monotonic() + seconds
        whole = bytearray()
        while True:
            if not self._comes(deadline - time.monotonic()):
                raise self._still_runs(seconds)
            chunk = os.read(self._stdout.fileno(), _CHUNK_BYTES)
            if not chunk:
                break
            whole += chunk
            if len(whole) > most_bytes:
                raise MachineError(f"{self._name} wrote more than {most_bytes} bytes")
        finished = self.wait(max(0.0, deadline - time.monotonic()))
        if finished is None:
            raise self._still_runs(seconds)
        return Finished(finished.code, bytes(whole), finished.stderr)

    def _still_runs(self, seconds: float) -> MachineError:
        lines = self._stderr.so_far().decode(errors="replace").strip().splitlines()
        last = f"; it said: {lines[-1]}" if lines else ""
        return MachineError(f"{self._name} still ran after {seconds:g} s{last}")


class LocalChild(Program):
    """A `Child` of this machine. Where nobody reads `lines`, the program waits at a full pipe."""

    def __init__(self, program: str, process: subprocess.Popen[bytes]) -> None:
        """Take a process that leads its session; its output comes by pipes."""
        self._name = os.path.basename(program)
        self._process = process
        self._stdin = process.stdin
        self._stdout = piped(process.stdout)
        self._ahead = bytearray()
        self._stderr = Tail(piped(process.stderr))
        self._ending = ByDescriptor(process) if sys.platform == "linux" else ByReaping(process)
        self._code: int | None = None

    @classmethod
    def start(
        cls,
        words: Sequence[str],
        *,
        stdin: bytes | None = b"",
        variables: Mapping[str, str] | None = None,
        folder: PurePosixPath | None = None,
        rights: Sequence[str] = (),
    ) -> LocalChild:
        """Start a program. It is killed when this process ends, whatever ends it.

        `rights`: options of setpriv(1), by which it gives up what it does not need.

        `stdin` None: it is told by `say`, until `hush`. Raises MachineError when there is no such
        program, or the kernel refuses.
        """
        environment = minimal(variables)
        program = shutil.which(words[0], path=environment.get("PATH"))
        if program is None:
            raise MachineError(
                f"{words[0]}: there is no such program on this machine, or it may not be run; "
                "install it, or give its path"
            )
        command = [*_bound(rights), program, *words[1:]]
        given = subprocess.PIPE if stdin is None else open_bytes(stdin)
        try:
            process = _STARTER.call(
                lambda: Started(
                    command,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    preexec_fn=unignored(),
                    cwd=str(folder or "/"),
                    env=environment,
                )
            )
        except OSError as error:
            raise MachineError(f"{words[0]} cannot be started: {error}") from error
        finally:
            if given >= 0:
                os.close(given)
        return cls(program, process)

    @property
    def pid(self) -> int:
        """Its number, and that of its process group."""
        return self._process.pid

    def say(self, data: bytes) -> None:
        """Write to its standard input at once; waits while it does not read.

        Raises MachineError when it has ended, or was hushed.
        """
        try:
            stdin = piped(self._stdin)
            stdin.write(data)
            stdin.flush()
        except (OSError, ValueError) as error:
            raise MachineError(f"{self._name} reads no more: {error}") from error

    def hush(self) -> None:
        """End its standard input, where it has one that is open."""
        if self._stdin is not None:
            # What it did not read, it need not have.
            with suppress(OSError):
                self._stdin.close()

    def signal(self, number: int) -> None:
        """Send a signal to it and its children; none when it has ended."""
        if not self._has_ended(0.0):
            self._signal_group(number)

    def wait(self, seconds: float | None = None) -> Finished | None:
        """Wait for its end; None: it still runs after so many seconds. `stdout` is empty."""
        if not self._has_ended(seconds):
            return None
        return Finished(self._exit_code(), b"", self._stderr.whole())

    def end(self) -> None:
        """End it and its children: SIGTERM, 5 seconds, SIGKILL. Nothing when that is done.

        Raises MachineError when it stays, as a process does that waits for its disk.
        """
        if self._process.returncode is not None:
            return
        if not self._has_ended(0.0):
            self._signal_group(signal.SIGTERM)
            self._has_ended(END_SECONDS)
        # Its children may be there when it is gone. It is not reaped yet, so its number is its own.
        self._signal_group(signal.SIGKILL)
        if not self._has_ended(KILL_SECONDS):
            raise MachineError(
                f"{self._name} (process {self.pid}) cannot be killed: its disk hangs"
            )
        self._code = self._exit_code()
        self._stderr.whole()
        self.hush()
        self._process.wait()
        self._ending.close()
        self._stdout.close()

    def __enter__(self) -> LocalChild:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it as `end` does."""
        self.end()

    def _has_ended(self, seconds: float | None) -> bool:
        """Wait for its end without reaping it: its number stays taken until `end`."""
        if self._process.returncode is not None:
            return True
        return self._ending.come(seconds)

    def _exit_code(self) -> int:
        if self._code is not None:
            return self._code
        return self._ending.code()

    def _signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Tail:
    """The end of a pipe's bytes, drained by a thread so that the writer never waits."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._chunks: deque[bytes] = deque()
        self._kept = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="stderr", daemon=True)
        self._thread.start()

    def whole(self) -> bytes:
        """Return the last 64 KiB once the pipe is closed, or half a second from now.

        A child of the program may hold the pipe for as long as it lives.
        """
        self._thread.join(0.5)
        return self.so_far()

    def so_far(self) -> bytes:
        """Return the last 64 KiB that came until now."""
        with self._lock:
            return b"".join(self._chunks)[-STDERR_BYTES:]

    def _drain(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), _CHUNK_BYTES):
                with self._lock:
                    self._chunks.append(chunk)
                    self._kept += len(chunk)
                    while self._kept - len(self._chunks[0]) >= STDERR_BYTES:
                        self._kept -= len(self._chunks.popleft())


_OWN_NETWORK = "/proc/self/task/{}/ns/net"
# From <sched.h>; Python has setns(2) from 3.12 on.
_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


_Calls = SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]


class _Starter:
    """The thread that starts programs.

    The kernel ends a program with the *thread* that started it, and threads of disklab come and go.
    This one lives as long as the process. A program is in the network of whoever asked for it: a
    thread may be in that of an emulated host (`NamespaceMachine.inside_network`).
    """

    def __init__(self) -> None:
        self._calls: _Calls = SimpleQueue()
        self._process: int | None = None
        self._lock = threading.Lock()

    def call(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        with self._lock:
            # A fork of this process has the queue and not the thread.
            if self._process != os.getpid():
                self._process = os.getpid()
                serve = partial(self._serve, self._calls)
                threading.Thread(target=serve, name="starter", daemon=True).start()
            calls = self._calls
        promised: Future[subprocess.Popen[bytes]] = Future()
        network = _own_network()
        there = start if network is None else partial(_started_in, network, start)
        calls.put((there, promised))
        try:
            return promised.result(START_SECONDS)
        except TimeoutError:
            with self._lock:
                # What that thread has started lives as long as it does; others need not wait.
                if self._calls is calls:
                    self._calls, self._process = SimpleQueue(), None
            promised.add_done_callback(_end_unknown)
            late = f"it did not start within {START_SECONDS:.0f} s; its disk may serve nothing"
            raise OSError(late) from None
        except BaseException:
            # Ctrl-C while it starts: nobody will end what nobody knows.
            promised.add_done_callback(_end_unknown)
            raise

    def _serve(self, calls: _Calls) -> None:
        while True:
            start, promised = calls.get()
            try:
                promised.set_result(start())
            except BaseException as error:
                promised.set_exception(error)


def _own_network() -> int | None:
    """Return the open network of this thread; None where the system has but one, as on macOS."""
    with suppress(FileNotFoundError):
        return _open_network()
    return None


def _open_network() -> int:
    return os.open(_OWN_NETWORK.format(threading.get_native_id()), os.O_RDONLY)


def _started_in(
    network: int, start: Callable[[], subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Start a program in a network, whose file is closed; come back to our own."""
    try:
        with inside_network(network):
            return start()
    finally:
        os.close(network)


@contextmanager
def inside_network(network: int) -> Iterator[None]:
    """Put the calling thread into a network namespace, an open file, and back. Raises OSError."""
    home = _open_network()
    try:
        if os.path.samestat(os.fstat(home), os.fstat(network)):
            yield
            return
        _enter(network)
        try:
            yield
        finally:
            _enter(home)
    finally:
        os.close(home)


def _enter(network: int) -> None:
    if _libc.setns(network, _NEW_NETWORK) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"its network: {os.strerror(number)}")


def _end_unknown(started: Future[subprocess.Popen[bytes]]) -> None:
    if started.exception() is None:
        with suppress(ProcessLookupError):
            os.killpg(started.result().pid, signal.SIGKILL)


def _bound(rights: Sequence[str]) -> list[str]:
    """Return the words before a program that end it with this process, and take rights from it."""
    if sys.platform == "linux":
        # setpriv becomes the shell, and that the program: the number of the process stays.
        bound = ["setpriv", *rights, "--pdeathsig", "KILL", "--"]
        return [*bound, "sh", "-c", UNLESS_ORPHANED, "sh", str(os.getpid())]
    # An engine that simulates ends with its standard input, so with this process.
    assert not rights, "only Linux has setpriv"
    return []


def unignored() -> Callable[[], None] | None:
    """Return what is called in a started program before it begins, so that signals end it.

    A program ignores what its parent ignores: under nohup, or started by a script's `&`, disklab
    could interrupt none of its own. None: nothing is ignored or blocked here, as nearly always; a
    call between fork and exec is not free. This one takes no lock that another thread may hold.
    """
    ignored = [one for one in ENDING_SIGNALS if signal.getsignal(one) is signal.SIG_IGN]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return partial(_restore, ignored) if ignored or blocked else None


def _restore(ignored: Sequence[int]) -> None:
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def open_bytes(stdin: bytes) -> int:
    """Return an open file with the bytes: a pipe would have to be fed while output is read."""
    if not stdin:
        return subprocess.DEVNULL
    if sys.platform == "linux":
        handle = os.memfd_create("stdin", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    left = memoryview(stdin)
    while left:
        left = left[os.write(handle, left) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


_STARTER = _Starter()


# The environment of what disklab starts: a few variables that are nobody's secret.

KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
OURS = "DISKLAB_"
"""What the names of disklab's own begin with: where its folders are, say."""


def minimal(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a program is started with. `variables`: its own, such as a password for it."""
    whole = os.environ.items()
    kept = {name: value for name, value in whole if name in KEPT or name.startswith(OURS)}
    return kept | dict(variables or {})
