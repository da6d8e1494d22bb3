"""Emulated hosts with a server of SSH each, and the hosts file that describes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from disklab.hosts.namespaces import EmulatedHosts, HostWish
from disklab.hosts.places import Places
from disklab.hosts.secure_shell import serve_ssh

from tests.hosts.conftest import new_lab

MEMORY_BYTES = 2 << 30
"""Of a node: a Cassandra gets its least heap, 512 MiB."""


class Served:
    """Nodes n1, n2, ... and a client c1, reached over SSH."""

    def __init__(self, hosts: EmulatedHosts, volumes: dict[str, Path], ssh_config: Path) -> None:
        self.hosts, self.volumes, self.ssh_config = hosts, volumes, ssh_config

    def text(self) -> str:
        """Return the hosts file."""
        described: dict[str, object] = {}
        for name in self.hosts.names:
            one = {"address": name, "private_address": self.hosts[name].address}
            if name in self.volumes:
                described[name] = {**one, "volumes": {"data": str(self.volumes[name])}}
            else:
                described[name] = {**one, "role": "client"}
        return json.dumps({"ssh_config": str(self.ssh_config), "hosts": described})

    def nothing_is_left(self) -> None:
        """Check that the volumes are empty, and that no program of ours runs on a host."""
        for folder in self.volumes.values():
            assert list(folder.iterdir()) == []


@contextmanager
def served_hosts(nodes: int, folder: Path) -> Iterator[Served]:
    """Yield so many nodes and a client; their volumes are directories of a lab."""
    with new_lab() as lab, ExitStack() as undo:
        volumes = {f"n{number}": lab.root / f"n{number}" for number in range(1, nodes + 1)}
        wishes = []
        for name, volume in volumes.items():
            volume.mkdir(mode=0o755)
            wishes.append(HostWish(name, memory_bytes=MEMORY_BYTES, shared=(volume,)))
        wishes.append(HostWish("c1"))
        places = Places(lab.run_dir, lab.data_dir)
        hosts = undo.enter_context(EmulatedHosts.start(places, "measured", wishes))
        for name in hosts.names:
            child, configuration = serve_ssh(hosts[name], hosts["c1"], folder / "ssh")
            undo.enter_context(child)
        yield Served(hosts, volumes, configuration)
