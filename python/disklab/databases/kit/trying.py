"""A kit tried where it is written: on a plain folder, for a few seconds of its load."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from disklab.databases.kit.cluster import KitCluster, provision
from disklab.databases.protocol import NodePlace, Progress, Request, Sizes
from disklab.hosts.addresses import free_addresses
from disklab.kits import engine_of
from disklab.kits.schema import Kit

MEMORY_BYTES = 2 << 30
"""Of each node: what a small VM has."""


@contextmanager
def trial(kit: Kit, nodes: int, progress: Progress) -> Iterator[KitCluster]:
    """Yield a cluster in a folder that goes with it; nothing runs yet. What fails ends all of it.

    The last lines of each node's logs are told then.
    """
    prefix = "disklab-kit-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        top = Path(name)
        top.chmod(0o711)
        addresses = free_addresses(nodes, tuple(kit.ports.values()))
        places = [_place(top / f"n{n}", address) for n, address in enumerate(addresses, 1)]
        sizes = Sizes(MEMORY_BYTES, Fraction(1), nodes)
        request = Request(engine=engine_of(kit.kit), sizes=sizes, replication_factor=nodes)
        cluster = provision(request, places, progress)
        assert isinstance(cluster, KitCluster)
        try:
            yield cluster
        except BaseException:
            for log in sorted(top.glob("*/log/*.log")):
                for line in log.read_text(errors="replace").splitlines()[-20:]:
                    progress(f"{log.stem}: {line[:400]}")
            raise
        finally:
            for node in cluster.nodes:
                node.kill()


def _place(folder: Path, address: str) -> NodePlace:
    folders = {part: folder / part for part in ("data", "run", "log")}
    for part in folders.values():
        part.mkdir(parents=True)
        part.chmod(0o711)
    folder.chmod(0o711)
    volumes = {"data": folders["data"]}
    return NodePlace(folder.name, address, volumes, folders["run"], folders["log"])
