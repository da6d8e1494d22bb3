"""What a probe measures: one cell for each profile, direction and block size."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal, get_args

from disklab.errors import Problem, UserError
from disklab.spec.fio import FIO_LOADS
from disklab.spec.fio_file import POWERS, SIZE

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

PERCENTILES: tuple[float, ...] = (
    1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99,
)  # fmt: skip
"""Which latency percentiles are kept: those that fio prints by default, and so those published."""


MOST_JOBS, MOST_DEPTH = 4096, 1 << 16
MOST_SECONDS = 366 * 86_400
MOST_SIZE_BYTES = 1 << 60
MOST_DILATION = 1_000_000
"""Beyond anything that is measured: bounds of what a request may ask of root."""


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} {value}: it is from {least} to {most}")


class Profile(str, Enum):
    """How the load is offered; both are closed loops, as fio's are."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True)
class Load:
    """A closed loop: `jobs` processes that each keep `depth` I/Os outstanding."""

    jobs: int
    depth: int

    def __post_init__(self) -> None:
        """Refuse a load that is none: root's part takes loads from a request."""
        _check_range("jobs", self.jobs, 1, MOST_JOBS)
        _check_range("depth", self.depth, 1, MOST_DEPTH)

    @property
    def outstanding(self) -> int:
        """How many I/Os are outstanding in all."""
        return self.jobs * self.depth


LOADS = {Profile(name): Load(*load) for name, load in FIO_LOADS.items()}


@dataclass(frozen=True)
class Direction:
    """What the I/Os do: fio's `rw` and `rwmixread`."""

    random: bool
    """Whether places are drawn, or follow each other."""
    read_percent: int
    """How many of 100 I/Os are reads; the others are writes."""

    RANDREAD: ClassVar[Direction]
    RANDWRITE: ClassVar[Direction]
    READ: ClassVar[Direction]
    WRITE: ClassVar[Direction]

    def __post_init__(self) -> None:
        """Refuse a share that is none: root's part takes directions from a request."""
        if not 0 <= self.read_percent <= 100:
            raise ValueError(f"{self.read_percent} of 100 I/Os cannot be reads")

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of reads and of writes, of those that there are."""
        reads = self.read_percent
        both = {"read": reads / 100, "write": (100 - reads) / 100}
        return {side: share for side, share in both.items() if share > 0}

    @property
    def writes(self) -> bool:
        """Whether the cell changes data."""
        return "write" in self.shares

    @property
    def rw(self) -> str:
        """Fio's name of it: a mix where there are both."""
        name = "rw" if len(self.shares) > 1 else next(iter(self.shares))
        return f"rand{name}" if self.random else name

    @property
    def title(self) -> str:
        """What people call it: `randread`, `randrw 70/30` for 70 % reads."""
        if len(self.shares) == 1:
            return self.rw
        return f"{self.rw} {self.read_percent}/{100 - self.read_percent}"


Direction.RANDREAD = Direction(random=True, read_percent=100)
Direction.RANDWRITE = Direction(random=True, read_percent=0)
Direction.READ = Direction(random=False, read_percent=100)
Direction.WRITE = Direction(random=False, read_percent=0)


@dataclass(frozen=True)
class Cell:
    """One measurement: a load, a direction and a block size."""

    profile: Profile
    direction: Direction
    block_bytes: int
    asked: Load | None = None
    """Another load than that of the profile."""

    def __post_init__(self) -> None:
        """Refuse a block that is none, as `Load` does."""
        _check_range("block_bytes", self.block_bytes, 1, GIB)

    @property
    def load(self) -> Load:
        """The closed loop: what was asked for, or the profile's."""
        return self.asked or LOADS[self.profile]

    @property
    def title(self) -> str:
        """What people call it: `sync randread 4k`, `8 x 32 randread 4k` for eight jobs at 32."""
        load = f"{self.load.jobs} x {self.load.depth}" if self.asked else self.profile.value
        return f"{load} {self.io}"

    @property
    def io(self) -> str:
        """Its name without the load: `randread 4k`."""
        return f"{self.direction.title} {format_size(self.block_bytes)}"


def cell_of(load: Load, direction: Direction, block_bytes: int) -> Cell:
    """Return the cell of a load: one of the profiles where it is that."""
    for profile, known in LOADS.items():
        if load == known:
            return Cell(profile, direction, block_bytes)
    return Cell(Profile.ASYNC, direction, block_bytes, load)


