"""The three standard streams, which may be closed, full, or read by nobody.

What is written to one that fails is lost, and the command goes on: a rehearsal of an hour does not
end because somebody closed the terminal's pager. How it failed is told once, at the end.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from disklab.errors import MachineError

STANDARD = (0, 1, 2)


class Lenient(io.RawIOBase):
    """A descriptor that takes everything; its first failure is remembered."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.failure: OSError | None = None

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Return that it is."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Write what there is a reader for; return that all was written."""
        left = memoryview(data).cast("B")
        while left and self.failure is None:
            left = left[self._written(left) :]
        return len(data)

    def _written(self, data: memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # another program shares the terminal, and reads do not wait
            select.select([], [self._descriptor], [])
        except OSError as error:
            self.failure = error
        return 0


def open_missing() -> None:
    """Open the standard streams that are closed, so that no file of ours gets their number.

    Each is opened the other way round: to write to standard output fails as it should.
    """
    for descriptor in STANDARD:
        if not _is_open(descriptor):
            # The lowest free number is given, which is this one.
            opened = os.open(os.devnull, os.O_WRONLY if descriptor == 0 else os.O_RDONLY)
            os.set_inheritable(opened, True)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextmanager
def guarded() -> Iterator[None]:
    """Let no failure of the standard streams end what runs inside.

    At the end it raises MachineError where standard output could not be written. A reader that has
    seen enough, as `head`, is no failure. Streams that somebody else has put in place stay.
    """
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        yield
        return
    open_missing()
    out, notes = Lenient(1), Lenient(2)
    before = sys.stdout, sys.stderr
    for stream in before:
        if stream is not None:
            with suppress(OSError):
                stream.flush()
    sys.stdout = _text(out, before[0], "surrogateescape" if before[0] is None else None)
    sys.stderr = _text(notes, before[1], "backslashreplace")
    try:
        try:
            yield
        except SystemExit as ended:
            if ended.code:
                raise
            _check(out)
            raise
        _check(out)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if None not in before:
            sys.stdout, sys.stderr = before


def _check(out: Lenient) -> None:
    sys.stdout.flush()
    if out.failure is not None and out.failure.errno != errno.EPIPE:
        raise MachineError(
            f"standard output: {out.failure.strerror}: what was to be printed is lost; write it "
            "to a file that has room"
        )


def _text(raw: Lenient, before: io.TextIOBase | None, errors: str | None) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None) or "utf-8"
    handling = errors or getattr(before, "errors", None) or "strict"
    buffered = io.BufferedWriter(raw)  # type: ignore[type-var]
    interactive = raw.isatty() or raw.fileno() == 2
    return io.TextIOWrapper(buffered, encoding, handling, line_buffering=interactive)
