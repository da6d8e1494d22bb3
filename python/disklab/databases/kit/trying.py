"""A kit tried where it is written: on a plain folder, for a few seconds of its load."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from disklab.databases.kit.cluster import KitCluster, provision
from disklab.databases.protocol import NodePlace, Request, Sizes, say_nothing
from disklab.engine import server_account
from disklab.hosts.addresses import free_addresses
from disklab.kits import Kit, engine_of

MEMORY_BYTES = 2 << 30
"""Of each node: what a small VM has."""


class Trial:
    """A cluster of a kit in a folder that goes with it."""

    def __init__(self, kit: Kit, nodes: int, progress: object = say_nothing) -> None:
        """Make folders and take addresses; nothing runs yet."""
        self._folder = tempfile.TemporaryDirectory(
            prefix="disklab-kit-", ignore_cleanup_errors=True
        )
        top = Path(self._folder.name)
        top.chmod(0o711)
        addresses = free_addresses(nodes, tuple(kit.ports.values()))
        places = [
            self._place(top, f"n{number}", address) for number, address in enumerate(addresses, 1)
        ]
        request = Request(
            engine=engine_of(kit.kit),
            sizes=Sizes(MEMORY_BYTES, Fraction(1), nodes),
            replication_factor=nodes,
        )
        database = provision(request, places, progress)  # type: ignore[arg-type]
        assert isinstance(database, KitCluster)
        self.database = database

    @staticmethod
    def _place(top: Path, name: str, address: str) -> NodePlace:
        folders = {part: top / name / part for part in ("data", "run", "log")}
        for folder in folders.values():
            folder.mkdir(parents=True)
            folder.chmod(0o711)
        (top / name).chmod(0o711)
        return NodePlace(name, address, {"data": folders["data"]}, folders["run"], folders["log"])

    def __enter__(self) -> Trial:
        """Return itself."""
        server_account()
        return self

    def __exit__(self, *_: object) -> None:
        """End all of it, and remove the folder."""
        for node in self.database.nodes:
            node.kill()
        self._folder.cleanup()

    def log_lines(self, most: int = 20) -> Iterator[str]:
        """Yield the last lines of each node's logs."""
        for node in self.database.nodes:
            for log in sorted(node.place.log_dir.glob("*.log")):
                for line in log.read_text(errors="replace").splitlines()[-most:]:
                    yield f"{log.stem}: {line[:400]}"
