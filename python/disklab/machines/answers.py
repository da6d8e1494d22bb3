"""What an agent answers, taken apart with care; and who may be asked."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Protocol

from disklab.errors import MachineError


class Asked(Protocol):
    """A far machine as its programs and files see it."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    def ask(self, operation: str, *, seconds: float = ..., **fields: Any) -> dict[str, Any]:
        """Ask the agent, again when the link was lost meanwhile."""

    def tail(
        self, job: str, offset: int, *, stream: str = ..., wait_ms: int = ...
    ) -> tuple[bytes, bool]:
        """Return what a job has said from an offset on, and whether that is the end."""

    def forget(self, job: str) -> None:
        """Let the host remove what it knows of a job."""

    def distrust(self, what: str) -> MachineError:
        """Return the error for a host that does what no agent does."""


def whole(place: str, answer: dict[str, Any], name: str) -> int:
    """Return a number of an answer of this host, from 0 to below 2^63."""
    value = answer.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise MachineError(f"{place}: its agent answered without a right `{name}`")
    return value


def decoded(place: str, answer: dict[str, Any], name: str, most_bytes: int) -> bytes:
    """Return bytes of an answer; raises MachineError for none, or more than were asked for."""
    value = answer.get(name)
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or len(data) > most_bytes:
        raise MachineError(f"{place}: its agent answered without a right `{name}`")
    return data


def exit_code(place: str, program: str, answer: dict[str, Any], seconds: float) -> int:
    """Return the exit code of a job that has ended; raises MachineError when it was not its own."""
    ended = answer.get("ended")
    if not isinstance(ended, dict):
        raise MachineError(
            f"{place}: {program} is gone without an exit code: the host was restarted, or its "
            "keeper was killed (a system that ends a user's programs when he logs out: "
            "`loginctl enable-linger`)"
        )
    code, why = ended.get("code"), ended.get("why")
    if why == "timeout":
        raise MachineError(f"{place}: {program} still ran after {seconds:g} s")
    if why == "spool":
        raise MachineError(f"{place}: {program} was ended: it wrote more than a spool may hold")
    if why == "lease":
        raise MachineError(
            f"{place}: {program} was ended there: nothing was heard of us for as long as its lease"
        )
    if not isinstance(code, int) or not -128 <= code <= 255:
        raise MachineError(f"{place}: its agent answered without a right exit code of {program}")
    return code
