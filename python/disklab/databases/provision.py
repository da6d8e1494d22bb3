"""Choosing the provider of a database."""

from __future__ import annotations

from disklab.catalog.suggest import did_you_mean
from disklab.databases import cassandra, postgresql, yugabytedb
from disklab.databases.protocol import Database, NodePlace, Progress, Request, say_nothing
from disklab.errors import Problem, UserError

# What the nodes of each listen on.
PORTS = {
    "cassandra": cassandra.PORTS,
    "postgresql": postgresql.PORTS,
    "yugabytedb": yugabytedb.PORTS,
}
PROVIDERS = {
    "cassandra": cassandra.provision,
    "postgresql": postgresql.provision,
    "yugabytedb": yugabytedb.provision,
}


def provision(
    request: Request, nodes: list[NodePlace], progress: Progress = say_nothing
) -> Database:
    """Return the database of a request on these nodes, not yet started.

    Fetches what is missing (the first time, by network). Raises UserError, with every problem,
    for what cannot be: unknown settings, no Java, too little memory.
    """
    if request.engine not in PROVIDERS:
        rule = "disklab has no provider for this database"
        way_out = did_you_mean(request.engine, PROVIDERS, f"choose one of {', '.join(PROVIDERS)}")
        raise UserError(Problem("database.engine", repr(request.engine), rule, way_out))
    return PROVIDERS[request.engine](request, nodes, progress)
