"""From a request to a server: what can be refused is refused before anything is made."""

from __future__ import annotations

from disklab.databases.postgresql.cluster import PostgreSQL
from disklab.databases.postgresql.configuration import POSTGRESQL
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.postgresql.sizing import plan_memory
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.errors import UserError


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:  # noqa: ARG001 - nothing is fetched
    """Return a server that is ready to start."""
    problems = list(POSTGRESQL.check(request, nodes))
    if problems:
        raise UserError(*problems)
    installation = find_postgresql()
    known = installation.known_settings()
    problems = POSTGRESQL.check_settings(request.settings, known, installation.major)
    if problems:
        raise UserError(*problems)
    return PostgreSQL(request, nodes, installation, plan_memory(request.sizes, request.row_bytes))
