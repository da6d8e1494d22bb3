"""The experiment file of a database that was looked at: commented, and what was assumed in it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from disklab.catalog import Caching, parse_disks
from disklab.catalog.quantity import plain_number
from disklab.database_facts import facts_of
from disklab.observation.found import Found, short
from disklab.spec.amounts import MOST_COUNT
from disklab.spec.draft import GIB, START, count, flow, held, quoted, word
from disklab.spec.draft import together as together_line
from disklab.spec.payloads import MOST_COLUMN_BYTES, MOST_COLUMNS
from disklab.terminal import plain

WIDTH = 100
LEAST_P99_MS = 10.0
"""What is asked for where less is seen: few applications notice a 99th percentile below it."""
BUCKET = 1.2
"""Cassandra's histograms have steps of a fifth: a percentile may be that much higher than told."""


@dataclass(frozen=True)
class Stated:
    """What the user says, as no database knows it."""

    vm: str | None = None
    disks: str | None = None
    caching: Caching = "None"
    p99_ms: float | None = None
    """The promise."""

    @property
    def hardware(self) -> bool:
        """Whether VM and disks are known."""
        return self.vm is not None and self.disks is not None

    @property
    def beginning(self) -> tuple[str, str]:
        """VM size and disks to begin with, of the vendor of what is stated; without sizes."""
        known = self.vm or (parse_disks(self.disks).name if self.disks else "")
        vm, disks = START.get(known.partition("/")[0], START["azure"])
        return self.vm or vm, self.disks or disks


def file_of(found: Found, stated: Stated) -> str:
    """Return the experiment file as text."""
    return "\n".join([*_head(found, stated), *_body(found, stated)]) + "\n"


def assumed(found: Found, stated: Stated) -> list[str]:
    """Return what stands in the file without having been seen, and what could not be."""
    told, facts = [], facts_of(found.engine)
    if not stated.hardware:
        told.append(
            "VM size and disks were not given (--vm, --disks): those in the file are only a "
            "starting point, and advice cannot say what another choice would save"
        )
    if found.row_bytes is None:
        told.append("rows of 1000 B were assumed: none could be measured")
    if facts.consistency_levels and found.consistency is None:
        told.append("consistency LOCAL_QUORUM was assumed")
    if "sysbench" in facts.workloads:  # It speaks SQL.
        told.append("a read of a row is an index scan that no UPDATE or DELETE asked for")
    if stated.p99_ms is None:
        told.append(f"the promise was assumed: {_promise(found, stated)}")
    told += found.unseen
    return [f"{one[:1].upper()}{one[1:]}." for one in told]


def _promise(found: Found, stated: Stated) -> str:
    if stated.p99_ms is not None:
        return f"a p99 of {stated.p99_ms:g} ms, as asked for"
    worst = found.worst_p99_ms
    if worst is None:
        return f"a p99 of {LEAST_P99_MS:g} ms, as none could be seen"
    if worst * BUCKET <= LEAST_P99_MS:
        return f"a p99 of {LEAST_P99_MS:g} ms; it is {short(worst)} ms now"
    return f"no worse than now, {short(worst)} ms and the step of a histogram"


def promised_ms(found: Found, stated: Stated) -> float:
    """Return the 99th percentile that the file requires."""
    if stated.p99_ms is not None:
        return stated.p99_ms
    return max(LEAST_P99_MS, math.ceil((found.worst_p99_ms or 0.0) * BUCKET))


