"""A program on a far host: a job there, whose output is read from where it was left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from signal import SIGKILL, SIGTERM
from types import TracebackType

from disklab.errors import MachineError
from disklab.machines.answers import Asked, decoded, exit_code
from disklab.machines.protocol import Finished

END_SECONDS = 5.0
LINE_BYTES = 64 << 20
"""The longest line, as on this machine."""
WAIT_MS = 10_000
KILL_SECONDS = 30.0
STDERR_BYTES = 64 << 10


class SshChild:
    """A `Child` of a far host. `job` and `offset` are all that a later process needs to go on."""

    def __init__(self, machine: Asked, job: str, program: str, pid: int, offset: int = 0) -> None:
        self._machine = machine
        self._program = program
        self._pid = pid
        self._offset = offset
        self._ended: Finished | None = None
        self.job = job

    @property
    def pid(self) -> int:
        """Its number on its machine."""
        return self._pid

    @property
    def offset(self) -> int:
        """The bytes of its standard output whose lines were yielded."""
        return self._offset

    def lines(self) -> Iterator[bytes]:
        """Yield each line as it comes, from `offset` on. See `Child.lines`."""
        rest = bytearray()
        while True:
            part, ended = self._machine.tail(self.job, self._offset + len(rest))
            rest += part
            if len(rest) > LINE_BYTES:
                raise MachineError(
                    f"{self._machine.name}: {self._program} wrote a line of more than "
                    f"{LINE_BYTES >> 20} MiB"
                )
            if b"\n" in part:
                *lines, last = bytes(rest).split(b"\n")
                rest = bytearray(last)
                for line in lines:
                    # Before it is yielded: whoever has the line has its offset.
                    self._offset += len(line) + 1
                    yield line
            if ended:
                if rest:
                    self._offset += len(rest)
                    yield bytes(rest)
                return

    def signal(self, number: int) -> None:
        """Send a signal to it and its children; none when it has ended."""
        self._machine.ask("signal", job=self.job, number=int(number))

    def wait(self, seconds: float | None = None) -> Finished | None:
        """Wait for its end. See `Child.wait`."""
        if self._ended is not None:
            return self._ended
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left_ms = WAIT_MS
            if deadline is not None:
                left_ms = min(WAIT_MS, max(0, int((deadline - time.monotonic()) * 1000)))
            answer = self._machine.ask("wait", job=self.job, wait_ms=left_ms)
            if answer.get("ended") is not None or answer.get("lost"):
                code = exit_code(self._machine.name, self._program, answer, 0.0)
                self._ended = Finished(
                    code, b"", decoded(self._machine.name, answer, "stderr", STDERR_BYTES)
                )
                return self._ended
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def end(self) -> None:
        """End it and its children: SIGTERM, 5 seconds, SIGKILL; the host forgets it."""
        try:
            if self.wait(0.0) is None:
                self.signal(SIGTERM)
                self.wait(END_SECONDS)
            # Its children may be there when it is gone.
            self.signal(SIGKILL)
            if self.wait(KILL_SECONDS) is None:
                raise MachineError(
                    f"{self._machine.name}: {self._program} (process {self._pid}) cannot be "
                    "killed: its disk hangs"
                )
        finally:
            self._machine.forget(self.job)

    def __enter__(self) -> SshChild:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it as `end` does; a machine that is gone hides no error of the body."""
        if error is None:
            self.end()
        else:
            with suppress(MachineError):
                self.end()
