"""A measurement on the terminal: its plan and the question, progress, and its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from disklab.cli.output import code_of_run, console, needs_promise, notes
from disklab.cli.probing import Output, expected_s, following, own, show_results
from disklab.cli.rehearsing import follow
from disklab.errors import Problem, UserError, refuse
from disklab.events import Emit
from disklab.interrupts import ended_once
from disklab.machines.protocol import Machine
from disklab.measurement import hosts_file, preparation
from disklab.measurement.hosts_file import HostsFile
from disklab.measurement.machines_of import open_machine
from disklab.measurement.preparation import HostPlan, Wanted
from disklab.measurement.probing import (
    LEAST_FOR_OUTLIERS,
    OUTLIER_RATIO,
    check,
    outliers,
    probe_hosts,
    spots_of,
)
from disklab.measurement.settings import volume_of
from disklab.probe.cells import Plan
from disklab.probe.run import CellResult
from disklab.procedures.life import Planned, Stage, live
from disklab.results import Run


@dataclass(frozen=True)
class How:
    """How a measurement speaks with the user."""

    notes: Console
    out: Path
    """The folder of new runs."""
    plan: bool
    """Only show what would be done."""
    yes: bool
    """Ask nothing."""
    as_json: bool
    on_end: str | None
    check: bool = False
    """Whether the exit code tells if what is required was kept."""

    def tell(self, text: str) -> None:
        """Print a line beside the answer."""
        self.notes.print(Text(text))


def run_it(wanted: Wanted, how: How) -> int:
    """Show the plan, ask, measure, report; return the exit code. 1: nothing usable was measured."""
    needs_promise(wanted.experiment, check=how.check)

    def agreed(plans: list[HostPlan]) -> bool:
        _show(wanted, plans, console() if how.plan and not how.as_json else how.notes)
        refuse(problem for one in plans for problem in one.missing)
        if not how.plan:
            ask(how.notes, yes=how.yes)
        return not how.plan

    with ExitStack() as undo:
        return measure_on_hosts(wanted, how, undo, agreed)


def measure_on_hosts(
    wanted: Wanted,
    how: How,
    undo: ExitStack,
    agreed: Callable[[list[HostPlan]], bool],
    around: Callable[[Planned, Stage], Stage] = lambda _, stage: stage,
) -> int:
    """Look at hosts that are there, measure on them, report; return the exit code.

    `agreed` hears what will happen to each of them and says whether it may; `around` may put
    another stage around the measurement's own.
    """
    machines = open_all(wanted.hosts.file, wanted.names, how.tell, undo)
    plans = preparation.look(wanted, machines)
    if not agreed(plans):
        return 0
    planned, stage = preparation.prepare(wanted, plans, machines, how.out)
    outer = around(planned, stage)
    work: Callable[[Emit], Run] = lambda emit: live(planned, outer, emit)  # noqa: E731
    code = follow(work, how.notes, as_json=how.as_json, on_end=how.on_end)
    for text in stage.told:
        how.notes.print(Text.assemble(("warning: ", "yellow"), text))
    return code_of_run(planned.run) if how.check and code == 0 else code


def open_all(
    given: HostsFile, names: Sequence[str], told: Callable[[str], None], undo: ExitStack
) -> dict[str, Machine]:
    """Return hosts as machines; `told` hears of their links."""
    return {
        name: open_machine(name, given.hosts[name], given.ssh_config, undo, told) for name in names
    }


def _show(wanted: Wanted, plans: list[HostPlan], to: Console) -> None:
    for line in preparation.in_words(wanted, plans):
        to.print(Text(line))


def ask(notes: Console, *, yes: bool) -> None:
    """Return when the user agrees. Raises UserError where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        rule = "there is no terminal to ask on whether the hosts may be used as planned"
        raise UserError(Problem("--yes", "(not given)", rule, "read the plan, then give --yes"))
    answer = notes.input("Begin? [y/N] ")
    if answer.strip().lower() not in {"y", "yes"}:
        rule = "was not agreed to; nothing was changed"
        raise UserError(Problem("the plan", answer.strip() or "no", rule, "change the hosts file"))


# `disklab probe --hosts`: the same probe on all hosts, as a table with the outliers named.


def probe_all(file: Path, plan: Plan, output: Output, *, yes: bool) -> Sequence[CellResult]:
    """Probe every directory of every node, after the user has agreed to the files made there."""
    hosts = hosts_file.load(file)
    spots = spots_of(hosts)
    to = notes()
    with ExitStack() as undo:
        names = list(dict.fromkeys(spot.host for spot in spots))
        machines = open_all(hosts.file, names, lambda text: to.print(Text(text)), undo)
        check(hosts, machines)
        for spot in spots:
            size = f"a file of {plan.size_bytes >> 20} MiB in {volume_of(hosts, spot).directory}"
            to.print(Text(f"{spot}: make {size}; removed at the end"))
        ask(to, yes=yes)
        seconds = expected_s(plan, len(spots), attached=False)
        title = f"{len(spots)} volumes of {len(names)} hosts"
        with ended_once(), following(output, title, seconds, own(plan, len(spots))) as tell:
            results = probe_hosts(hosts, machines, plan, tell, to.print)
    show_results(results, output, title)
    found = outliers(results)
    shown = to if output.json else console()
    for one in found:
        shown.print(Text.assemble(("outlier: ", "red"), str(one)))
    if not found and len(spots) >= LEAST_FOR_OUTLIERS:
        shown.print(Text(f"no volume is more than {OUTLIER_RATIO:.0%} off the median"))
    return results
