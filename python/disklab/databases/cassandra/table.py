"""The keyspace and the table of the rows workload."""

from __future__ import annotations

from disklab.databases.protocol import Request


def statements(request: Request) -> list[str]:
    """Return the CQL that makes keyspace and tables where they are not there yet."""
    columns = "".join(f", c{number} blob" for number in range(request.columns))
    replication = (
        f"{{'class': 'SimpleStrategy', 'replication_factor': {request.replication_factor}}}"
    )
    return [
        f"CREATE KEYSPACE IF NOT EXISTS {request.keyspace} WITH replication = {replication}",
        *(
            f"CREATE TABLE IF NOT EXISTS {request.keyspace}.{name} "
            f"(key bigint PRIMARY KEY{columns}) WITH {_options(request)}"
            for name in (request.table_name, *request.tables_beside)
        ),
    ]


def _options(request: Request) -> str:
    compression = request.table.get("compression", "lz4")
    if compression == "none":
        return "compression = {'enabled': 'false'}"
    return "compression = {'class': 'LZ4Compressor'}"
