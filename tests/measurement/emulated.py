"""Emulated hosts with a server of SSH each, and the hosts file that describes them.

Their volumes are directories, or emulated disks that are shown where Azure shows a VM's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disklab.hosts.filesystem import Filesystem
from disklab.hosts.namespaces import EmulatedHosts, HostWish
from disklab.hosts.places import Places
from disklab.machines.netns import NamespaceMachine

from tests.hosts.conftest import Lab, new_lab
from tests.secure_shell import serve_ssh

MEMORY_BYTES = 2 << 30
"""Of a node: a Cassandra gets its least heap, 512 MiB."""


CONDUCTOR = "conductor"
"""The host in whose network the links of SSH begin."""


@dataclass(frozen=True)
class Disk:
    """An emulated disk of each node."""

    disks: str
    vm: str
    caching: str = "None"
    filesystem: Filesystem = "xfs"


class Served:
    """Nodes n1, n2, ... and a client c1, reached over SSH."""

    def __init__(
        self, lab: Lab, hosts: EmulatedHosts, volumes: dict[str, Path], ssh_config: Path
    ) -> None:
        self.lab, self.hosts, self.volumes, self.ssh_config = lab, hosts, volumes, ssh_config
        self.more: dict[str, object] = {}
        """What the hosts file says of each host beside that."""

    def text(self) -> str:
        """Return the hosts file."""
        described: dict[str, object] = {}
        for name in self.hosts.names:
            if name == CONDUCTOR:
                continue
            one = {"address": name, "private_address": self.hosts[name].address, **self.more}
            if name in self.volumes:
                described[name] = {**one, "volumes": {"data": str(self.volumes[name])}}
            else:
                described[name] = {**one, "role": "client"}
        return json.dumps({"ssh_config": str(self.ssh_config), "hosts": described})

    def nothing_is_left(self) -> None:
        """Check that the volumes are empty, and that no program of ours runs on a host."""
        for name, folder in self.volumes.items():
            assert self.hosts[name].files.names(PurePosixPath(folder)) == []


@contextmanager
def served_hosts(
    nodes: int, folder: Path, disk: Disk | None = None, *, grouped: bool = True
) -> Iterator[Served]:
    """Yield so many nodes and a client; their volumes are directories of a lab, or disks.

    `grouped`: nodes have memory groups of their own; programs that enter them need them without.
    """
    with new_lab() as lab, ExitStack() as undo:
        volumes = {f"n{number}": lab.root / f"n{number}" for number in range(1, nodes + 1)}
        wishes = []
        for name, volume in volumes.items():
            volume.mkdir(mode=0o755)
            most = MEMORY_BYTES if grouped else None
            wishes.append(HostWish(name, memory_bytes=most, grouped=grouped, shared=(volume,)))
        wishes += [HostWish("c1"), HostWish(CONDUCTOR)]
        places = Places(lab.run_dir, lab.data_dir)
        hosts = undo.enter_context(EmulatedHosts.start(places, "measured", wishes))
        for name in volumes if disk is not None else ():
            _attach(lab, hosts[name], volumes[name], disk)
        for name in [*volumes, "c1"]:
            # Servers of Java there start as quickly as here: see tests/conftest.py.
            java = {"JAVA_TOOL_OPTIONS": os.environ["JAVA_TOOL_OPTIONS"]}
            child, configuration = serve_ssh(hosts[name], hosts[CONDUCTOR], folder / "ssh", java)
            undo.enter_context(child)
        yield Served(lab, hosts, volumes, configuration)


def _attach(lab: Lab, host: NamespaceMachine, point: Path, disk: Disk) -> None:
    """Attach a disk and mount it in a host; the mount goes with the host, the disk with the lab."""
    options = ["--host", host.name, "--vm", disk.vm, "--caching", disk.caching]
    told = lab.json("disk", "attach", disk.disks, *options, "--filesystem", disk.filesystem)
    # Where Azure shows the first data disk of a VM.
    host.show_disk(told["device"], "sdc", lun=0)
    host.mount(told["device"], str(point), disk.filesystem, "noatime")
