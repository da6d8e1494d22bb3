"""What the caller's part may ask of root's: a closed list, each with its types.

Nothing else is answered. No request names a path: what is made lies in the run and data directories
of root's environment, under names that root's part chooses.
"""

from __future__ import annotations

import base64
import binascii
from array import array
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from disklab import traces
from disklab.catalog import Catalog
from disklab.database_settings import setting_problems
from disklab.errors import MachineError, refuse
from disklab.events import PhaseStarted, Progress, TimedStep, Warned
from disklab.hosts.places import check_name
from disklab.privilege.talk import Forms, Said
from disklab.probe.known import disk_of, resolved
from disklab.procedures.turn import Turn
from disklab.results import Second, TrialResult, Whole
from disklab.spec import Trial
from disklab.spec.replay import Replay
from disklab.traces.formats import MOST_DEVICES, MOST_IOS
from disklab.waiting import Waiting

# A block trace on its way to root's part: its columns and a few words, and no path.

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


_STRICT = ConfigDict(extra="forbid", frozen=True)
MOST_TURNS = 100_000
"""Of one rehearsal: at a second each, more than a day of them."""


@checked(config=_STRICT)
class Check:
    """Look whether this machine can rehearse these turns; fetch what is to be fetched for it."""

    trials: list[Trial]
    turns: list[Turn]
    catalog: Catalog
    traces_write_bytes: int = 0
    """What a trace of these turns writes, at most: its disk's image has to have room for it."""


@checked(config=_STRICT)
class Begin:
    """Take away what a killed rehearsal left, and keep what all turns have in common."""

    catalog: Catalog
    title: str
    run_id: str
    seed: int


@checked(config=_STRICT)
class TakeTurn:
    """Run one turn on a bed of emulated hosts; it is built when another one stands, or none."""

    turn: Turn
    trace: Columns | None = None
    """What is replayed, of a turn that replays a trace."""


@checked(config=_STRICT)
class Close:
    """Take the standing bed away."""


Request = Check | Begin | TakeTurn | Close
REQUESTS: dict[str, TypeAdapter[Any]] = {
    "check": TypeAdapter(Check),
    "begin": TypeAdapter(Begin),
    "turn": TypeAdapter(TakeTurn),
    "close": TypeAdapter(Close),
}
"""The whole list."""


@dataclass(frozen=True)
class Row:
    """A figure of the telemetry."""

    phase: str
    t_s: float
    source: str
    metric: str
    value: float


@dataclass(frozen=True)
class LogPart:
    """A part of a log of a database, in its order."""

    name: str
    data: str
    """Base64."""


@dataclass(frozen=True)
class Opened:
    """A bed stands, and its trial is about to be written down."""


Told = (
    PhaseStarted
    | Progress
    | TimedStep
    | Waiting
    | Warned
    | Second
    | Whole
    | Row
    | LogPart
    | Opened
    | Said
)
TOLD: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (
        *(PhaseStarted, Progress, TimedStep, Waiting, Warned),
        *(Second, Whole, Row, LogPart, Opened, Said),
    )
}
"""What root's part tells while it works."""

ANSWERS: dict[str, TypeAdapter[Any]] = {
    "check": TypeAdapter(dict[str, str]),
    "begin": TypeAdapter(Literal[None]),
    "turn": TypeAdapter(TrialResult),
    "close": TypeAdapter(Literal[None]),
}

_NAME_OF: dict[type, str] = {Check: "check", Begin: "begin", TakeTurn: "turn", Close: "close"}


FORMS = Forms(REQUESTS, _NAME_OF, TOLD, ANSWERS)


def request_of(message: dict[str, Any]) -> tuple[str, Request]:
    """Return what a message asks. Raises MachineError for what is not in the list, or not so."""
    name, found = FORMS.request_of(message)
    request: Request = found
    turns = request.turns if isinstance(request, Check) else []
    turns = [request.turn] if isinstance(request, TakeTurn) else turns
    if len(turns) > MOST_TURNS:
        raise MachineError(f"refused: {len(turns)} turns are more than {MOST_TURNS}")
    for turn in turns:
        _check_names(turn)
        _check_settings(turn)
    if isinstance(request, TakeTurn):
        request = replace(request, turn=_with_trace(request.turn, request.trace), trace=None)
    return name, request


def _with_trace(turn: Turn, columns: Columns | None) -> Turn:
    """Return a turn with what it replays. Raises MachineError when it has none, or one too many."""
    device = turn.trial.spec.device
    wanted = turn.trial.spec.workload.trace is not None
    if wanted != (columns is not None) or (wanted and device is None):
        raise MachineError("refused: a turn that replays a trace, and no other, has its columns")
    if columns is None or device is None:
        return turn
    volume = device.volume
    volume_bytes = volume.size_bytes or resolved(disk_of(turn.trial)).volume.size_bytes
    return replace(turn, trial=replace(turn.trial, replay=replay_of(columns, volume_bytes)))


def _check_names(turn: Turn) -> None:
    """Raise UserError for names that would become paths elsewhere."""
    cluster = turn.trial.spec.cluster
    for volume in () if cluster is None else cluster.volumes:
        check_name(volume, "cluster.volumes")


def _check_settings(turn: Turn) -> None:
    """Raise UserError for settings of a database that no experiment may have."""
    database = turn.spec.database
    refuse([] if database is None else setting_problems(database.engine, database.settings))


def without_wishes(turn: Turn) -> Turn:
    """Return a turn without what its run is judged by: that is nothing of root's."""
    spec = turn.trial.spec.model_copy(update={"require": None, "failures": None})
    return replace(turn, trial=replace(turn.trial, spec=spec))
