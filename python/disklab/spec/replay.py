"""A recorded trace as a workload: what the file says of it, and what it becomes on a volume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from disklab import traces
from disklab.errors import Problem
from disklab.spec.amounts import Part, Threads, Unreadable

if TYPE_CHECKING:
    from disklab.spec.model import TrialSpec

NS_PER_S = 1_000_000_000


class TraceReplay(Part):
    """A block trace, replayed on a device."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """Take a bare word as the file."""
        return {"file": given} if isinstance(given, str) else given

    file: str = Field(examples=["traces/orders.blkparse.txt"])
    """The trace, relative to the experiment file's folder: text of blkparse, a fio iolog of version
    3 (with `depth` also of 2), or a CSV of MSR Cambridge. `trace: FILE` says the same."""
    format: Literal["blkparse", "fio", "msr"] | None = Field(default=None, examples=["blkparse"])
    """Without it: as the first line tells."""
    device: Annotated[str, BeforeValidator(str)] | None = Field(default=None, examples=["8,0"])
    """Which device's I/Os to replay, if the trace has several: as it names them, `8,0` (blkparse),
    a file (fio), host and disk number, `usr.1` (MSR Cambridge)."""
    speed: Annotated[float, Field(gt=0, le=1000)] = Field(default=1.0, examples=[2])
    """How many times as fast the trace's clock runs: 2 offers its I/Os in half the time."""
    depth: Threads | None = Field(default=None, examples=[32])
    """Instead of the trace's times: as fast as the device allows, with this many I/Os in flight
    (closed loop)."""
    outside: traces.Outside = Field(default="refuse", examples=["wrap"])
    """I/Os beyond the end of the volume: refuse the trial, or wrap them modulo its size."""

    @model_validator(mode="after")
    def _one_pace(self) -> TraceReplay:
        if self.depth is not None and self.speed != 1:
            rule = "a depth replays as fast as the device lets it, whatever the speed"
            raise Unreadable(rule, "leave out depth or speed")
        return self


@dataclass(frozen=True)
class Replay:
    """A trace as it is replayed on a trial's volume."""

    placed: traces.Placed
    mixture: traces.Mixture
    """As it is offered: of the placed I/Os, at the speed that was asked for."""

    def notes(self) -> Iterator[str]:
        """Yield what a reader must know of it."""
        trace, count = self.placed.trace, len(self.placed.trace)
        for what, number in sorted(trace.left_out.items()):
            yield f"{number} {what} of the trace are left out: reads and writes are replayed"
        if self.placed.widened:
            yield (
                f"{self.placed.widened} of {count} I/Os of the trace are widened to whole sectors "
                "of 4 KiB"
            )
        if self.placed.wrapped:
            yield (
                f"{self.placed.wrapped} of {count} I/Os of the trace lie beyond the volume and are "
                "wrapped modulo its size: which of them are close to each other is not what it was"
            )


if TYPE_CHECKING:
    OwnReplay = Replay | None
else:
    # A trial is sent without it: privilege/requests.py has the form in which a trace is sent.
    OwnReplay = Annotated[
        Any,
        PlainValidator(lambda value: value if isinstance(value, Replay) else None),
        PlainSerializer(lambda _: None),
        WithJsonSchema({"type": "null"}),
    ]


@dataclass(frozen=True)
class _Source:
    """A file as it is now: one that was written again is read again."""

    path: Path
    changed_ns: int
    chosen: traces.Chosen
    place: str


@lru_cache(maxsize=4)
def _read(source: _Source) -> traces.Trace:
    return traces.read(source.path, source.chosen, source.place)


@lru_cache(maxsize=4)
def _laid(source: _Source, volume_bytes: int, speed: float) -> Replay:
    placed = traces.placed(_read(source), volume_bytes, speed)
    return Replay(placed, traces.mixture(placed.trace))


def replay_of(
    spec: TrialSpec, folder: Path, volume_bytes: int, place: str
) -> tuple[Replay | None, list[Problem]]:
    """Return the trace of a trial on its volume, and why it cannot be. Raises UserError.

    Cells of a matrix share a trace that they replay alike.
    """
    asked, stop = spec.workload.the(TraceReplay), spec.workload.stop
    path = folder / asked.file
    try:
        changed_ns = path.stat().st_mtime_ns
    except (OSError, ValueError):
        changed_ns = 0  # reading it tells what is wrong
    duration_s = stop.duration_s if stop else None
    chosen = traces.Chosen(
        untimed=asked.depth is not None,
        form=asked.format,
        device=asked.device,
        most_ios=stop.operations if stop else None,
        # Of the replay's time, which runs `speed` times as fast as the trace's.
        most_ns=None if duration_s is None else round(duration_s * asked.speed * NS_PER_S),
    )
    source = _Source(path, changed_ns, chosen, place)
    problems = list(_misfits(_read(source), asked, volume_bytes, place))
    if problems:
        return None, problems
    return _laid(source, volume_bytes, asked.speed), []


def _misfits(
    trace: traces.Trace, asked: TraceReplay, volume_bytes: int, place: str
) -> Iterator[Problem]:
    longest = max(trace.length_bytes) + 2 * traces.SECTOR_BYTES
    if longest > volume_bytes:
        rule = f"an I/O of {max(trace.length_bytes)} bytes does not fit into the volume"
        yield Problem(place, asked.file, rule, "choose a larger disk")
        return
    sector = traces.SECTOR_BYTES
    end = -(-trace.end_bytes // sector) * sector
    if asked.outside == "refuse" and end > volume_bytes:
        both = zip(trace.offset_bytes, trace.length_bytes, strict=True)
        beyond = sum(offset + length > volume_bytes for offset, length in both)
        rule = (
            f"{beyond} of {len(trace)} I/Os lie beyond the volume's {volume_bytes} bytes; the "
            f"farthest ends at {end}"
        )
        way_out = "choose a larger disk, or write outside: wrap, which changes their order"
        yield Problem(place, asked.file, rule, way_out)


def loop_of(replay: Replay, spec: TrialSpec) -> dict[str, Any]:
    """Return how I/Os were offered, as results tell it."""
    asked = spec.workload.the(TraceReplay)
    if asked.depth is not None:
        return {"kind": "closed", "jobs": 1, "depth": asked.depth}
    rate = replay.mixture.offered_per_s
    return {"kind": "open", "rate_per_s": rate, "arrivals": "trace"}


def record_of(replay: Replay, spec: TrialSpec) -> dict[str, Any]:
    """Return what results keep of a trace."""
    asked, mixture, placed = spec.workload.the(TraceReplay), replay.mixture, replay.placed
    told = asdict(mixture) | {
        "file": asked.file,
        "form": placed.trace.form,
        "device": placed.trace.device,
        "block_sizes": {str(size): share for size, share in mixture.block_sizes.items()},
        "widened": placed.widened,
        "wrapped": placed.wrapped,
        "left_out": dict(placed.trace.left_out),
    }
    return told | ({"offered_per_s": None} if asked.depth is not None else {})


__all__ = ["OwnReplay", "Replay", "TraceReplay", "loop_of", "record_of", "replay_of"]
