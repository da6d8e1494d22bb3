"""Cells on hosts over a real sshd: the same bytes as here, also when a host is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from disklab.errors import EngineError, MachineError
from disklab.events import Event, Warned
from disklab.sweeps.ssh_hosts import ssh_hosts

from tests.machines.ssh_server import SshServer, start_server
from tests.sweeps.jobs import here, lines, quick_cells, unheard

pytestmark = pytest.mark.machine
CELLS = 60


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SshServer]]:
    servers = [start_server(tmp_path_factory.mktemp(f"sshd{n}")) for n in range(2)]
    yield servers
    for server in servers:
        server.stop()


@pytest.mark.long
def test_two_hosts_answer_as_this_machine_does(servers: list[SshServer]) -> None:
    jobs = quick_cells(CELLS)
    told: list[Event] = []
    with ssh_hosts([server.destination for server in servers], told.append) as hosts:
        assert lines(hosts.simulate(jobs)) == here(jobs)
    assert told == []


def test_what_a_lost_host_had_is_simulated_by_the_other(servers: list[SshServer]) -> None:
    jobs = quick_cells(CELLS)
    told: list[Event] = []
    answers: list[Any] = []
    with ssh_hosts([one.destination for one in servers], told.append, patience_s=2.0) as hosts:
        for answer in hosts.simulate(jobs):
            answers.append(answer)
            if len(answers) == CELLS // 10:
                servers[0].stop()
    assert lines(answers) == here(jobs)
    assert [type(event) for event in told] == [Warned]
    assert "runs on the other hosts" in str(told[0])


def test_without_a_host_left_the_sweep_says_so(servers: list[SshServer]) -> None:
    with ssh_hosts([servers[0].destination], unheard, patience_s=1.0) as hosts:
        answers = hosts.simulate(quick_cells(CELLS))
        next(answers)
        servers[0].stop()
        with pytest.raises(EngineError, match="no host is left: "):
            list(answers)


def test_all_hosts_that_cannot_be_reached_are_named() -> None:
    nowhere = ["ssh://127.0.0.1:9", "ssh://127.0.0.2:9"]
    with pytest.raises(MachineError) as raised, ssh_hosts(nowhere, unheard):
        pass
    assert set(re.findall(r"127\.0\.0\.[12]:9", str(raised.value))) == {
        "127.0.0.1:9",
        "127.0.0.2:9",
    }


def test_a_job_that_ends_the_engine_is_told_with_its_host(servers: list[SshServer]) -> None:
    with (
        pytest.raises(EngineError, match="disklab-engine simulate ended early on box"),
        ssh_hosts([servers[0].destination], unheard) as hosts,
    ):
        list(hosts.simulate([{"cell": "no number"}]))
