"""A node's machine is read through a hosts file: a real sshd, and the agent that is pushed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from disklab.cli.observe import machines_of, seen_of
from disklab.machines.local import LocalMachine
from disklab.observation.machine import look

from tests.machines.ssh_server import SshServer

NODE = "10.99.0.7:5432"
"""Not an address of this machine: only the hosts file says where it is."""


def test_what_a_far_machine_is_comes_over_ssh(ssh_server: SshServer, tmp_path: Path) -> None:
    hosts = tmp_path / "h.yaml"
    address = NODE.partition(":")[0]
    hosts.write_text(
        f"ssh_config: {ssh_server.config}\n"
        f"hosts: {{n1: {{address: box, private_address: {address}, "
        f"volumes: {{data: {tmp_path}}}}}}}\n",
        encoding="utf-8",
    )
    # A folder of a file system with a block device below it.
    folder = str(Path(__file__).parent)
    near = look(NODE, LocalMachine("this machine", "127.0.0.1"), (folder,))
    with ExitStack() as undo:
        machines = machines_of([NODE, "10.99.0.8:5432"], hosts, undo)
        assert list(machines) == [NODE]
        assert not isinstance(machines[NODE], LocalMachine)
        (far,) = seen_of(machines, {NODE: (folder,)})
        assert (far.cpus, far.memory_bytes) == (near.cpus, near.memory_bytes)
        assert far.page_cache_bytes
        assert far.disk.number == near.disk.number
        assert far.disk.size_bytes == near.disk.size_bytes
        assert far.disk.read().reads >= 0
        before = far.disk.read()
        assert (near.disk.read() - before).reads >= 0
    # The last connection ends a moment after its client.
    deadline = time.monotonic() + 20
    while ssh_server.connections() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ssh_server.connections() == []
