"""From a request to a cluster: one that runs, or `yugabyted` nodes where that is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from disklab.database_settings import setting_problems
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.databases.yugabytedb.nodes import Program, Yugabyted
from disklab.databases.yugabytedb.running import RunningCluster
from disklab.engine import server_account, unreachable
from disklab.errors import Problem, UserError
from disklab.hosts import requirements
from disklab.hosts.doctor import Check

HOME = "YUGABYTE_HOME"
PROGRAM = "yugabyted"


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:  # noqa: ARG001 - nothing is fetched
    """Return a cluster that is ready to start. Raises UserError with every problem."""
    if request.address is not None:
        return RunningCluster.of(request)
    problems = list(_check(request, nodes))
    program = find_yugabyted(request.home)
    if program is None:
        rule = "is not installed, and no package registry has it"
        way_out = (
            f"unpack the vendor's tarball and set {HOME}; or rehearse on PostgreSQL: "
            "`rehearse: {engine: postgresql}`"
        )
        problems.append(Problem("database.engine", PROGRAM, rule, way_out))
    if problems:
        raise UserError(*problems)
    assert program is not None
    psql = requirements.required_program("psql", "database.engine")
    account = server_account()
    closed = unreachable(account, [Path(program)])
    if account is not None and closed is not None:
        rule = f"YugabyteDB runs as the user {account.name}, who may not read it"
        way_out = f"open it (chmod o+rx {closed}), or unpack the tarball elsewhere"
        raise UserError(Problem(HOME, str(closed), rule, way_out))
    return Yugabyted(request, nodes, Program(program, psql, account))


def checks() -> Iterator[Check]:
    """Look for `yugabyted`: for `disklab doctor`."""
    found = find_yugabyted(None)
    way_out = "" if found else f"unpack the vendor's tarball and set {HOME}"
    yield Check("YugabyteDB", found or "not installed", found is not None, False, way_out)


def find_yugabyted(home: Path | None) -> str | None:
    """Return the program: of a folder, else of YUGABYTE_HOME, else on the PATH."""
    named = home or (Path(os.environ[HOME]) if os.environ.get(HOME) else None)
    if named is not None:
        found = named / "bin" / PROGRAM
        return str(found) if os.access(found, os.X_OK) else None
    return requirements.find_program(PROGRAM)


def _check(request: Request, nodes: list[NodePlace]) -> Iterator[Problem]:
    factor = request.replication_factor
    if factor > len(nodes):
        rule = f"each copy of a row is on a node of its own, and there are {len(nodes)}"
        way_out = f"rehearse {factor} nodes (--nodes {factor}), or lower the replication factor"
        yield Problem("database.replication_factor", str(factor), rule, way_out)
    for node in nodes:
        if "data" not in node.volumes:
            rule = "YugabyteDB keeps everything on the volume `data`"
            way_out = "name one of the cluster's volumes data"
            yield Problem("cluster.volumes", ", ".join(node.volumes) or "none", rule, way_out)
    if request.tls:
        rule = "disklab does not make the certificates that `yugabyted start --secure` wants"
        way_out = "write tls: false, or give the address of a running cluster"
        yield Problem("database.tls", "true", rule, way_out)
    yield from setting_problems("yugabytedb", request.settings)
    for name, option in request.table.items():
        # What the experiment file has when nothing is said.
        if (name, option) not in (("compression", "none"), ("compaction", "size-tiered")):
            rule = "YSQL has no such option of a table"
            yield Problem(f"database.table.{name}", repr(option), rule, "leave it out")
