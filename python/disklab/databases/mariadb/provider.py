"""Which MariaDB a request is: one server, a primary with a replica, a Galera cluster."""

from __future__ import annotations

from collections.abc import Iterator

from disklab.database_settings import SWITCHES
from disklab.databases.mariadb.cluster import MariaDB
from disklab.databases.mariadb.configuration import MARIADB
from disklab.databases.mariadb.galera import Galera
from disklab.databases.mariadb.installation import MOST_REPLICATED, find_mariadb
from disklab.databases.mariadb.replica import Replicated
from disklab.databases.mariadb.sizing import plan_memory
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.errors import MachineError, Problem, refuse


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return servers that are ready to start."""
    problems = [*MARIADB.check(request, nodes), *_of_copies(request, len(nodes))]
    refuse(problems)
    found = {host: find_mariadb(host) for host in dict.fromkeys(node.host for node in nodes)}
    versions = {installation.version for installation in found.values()}
    if len(versions) > 1:
        raise MachineError(f"the servers have several versions: {', '.join(sorted(versions))}")
    first = found[nodes[0].host]
    problems = MARIADB.check_settings(request.settings, first.known_settings(), first.version)
    for installation in found.values():
        problems += installation.lacks(len(nodes))
    refuse(problems)
    elsewhere = [host.elsewhere for host in found if host.elsewhere]
    if elsewhere:
        progress(f"MariaDB {first.version} on {', '.join(elsewhere)}")
    kind = MariaDB if len(nodes) == 1 else Replicated
    if len(nodes) > MOST_REPLICATED:
        kind = Galera
    return kind(request, [(node, found[node.host]) for node in nodes], plan_memory(request.sizes))


def _of_copies(request: Request, copies: int) -> Iterator[Problem]:
    if copies > MOST_REPLICATED and copies % 2 == 0:
        rule = "a Galera cluster goes on as long as more than half of its nodes see each other"
        yield Problem("cluster.nodes", str(copies), rule, f"write nodes: {copies - 1}")
    binlog = str(request.settings.get("log_bin", "on")).lower()
    if copies == MOST_REPLICATED and binlog in SWITCHES[False]:
        rule = "a replica gets its changes from the primary's binary log"
        yield Problem("database.settings.log_bin", binlog, rule, "leave it out")
