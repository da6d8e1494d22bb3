"""sysbench's process: started, read, ended in time."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from disklab.engine import server_account
from disklab.engine.load import LoadDone, LoadEvent
from disklab.errors import MachineError
from disklab.machines import programs
from disklab.workloads.sysbench.output import OPERATION, Told

# Beyond the time that it was asked to take: connections with TLS and statements prepared for each
# table, and transactions under way at the end.
GRACE_SECONDS = 60.0
# A table is filled at the speed of a slow disk.
FILL_SECONDS = 3_600.0
END_SECONDS = 5.0
# What is kept of its last words.
MOST_LINES = 12
# Of each: a server that answers without end is quoted, not repeated.
MOST_SAID = 400
# Its longest line is a histogram's, of some 100 characters; what an answer of a server adds is cut.
MOST_BYTES = 64 << 10
TROUBLE = ("FATAL", "ERROR", "error:", "(last message repeated")


class Process:
    """A sysbench that runs; ends with the context, or when its time is over."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], most_s: float
    ) -> None:
        """Start it. `most_s`: after this time it is ended, and that is an error."""
        self._started_ns = time.time_ns()
        self._most_s = most_s
        self._last: deque[str] = deque(maxlen=MOST_LINES)
        self._before = resource.getrusage(resource.RUSAGE_CHILDREN)
        account = server_account()
        with _readable(command) as (words, script):
            self._process = self._start(
                words if account is None else account.command(words), script, environment
            )
        self._over = False
        self._limit = threading.Timer(most_s, self._end_it)
        self._limit.daemon = True
        self._limit.start()

    @staticmethod
    def _start(
        words: list[str], script: Sequence[int], environment: Mapping[str, str]
    ) -> programs.Process:
        # Lua looks for what a script requires in the working directory first: the root.
        return programs.start(
            words,
            handles=script,
            stdout=programs.PIPE,
            stderr=programs.STDOUT,
            variables=environment,
        )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def end(self) -> None:
        """End it, from any thread; nothing when it has ended."""
        if self._process.poll() is None:
            self._process.terminate()

    def lines(self) -> Iterator[str]:
        """Yield what it says. Raises MachineError when it ends with an error, or not in time."""
        assert self._process.stdout is not None
        # A longer line comes in pieces.
        for part in iter(partial(self._process.stdout.readline, MOST_BYTES), b""):
            line = part.decode(errors="replace")
            if any(word in line for word in TROUBLE):
                self._last.append(line.strip()[:MOST_SAID])
            yield line
        code = self._process.wait()
        said = "\n".join(dict.fromkeys(self._last)) or "it said nothing of why"
        if self._over:
            raise MachineError(
                f"sysbench did not end within {self._most_s:.0f} s: its transactions hang\n{said}"
            )
        if code != 0:
            raise MachineError(f"sysbench failed with code {code}: {said}")

    def cpu_ns(self) -> int:
        """Return the processor time of the process, after its end."""
        after, before = resource.getrusage(resource.RUSAGE_CHILDREN), self._before
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return round(used_s * 1e9)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process if it still runs."""
        self._limit.cancel()
        if self._process.poll() is None:
            self._process.terminate()
            self._process.ended(END_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _end_it(self) -> None:
        self._over = True
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)


class Measuring(Process):
    """A run of transactions."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        seconds: int | None,
        time_dilation: int = 1,
    ) -> None:
        """Start it; `seconds` as it was told, None: it ends after some transactions."""
        self._time_dilation = time_dilation
        self._open_loop = any(word.startswith("--rate=") for word in command)
        most_s = FILL_SECONDS if seconds is None else seconds + GRACE_SECONDS
        super().__init__(command, environment, most_s)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield its intervals, and at last the whole run."""
        told = Told(time_dilation=self._time_dilation)
        for line in self.lines():
            progress = told.take(line)
            if progress is not None:
                yield progress
        if not told.is_whole():
            raise MachineError("sysbench ended without its figures: another version than 1.0?")
        yield told.done(
            cpu_ns=self.cpu_ns(), started_unix_ns=self._started_ns, open_loop=self._open_loop
        )


class Filling(Process):
    """Making or dropping the tables: it says nothing that could be counted."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, rows: int
    ) -> None:
        """Start it; `rows` are there when it has ended."""
        self._rows = rows
        super().__init__(command, environment, FILL_SECONDS)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield the end."""
        for _ in self.lines():
            pass
        elapsed_s = (time.time_ns() - self._started_ns) / 1e9
        told = Told({"events": 0.0, "elapsed_s": elapsed_s})
        done: LoadDone = told.done(
            cpu_ns=self.cpu_ns(), started_unix_ns=self._started_ns, open_loop=False
        )
        yield done.model_copy(update={"operations": {OPERATION: _rows(done, self._rows)}})


@contextmanager
def _readable(command: Sequence[str]) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Yield a command with its script where another user may read it, and the open file.

    Our own script lies in the folder of this program, which may be open to its owner alone.
    """
    program, script, *options = command
    if not script.endswith(".lua"):
        yield [*command], ()
        return
    handle = os.memfd_create("script")
    try:
        os.write(handle, Path(script).read_bytes())
        yield [program, f"/proc/self/fd/{handle}", *options], (handle,)
    finally:
        os.close(handle)


def _rows(done: LoadDone, rows: int) -> object:
    return done.operations[OPERATION].model_copy(update={"count": rows})
