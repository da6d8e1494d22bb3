"""From a request to a cluster: what can be refused is refused before anything is made."""

from __future__ import annotations

from disklab.databases.etcd.cluster import Etcd
from disklab.databases.etcd.configuration import ETCD
from disklab.databases.etcd.installation import find_etcd
from disklab.databases.etcd.sizing import plan_memory
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.errors import UserError


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:  # noqa: ARG001 - nothing is fetched
    """Return a cluster that is ready to start."""
    problems = list(ETCD.check(request, nodes))
    if problems:
        raise UserError(*problems)
    installation = find_etcd()
    known = installation.known_settings()
    problems = ETCD.check_settings(request.settings, known, installation.version)
    if problems:
        raise UserError(*problems)
    return Etcd(request, nodes, installation, plan_memory(request.sizes))
