"""Probes one subject cell by cell and tells what happens as events of a run; prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from disklab.engine.messages import Envelope, View
from disklab.errors import Problem, UserError, refuse
from disklab.events import PhaseStarted, Progress
from disklab.probe import cells, verdict
from disklab.probe.cells import Cell, Direction, Load, Plan, Profile, format_size
from disklab.probe.fio import Job, Measurement, Tick
from disklab.probe.promise import SPENT, Placement, Promise, State, owed_now, promise
from disklab.probe.target import Region
from disklab.probe.verdict import Telemetry, Verdict
from disklab.spec.fio import FIO_MIXES, FIO_READS
from disklab.telemetry.gaps import Pulse

# What the user asked of the probe, checked before anything happens on the machine.

Item = TypeVar("Item")
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True)
class Request:
    """The command line's options as given; None where the default stands."""

    profile: str = "both"
    directions: str | None = None
    rwmixread: int | None = None
    blocks: str | None = None
    duration: str | None = None
    size: str | None = None
    engine: str = "libaio"
    quick: bool = False
    jobs: int | None = None
    depth: int | None = None

    @property
    def words(self) -> list[str]:
        """Return it as `disklab probe` is told it: the options that were given."""
        given = {
            "--profile": self.profile,
            "--jobs": self.jobs,
            "--depth": self.depth,
            "--rw": self.directions,
            "--rwmixread": self.rwmixread,
            "--bs": self.blocks,
            "--duration": self.duration,
            "--size": self.size,
            "--engine": self.engine,
        }
        told = [(name, str(value)) for name, value in given.items() if value is not None]
        return [word for pair in told for word in pair] + ["--quick"] * self.quick


def plan_of(request: Request) -> Plan:
    """Return the plan, or a user error with every option that is wrong."""
    problems: list[Problem] = []

    def checked(parse: Callable[[], Item], instead: Item) -> Item:
        try:
            return parse()
        except UserError as error:
            problems.extend(error.problems)
            return instead

    quick = request.quick
    default_blocks = cells.QUICK_BLOCKS if quick else cells.DEFAULT_BLOCKS
    default_s = cells.QUICK_DURATION_S if quick else cells.DEFAULT_DURATION_S
    default_bytes = cells.QUICK_SIZE_BYTES if quick else cells.DEFAULT_SIZE_BYTES
    blocks, duration, size = request.blocks, request.duration, request.size
    plan = Plan(
        cells=cells.cells(
            checked(lambda: loads_of(request), ()),
            checked(lambda: directions_of(request.directions, request.rwmixread), ()),
            checked(lambda: blocks_of(blocks), ()) if blocks else default_blocks,
        ),
        duration_s=checked(lambda: cells.parse_duration(duration), 0.0) if duration else default_s,
        size_bytes=checked(lambda: size_of(size), 0) if size else default_bytes,
        engine=checked(lambda: known(request.engine, "--engine", cells.ENGINES), cells.ENGINES[0]),
    )
    refuse(problems)
    largest = max(cell.block_bytes for cell in plan.cells)
    if plan.size_bytes < largest:
        rule = f"the region is smaller than one block of {cells.format_size(largest)}"
        raise UserError(Problem("--size", str(request.size), rule, "give a larger one"))
    return plan


def loads_of(request: Request) -> tuple[Load, ...]:
    """Return the loads of the profiles, each with the jobs and the depth that were asked for."""
    known = [cells.LOADS[profile] for profile in profiles_of(request.profile)]
    return tuple(Load(request.jobs or one.jobs, request.depth or one.depth) for one in known)


