"""What the user asked of the probe, checked before anything happens on the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from disklab.errors import Problem, UserError
from disklab.probe import cells
from disklab.probe.cells import Direction, Load, Plan, Profile
from disklab.spec.model import FIO_MIXES, FIO_READS

Item = TypeVar("Item")


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
        engine=checked(lambda: engine_of(request.engine), cells.ENGINES[0]),
    )
    if problems:
        raise UserError(*problems)
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


def known(text: str, place: str, names: Sequence[str]) -> str:
    """Return the name, which is one of these."""
    if text in names:
        return text
    raise UserError(
        Problem(place, text, "the probe does not know it", f"choose {', '.join(names)}")
    )


def blocks_of(text: str) -> tuple[int, ...]:
    """Return the block sizes of a comma list, smallest first."""
    return tuple(sorted(cells.parse_block(part) for part in parts(text)))


def size_of(text: str) -> int:
    """Return the region's size, rounded down to whole MiB as O_DIRECT needs."""
    size = cells.parse_size(text, "--size")
    if size < cells.MIB:
        raise UserError(Problem("--size", text, "the region has at least 1 MiB", "give 1GiB"))
    return size // cells.MIB * cells.MIB


def engine_of(text: str) -> cells.Engine:
    """Return the fio engine of that name."""
    for engine in cells.ENGINES:
        if text == engine:
            return engine
    way_out = f"choose {' or '.join(cells.ENGINES)}"
    raise UserError(Problem("--engine", text, "the probe does not use it", way_out))


@dataclass(frozen=True)
class Output:
    """Where the results go, beside the terminal."""

    json: bool = False
    folder: Path | None = None
    chart: Path | None = None
