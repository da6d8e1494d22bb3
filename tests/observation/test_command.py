"""What cannot be asked of `disklab observe`, and a node's machine that a hosts file names."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from disklab.cli.app import app
from disklab.cli.observe import machines_of, seen_of
from disklab.errors import UserError
from disklab.machines.local import LocalMachine
from disklab.observation.machine import look
from typer.testing import CliRunner

from tests.machines.ssh_server import SshServer

AT = ("--address", "127.63.1.1:9")


def refused(*options: str) -> str:
    """Return why a command is refused."""
    ran = CliRunner().invoke(app, ["observe", *options])
    assert isinstance(ran.exception, UserError), ran.output
    return str(ran.exception)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    out.write_text("title: mine\n")
    assert "exists already and is not overwritten" in refused("cassandra", *AT, "--out", str(out))
    assert out.read_text() == "title: mine\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--for", "300"), "a time is a number with"),
        (("--for", "10ms"), "a rate needs at least a second"),
        (("--vm", "azure/Standard_E16s_v55"), "--vm"),
        (("--disks", "4 x azure/P31"), "--disks"),
        (("--vm", "azure/Standard_E8ds_v4", "--disks", "64 x azure/P30"), "--disks"),
        (("--caching", "Some"), "is not a host caching"),
        (("--password-variable", "DISKLAB_NOBODY_SETS_THIS"), "has no such variable"),
        (("--password-file", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_what_cannot_be_is_said_with_its_option(
    options: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    out = ("--out", str(tmp_path / "o.yaml"))
    assert why in refused("cassandra", *AT, *out, *options)


def test_postgresql_asks_who_logs_in(tmp_path: Path) -> None:
    assert "--user" in refused("postgresql", *AT, "--out", str(tmp_path / "o.yaml"))


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
