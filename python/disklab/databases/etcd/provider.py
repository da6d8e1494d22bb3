"""From a request to a cluster: what can be refused is refused before anything is made."""

from __future__ import annotations

from collections.abc import Iterator

from disklab.databases.etcd.cluster import Etcd
from disklab.databases.etcd.configuration import check_settings
from disklab.databases.etcd.installation import find_etcd
from disklab.databases.etcd.sizing import plan_memory
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.errors import Problem, UserError


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:  # noqa: ARG001 - nothing is fetched
    """Return a cluster that is ready to start."""
    problems = list(_check(request, nodes))
    if problems:
        raise UserError(*problems)
    installation = find_etcd()
    known = installation.known_settings()
    problems = check_settings(request.settings, known, installation.version)
    if problems:
        raise UserError(*problems)
    return Etcd(request, nodes, installation, plan_memory(request.sizes))


def _check(request: Request, nodes: list[NodePlace]) -> Iterator[Problem]:
    if len(nodes) != request.replication_factor:
        value = f"{len(nodes)} nodes, replication factor {request.replication_factor}"
        rule = "each member of etcd holds all keys: there are as many copies as nodes"
        way_out = f"write replication_factor: {len(nodes)}, or rehearse as many nodes as copies"
        yield Problem("cluster.nodes", value, rule, way_out)
    for node in nodes:
        if "data" not in node.volumes:
            rule = "etcd keeps its database on the volume `data`"
            way_out = "name one of the cluster's volumes data"
            yield Problem("cluster.volumes", ", ".join(node.volumes) or "none", rule, way_out)
    if request.address is not None or request.home is not None or request.version is not None:
        rule = "disklab runs the etcd that is installed on this machine"
        yield Problem("database", "address, home or version", rule, "leave it out")
    for name, option in request.table.items():
        # What the experiment file has when nothing is said.
        if (name, option) not in (("compression", "none"), ("compaction", "size-tiered")):
            rule = "etcd has no such option"
            yield Problem(f"database.table.{name}", repr(option), rule, "leave it out")
