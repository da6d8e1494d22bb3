"""A block trace on its way to root's part: its columns and a few words, and no path."""

from __future__ import annotations

import base64
import binascii
from array import array
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked

from disklab import traces
from disklab.errors import MachineError
from disklab.spec.replay import Replay
from disklab.traces.formats import MOST_DEVICES, MOST_IOS

_NUMBER_BYTES = 8
_MOST_CHARACTERS = -(-MOST_IOS * _NUMBER_BYTES // 3) * 4
Column = Annotated[str, Field(max_length=_MOST_CHARACTERS)]
"""Base64 of whole numbers of 64 bits, as this machine keeps them."""
Count = Annotated[int, Field(ge=0, le=1 << 53)]
Words = Annotated[str, Field(max_length=4096)]


@checked(config=ConfigDict(extra="forbid", frozen=True))
class Columns:
    """A trace as it lies on a turn's volume: at most a million I/Os."""

    form: Literal["blkparse", "fio", "msr"]
    device: Words
    """As the trace names it; only told in the result."""
    at_ns: Column
    offset_bytes: Column
    length_bytes: Column
    is_write: Annotated[str, Field(max_length=_MOST_CHARACTERS)]
    """Base64 of a byte for each I/O, 0 or 1."""
    left_out: Annotated[dict[Words, Count], Field(max_length=MOST_DEVICES)]
    widened: Count
    wrapped: Count


def columns_of(replay: Replay) -> Columns:
    """Return a trace as a request has it."""
    placed, trace = replay.placed, replay.placed.trace
    return Columns(
        form=trace.form,  # type: ignore[arg-type]  # one of three, by whichever reader took it
        device=trace.device,
        at_ns=_text(trace.at_ns.tobytes()),
        offset_bytes=_text(trace.offset_bytes.tobytes()),
        length_bytes=_text(trace.length_bytes.tobytes()),
        is_write=_text(bytes(trace.is_write)),
        left_out=dict(trace.left_out),
        widened=placed.widened,
        wrapped=placed.wrapped,
    )


def replay_of(columns: Columns, volume_bytes: int) -> Replay:
    """Return what a request has as a trace on a volume of that size.

    Raises MachineError when it is none: columns of unequal lengths, times that go back, I/Os that
    are no whole sectors or lie outside of the volume.
    """
    at, offsets, lengths = map(
        _numbers, (columns.at_ns, columns.offset_bytes, columns.length_bytes)
    )
    writes = bytearray(_bytes(columns.is_write))
    if not 0 < len(at) == len(offsets) == len(lengths) == len(writes) <= MOST_IOS:
        raise MachineError("refused: the columns of a trace have one length, and at least one I/O")
    sector, last = traces.SECTOR_BYTES, 0
    for when, offset, length, write in zip(at, offsets, lengths, writes, strict=True):
        if when < last or write > 1:
            raise MachineError(
                "refused: the times of a trace do not go back, and I/Os read or write"
            )
        last = when
        whole = offset % sector == 0 == length % sector
        if not whole or offset < 0 or length <= 0 or length > volume_bytes - offset:
            rule = f"whole sectors of the volume's {volume_bytes} bytes"
            raise MachineError(f"refused: {length} bytes at {offset} of a trace are not {rule}")
    trace = traces.Trace(
        columns.form, columns.device, at, offsets, lengths, writes, dict(columns.left_out)
    )
    placed = traces.Placed(trace, columns.widened, columns.wrapped)
    return Replay(placed, traces.mixture(trace))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MachineError("refused: a column of a trace is not base64") from None


def _numbers(text: str) -> array[int]:
    data = _bytes(text)
    if len(data) % _NUMBER_BYTES:
        raise MachineError("refused: a column of a trace has whole numbers of 64 bits")
    found = array("q")
    found.frombytes(data)
    return found
