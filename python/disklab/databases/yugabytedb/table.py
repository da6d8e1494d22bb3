"""The table of the rows workload in YSQL."""

from __future__ import annotations

HASH = " HASH"
"""The key is hashed over all tablets, as a Cassandra's is over its ring."""


def schema(table: str, columns: int) -> str:
    """Return the SQL that makes a table where it is not there yet. YugabyteDB has no TOAST."""
    values = "".join(f", c{number} bytea" for number in range(columns))
    return f"CREATE TABLE IF NOT EXISTS {table} (key bigint{values}, PRIMARY KEY (key{HASH}))"