def parts(text: str) -> list[str]:
    """Split a comma list and drop repetitions."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def profiles_of(text: str) -> tuple[Profile, ...]:
    """Return the profiles named by `sync`, `async` or `both`."""
    if text == "both":
        return (Profile.SYNC, Profile.ASYNC)
    return (Profile(known(text, "--profile", ["sync", "async", "both"])),)


def directions_of(text: str | None, rwmixread: int | None = None) -> tuple[Direction, ...]:
    """Return the directions of a comma list; random reads and writes when there is none.

    `rwmixread`: the share of reads in the mixes among them, in per cent.
    """
    names = ["randread", "randwrite"] if text is None else parts(text)
    asked = [known(name, "--rw", [*FIO_READS]) for name in names]
    mixes = [name for name in asked if name in FIO_MIXES]
    if rwmixread is not None and not mixes:
        rule = "it is the share of reads in a mix, and --rw has none"
        raise UserError(
            Problem("--rwmixread", str(rwmixread), rule, f"add --rw {' or '.join(FIO_MIXES)}")
        )
    share = {name: rwmixread for name in mixes if rwmixread is not None}
    return tuple(
        Direction(name.startswith("rand"), share.get(name, FIO_READS[name])) for name in asked
    )


def known(text: str, place: str, names: Sequence[Name]) -> Name:
    """Return the name, which is one of these."""
    for name in names:
        if text == name:
            return name
    way_out = f"choose {', '.join(names)}"
    raise UserError(Problem(place, text, "the probe does not know it", way_out))


def blocks_of(text: str) -> tuple[int, ...]:
    """Return the block sizes of a comma list, smallest first."""
    return tuple(sorted(cells.parse_block(part) for part in parts(text)))


def size_of(text: str) -> int:
    """Return the region's size, rounded down to whole MiB as O_DIRECT needs."""
    size = cells.parse_size(text, "--size")
    if size < cells.MIB:
        raise UserError(Problem("--size", text, "the region has at least 1 MiB", "give 1GiB"))
    return size // cells.MIB * cells.MIB


Show = Callable[[], View]
"""Returns the volume of an emulated disk as it is now."""


@dataclass(frozen=True)
class Known:
    """What is known of the disk behind a region: its profile."""

    placed: Placement


@dataclass(frozen=True)
class Ours(Known):
    """An emulated disk, which tells what it does and can be turned."""

    show: Show
    envelope: Envelope | None
    dilate: Callable[[int], None]
    """Lets its time run slower by a factor."""
    flush_ms: Callable[[], float]
    """How long FLUSHes took since the device was made, in this machine's time."""
    set_credits: Callable[[float], None]
    """Sets its share of burst credits."""
    inside: Callable[[list[str]], list[str]] = list
    """Puts a command into the control group from which the disk is used."""


@dataclass(frozen=True)
class Subject:
    """What is probed, under the name that the results carry."""

    name: str
    region: Region
    known: Known | None = None


@dataclass(frozen=True)
class OurSubject(Subject):
    """An emulated disk under a name."""

    known: Ours


@dataclass(frozen=True)
class CellResult:
    """One cell: what was measured, what was owed, and the judgement."""

    subject: str
    condition: str
    measurement: Measurement
    promise: Promise | None = None
    verdict: Verdict | None = None
    telemetry: Telemetry | None = None
    invalid: tuple[str, ...] = ()
    """Why the cell says nothing about the disk; empty: valid."""
    spoiled: Mapping[str, str] = field(default_factory=dict)
    """The figures of a valid one that late replies spoiled, each with how."""

    @property
    def cell(self) -> Cell:
        """The measured cell."""
        return self.measurement.cell


@dataclass(frozen=True)
class CellEnded:
    """A cell has been measured and judged."""

    result: CellResult


Event = PhaseStarted | Progress | CellEnded
Listener = Callable[[Event], None]


def ticking(tell: Callable[[Progress], None], phase: str) -> Tick:
    """Return what tells how long a phase goes on already: fio says at its end what it did."""
    return lambda elapsed_s: tell(Progress(phase, elapsed_s, None, None, None))


# Only the progress bar uses it: a P30's promise, when the disk is unknown.
EXPECTED_FILL_BYTES_PER_S = 200e6


def expected_fill_s(plan: Plan) -> float:
    """Return a guess of how long writing the region takes."""
    return plan.size_bytes / EXPECTED_FILL_BYTES_PER_S


