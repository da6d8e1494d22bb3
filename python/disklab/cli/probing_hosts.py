"""`disklab probe --hosts`: the same probe on all hosts, as a table with the outliers named."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.text import Text

from disklab.cli.measuring import ask, open_all
from disklab.cli.output import console, notes
from disklab.interrupts import ended_once
from disklab.measurement import hosts_file
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
from disklab.probe.command import listening
from disklab.probe.report import show_results
from disklab.probe.run import CellResult, Output, expected_fill_s


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
        seconds = len(spots) * (len(plan.cells) * plan.duration_s + expected_fill_s(plan))
        with ended_once(), listening(output, seconds) as tell:
            results = probe_hosts(hosts, machines, plan, tell, to.print)
    show_results(results, output, f"{len(spots)} volumes of {len(names)} hosts")
    found = outliers(results)
    shown = to if output.json else console()
    for one in found:
        shown.print(Text.assemble(("outlier: ", "red"), str(one)))
    if not found and len(spots) >= LEAST_FOR_OUTLIERS:
        shown.print(Text(f"no volume is more than {OUTLIER_RATIO:.0%} off the median"))
    return results
