"""MySQL, which is predicted; MariaDB's server is rehearsed in its place."""

from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.databases.record import Record
from disklab.errors import Problem, UserError


def refuse(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:  # noqa: ARG001 - there is none on any node
    """Raise UserError: there is no server to start."""
    rule = "disklab predicts MySQL and starts none so far"
    way_out = "use `disklab predict`, or rehearse on MariaDB: `rehearse: {engine: mariadb}`"
    raise UserError(Problem("database.engine", request.engine, rule, way_out))


RECORD = Record(refuse, ports=())

__all__ = ["RECORD"]