def runnable(plan: Plan, region: Region) -> Plan:
    """Return the plan as the region allows it: its size, and reads alone if it is read only."""
    cells = tuple(c for c in plan.cells if region.writable or not c.direction.writes)
    return replace(plan, cells=cells, size_bytes=region.size_bytes)


def probe(program: Path, subject: Subject, plan: Plan, tell: Listener) -> tuple[CellResult, ...]:
    """Fill the region when it may be written, then measure each cell of the plan."""
    plan = runnable(plan, subject.region)
    region = subject.region
    inside = subject.known.inside if isinstance(subject.known, Ours) else list
    job = Job(program, region.path, region.writable, plan, inside)
    if region.writable:
        what = f"writing {format_size(region.size_bytes)} before reading it"
        tell(PhaseStarted("fill", f"{subject.name}: {what}"))
        job.fill(ticking(tell, "fill"))
    return tuple(probe_cells(job, subject, tell))


def probe_cells(job: Job, subject: Subject, tell: Listener) -> Iterator[CellResult]:
    """Measure each cell of the plan in a region that was written."""
    for cell in job.plan.cells:
        tell(PhaseStarted("measure", f"{subject.name}: {cell.title}"))
        result = probe_cell(job, subject, cell, ticking(tell, "measure"))
        tell(CellEnded(result))
        yield result


def probe_cell(job: Job, subject: Subject, cell: Cell, tick: Tick) -> CellResult:
    """Measure one cell and hold it against what is known of the disk."""
    known, region = subject.known, subject.region
    ours = known if isinstance(known, Ours) else None
    if ours and job.plan.credits_ratio is not None:
        ours.set_credits(job.plan.credits_ratio)
    if job.plan.warm_up_s:
        with slow_motion(ours, job.plan.time_dilation):
            warming = replace(job.plan, duration_s=job.plan.warm_up_s)
            replace(job, plan=warming).measure(cell, lambda _: None)
    before, flushed = (ours.show(), ours.flush_ms()) if ours else (None, 0.0)
    with slow_motion(ours, job.plan.time_dilation), Pulse() as pulse:
        measured = job.measure(cell, tick)
    stood_still = pulse.reasons(measured.runtime_s * job.plan.time_dilation)
    if known is None:
        return CellResult(subject.name, region.condition, measured, invalid=(*stood_still,))
    seen = None
    if ours and before:
        flushing_s = (ours.flush_ms() - flushed) / 1e3
        ratio = flushing_s / (measured.runtime_s * job.plan.time_dilation)
        seen = verdict.telemetry(before, ours.show(), cell, ratio)
    # `disk set` may have changed the disk since the last cell: what counts is how it was now.
    placed = known.placed
    if before:
        placed = replace(placed, volume=before.profile)
    state = State(
        hit_ratio=seen.hit_ratio if seen else None,
        credits_left=credits_left(before) if before else {},
        pieces=seen.pieces if seen else 1.0,
    )
    owed = promise(placed, cell, job.plan, state)
    if before is None:
        # Nobody sees the credits of a real disk: what it does tells whether they are spent.
        owed = owed_now(measured.iops, owed, promise(placed, cell, job.plan, SPENT))
    envelope = ours.envelope if ours else None
    return CellResult(
        subject=subject.name,
        condition=region.condition,
        measurement=measured,
        promise=owed,
        verdict=verdict.judge(
            measured, owed, seen, envelope and envelope.dilated(job.plan.time_dilation)
        ),
        telemetry=seen,
        invalid=(*verdict.invalid_reasons(measured, seen), *stood_still),
        spoiled=verdict.spoiled(measured, seen),
    )


@contextmanager
def slow_motion(ours: Ours | None, factor: int) -> Iterator[None]:
    """Let the time of an emulated disk run slower inside the block; that of others is real."""
    if ours is None or factor == 1:
        yield
        return
    ours.dilate(factor)
    try:
        yield
    finally:
        ours.dilate(1)


def credits_left(shown: View) -> dict[tuple[str, str], float]:
    """Return the credits of each bursting limit by (place, unit)."""
    return {
        (limit.place, limit.unit): float(limit.credits.left)
        for limit in shown.counters.limits
        if limit.credits
    }
