"""A program is in the network of the thread that asked for it, whoever started programs before."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from disklab.hosts.namespaces import EmulatedHosts, HostWish
from disklab.machines import child
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command

from .conftest import Lab
from .test_namespaces import places

MACHINE = LocalMachine()


def network_of_a_program() -> str:
    """Return the network namespace of a program that is started now."""
    with MACHINE.start(Command(["sleep", "1000"])) as started:
        return os.readlink(f"/proc/{started.pid}/ns/net")


@pytest.mark.machine
@pytest.mark.xdist_group("hosts in namespaces")
def test_a_program_is_in_the_network_of_who_asked(lab: Lab) -> None:
    # The thread that starts programs is there from here on, in this machine's network.
    home = network_of_a_program()
    assert home == os.readlink(f"/proc/self/task/{threading.get_native_id()}/ns/net")
    with EmulatedHosts.start(places(lab), "started", [HostWish("n1")]) as hosts:
        with hosts["n1"].inside_network():
            inside = network_of_a_program()
        assert inside == os.readlink(Path(f"/proc/{hosts['n1'].pid}/ns/net"))
        assert inside != home
        assert network_of_a_program() == home


def test_a_system_with_one_network_starts_programs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_OWN_NETWORK", "/no/such/place/{}")
    assert MACHINE.run(Command(["echo", "here"])).stdout == b"here\n"
