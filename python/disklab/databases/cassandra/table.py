"""Keyspace and tables of the rows workload."""

from __future__ import annotations

from collections.abc import Iterator

from disklab.catalog.suggest import did_you_mean
from disklab.databases.protocol import Request
from disklab.errors import Problem

# Named as experiment files do; the classes are the same in 4.0, 4.1 and 5.0 but for the last.
COMPRESSION = {
    "none": "{'enabled': 'false'}",
    "lz4": "{'class': 'LZ4Compressor'}",
    "snappy": "{'class': 'SnappyCompressor'}",
    "deflate": "{'class': 'DeflateCompressor'}",
    "zstd": "{'class': 'ZstdCompressor'}",
}
COMPACTION = {
    "size-tiered": "SizeTieredCompactionStrategy",
    "leveled": "LeveledCompactionStrategy",
    "unified": "UnifiedCompactionStrategy",
}
UNIFIED_SINCE = "5.0"
OPTIONS = {"compression": COMPRESSION, "compaction": COMPACTION}
CHUNK_LENGTH = "chunk_length"
# As `database.table` of the experiment file has them when nothing is said.
DEFAULTS = {"compression": "none", "compaction": "size-tiered"}


def statements(request: Request, data_center: str | None = None) -> list[str]:
    """Return the CQL that makes keyspace and tables where they are not there yet.

    With `data_center` the copies are in that one alone and in as many of its racks as there are;
    without, on nodes that follow each other.
    """
    columns = "".join(f", c{number} blob" for number in range(request.columns))
    factor = request.replication_factor
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
    if data_center is not None:
        name = data_center.replace("'", "''")
        replication = f"{{'class': 'NetworkTopologyStrategy', '{name}': {factor}}}"
    asked = {**DEFAULTS, **request.table}
    compression = COMPRESSION[str(asked["compression"])]
    if CHUNK_LENGTH in asked:
        length_kib = int(asked[CHUNK_LENGTH]) >> 10
        compression = f"{compression[:-1]}, 'chunk_length_in_kb': '{length_kib}'}}"
    options = (
        f"compression = {compression} "
        f"AND compaction = {{'class': '{COMPACTION[str(asked['compaction'])]}'}}"
    )
    return [
        f"CREATE KEYSPACE IF NOT EXISTS {request.keyspace} WITH replication = {replication}",
        *(
            f"CREATE TABLE IF NOT EXISTS {request.keyspace}.{name} "
            f"(key bigint PRIMARY KEY{columns}) WITH {options}"
            for name in (request.table_name, *request.tables_beside)
        ),
    ]


def check_table(request: Request, line: str) -> Iterator[Problem]:
    """Yield what is wrong with the table's options, for a line of versions such as `5.0`."""
    for name, value in request.table.items():
        place = f"database.table.{name}"
        if name == CHUNK_LENGTH:
            continue
        if name not in OPTIONS:
            known = (*OPTIONS, CHUNK_LENGTH)
            way_out = did_you_mean(name, known, f"choose of {', '.join(known)}")
            yield Problem(place, repr(value), "there is no such option of a table", way_out)
        elif str(value) not in OPTIONS[name]:
            way_out = did_you_mean(
                str(value), OPTIONS[name], f"choose one of {', '.join(OPTIONS[name])}"
            )
            yield Problem(place, repr(value), f"Cassandra has no such {name}", way_out)
        elif value == "unified" and line != UNIFIED_SINCE:
            rule = f"Cassandra {line} has no unified compaction, {UNIFIED_SINCE} has"
            yield Problem(place, repr(value), rule, "choose size-tiered or leveled")
