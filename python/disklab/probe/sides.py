"""A cell as charts and tables show it: reads and writes of a mix apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from disklab.probe.cells import Cell
from disklab.probe.run import CellResult


@dataclass(frozen=True)
class Shown:
    """The reads or the writes of a cell, measured and promised."""

    subject: str
    cell: Cell
    side: str
    """`read` or `write`."""
    iops: float
    bytes_per_s: float
    percentiles_ns: Mapping[float, int]
    promised_iops: float | None
    promised_bytes_per_s: float | None
    promised_percentiles_ns: Mapping[float, int]
    """Empty where a cap stands before the latencies, or nothing is promised."""

    @property
    def title(self) -> str:
        """The cell's name; of a mix, with whose figures these are."""
        return self._of_side(self.cell.title)

    @property
    def io(self) -> str:
        """The same without the load."""
        return self._of_side(self.cell.io)

    @property
    def label(self) -> str:
        """The same without load and block size."""
        return self._of_side(self.cell.direction.title)

    def _of_side(self, name: str) -> str:
        return f"{name}, {self.side}s" if len(self.cell.direction.shares) > 1 else name


def apart(results: Sequence[CellResult]) -> Iterator[Shown]:
    """Yield the directions of each cell; a promise of a mix is shared as it was asked for."""
    for result in results:
        measured, owed = result.measurement, result.promise
        shares = result.cell.direction.shares
        for side, seen in measured.sides.items():
            yield Shown(
                subject=result.subject,
                cell=result.cell,
                side=side,
                iops=seen.ios / measured.runtime_s,
                bytes_per_s=seen.bytes_ / measured.runtime_s,
                percentiles_ns=seen.latency.percentiles_ns,
                promised_iops=owed.iops * shares[side] if owed else None,
                promised_bytes_per_s=owed.bytes_per_s * shares[side] if owed else None,
                promised_percentiles_ns=(owed.percentiles_ns or {}).get(side, {}) if owed else {},
            )
