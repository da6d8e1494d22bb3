"""Our figures beside the published ones: percentile by percentile, rate by rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.columns import Columns
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from disklab.engine.messages import Envelope
from disklab.probe import wording
from disklab.probe.cells import Profile
from disklab.probe.published import Published
from disklab.probe.run import CellResult
from disklab.probe.verdict import LATENCY_TOLERANCE_RATIO

SOURCE = "tomaskubica.cz 2020-09, Azure VM and fast local disks; 8k random writes"


@dataclass(frozen=True)
class Compared:
    """One device's results and its published row."""

    device: str
    results: tuple[CellResult, ...]
    published: Published | None
    envelope: Envelope | None
    """What the emulating machine can do at best; None for a real disk."""

    def result(self, profile: Profile) -> CellResult | None:
        """Return the cell of a profile."""
        return next((r for r in self.results if r.cell.profile is profile), None)


def ratio_text(ours: float, published: float, worse_above: bool) -> Text:
    """Return ours over published; red when it is worse than the tolerance allows."""
    ratio = ours / published
    off = ratio - 1 if worse_above else 1 - ratio
    style = "red" if off > LATENCY_TOLERANCE_RATIO else "green"
    if off < -LATENCY_TOLERANCE_RATIO:
        style = "yellow"  # better than published is a difference too
    return Text(f"{ratio:.2f}", style=style)


def percentile_table(compared: Compared) -> Table | None:
    """Return one device's latencies at depth 1: ours, published, ours over published."""
    result, known = compared.result(Profile.SYNC), compared.published
    if result is None:
        return None
    table = Table(title=compared.device, title_justify="left")
    for name in ("percentile", "ours", "published", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for percentile, ours_ns in result.measurement.latency.percentiles_ns.items():
        theirs_ns = known.percentiles_ns.get(percentile) if known else None
        table.add_row(
            f"{percentile:g}",
            wording.duration(ours_ns),
            wording.duration(theirs_ns) if theirs_ns else "",
            ratio_text(ours_ns, theirs_ns, worse_above=True) if theirs_ns else "",
        )
    return table


def rate_table(all_compared: Sequence[Compared]) -> Table | None:
    """Return every device's IOPS under the deep queue; None when no such cell was measured."""
    table = Table(title="four jobs, depth 256 each: IOPS", title_justify="left")
    table.add_column("device", no_wrap=True)
    for name in ("ours", "published", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note")
    for compared in all_compared:
        result, known = compared.result(Profile.ASYNC), compared.published
        if result is not None:
            ours = result.measurement.iops
            table.add_row(
                compared.device,
                wording.iops(ours),
                wording.iops(known.iops) if known else "",
                ratio_text(ours, known.iops, worse_above=False) if known else "",
                known.note if known else "",
            )
    return table if table.row_count else None


def walls(compared: Compared) -> list[str]:
    """Return which limits of the emulating machine stood before the published figures."""
    envelope, known = compared.envelope, compared.published
    if envelope is None or known is None:
        return []
    found = []
    lowest_ns, most_iops = envelope.p50_ns, envelope.iops
    below = [p for p, ns in known.percentiles_ns.items() if ns < lowest_ns]
    if below and compared.result(Profile.SYNC):
        found.append(
            f"{compared.device}: published percentiles up to p{max(below):g} lie below this "
            f"machine's lowest median, {wording.duration(lowest_ns)}"
        )
    if known.iops > most_iops and compared.result(Profile.ASYNC):
        found.append(
            f"{compared.device}: {wording.iops(known.iops)} IOPS were published, this machine's "
            f"emulator ends at {wording.iops(most_iops)}"
        )
    return found


def renderables(all_compared: Sequence[Compared]) -> list[RenderableType]:
    """Return the whole comparison for a console."""
    latencies = [table for c in all_compared if (table := percentile_table(c)) is not None]
    rates = rate_table(all_compared)
    shown: list[RenderableType] = []
    if latencies:
        shown += [Text("latency, one job, depth 1", style="bold"), Columns(latencies)]
    if rates is not None:
        shown.append(rates)
    shown.append(Text(f"published: {SOURCE}", style="dim"))
    shown += [Text(wall, style="magenta") for c in all_compared for wall in walls(c)]
    return shown
