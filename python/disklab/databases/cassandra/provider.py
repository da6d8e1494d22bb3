"""From a request to a cluster: what can be refused is refused before anything is made."""

from __future__ import annotations

from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import Installation
from disklab.databases.cassandra.distribution import fetched, unpacked
from disklab.databases.cassandra.java import find_java
from disklab.databases.cassandra.settings import check_settings, known_settings
from disklab.databases.cassandra.sizing import plan_memory
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.errors import UserError


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a cluster that is ready to start. Fetches Cassandra the first time."""
    java = find_java()
    plan = plan_memory(request.sizes)
    if request.home is not None:
        distribution = unpacked(request.home, progress)
    else:
        distribution = fetched(request.version, progress)
    known = known_settings(distribution.classes)
    problems = check_settings(request.settings, known, distribution.version)
    if problems:
        raise UserError(*problems)
    return Cassandra(request, nodes, Installation(distribution, java, known), plan)
