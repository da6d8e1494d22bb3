"""What a YugabyteDB tells about itself: by YSQL, which is PostgreSQL's protocol, and its masters.

**Source:** docs.yugabyte.com, 2.18 (the study's version): `version()`, `yb_servers()`, and the
master's `/api/v1/cluster-config`.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass

from disklab.databases.sql import Sql
from disklab.errors import Problem, UserError

YSQL_PORT = 5433
MASTER_WEB_PORT = 7000
# And those at which masters and tablet servers talk to each other.
PORTS = (YSQL_PORT, MASTER_WEB_PORT, 7100, 9100)
USER = DATABASE = "yugabyte"
WEB_SECONDS = 15.0
# PostgreSQL 11.2-YB-2.18.1.0-b84 on x86_64-pc-linux-gnu, compiled by ...
VERSION = re.compile(r"PostgreSQL (?P<postgresql>[\d.]+)-YB-(?P<yugabytedb>[\w.-]+)")


@dataclass(frozen=True)
class Facts:
    """What a cluster is."""

    version: str
    """Such as `2.18.1.0-b84`."""
    tablet_servers: tuple[str, ...]
    """Addresses, HOST:PORT of YSQL."""
    replication_factor: int | None
    """None: no master told it."""


def examine(sql: Sql, address: str) -> Facts:
    """Return what answers at an address. Raises UserError when it is not YugabyteDB."""
    ((said,),) = sql.ask("SELECT version()")
    version = VERSION.search(said)
    if version is None:
        rule = f"it answers as {' '.join(said.split()[:2])}, which is not YugabyteDB"
        way_out = "write engine: postgresql, or the address of a YugabyteDB"
        raise UserError(Problem("database.address", address, rule, way_out))
    servers = [f"{host}:{port}" for host, port in sql.ask("SELECT host, port FROM yb_servers()")]
    hosts = dict.fromkeys([address.rpartition(":")[0], *(one.split(":")[0] for one in servers)])
    told = (replication_factor(host) for host in hosts)
    factor = next((one for one in told if one is not None), None)
    return Facts(version["yugabytedb"].rstrip("-"), tuple(sorted(servers)), factor)


def replication_factor(host: str, port: int = MASTER_WEB_PORT) -> int | None:
    """Return what the master on a host says of the cluster; None: there is none that answers."""
    url = f"http://{host}:{port}/api/v1/cluster-config"
    try:
        with urllib.request.urlopen(url, timeout=WEB_SECONDS) as answer:
            found = json.load(answer)
    except (OSError, ValueError, urllib.error.URLError):
        return None
    replicas = found.get("replication_info", {}).get("live_replicas", {}).get("num_replicas")
    return replicas if isinstance(replicas, int) else None