Engine = Literal["libaio", "io_uring"]
"""fio's asynchronous engines; libaio is the one of the published measurements. Others of fio's
delete files, or talk to other machines."""
ENGINES: tuple[Engine, ...] = get_args(Engine)


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    cells: tuple[Cell, ...]
    duration_s: float
    """Measured time of each cell."""
    size_bytes: int
    """The region: written before reads are measured, and then the range of the random offsets."""
    engine: Engine = "libaio"
    time_dilation: int = 1
    """Seconds of this machine for each second of an emulated disk while a cell is measured: what is
    too fast to be emulated here is not, in slow motion. `duration_s` is in the disk's time."""
    warm_up_s: float = 0.0
    """Load of the same kind before each cell, which is not measured."""
    credits_ratio: float | None = None
    """The share of their burst credits that emulated disks begin each cell with; None: as left."""

    def __post_init__(self) -> None:
        """Refuse a plan that is none, as `Load` does."""
        if self.engine not in ENGINES:
            raise ValueError(f"{self.engine!r} is none of {', '.join(ENGINES)}")
        _check_range("duration_s", self.duration_s, 0, MOST_SECONDS)
        _check_range("size_bytes", self.size_bytes, 0, MOST_SIZE_BYTES)
        _check_range("time_dilation", self.time_dilation, 1, MOST_DILATION)


DEFAULT_BLOCKS = (4 * KIB, 8 * KIB, MIB)
QUICK_BLOCKS = (4 * KIB, MIB)  # the smallest tells IOPS, the largest MB/s
DEFAULT_DURATION_S = 5.0
QUICK_DURATION_S = 2.0
DEFAULT_SIZE_BYTES = GIB
QUICK_SIZE_BYTES = 256 * MIB


def cells(
    loads: tuple[Load, ...], directions: tuple[Direction, ...], blocks: tuple[int, ...]
) -> tuple[Cell, ...]:
    """Return the matrix; reads come first, so that they find the disk as it was filled."""
    ordered = sorted(directions, key=lambda direction: -direction.read_percent)
    return tuple(
        cell_of(load, direction, block)
        for load in dict.fromkeys(loads)
        for direction in ordered
        for block in blocks
    )


def parse_size(text: str, place: str) -> int:
    """Return bytes for `4k`, `1M`, `64GiB`: powers of 1024, as fio reads them."""
    size = SIZE.fullmatch(text.strip())
    bytes_ = int(size[1]) << POWERS[(size[2] or "").lower()] if size else 0
    if bytes_ <= 0:
        way_out = "write a number with k, M or G, such as 4k or 1GiB"
        raise UserError(Problem(place, text, "is not a size", way_out))
    return bytes_


def parse_block(text: str, place: str = "--bs") -> int:
    """Return the bytes of a block size that O_DIRECT and the model accept: 4 KiB to 4 MiB."""
    block = parse_size(text, place)
    # Disks with 4096-byte sectors refuse smaller ones; larger than 4 MiB no kernel sends as one.
    if block % (4 * KIB) or block > 4 * MIB:
        rule = "a block is a multiple of 4 KiB and at most 4 MiB"
        raise UserError(Problem(place, text, rule, "use 4k, 8k, 64k or 1M"))
    return block


DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?\s*$")
DURATION_FACTOR = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
# fio samples bandwidth every 500 ms; below one second its figures are noise.
MIN_DURATION_S = 1.0
MAX_DURATION_S = 24 * 3600.0


def parse_duration(text: str, place: str = "--duration") -> float:
    """Return seconds for `60s`, `2m`, `1500ms` or a bare number of seconds."""
    found = DURATION.match(text)
    seconds = float(found[1]) * DURATION_FACTOR[found[2] or "s"] if found else 0.0
    if not MIN_DURATION_S <= seconds <= MAX_DURATION_S:
        rule = "a cell is measured for one second to one day"
        raise UserError(Problem(place, text, rule, "write for example 5s, 60s or 2m"))
    return seconds


def format_size(bytes_: int) -> str:
    """Return fio's short form: `4k`, `1M`, `2G`; bytes when it is none of them."""
    for unit, factor in (("G", GIB), ("M", MIB), ("k", KIB)):
        if bytes_ >= factor and bytes_ % factor == 0:
            return f"{bytes_ // factor}{unit}"
    return str(bytes_)


def loads(offered: Iterable[Load]) -> str:
    """Return how load was offered: `4 jobs, depth 256`, or each load that there is."""
    return "; ".join(
        f"{load.jobs} {'job' if load.jobs == 1 else 'jobs'}, depth {load.depth}"
        for load in dict.fromkeys(offered)
    )
