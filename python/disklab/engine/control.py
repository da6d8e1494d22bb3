"""The control socket of an emulated host: one JSON object a line each way."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from disklab.catalog.profile import VolumeProfile
from disklab.engine.messages import AttachedVolume, CacheCounters, Hello, ListedVolume, View
from disklab.errors import EngineError, Problem, UserError

# The engine gives up on its own driver after 30 s; after that no answer will come.
ANSWER_SECONDS = 40.0
# Taking all the space of a large volume at once writes nothing but takes the file system's time.
ATTACH_SECONDS = 300.0
# A large cache takes a few seconds to fill block by block.
WARM_SECONDS = 120.0
CONNECT_SECONDS = 5.0
# Who answers `hello` has nothing to look up: a host that takes longer hangs.
HELLO_SECONDS = 5.0
# Bound of an answer: a view of many disks with long distributions has some hundred KiB.
MOST_ANSWER_BYTES = 64 << 20


class Control:
    """A connection to the control socket of one host. A context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CONNECT_SECONDS)
        self._received = b""
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise EngineError(
                f"{path}: the emulated host does not answer ({error.strerror or error}); "
                "see its log beside the socket, then run `disklab clean`"
            ) from error

    def __enter__(self) -> Control:
        """Return the connection."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._socket.close()

    def hello(self) -> Hello:
        """Ask who is there, and what the machine can do."""
        return Hello.model_validate(self._ask({"op": "hello"}, HELLO_SECONDS))

    def attach(
        self, volume: VolumeProfile, *, memory: bool = False, preallocate: bool = False
    ) -> AttachedVolume:
        """Make a volume and its block device."""
        backing = {"kind": "memory" if memory else "file", "preallocate": preallocate}
        request = {"op": "attach", "volume": volume.model_dump(), "backing": backing}
        return AttachedVolume.model_validate(self._ask(request, ATTACH_SECONDS))

    def detach(self, volume: str, *, delete_data: bool = False) -> str | None:
        """Take a volume and its device away; refused while somebody uses it.

        Returns what is wrong with data that stay; None: this machine's disk has taken them.
        """
        request = {"op": "detach", "volume": volume, "delete_data": delete_data}
        problem = self._ask(request).get("problem")
        return None if problem is None else str(problem)

    def volumes(self) -> list[ListedVolume]:
        """Return what is attached."""
        return [ListedVolume.model_validate(one) for one in self._ask({"op": "list"})["volumes"]]

    def show(self, volume: str) -> View:
        """Return profile, counters and faults of a volume."""
        return View.model_validate(self._ask({"op": "show", "volume": volume}))

    def change(self, volume: str, change: dict[str, Any]) -> VolumeProfile:
        """Change a running volume; return its profile as it is then."""
        answer = self._ask({"op": "set", "volume": volume, "change": change})
        return VolumeProfile.model_validate(answer["profile"])

    def fail(self, volume: str, fault: dict[str, Any]) -> None:
        """Break or mend something."""
        self._ask({"op": "fail", "volume": volume, "fault": fault})

    def warm(self, volume: str, ranges: Iterable[tuple[int, int]] | None = None) -> CacheCounters:
        """Fill the host cache with ranges (offset, length; bytes), as if just read in this order.

        None: with all that was ever written to the volume. Returns what the cache holds then.
        Raises UserError for a volume that does not use the host cache.
        """
        request: dict[str, Any] = {"op": "warm", "volume": volume}
        if ranges is not None:
            request["ranges"] = [{"offset_bytes": at, "len_bytes": size} for at, size in ranges]
        return CacheCounters.model_validate(self._ask(request, WARM_SECONDS)["cache"])

    def drop_cache(self, volume: str) -> CacheCounters:
        """Empty a volume's part of the host cache, but for dirty data; return what stays."""
        answer = self._ask({"op": "drop-cache", "volume": volume})
        return CacheCounters.model_validate(answer["cache"])

    def set_credits(self, share: float) -> None:
        """Set the burst credits of VM and disks to a share (0 to 1) of full buckets."""
        self._ask({"op": "credits", "ppm": round(share * 1_000_000)})

    def dilate(self, factor: int) -> None:
        """Let the host's time run so much slower than this machine's from now on, its disks too.

        Counters and lateness are in its own time.
        """
        self._ask({"op": "time-dilation", "factor": factor})

    def shutdown(self, *, discard: bool = False) -> list[str]:
        """End the host; refused while a device of it is in use.

        Returns what is wrong with data that stay; `discard`: they are removed next.
        """
        answer = self._ask({"op": "shutdown", "discard": discard})
        return [str(one) for one in answer.get("problems", [])]

    def _ask(self, request: dict[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Send one request; return its answer. Raises UserError for a refusal."""
        self._socket.settimeout(seconds)
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(self._line())
        except TimeoutError as error:
            raise EngineError(
                f"{self._path}: no answer to {request['op']!r} within {seconds:.0f} s; "
                "the host hangs: run `disklab clean`"
            ) from error
        except (OSError, ValueError) as error:
            raise EngineError(
                f"{self._path}: the answer to {request['op']!r} broke off ({error}); "
                "see the log beside the socket"
            ) from error
        if answer.pop("ok", None) is True:
            return dict(answer)
        raise refusal(answer.get("error"))

    def _line(self) -> bytes:
        """Return the next whole line."""
        while b"\n" not in self._received:
            part = self._socket.recv(1 << 16)
            if not part:
                raise OSError("the other end closed")
            self._received += part
            if len(self._received) > MOST_ANSWER_BYTES:
                raise OSError("the answer has no end")
        line, _, self._received = self._received.partition(b"\n")
        return line


def refusal(parts: object) -> UserError | EngineError:
    """Return the engine's error in the words of this side."""
    if not isinstance(parts, dict):
        return EngineError(f"the engine refused without a reason: {parts!r}")
    texts = (str(parts.get(key, "")) for key in ("place", "value", "rule", "way_out"))
    return UserError(Problem(*texts))
