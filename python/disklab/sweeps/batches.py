"""Jobs in batches: what is sent to another machine at once, and asked again when that is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from operator import length_hint
from typing import Any

from disklab.errors import EngineError

AIMED_SECONDS = 2.0
"""A batch should take so long: below, starting an engine (10 ms) and sending count; above, more is
lost with a machine and the last batch leaves the others idle for longer."""
MOST_JOBS = 512
MOST_BYTES = 512 << 10
"""A request to a host over SSH holds 1 MiB, of which base64 takes a quarter."""
GROWTH = 2
PARTS_LEFT = 3
"""What is left of a sweep is shared out in so many batches a core, so that the last ones are short
and no core waits for another for long: of 1,000 cells of 70 ms, batches of two seconds left one of
two cores idle for up to a tenth of the time."""
LEAST_SECONDS = 0.2
"""Yet no batch is made shorter than this for it: an engine starts in 10 ms."""
MOST_TRIES = 5
"""A batch that so many machines have died of is given up: it may be what kills them."""


@dataclass(eq=False)
class Batch:
    """Some jobs of a sweep."""

    lines: bytes
    """One JSON object a line, as the engine reads them."""
    jobs: int
    tries: int = 0
    sent: float = 0.0

    def starts(self) -> None:
        """Note that it is sent."""
        self.tries += 1
        self.sent = time.monotonic()

    def lost(self, why: str) -> None:
        """Note that whoever had it is gone. Raises EngineError when it was sent often enough."""
        if self.tries >= MOST_TRIES:
            raise EngineError(
                f"{self.jobs} cells were sent {self.tries} times, and each time who had them was "
                f"lost; the last time: {why}. Perhaps they need more memory than a worker has: "
                "give fewer workers a machine, or leave --cluster out"
            )

    def answers(self, output: bytes) -> list[Any]:
        """Return the answers in what the engine has printed. Raises EngineError: not all there."""
        answers = [json.loads(line) for line in output.splitlines()]
        if not answers or answers.pop()["event"] != "done" or len(answers) != self.jobs:
            raise EngineError(
                f"disklab-engine simulate answered {len(answers)} of {self.jobs} cells and ended"
            )
        return answers


class Batches:
    """The batches of a sweep, larger as it shows how long a job takes. Not for several threads."""

    def __init__(self, jobs: Iterable[dict[str, Any]]) -> None:
        self._left = length_hint(jobs, 0)
        """Jobs that were not sent yet; 0: that is not known, or none is left."""
        self._least = 1
        self._lines = (json.dumps(job, separators=(",", ":")).encode() + b"\n" for job in jobs)
        self._next: bytes | None = None
        self._again: list[Batch] = []
        self._size = 1

    def take(self, cores: int = 1) -> Batch | None:
        """Return the next one; None: there is none left for now. `cores`: how many are at work."""
        if self._again:
            return self._again.pop()
        lines: list[bytes] = []
        size, most = 0, self._size
        if self._left > 0:
            most = min(most, max(self._least, self._left // (PARTS_LEFT * max(1, cores))))
        while len(lines) < most and (line := self._following()) is not None:
            if lines and size + len(line) > MOST_BYTES:
                self._next = line
                break
            lines.append(line)
            size += len(line)
        self._left = max(0, self._left - len(lines))
        return Batch(b"".join(lines), len(lines)) if lines else None

    def again(self, batch: Batch, why: str) -> None:
        """Take back what was sent and got lost. Raises EngineError when that was too often."""
        batch.lost(why)
        self._again.append(batch)

    def took(self, batch: Batch, seconds: float) -> None:
        """Learn from a batch that was answered how large the next ones should be."""
        each = max(seconds / batch.jobs, 1e-6)
        wanted = AIMED_SECONDS / each
        self._least = max(1, int(min(LEAST_SECONDS / each, MOST_JOBS)))
        self._size = max(1, int(min(wanted, GROWTH * max(self._size, batch.jobs), MOST_JOBS)))

    def _following(self) -> bytes | None:
        if self._next is not None:
            line, self._next = self._next, None
            return line
        return next(self._lines, None)
