"""From a request to a server: what can be refused is refused before anything is made."""

from __future__ import annotations

from disklab.databases.postgresql.cluster import PostgreSQL
from disklab.databases.postgresql.configuration import POSTGRESQL
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.postgresql.sizing import plan_memory
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.errors import MachineError, UserError


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a server that is ready to start."""
    problems = list(POSTGRESQL.check(request, nodes))
    if problems:
        raise UserError(*problems)
    found = {host: find_postgresql(host) for host in dict.fromkeys(node.host for node in nodes)}
    told = [f"{host.elsewhere} {one.major}" for host, one in found.items() if host.elsewhere]
    majors = {one.major for one in found.values()}
    if len(majors) > 1:
        shown = ", ".join(told)
        raise MachineError(f"a standby has the version of its primary, and there are {shown}")
    first = found[nodes[0].host]
    problems = POSTGRESQL.check_settings(request.settings, first.known_settings(), first.major)
    if problems:
        raise UserError(*problems)
    if told:
        progress(f"PostgreSQL on {', '.join(told)}")
    plan = plan_memory(request.sizes, request.row_bytes)
    return PostgreSQL(request, [(node, found[node.host]) for node in nodes], plan)