def _head(found: Found, stated: Stated) -> Iterator[str]:
    window = found.window
    began = datetime.fromtimestamp(window.started_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    yield f"title: {word(f'Should this {found.engine_title} move, and to what?')}"
    yield ""
    yield f"# Written by `disklab observe` from {began} on, {window.seconds:.0f} s:"
    yield from commented(found.sentence())
    yield "#"
    for name, told in found.facts():
        yield from commented(f"{name}: {told}")
    yield "#"
    yield "# Assumed, or not seen:"
    for one in assumed(found, stated):
        yield from commented(f"- {one}")
    yield "#"
    yield "# By interval (seconds from the beginning, reads/s, writes/s):"
    at = 0.0
    for part in window.intervals:
        reads, writes = part.count.reads / part.seconds, part.count.writes / part.seconds
        yield f"#   {at:8,.0f} s  {reads:10,.1f}  {writes:10,.1f}"
        at += part.seconds
    kind = "stated" if stated.hardware else "assumed"
    p99 = found.worst_p99_ms
    told_p99 = "" if p99 is None else f", p99: {plain_number(p99, 3)}ms"
    yield ""
    yield "# `disklab advise` compares with the current system if its hardware is stated."
    yield f"observed: {{at: {began}, for: {window.seconds:.0f}s, hardware: {kind}{told_p99}}}"
    yield ""


def _body(found: Found, stated: Stated) -> Iterator[str]:
    together = found.writes_per_commit
    changes = found.writes_per_s / together
    all_ = found.reads_per_s + changes
    reads = round(found.reads_per_s / all_ * 1000) / 10 if all_ else 100.0
    bound = f"{plain_number(promised_ms(found, stated))}ms"
    kinds = [kind for kind, share in (("read", reads), ("write", 100 - reads)) if share >= 0.05]
    required = [f"{kind}: {{p99: {bound}}}" for kind in kinds]
    rate = max(1.0, found.busiest_per_s * (all_ / found.per_s if found.per_s else 1.0))
    yield from commented(f"The promise: {_promise(found, stated)}; at the busiest interval's rate.")
    yield f"require: {{{', '.join([*required, f'rate: {plain_number(rate, 4)}/s'])}}}"
    yield ""
    nodes = len(found.shape.nodes)
    vm, disks = hardware(found, stated)
    yield "cluster:"
    yield f"  nodes: {nodes}"
    yield f"  vm: {word(vm)}"
    yield "  volumes:"
    volume = [f"disks: {quoted(disks)}", f"caching: {stated.caching}", *_volume(found)]
    yield f"    data: {{{', '.join(volume)}}}"
    yield f"client: {{nodes: 1, vm: {word(vm)}}}"
    yield ""
    yield f"database: {{{', '.join(_database(found))}}}"
    yield ""
    yield f"dataset: {{rows: {count(rounded(found.rows))}, row: {row_of(found)}}}"
    yield ""
    yield "workload:"
    shares = f"read: {plain_number(reads, 4)}%, write: {plain_number(100 - reads, 4)}%"
    yield f"  operations: {{{shares}}}"
    if together > 1:
        yield together_line(together)
    yield "  keys: uniform"
    if found.asked is not None and found.asked.most < 1:
        told = max(0.1, math.ceil(found.asked.most * 1000) / 10)
        span = f"{found.asked.least * 100:.0f} to {found.asked.most * 100:.0f} %"
        yield f"  # The cautious end of {span}, estimated from the cache."
        yield f"  working_set: {plain_number(told, 4)}%"
    yield f"  load: {{rate: {plain_number(rate, 4)}/s}}"
    yield "  stop: {duration: 60s}"
    yield ""
    yield "# Burst credits are spent: what is bought must sustain its rate all day."
    yield "before: {page_cache: warm, host_cache: written, credits: 0%}"


def _volume(found: Found) -> Iterator[str]:
    disk = next((one.disk for one in found.machines if one.disk is not None), None)
    if disk is None or disk.filesystem not in ("xfs", "ext4"):
        yield "filesystem: xfs"
        return
    yield f"filesystem: {disk.filesystem}"
    if disk.read_ahead_bytes:
        yield f"read_ahead: {disk.read_ahead_bytes >> 10}KiB"


def _database(found: Found) -> Iterator[str]:
    yield f"engine: {found.engine}"
    if (version := version_of(found)) is not None:
        yield f'version: "{version}"'
    levels = facts_of(found.engine).consistency_levels
    if levels or len(found.shape.nodes) > 1:
        yield f"replication_factor: {found.copies}"
    if levels:
        yield f"consistency: {found.consistency or 'LOCAL_QUORUM'}"
    busiest = max(found.shape.tables, key=found.share, default=None)
    if busiest is not None and busiest.options:
        yield f"table: {flow(busiest.options)}"
    if found.shape.settings:
        yield f"settings: {flow(found.shape.settings)}"


def version_of(found: Found) -> str | None:
    """Return the release series that the server said it is of; None: it said something else."""
    whole = found.shape.version.rpartition(" ")[2]
    further = facts_of(found.engine).version_numbers - 1
    series = re.match(rf"\d{{1,3}}(\.\d{{1,3}}){{0,{further}}}", whole)
    return None if series is None else series[0]


def hardware(found: Found, stated: Stated) -> tuple[str, str]:
    """Return VM size and disks: those that are stated, or a beginning that holds the data."""
    vm, disks = stated.beginning
    nodes = len(found.shape.nodes)
    each = math.ceil(found.data_bytes * (found.copies if nodes > 1 else 1) / nodes / GIB)
    return vm, stated.disks or held(disks, each)


def row_of(found: Found) -> str:
    """Return columns and bytes of each; as few as can be where they do not make the whole."""
    whole = min(max(1, round(found.row_bytes or 1000.0)), MOST_COLUMNS * MOST_COLUMN_BYTES)
    fewest = -(-whole // MOST_COLUMN_BYTES)
    columns = min(max(fewest, found.columns), MOST_COLUMNS)
    columns = columns if whole % columns == 0 else fewest
    return f"{columns} x {whole // columns}B"


def rounded(rows: int) -> int:
    """Return rows with three digits: neither a sample nor statistics know more."""
    return min(max(1, int(float(f"{rows:.3g}"))), MOST_COUNT)


def commented(text: str) -> Iterator[str]:
    """Yield a text as comment lines of the file's width."""
    line = ""
    for part in plain(text).split():
        if line and 2 + len(line) + 1 + len(part) > WIDTH:
            yield f"# {line}"
            line = "  " + part
        else:
            line = f"{line} {part}" if line else part
    yield f"# {line}"
