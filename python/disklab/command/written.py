"""A run of a command as text for other programs: Markdown for a job's summary, JUnit's XML."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from disklab import reading
from disklab.catalog.quantity import about_bytes
from disklab.command.counts import KINDS, CommandRun, Judged, Kind
from disklab.errors import Problem, UserError, refuse
from disklab.reading import UNSAFE

# One run of a command beside an earlier one: I/Os and bytes first, as these are exact.

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
    weather: str | None = None


def check_alike(base: CommandRun, run: OnDisks | CommandRun, place: str) -> None:
    """Refuse to compare runs on unlike disks."""
    refuse(
        Problem(place, f"{name} {was}", f"this run has {has}", "compare runs on the same disk")
        for name, was, has in (
            ("disks", base.disks, run.disks),
            ("VM", base.vm, run.vm),
            ("caching", base.caching, run.caching),
            ("file system", base.filesystem, run.filesystem),
            ("weather", base.weather, run.weather),
        )
        if was != has
    )


def changes(base: CommandRun, run: CommandRun) -> list[Change]:
    """Return what differs beyond noise: fsyncs and flushes, which are exact, first."""
    found = []
    if None not in (base.fsyncs, run.fsyncs) and base.fsyncs != run.fsyncs:
        found.append(Change("fsyncs", base.fsyncs or 0, run.fsyncs or 0, "calls"))
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


NEARLY_FULL = 0.995
"""Credits above it round to 100 %, which nobody needs to be told."""


def operation_rows(run: CommandRun) -> list[tuple[str, ...]]:
    """Return what the disk did by kind of I/O: name, I/Os, data, mean, p99; kinds that occurred."""
    rows = []
    for kind in KINDS:
        operations = run.operations[kind]
        if operations.ios == 0:
            continue
        latency = operations.latency
        times = ("", "") if latency is None else (latency.mean_ms, latency.p99_ms)
        shown = tuple(time if isinstance(time, str) else f"{time:.2f} ms" for time in times)
        data = about_bytes(operations.bytes) if operations.bytes else ""
        name = kind if operations.failed == 0 else f"{kind} ({operations.failed} failed)"
        rows.append((name, f"{operations.ios:,}", data, *shown))
    return rows


def limit_sentences(run: CommandRun) -> list[str]:
    """Return which limits held I/Os up, the longest wait first, and which credits are low."""
    sentences = [
        f"{use.name}: I/Os waited for it, {use.delayed_s:.1f} s in all"
        if use.per_s is None
        else f"{use.name} ({use.per_s:,} a second): {use.delayed_ios:,} I/Os waited for it, "
        f"{use.delayed_s:.1f} s in all"
        for use in run.limits
        if use.delayed_ios or use.per_s is None
    ]
    return sentences + [
        f"{use.name}: {use.credits_left_ratio:.0%} of the burst credits are left"
        for use in run.limits
        if use.credits_left_ratio is not None and use.credits_left_ratio < NEARLY_FULL
    ]


def time_sentence(run: CommandRun) -> str:
    """Return whose the command's time was: the disk's, or its own."""
    disk, wall = run.disk_s, max(run.wall_s, 1e-9)
    if disk > wall:
        return (
            f"Its I/Os add up to {disk:.2f} s: on average {disk / wall:.1f} were under way at once"
        )
    own = f"The other {wall - disk:.2f} s went to its own work and to waiting for a processor"
    return f"It waited for the disk for at most {disk:.2f} s. {own}"


def headline(run: CommandRun) -> str:
    """Return the answer in one line."""
    flushes = run.operations["flush"].ios
    calls = "" if run.fsyncs is None else f"{run.fsyncs:,} fsyncs, "
    vm = f" on {run.vm}" if run.vm else ""
    return (
        f"{calls}{flushes:,} flushes, {run.ios:,} I/Os, {run.wall_s:.1f} s on {run.disks}{vm}, "
        f"caching {run.caching}, {run.filesystem}; exit code {run.exit_code}"
    )


def markdown(run: CommandRun, judged: Sequence[Judged], changes: Sequence[Change]) -> str:
    """Return a section of Markdown."""
    lines = [f"### `{_code(shlex.join(run.command))}`", "", headline(run), ""]
    lines += ["| operation | I/Os | data | mean | p99 |", "|---|--:|--:|--:|--:|"]
    lines += [f"| {' | '.join(row)} |" for row in operation_rows(run)]
    sentences = [time_sentence(run), *limit_sentences(run)]
    lines += ["", *(f"- {sentence}" for sentence in sentences)]
    lines += [f"- {'✅' if one.met else '❌'} {_code(one.sentence())}" for one in judged]
    lines += [f"- changed: {change.sentence()}" for change in changes]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Return a text that ends no code span and no table."""
    return UNSAFE.sub("?", text).replace("`", "'").replace("\n", " ").replace("|", "\\|")


def junit(run: CommandRun, judged: Sequence[Judged], changes: Sequence[Change]) -> str:
    """Return JUnit's XML: a case for the command, one for each line of the budget and change."""
    cases: list[tuple[str, str | None]] = [
        ("command", f"exit code {run.exit_code}" if run.exit_code else None)
    ]
    cases += [(one.line.text, None if one.met else one.sentence()) for one in judged]
    cases += [(change.name, change.sentence() if change.grew else None) for change in changes]
    failures = sum(1 for _, failure in cases if failure is not None)
    suite = ET.Element(
        "testsuite",
        name="disklab run",
        tests=str(len(cases)),
        failures=str(failures),
        time=f"{run.wall_s:.3f}",
    )
    for name, failure in cases:
        case = ET.SubElement(suite, "testcase", classname="disklab.run", name=UNSAFE.sub("?", name))
        if failure is not None:
            ET.SubElement(case, "failure", message=UNSAFE.sub("?", failure))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
