"""From a request to a server: what can be refused is refused before anything is made."""

from __future__ import annotations

from collections.abc import Iterator

from disklab.databases.postgresql.cluster import PostgreSQL
from disklab.databases.postgresql.configuration import check_settings
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.postgresql.sizing import plan_memory
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.errors import Problem, UserError


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:  # noqa: ARG001 - nothing is fetched
    """Return a server that is ready to start."""
    problems = list(check(request, nodes))
    if problems:
        raise UserError(*problems)
    installation = find_postgresql()
    known = installation.known_settings()
    problems = check_settings(request.settings, known, installation.major)
    if problems:
        raise UserError(*problems)
    return PostgreSQL(request, nodes, installation, plan_memory(request.sizes))


def check(request: Request, nodes: list[NodePlace]) -> Iterator[Problem]:
    """Yield why a request cannot be had, as far as it is known without an installation."""
    if len(nodes) != request.replication_factor:
        value = f"{len(nodes)} nodes, replication factor {request.replication_factor}"
        rule = "each PostgreSQL server holds all rows: there are as many copies as nodes"
        way_out = f"write replication_factor: {len(nodes)}, or rehearse as many nodes as copies"
        yield Problem("cluster.nodes", value, rule, way_out)
    for node in nodes:
        if "data" not in node.volumes:
            rule = "PostgreSQL keeps its tables on the volume `data`"
            way_out = "name one of the cluster's volumes data"
            yield Problem("cluster.volumes", ", ".join(node.volumes) or "none", rule, way_out)
    if request.address is not None or request.home is not None or request.version is not None:
        rule = "disklab runs the newest PostgreSQL that is installed on this machine"
        yield Problem("database", "address, home or version", rule, "leave it out")
    for name, option in request.table.items():
        # What the experiment file has when nothing is said.
        if (name, option) not in (("compression", "none"), ("compaction", "size-tiered")):
            rule = "PostgreSQL has no such option of a table"
            yield Problem(f"database.table.{name}", repr(option), rule, "leave it out")
