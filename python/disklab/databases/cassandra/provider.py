"""From a request to a cluster: what can be refused is refused before anything is made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import COLLECTORS, PORTS, Installation
from disklab.databases.cassandra.distribution import (
    RELEASES,
    Distribution,
    Java,
    exact_version,
    fetched,
    find_java,
    look_for_java,
    unpacked,
)
from disklab.databases.cassandra.settings import check_settings, check_table, known_settings
from disklab.databases.cassandra.sizing import plan_memory
from disklab.databases.place import ServerHost
from disklab.databases.program_cache import cache_folder
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.databases.record import Needed
from disklab.engine import Account
from disklab.errors import Problem, UserError, refuse, usable
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import find_program, how_to_get

USERS = ("disklab", "cassandra")
"""Who may run a node for root: our own user, else the one that Cassandra's packages make."""
LIBRARIES = "lib"


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a cluster that is ready to start. Fetches Cassandra the first time."""
    check(request, nodes)
    hosts = dict.fromkeys(node.host for node in nodes)
    javas = {host: java_of(host) for host in hosts}
    accounts = {host: host.account(USERS) for host in hosts}
    here = any(not host.elsewhere for host in hosts)
    plan = plan_memory(request.sizes, None if here else request.sizes.memory_bytes)
    distribution = distribution_of(request, progress)
    for host, java in javas.items():
        _check_readable(host, accounts[host], [java.home, java.program, distribution.libraries])
    known = settings_of(request, distribution)

    def install(node: NodePlace) -> tuple[NodePlace, Installation]:
        host = node.host
        sent = sent_to(host, distribution, node.volumes["data"])
        java, account = javas[host], accounts[host]
        return node, Installation(sent, java, known, account, request.collector)

    told = [str(host.elsewhere) for host in hosts if host.elsewhere]
    if told:
        progress(f"sending Cassandra {distribution.version} to {', '.join(told)}")
    with ThreadPoolExecutor(len(nodes)) as pool:
        return Cassandra(request, list(pool.map(install, nodes)), plan)


def java_of(host: ServerHost) -> Java:
    """Return the Java of a host. Raises UserError for none."""
    return usable(look_for_java(host)) if host.elsewhere else find_java()


def sent_to(host: ServerHost, distribution: Distribution, folder: Path) -> Distribution:
    """Return a distribution as a host has it: sent to a folder of ours there, unless it is here."""
    if not host.elsewhere:
        return distribution
    target = folder / LIBRARIES
    host.run(["mkdir", "-p", "-m", "0755", "--", str(target)])
    jars = sorted(distribution.libraries.glob("*.jar"))
    for jar in dict.fromkeys([*jars, distribution.jolokia]):
        host.put(jar, target / jar.name)
    return replace(
        distribution,
        libraries=target,
        jolokia=target / distribution.jolokia.name,
        agent=target / distribution.jamm.name,
    )


def needed_on(host: ServerHost, version: str | None) -> Needed | Problem:
    """Return what a node will need of a host, or what that lacks."""
    java = look_for_java(host)
    if isinstance(java, Problem):
        return java
    if not (host.program("bash") and host.program("setpriv")):
        rule = "the programs are missing on the host; disklab installs nothing"
        return Problem("", "bash, setpriv", rule, "install the packages bash and util-linux there")
    title = f"a Cassandra {exact_version(version)} node on Java {java.major}"
    return Needed(title, host.account(USERS), PORTS, by_ip=True)


def _check_readable(host: ServerHost, account: Account | None, paths: Sequence[Path]) -> None:
    for path in paths:
        closed = host.unreadable(account, path)
        if account is not None and closed is not None:
            rule = f"Cassandra runs as the user {account.name}, who may not read it"
            way_out = (
                f"open it (chmod o+rx {closed}), or set XDG_CACHE_HOME, CASSANDRA_HOME, JAVA_HOME"
            )
            raise UserError(Problem("this machine", str(closed), rule, way_out))


def check(request: Request, nodes: Sequence[NodePlace]) -> None:
    """Raise UserError when there can be no such cluster on these nodes."""
    refuse(list(_check_nodes(request, nodes)))


def settings_of(request: Request, distribution: Distribution) -> Mapping[str, str]:
    """Return the settings that a version knows.

    Raises UserError for those of the request, and for options of its table, that it does not.
    """
    known = known_settings(distribution.classes)
    problems = [*check_settings(request.settings, known, distribution.version)]
    problems += check_table(request, distribution.line)
    refuse(problems)
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
        rule = f"each copy of a row needs a node of its own, and there are {first}"
        way_out = f"rehearse {factor} nodes (--nodes {factor}), or lower the replication factor"
        yield Problem("database.replication_factor", str(factor), rule, way_out)
    for node in nodes:
        if "data" not in node.volumes:
            rule = "Cassandra keeps its tables on the volume `data`"
            way_out = "name one of the cluster's volumes data"
            yield Problem("cluster.volumes", ", ".join(node.volumes) or "none", rule, way_out)


def checks() -> Iterator[Check]:
    """Look for Java and for Cassandra, or for the program that fetches it."""
    try:
        java = find_java()
        yield Check("Java", f"{java.major} in {java.home}", True, False)
    except UserError as error:
        (problem,) = error.problems
        yield Check("Java", problem.value, False, False, problem.way_out)
    yield _cassandra()


def _cassandra() -> Check:
    if os.environ.get("CASSANDRA_HOME"):
        return Check("Cassandra", f"CASSANDRA_HOME={os.environ['CASSANDRA_HOME']}", True, False)
    folder = cache_folder() / "cassandra"
    fetched = [version for version in RELEASES.values() if (folder / version).exists()]
    if fetched:
        return Check("Cassandra", f"{', '.join(fetched)} in {folder}", True, False)
    maven = find_program("mvn")
    if maven is not None:
        return Check("Cassandra", f"the first rehearsal fetches it by {maven}", True, False)
    way_out = f"{how_to_get('mvn')}; or set CASSANDRA_HOME to an unpacked tarball"
    return Check(
        "Cassandra",
        "it has not been fetched, and there is no Maven to fetch it",
        False,
        False,
        way_out,
    )
