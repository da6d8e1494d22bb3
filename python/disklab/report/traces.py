"""What replayed traces are made of, as a table of the page and of the terminal."""

from __future__ import annotations

from disklab.report import wording
from disklab.report.panel import Figures, rows
from disklab.report.subject import Subject
from disklab.results import TraceRecord

KIB = 1024
GB = 1e9
HEADS = (
    "trace", "I/Os", "reads", "block sizes", "in order", "range", "length", "offered",
    "busiest second",
)  # fmt: skip


def replayed(subject: Subject) -> Figures:
    """Return each trace that was replayed, once for each pace; no rows: none was."""
    seen: list[TraceRecord] = []
    for cell in subject.matrix.cells.values():
        for result in cell.shown.results:
            if result.trace is not None and result.trace not in seen:
                seen.append(result.trace)
    return Figures(HEADS, rows([_row(one) for one in seen]))


def _row(one: TraceRecord) -> list[str]:
    sizes = ", ".join(
        f"{int(size) / KIB:g} KiB {share * 100:.0f} %" for size, share in one.block_sizes.items()
    )
    offered = "closed loop" if one.offered_per_s is None else f"{wording.rate(one.offered_per_s)}/s"
    return [
        one.file.rpartition("/")[2],
        f"{one.ios:,}",
        wording.percent(one.reads / one.ios),
        sizes,
        wording.percent(one.sequential_ratio),
        f"{one.touched_bytes / GB:.3g} GB",
        f"{one.duration_s:.3g} s",
        offered,
        f"{one.busiest_per_s:,}",
    ]
