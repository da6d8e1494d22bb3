"""YugabyteDB, which is predicted: no package registry has a server to rehearse."""

from __future__ import annotations

from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.databases.record import Record
from disklab.errors import Problem, UserError


def refuse(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:  # noqa: ARG001 - there is none on any node
    """Raise UserError: there is no server to start."""
    rule = "disklab predicts YugabyteDB and starts none: no package registry has its server"
    way_out = "use `disklab predict`, or rehearse on PostgreSQL: `rehearse: {engine: postgresql}`"
    raise UserError(Problem("database.engine", request.engine, rule, way_out))


RECORD = Record(refuse, ports=())

__all__ = ["RECORD"]
