"""The files of a far host: read and written in parts, sent by their content."""

from __future__ import annotations

import base64
import hashlib
import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from disklab.errors import MachineError
from disklab.machines.answers import Asked, decoded, whole
from disklab.machines.link import LinkLostError

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
