"""What this machine has, and lacks, to run Cassandra: for `disklab doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from disklab.databases.cassandra.distribution import RELEASES, cache_folder
from disklab.databases.cassandra.java import find_java
from disklab.errors import UserError
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import find_program, how_to_get


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
    return Check("Cassandra", "neither fetched nor Maven to fetch it", False, False, way_out)
