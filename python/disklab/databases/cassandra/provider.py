"""From a request to a cluster: what can be refused is refused before anything is made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import COLLECTORS, Installation
from disklab.databases.cassandra.distribution import Distribution, fetched, unpacked
from disklab.databases.cassandra.java import find_java
from disklab.databases.cassandra.settings import check_settings, known_settings
from disklab.databases.cassandra.sizing import plan_memory
from disklab.databases.cassandra.table import check_table
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.engine import server_account, unreachable
from disklab.errors import Problem, UserError


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a cluster that is ready to start. Fetches Cassandra the first time."""
    check(request, nodes)
    java = find_java()
    account = server_account()
    plan = plan_memory(request.sizes)
    distribution = distribution_of(request, progress)
    closed = unreachable(account, [java.home, java.program, distribution.libraries])
    if account is not None and closed is not None:
        rule = f"Cassandra runs as the user {account.name}, who may not read it"
        way_out = f"open it (chmod o+rx {closed}), or set XDG_CACHE_HOME, CASSANDRA_HOME, JAVA_HOME"
        raise UserError(Problem("this machine", str(closed), rule, way_out))
    known = settings_of(request, distribution)
    installation = Installation(distribution, java, known, account, request.collector)
    return Cassandra(request, nodes, installation, plan)


def check(request: Request, nodes: Sequence[NodePlace]) -> None:
    """Raise UserError when there can be no such cluster on these nodes."""
    problems = list(_check_nodes(request, nodes))
    if problems:
        raise UserError(*problems)


def settings_of(request: Request, distribution: Distribution) -> Mapping[str, str]:
    """Return the settings that a version knows.

    Raises UserError for those of the request, and for options of its table, that it does not.
    """
    known = known_settings(distribution.classes)
    problems = [*check_settings(request.settings, known, distribution.version)]
    problems += check_table(request, distribution.line)
    if problems:
        raise UserError(*problems)
    return known


def distribution_of(request: Request, progress: Progress) -> Distribution:
    """Return the user's own distribution, by CASSANDRA_HOME, or a fetched one.

    A version that is asked for by number is fetched even when CASSANDRA_HOME is set.
    """
    home = os.environ.get("CASSANDRA_HOME")
    if request.version is None and home:
        return unpacked(Path(home), progress)
    return fetched(request.version, progress)


def _check_nodes(request: Request, nodes: Sequence[NodePlace]) -> Iterator[Problem]:
    if request.tls:
        rule = "disklab rehearses Cassandra without TLS"
        yield Problem("database.tls", "true", rule, "write tls: false, or leave it out")
    if request.collector is not None and request.collector not in COLLECTORS:
        rule = "disklab runs Cassandra on Java 17, which has no CMS (JEP 363)"
        way_out = f"choose {', '.join(COLLECTORS)}, or predict it"
        yield Problem("database.jvm.collector", request.collector, rule, way_out)
    factor = request.replication_factor
    first = sum(not node.comes_later for node in nodes)
    if factor > first:
        rule = f"each copy of a row is on a node of its own, and there are {first}"
        way_out = f"rehearse {factor} nodes (--nodes {factor}), or lower the replication factor"
        yield Problem("database.replication_factor", str(factor), rule, way_out)
    for node in nodes:
        if "data" not in node.volumes:
            rule = "Cassandra keeps its tables on the volume `data`"
            way_out = "name one of the cluster's volumes data"
            yield Problem("cluster.volumes", ", ".join(node.volumes) or "none", rule, way_out)
