"""How many rows a table has and how long they are, from a few reads at random tokens.

A partition's token is a hash of its key, so partitions lie on the ring as events of a Poisson
process: from any token on, the k-th of them is k mean distances away. Some dozens of such distances
give the number of partitions, whatever compression, memtables and the age of the server's own
estimates are. The rows that are met on the way are measured inside of the engine: their lengths
leave it, their values do not.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disklab.engine import CqlQuery

PLACES = 64
ROWS_OF_PLACE = 16
"""64 x 16 distances: a standard error of 3 %, for 64 reads of ranges."""
LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""Tokens of Murmur3Partitioner."""
PARTITIONER = "Murmur3Partitioner"
TOKEN = "disklab_token"  # noqa: S105 - the name of a column


@dataclass(frozen=True)
class Sample:
    """What the sample tells of a table."""

    rows: float | None
    """None: a partition holds several rows, or tokens are no hashes, so it cannot tell."""
    row_bytes: float | None
    """Bytes of the values of a row beside its key, in the mean; None: the table is empty."""
    columns: int
    measured: int
    """Rows that were measured."""


def sampled(query: CqlQuery, name: str, chance: random.Random) -> Sample:
    """Return a sample of a table (`keyspace.table`). Raises QueryError, such as for no right."""
    keyspace, _, table = name.partition(".")
    # Names come from the database itself, which has no quotes in those of keyspaces and tables.
    where = f"keyspace_name = '{keyspace}' AND table_name = '{table}'"
    shown = "column_name, kind, position"
    columns = query.ask(f"SELECT {shown} FROM system_schema.columns WHERE {where}")  # noqa: S608
    key = [one for one in columns if one["kind"] == "partition_key"]
    key.sort(key=lambda one: int(one["position"]))
    values = [str(one["column_name"]) for one in columns if one["kind"] in ("regular", "static")]
    clustered = any(one["kind"] == "clustering" for one in columns)
    partitioner = str(query.ask("SELECT partitioner FROM system.local")[0]["partitioner"])
    token = f"token({', '.join(_quoted(str(one['column_name'])) for one in key)})"
    shown = ", ".join([f"{token} AS {TOKEN}", *map(_quoted, values)])
    source = f"{_quoted(keyspace)}.{_quoted(table)}"
    asked = f"SELECT {shown} FROM {source} WHERE {token} > "  # noqa: S608 - quoted
    places = [chance.randint(LEAST, MOST - 1) for _ in range(PLACES)]
    found = [(place, query.measure(f"{asked}{place} LIMIT {ROWS_OF_PLACE}")) for place in places]
    hashed = partitioner.endswith(PARTITIONER) and not clustered
    rows = [row for _, rows in found for row in rows]
    return Sample(
        partitions(found) if hashed else None,
        mean_bytes(rows),
        len(values),
        len(rows),
    )


def partitions(found: Sequence[tuple[int, Sequence[dict[str, Any]]]]) -> float:
    """Return how many partitions there are, from tokens and the rows that follow each."""
    met, width = 0, 0
    for place, rows in found:
        # Where the ring ended before the limit, its end is how far was looked.
        whole = len(rows) >= ROWS_OF_PLACE
        last = int(rows[-1][TOKEN]) if whole else MOST
        met += len(rows)
        width += last - place
    return met * (MOST - LEAST) / width if width else 0.0


def mean_bytes(rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the bytes of a row's values in the mean; None: there are no rows."""
    if not rows:
        return None
    told = [sum(size or 0 for name, size in row.items() if name != TOKEN) for row in rows]
    return sum(told) / len(told)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
