"""One run of a command beside an earlier one: I/Os and bytes first, as these are exact."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from disklab import reading
from disklab.catalog.quantity import about_bytes
from disklab.command.counts import KINDS, CommandRun, Kind
from disklab.errors import Problem, UserError

# A flush is a program's own doing and is compared exactly. How the kernel cuts data into writes
# and what its file system logs beside moves a little from run to run.
SHARE = 0.05
IOS = 8
BYTES = 256 << 10


@dataclass(frozen=True)
class Change:
    """What differs beyond noise."""

    name: str
    before: float
    after: float
    unit: str

    @property
    def grew(self) -> bool:
        """Return whether it is more than before."""
        return self.after > self.before

    def sentence(self) -> str:
        """Return it in words: `flushes: 131, 11 more than before (120)`."""
        if self.unit == "bytes":
            by = about_bytes(abs(self.after - self.before))
            shown, was = about_bytes(self.after), about_bytes(self.before)
        else:
            by, shown, was = (
                f"{amount:,.0f}"
                for amount in (abs(self.after - self.before), self.after, self.before)
            )
        return f"{self.name}: {shown}, {by} {'more' if self.grew else 'fewer'} than before ({was})"


def read_base(path: Path, place: str) -> CommandRun:
    """Read what `disklab run --json` wrote: the last line, as the command prints before it.

    Raises UserError where it is something else.
    """
    content = reading.contents(path, reading.COMMAND_RUN, place).strip().rpartition(b"\n")[2]
    try:
        return reading.parse(CommandRun, content)
    except reading.NotAsExpectedError as error:
        rule = f"it is not what `disklab run --json` prints: {error}"
        way_out = reading.COMMAND_RUN.way_out
        raise UserError(Problem(place, str(path), rule, way_out)) from None


@dataclass(frozen=True)
class OnDisks:
    """What a command runs on."""

    disks: str
    vm: str | None
    caching: str
    filesystem: str | None


def check_alike(base: CommandRun, run: OnDisks | CommandRun, place: str) -> None:
    """Refuse to compare runs on unlike disks."""
    problems = [
        Problem(place, f"{name} {was}", f"this run has {has}", "compare runs on the same disk")
        for name, was, has in (
            ("disks", base.disks, run.disks),
            ("VM", base.vm, run.vm),
            ("caching", base.caching, run.caching),
            ("file system", base.filesystem, run.filesystem),
        )
        if was != has
    ]
    if problems:
        raise UserError(*problems)


def changes(base: CommandRun, run: CommandRun) -> list[Change]:
    """Return what differs beyond noise, flushes first."""
    found = []
    for kind in sorted(KINDS, key=lambda kind: kind != "flush"):
        before, after = base.operations[kind], run.operations[kind]
        if _differs(before.ios, after.ios, 0 if kind == "flush" else IOS, _share(kind)):
            found.append(Change(_plural(kind), before.ios, after.ios, "ios"))
        if _differs(before.bytes, after.bytes, BYTES, SHARE):
            found.append(Change(f"bytes of {_plural(kind)}", before.bytes, after.bytes, "bytes"))
    return found


def _share(kind: Kind) -> float:
    return 0.0 if kind == "flush" else SHARE


def _differs(before: int, after: int, least: int, share: float) -> bool:
    return abs(after - before) > max(least, share * before)


def _plural(kind: Kind) -> str:
    return "flushes" if kind == "flush" else f"{kind}s"
