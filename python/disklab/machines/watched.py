"""The newest counters of a machine: read here when asked, or once a second by its agent.

What the agent reads is spooled on its host, so a link that is lost for a while costs no second.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path, PurePosixPath
from signal import SIGKILL, SIGTERM
from typing import Any, BinaryIO, Protocol

from disklab.errors import MachineError
from disklab.machines.link import Asked, LinkLostError, decoded, exit_code, whole
from disklab.machines.protocol import Files, Finished

# The files of a far host: read and written in parts, sent by their content.

CHUNK_BYTES = 256 << 10
MOST_NAMES = 10_000
MOST_GET_BYTES = 16 << 30
"""The largest file that is fetched, as the largest that is sent."""
AT_ONCE = 8
"""Parts that are under way: a line of 100 MB/s and 20 ms is kept busy."""
SECONDS = 60.0
LINK_TRIES = 20
"""A link that is lost so often in one file carries none."""


class Sending(Asked, Protocol):
    """Who can be sent to without waiting for each answer."""

    def send(self, operation: str, **fields: Any) -> Future[dict[str, Any]]:
        """Ask, and return the answer to come; raises LinkLostError."""


class SshFiles:
    """The files of a far host. See `Files`."""

    def __init__(self, machine: Sending) -> None:
        self._machine = machine

    def read(self, path: PurePosixPath, most_bytes: int = 1 << 20) -> bytes:
        """Return a file; raises MachineError: absent, or larger."""
        data = bytearray()
        for part in self._parts(path, most_bytes):
            data += part
        if len(data) > most_bytes:
            raise MachineError(f"{self._machine.name}: {path} is larger than {most_bytes} bytes")
        return bytes(data)

    def _parts(self, path: PurePosixPath, most_bytes: int) -> Iterator[bytes]:
        """Yield a file in parts, at most a byte more than asked for."""
        offset, identity = 0, None
        while True:
            wanted = min(CHUNK_BYTES, most_bytes + 1 - offset)
            answer = self._machine.ask("read", path=str(path), offset=offset, most_bytes=wanted)
            if identity not in (None, answer.get("identity")):
                raise MachineError(
                    f"{self._machine.name}: {path} was replaced while it was read; read it again"
                )
            identity = answer.get("identity")
            part = decoded(self._machine.name, answer, "data", wanted)
            offset += len(part)
            yield part
            if answer.get("end") is True or offset > most_bytes or not part:
                return

    def write(self, path: PurePosixPath, data: bytes, mode: int = 0o600) -> None:
        """Write a file whole; a link in its place is replaced, not followed."""
        if len(data) <= CHUNK_BYTES:
            text = base64.b64encode(data).decode()
            self._machine.ask("write", path=str(path), data=text, mode=mode)
        else:
            self._send(io.BytesIO(data), path, mode)

    def names(self, folder: PurePosixPath) -> list[str]:
        """Return the sorted names in a folder."""
        found = self._machine.ask("names", path=str(folder)).get("names")
        if not isinstance(found, list) or len(found) > MOST_NAMES:
            raise self._machine.distrust("it lists a folder as no agent does")
        for name in found:
            # A name that is a path would lead whoever joins it elsewhere.
            if not isinstance(name, str) or "/" in name or "\0" in name or name in ("", ".", ".."):
                raise self._machine.distrust("it lists names that no folder holds")
        return sorted(found)

    def put(self, source: Path, path: PurePosixPath, mode: int = 0o600) -> None:
        """Copy a file there; nothing is sent when it is there with this content."""
        try:
            with source.open("rb") as file:
                self._send(file, path, mode)
        except OSError as error:
            raise MachineError(f"{source}: {error.strerror or error}") from error

    def _send(self, file: BinaryIO, path: PurePosixPath, mode: int) -> None:
        digest, size = hashlib.sha256(), 0
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
        content = {"path": str(path), "sha256": digest.hexdigest()}
        whole_file = {**content, "size_bytes": size, "mode": mode}
        for _ in range(LINK_TRIES):
            begun = self._machine.ask("put-begin", seconds=SECONDS, **whole_file)
            if begun.get("have") is True:
                return
            offset = whole(self._machine.name, begun, "offset")
            if offset > size:
                raise self._machine.distrust("it has more of a file than there is")
            file.seek(offset)
            try:
                self._send_parts(file, offset, content)
            except LinkLostError:
                # It tells what it has when it is there again.
                continue
            self._machine.ask("put-end", seconds=10 * SECONDS, **whole_file)
            return
        raise MachineError(
            f"{self._machine.name}: the link was lost {LINK_TRIES} times while {path} was sent"
        )

    def _send_parts(self, file: BinaryIO, offset: int, content: dict[str, str]) -> None:
        under_way: deque[Future[dict[str, Any]]] = deque()
        while chunk := file.read(CHUNK_BYTES):
            data = base64.b64encode(chunk).decode()
            sent = self._machine.send("put-chunk", offset=offset, data=data, **content)
            under_way.append(sent)
            offset += len(chunk)
            if len(under_way) >= AT_ONCE:
                under_way.popleft().result(SECONDS)
        while under_way:
            under_way.popleft().result(SECONDS)

    def get(self, path: PurePosixPath, target: Path) -> None:
        """Copy a file to a new one; raises MachineError when the new one is there already."""
        try:
            with target.open("xb") as file:
                try:
                    self._fetch(path, file)
                except BaseException:
                    with suppress(OSError):
                        target.unlink()
                    raise
        except OSError as error:
            raise MachineError(f"{target}: {error.strerror or error}") from error

    def _fetch(self, path: PurePosixPath, file: BinaryIO) -> None:
        written = 0
        for part in self._parts(path, MOST_GET_BYTES):
            written += len(part)
            if written > MOST_GET_BYTES:
                raise MachineError(
                    f"{self._machine.name}: {path} is larger than {MOST_GET_BYTES >> 30} GiB"
                )
            file.write(part)


# A program on a far host: a job there, whose output is read from where it was left.

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

    def __exit__(self, *error: object) -> None:
        """End it as `end` does; a machine that is gone hides no error of the body."""
        if error == (None, None, None):
            self.end()
        else:
            with suppress(MachineError):
                self.end()


class FileCounters:
    """`Counters` of a machine whose files this process reads itself."""

    def __init__(self, files: Files, paths: Sequence[PurePosixPath]) -> None:
        self._files = files
        self._paths = list(paths)

    def __enter__(self) -> FileCounters:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""

    def latest(self) -> tuple[float, Mapping[str, str]]:
        """Read them now."""
        texts = {
            str(path): self._files.read(path).decode("ascii", "replace") for path in self._paths
        }
        return time.monotonic(), texts


class SpooledCounters:
    """`Counters` of a host over SSH."""

    def __init__(
        self, name: str, paths: Sequence[PurePosixPath], start: Callable[[], SshChild]
    ) -> None:
        """Take the host's name, and what starts the job of its agent: see `SshMachine.watch`."""
        self._name = name
        self._paths = frozenset(map(str, paths))
        self._start = start
        self._child: SshChild | None = None
        self._lock = threading.Lock()
        self._at_s = 0.0
        self._texts: dict[str, str] = {}

    def __enter__(self) -> SpooledCounters:
        """Begin to watch. A host that cannot be watched is measured all the same."""
        with suppress(MachineError):
            self._child = self._start()
            name, lines = f"counters of {self._name}", self._child.lines()
            threading.Thread(target=self._follow, args=(lines,), name=name, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it. A host that is gone is told of by others."""
        if self._child is not None:
            with suppress(MachineError):
                self._child.end()

    def latest(self) -> tuple[float, Mapping[str, str]]:
        """Return what the agent read last."""
        with self._lock:
            return self._at_s, dict(self._texts)

    def _follow(self, lines: Iterator[bytes]) -> None:
        # What is gone is told of by others; a source that says nothing more is telemetry's end.
        with suppress(MachineError):
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        """Take a line of the agent; one that is none is left out."""
        with suppress(ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            tick = json.loads(line)
            at_s = int(tick["mono_ns"]) / 1e9
            changed = {
                name: base64.b64decode(data).decode("ascii", "replace")
                for name, data in tick["files"].items()
                if name in self._paths and isinstance(data, str)
            }
            with self._lock:
                self._at_s = at_s
                self._texts |= changed
