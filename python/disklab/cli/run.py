"""`disklab run`: a command on an emulated disk, and what the disk did for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from rich.table import Table
from rich.text import Text

from disklab.catalog import HostRequest, VolumeRequest, resolve
from disklab.catalog import Places as Typed
from disklab.cli.amounts import bytes_of, disk_names, progress, read_ahead_kib
from disklab.cli.attach import (
    CachingOption,
    LatencyOption,
    NoCalibrate,
    ReadAhead,
    Size,
    Stripe,
    Vm,
    WeatherSeed,
    YearIn,
    limit_name,
    named,
    spells_of,
)
from disklab.cli.catalog import CatalogFiles, loaded
from disklab.cli.output import OVER_BUDGET, Json, notes, print_json, warn, warn_once
from disklab.cli.root_part import root_part
from disklab.command.counts import (
    FSYNCS,
    SIMULATED,
    BudgetLine,
    CommandRun,
    Judged,
    limits_between,
    operations_between,
    parse_budget,
)
from disklab.command.recording import counted
from disklab.command.written import (
    Change,
    OnDisks,
    changes,
    check_alike,
    headline,
    junit,
    limit_sentences,
    markdown,
    operation_rows,
    read_base,
    time_sentence,
)
from disklab.engine import View
from disklab.errors import Problem, UserError, refuse
from disklab.hosts.changes import credits_share
from disklab.hosts.filesystem import why_full
from disklab.hosts.places import Places
from disklab.machines.foreground import PASSED_ON, Ended, check_command
from disklab.privilege.for_command import Ask, Look, Make, RunCommand, disk_for_command

Say = Callable[[str], None]
VOLUME = "data"
LATE_RATIO = 0.01
"""From here on the times of a run are this machine's rather than the disk's."""

Command = Annotated[
    list[str],
    typer.Argument(metavar="-- COMMAND", help="The command, after two dashes.", show_default=False),
]
Disks = Annotated[
    str | None,
    typer.Option(
        "--disk",
        help="azure/P10, 4 x azure/P30, aws/gp3(100GiB), local.",
        autocompletion=disk_names,
        show_default="that of --weather",
    ),
]
Weather = Annotated[
    str | None,
    typer.Option(
        help="Give it this disk's weather in the meantime: a compressed year in which it is slow "
        "or stalls.",
        metavar="DISKS",
    ),
]
Fsyncs = Annotated[
    bool,
    typer.Option(
        "--fsyncs",
        help="Also count calls of fsync, with strace, as a budget of fsyncs does; `sudo` in the "
        "command then has no effect.",
    ),
]
Filesystem = Annotated[Literal["xfs", "ext4"], typer.Option(help="The file system on it.")]
CreditsOption = Annotated[
    str | None,
    typer.Option(
        "--credits",
        help="Burst credits that it begins with: full, empty, 50%.",
        show_default="full, where the disk has any",
    ),
]
BudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        help="Its budget: 'fsyncs <= 120, p99 write <= 8ms, wall <= 30s'. "
        "Exit code 90 if exceeded.",
    ),
]
Compare = Annotated[
    Path | None,
    typer.Option(
        help="Report what changed beyond noise since this `--json` file. Exit code 90 if it grew."
    ),
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown", help="Append the result to this file as Markdown, for a job summary."
    ),
]
JUnit = Annotated[Path | None, typer.Option("--junit", help="Write JUnit's XML to this file.")]
Simulate = Annotated[
    bool,
    typer.Option(
        "--simulate",
        help="Without root or a disk: strace records what the command writes; the model answers.",
    ),
]
Keep = Annotated[
    Path | None, typer.Option(help="Copy what the command wrote into this new folder.")
]


def run(  # noqa: PLR0913, PLR0917 - each option is a parameter
    command: Command,
    disk: Disks = None,
    vm: Vm = None,
    caching: CachingOption = "None",
    filesystem: Filesystem = "xfs",
    size: Size = None,
    stripe: Stripe = None,
    latency: LatencyOption = None,
    credits_: CreditsOption = None,
    read_ahead: ReadAhead = None,
    budget: BudgetOption = None,
    compare: Compare = None,
    markdown_: Markdown = None,
    junit_: JUnit = None,
    fsyncs: Fsyncs = False,
    keep: Keep = None,
    no_calibrate: NoCalibrate = False,
    simulate: Simulate = False,
    weather: Weather = None,
    seed: WeatherSeed = 1,
    year_in: YearIn = "10min",
    files: CatalogFiles = None,
    json: Json = False,
) -> None:
    """Run a command in a folder on an emulated disk, and report what the disk did for it.

    The command runs as you (under sudo: as the user who called it); its exit code is passed on. In
    a budget, fsyncs are calls by the command, and flushes are what reached the disk.

    Examples: [bold]disklab run --disk azure/P10 -- make bench[/bold], [bold]disklab run --disk
    azure/P10 --budget 'fsyncs <= 120, wall <= 30s' -- ./test.sh[/bold], [bold]disklab run --disk
    'aws/gp3(100GiB)' --json -- ./load > base.json[/bold], [bold]disklab run --disk
    'aws/gp3(100GiB)' --compare base.json -- ./load[/bold], [bold]disklab run --weather
    'aws/gp3(100GiB)' --seed 1 --year-in 1min -- ./test.sh[/bold]
    """
    lines = [line for text in budget or [] for line in parse_budget(text, "--budget")]
    base = None if compare is None else read_base(compare, "--compare")
    credits_share(credits_ or "full")
    _check(keep, {"--markdown": markdown_, "--junit": junit_}, weather if simulate else None)
    check_command(command)
    known = loaded(files)
    spells = spells_of(weather, seed, year_in, known)
    name = weather and f"{weather}, seed {seed}, a year in {year_in}"
    volume = VolumeRequest(
        disks=named(disk or weather),
        name=VOLUME,
        caching=caching,
        chunk_bytes=bytes_of(stripe, "--stripe"),
        size_bytes=bytes_of(size, "--size"),
        latency=latency,
    )
    resolve(known, HostRequest(vm), volume, places=Typed(disks="--disk"))
    ahead_kib = read_ahead_kib(read_ahead)
    wish = Make(volume, vm, filesystem, ahead_kib, not no_calibrate, known, credits_)
    counts = any(line.name == FSYNCS for line in lines) or (base and base.fsyncs is not None)
    if simulate:
        result = _simulated(wish, command, keep, base)
    else:
        with counted(command) if counts or fsyncs else nullcontext((command, None)) as (words, of):
            result = _measured(wish, RunCommand([*words], spells), name, keep, base)
            calls = None if of is None else of()
        result = result.model_copy(update={"command": command, "fsyncs": calls})
    Outputs(markdown_, junit_, json).end(result, lines, base)


def _check(keep: Path | None, files: dict[str, Path | None], weather: str | None) -> None:
    """Refuse what cannot be, before the command runs. `weather`: of a simulated disk."""
    if keep is not None and os.path.lexists(keep):
        rule = "it exists already"
        raise UserError(Problem("--keep", str(keep), rule, "name a folder that does not exist"))
    if weather is not None:
        rule = "a simulated disk has no weather"
        raise UserError(Problem("--weather", weather, rule, "leave out --simulate"))
    refuse(
        Problem(place, str(file), "you may not write there", "name a file in a folder of yours")
        for place, file in files.items()
        if file is not None and not os.access(file if file.exists() else file.parent, os.W_OK)
    )


def _simulated(
    request: Make, command: list[str], keep: Path | None, base: CommandRun | None
) -> CommandRun:
    from disklab.command.recording import simulated_run  # noqa: PLC0415 - it brings the simulator

    on = OnDisks(request.volume.disks, request.vm, request.volume.caching, SIMULATED)
    if base is not None:
        check_alike(base, on, "--compare")
    share = credits_share(request.credits or "full")
    return simulated_run(command, request.catalog, (request.volume, request.vm, share), keep)


def _measured(
    request: Make,
    command: RunCommand,
    weather: str | None,
    keep: Path | None,
    base: CommandRun | None,
) -> CommandRun:
    with progress() as say, disk_for_command(root_part(), request, say, warn) as (made, ask):
        if base is not None:
            on = OnDisks(made.disks, made.vm, made.caching, made.filesystem, weather)
            check_alike(base, on, "--compare")
        before: View = ask(Look())
        say("running the command")
        ended = _run(ask, command)
        after: View = ask(Look())
        if keep is not None:
            copied = _run(ask, RunCommand(["cp", "-a", ".", str(keep.absolute())]))
    late = after.emulator.late_ratio(before.emulator)
    warnings = list(made.warnings)
    if keep is not None and copied.exit_code:
        warnings.append(
            f"--keep {keep}: not all was copied there (cp's exit code {copied.exit_code})"
        )
    if late > LATE_RATIO:
        warnings.append(
            f"{late:.1%} of the replies were late: the times are this machine's; the counts hold"
        )
    if (full := why_full(Places.usual().room()[0])) is not None:
        warnings.append(f"{full}: writes of the command may have failed")
    if after.failure is not None:
        warnings.append(f"the disk failed on this machine: {after.failure}")
    if missed := sum(spell.at_s >= ended.wall_s for spell in command.weather):
        warnings.append(
            f"the command ended before {missed} of {len(command.weather)} spells of weather; "
            "a shorter --year-in has them earlier"
        )
    return CommandRun(
        command=command.words,
        exit_code=ended.exit_code,
        wall_s=ended.wall_s,
        disks=made.disks,
        vm=made.vm,
        caching=made.caching,
        filesystem=str(made.filesystem),
        weather=weather,
        operations=operations_between(before, after),
        limits=limits_between(before, after, limit_name),
        cache_hit_ratio=after.counters.hit_ratio(before.counters),
        late_ratio=late,
        warnings=warnings,
        standing=made.warnings,
    )


def _run(ask: Ask, command: RunCommand) -> Ended:
    """Run a command on the disk, in root's part where there is one.

    Then the terminal's signals are for the command and for root's part, and not for this one.
    """
    if root_part() is None:
        ended: Ended = ask(command)
        return ended
    before = {number: signal.signal(number, signal.SIG_IGN) for number in PASSED_ON}
    try:
        ended = ask(command)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return ended


@dataclass(frozen=True)
class Outputs:
    """Where the result goes besides standard error."""

    markdown: Path | None
    junit: Path | None
    json: bool

    def end(self, result: CommandRun, lines: list[BudgetLine], base: CommandRun | None) -> NoReturn:
        """Judge the result, write what was asked for, and exit."""
        changed = [] if base is None else changes(base, result)
        judged = [line.judge(result) for line in lines]
        self._write(result, judged, changed)
        missed = any(not one.met for one in judged) or any(change.grew for change in changed)
        raise typer.Exit(result.exit_code or (OVER_BUDGET if missed else 0))

    def _write(self, result: CommandRun, judged: list[Judged], changed: list[Change]) -> None:
        if self.markdown is not None:
            with self.markdown.open("a", encoding="utf-8") as file:
                file.write(markdown(result, judged, changed))
        if self.junit is not None:
            self.junit.write_text(junit(result, judged, changed), encoding="utf-8")
        if self.json:
            budget = [
                {"line": one.line.text, "amount": one.amount, "met": one.met} for one in judged
            ]
            changes_ = [vars(change) for change in changed]
            print_json({**result.model_dump(), "budget": budget, "changes": changes_})
        else:
            _print(result, judged, changed)


def _print(result: CommandRun, judged: list[Judged], changed: list[Change]) -> None:
    """Print to standard error: standard output is the command's."""
    out = notes()
    out.print(Text(headline(result), "bold"))
    table = Table("operation", box=None, pad_edge=False)
    for heading in ("I/Os", "data", "mean", "p99"):
        table.add_column(heading, justify="right")
    for row in operation_rows(result):
        table.add_row(*row)
    out.print(table)
    for sentence in (time_sentence(result), *limit_sentences(result)):
        out.print(sentence)
    for one in judged:
        out.print(Text(one.sentence(), "green" if one.met else "bold red"))
    for change in changed:
        out.print(Text(change.sentence(), "bold red" if change.grew else "green"))
    for warning in result.warnings:
        (warn_once if warning in result.standing else warn)(warning)
