"""From a request to a cluster: what can be refused is refused before anything is made."""

from __future__ import annotations

from disklab.databases.etcd.cluster import Etcd
from disklab.databases.etcd.configuration import ETCD
from disklab.databases.etcd.installation import find_etcd
from disklab.databases.etcd.sizing import plan_memory
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.errors import UserError


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a cluster that is ready to start."""
    problems = list(ETCD.check(request, nodes))
    if problems:
        raise UserError(*problems)
    found = {host: find_etcd(host) for host in dict.fromkeys(node.host for node in nodes)}
    for one in {one.version: one for one in found.values()}.values():
        problems += ETCD.check_settings(request.settings, one.known_settings(), one.version)
    if problems:
        raise UserError(*problems)
    told = [f"{host.elsewhere} ({one.version})" for host, one in found.items() if host.elsewhere]
    if told:
        progress(f"etcd on {', '.join(told)}")
    return Etcd(request, [(node, found[node.host]) for node in nodes], plan_memory(request.sizes))
