"""The newest counters of a machine: read here when asked, or once a second by its agent.

What the agent reads is spooled on its host, so a link that is lost for a while costs no second.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from types import TracebackType

from disklab.errors import MachineError
from disklab.machines.far_child import SshChild
from disklab.machines.protocol import Files


class FileCounters:
    """`Counters` of a machine whose files this process reads itself."""

    def __init__(self, files: Files, paths: Sequence[PurePosixPath]) -> None:
        self._files = files
        self._paths = list(paths)

    def __enter__(self) -> FileCounters:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
