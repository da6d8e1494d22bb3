"""A database that the machine has installed, each node of which holds all data: what it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from disklab.catalog.suggest import did_you_mean
from disklab.database_settings import Setting, setting_problem, settings_of
from disklab.databases.protocol import NodePlace, Request
from disklab.errors import Problem

WAL_VOLUMES = ("wal", "commitlog")  # as `log_volumes` of the databases' facts
"""Names of the volume of the write-ahead log; the second one so that experiments with another
database can be kept as they are."""
# What the experiment file has when nothing is said.
_UNSAID = (("compression", "none"), ("compaction", "size-tiered"))


def names_release(version: str, release: str) -> bool:
    """Return whether a file's version names a release: 3.5.21 is meant by 3, 3.5 and itself."""
    return f"{release}.".startswith(f"{version}.")


@dataclass(frozen=True)
class Installed:
    """What such a database is called in what it refuses."""

    engine: str
    """Its folder of `databases/`."""
    title: str
    node: str
    """A node and what it holds, as the beginning of a sentence."""
    data: str
    """What lies on the volume `data`."""
    option: str
    """What an option of `database.table` would be called."""
    setting: str
    listing: str
    """Where its settings are listed."""
    chosen: str | None = None
    """Which of the installed ones is run; None: the one that a file's version names."""

    def check(self, request: Request, nodes: Sequence[NodePlace]) -> Iterator[Problem]:
        """Yield why a request cannot be had, as far as it is known without an installation."""
        if len(nodes) != request.replication_factor:
            value = f"{len(nodes)} nodes, replication factor {request.replication_factor}"
            rule = f"{self.node}: there must be as many copies as nodes"
            way_out = f"write replication_factor: {len(nodes)}, or rehearse as many nodes as copies"
            yield Problem("cluster.nodes", value, rule, way_out)
        for node in nodes:
            if "data" not in node.volumes:
                rule = f"{self.title} keeps its {self.data} on the volume `data`"
                way_out = "name one of the cluster's volumes data"
                yield Problem("cluster.volumes", ", ".join(node.volumes) or "none", rule, way_out)
        if request.version is not None and self.chosen is not None:
            rule = f"disklab runs the {self.chosen} that is installed on this machine"
            yield Problem("database.version", request.version, rule, "leave it out")
        for name, option in request.table.items():
            if (name, option) not in _UNSAID:
                rule = f"{self.title} has no such {self.option}"
                yield Problem(f"database.table.{name}", repr(option), rule, "leave it out")

    def check_settings(
        self, settings: Mapping[str, Setting], known: frozenset[str], version: str | int
    ) -> list[Problem]:
        """Return what is wrong with a user's settings, for a server that knows these names."""
        problems = []
        listed = settings_of(self.engine).settings
        for name, value in settings.items():
            place = f"database.settings.{name}"
            problem = setting_problem(self.engine, name, value, place)
            if problem is None and name not in known:
                rule = f"{self.title} {version} has no such {self.setting}"
                way_out = did_you_mean(name, known & listed.keys(), f"see `{self.listing}`")
                problem = Problem(place, repr(value), rule, way_out)
            if problem is not None:
                problems.append(problem)
        return problems
