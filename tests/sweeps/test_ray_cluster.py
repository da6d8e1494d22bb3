"""Cells on a Ray cluster or on hosts over SSH: the same bytes as here, also when some are lost."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from disklab.cli.app import app
from disklab.errors import EngineError, MachineError
from disklab.events import Event, Warned
from disklab.sweeps import cluster_of
from disklab.sweeps.ssh_hosts import ssh_hosts
from typer.testing import CliRunner

from tests.machines.ssh_server import SshServer, start_server
from tests.sweeps.jobs import STUDY, here, lines, quick_cells, unheard

CELLS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without a core, as a user has it, and two nodes of one core."""
    ray_tests = pytest.importorskip("ray.cluster_utils")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = {"object_store_memory": 80 << 20, "include_dashboard": False}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = ray_tests.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "ray_client_server_port": port, **store},
    )
    cluster.url = f"ray://127.0.0.1:{port}"
    cluster.nodes = [cluster.add_node(num_cpus=1, **store) for _ in range(2)]
    yield cluster
    cluster.shutdown()


def workers() -> list[int]:
    """Return the processes of Ray that run a batch."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "cmdline").read_bytes().startswith(b"ray::run_batch"):
                found.append(int(folder.name))
    return found


@pytest.mark.xdist_group("ray")
@pytest.mark.long
def test_it_answers_as_this_machine_does(cluster: Any) -> None:
    jobs = quick_cells(CELLS)
    told: list[Event] = []
    with cluster_of(cluster.url, told.append) as machines:
        assert lines(machines.simulate(jobs)) == here(jobs)
        # The next sweep of a run: bands after the cells themselves.
        assert lines(machines.simulate(jobs[:3])) == here(jobs[:3])
    assert told == []


# 48 s (2026-11-27, two cores).
@pytest.mark.xdist_group("ray")
@pytest.mark.long
def test_a_killed_worker_loses_nothing(cluster: Any) -> None:
    jobs = quick_cells(3 * CELLS)
    told: list[Event] = []
    answers: list[Any] = []
    with cluster_of(cluster.url, told.append) as machines:
        for answer in machines.simulate(jobs):
            answers.append(answer)
            if len(answers) == CELLS:
                busy = workers()
                assert busy
                os.kill(busy[0], signal.SIGKILL)
    assert lines(answers) == here(jobs)
    assert told
    assert all(isinstance(event, Warned) and "run again" in event.text for event in told)


@pytest.mark.xdist_group("ray")
@pytest.mark.long
def test_a_job_that_ends_the_engine_is_told(cluster: Any) -> None:
    with (
        pytest.raises(EngineError, match="disklab-engine simulate ended early: "),
        cluster_of(cluster.url, unheard) as machines,
    ):
        list(machines.simulate([{"cell": "no number"}]))


@pytest.mark.xdist_group("ray")
@pytest.mark.long
def test_a_prediction_on_a_cluster_has_the_results_of_one_here(
    cluster: Any, tmp_path: Path
) -> None:
    def results(*more: str) -> list[dict[str, Any]]:
        out = tmp_path / str(len(more))
        words = ["predict", str(STUDY), "--fidelity", "quick", "--no-bands", "--out", str(out)]
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 0, done.output
        (trials,) = out.glob("*/trials.jsonl")
        found = [json.loads(line) for line in trials.read_text().splitlines()]
        for result in found:
            del result["run"], result["started"]
            result.get("telemetry", {}).get("simulated", {}).pop("wall_s", None)
        return sorted(found, key=lambda result: int(result["trial"]))

    assert results("--cluster", cluster.url) == results()


@pytest.mark.xdist_group("ray")
@pytest.mark.long
def test_a_lost_node_loses_nothing(cluster: Any) -> None:
    """The last test of this file: the cluster is smaller then."""
    jobs = quick_cells(3 * CELLS)
    answers: list[Any] = []
    with cluster_of(cluster.url, unheard) as machines:
        for answer in machines.simulate(jobs):
            answers.append(answer)
            if len(answers) == CELLS:
                cluster.remove_node(cluster.nodes[0], allow_graceful=False)
    assert lines(answers) == here(jobs)


@pytest.mark.xdist_group("ray")
def test_where_no_cluster_is_that_is_said() -> None:
    pytest.importorskip("ray")
    with (
        pytest.raises(MachineError, match=r"ray://127\.0\.0\.1:9: .*ray start --head"),
        cluster_of("ray://127.0.0.1:9", unheard),
    ):
        pass


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SshServer]]:
    servers = [start_server(tmp_path_factory.mktemp(f"sshd{n}")) for n in range(2)]
    yield servers
    for server in servers:
        server.stop()


@pytest.mark.machine
@pytest.mark.long
def test_two_hosts_answer_as_this_machine_does(servers: list[SshServer]) -> None:
    jobs = quick_cells(CELLS)
    told: list[Event] = []
    with ssh_hosts([server.destination for server in servers], told.append) as hosts:
        assert lines(hosts.simulate(jobs)) == here(jobs)
    assert told == []


@pytest.mark.machine
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


@pytest.mark.machine
def test_without_a_host_left_the_sweep_says_so(servers: list[SshServer]) -> None:
    with ssh_hosts([servers[0].destination], unheard, patience_s=1.0) as hosts:
        answers = hosts.simulate(quick_cells(CELLS))
        next(answers)
        servers[0].stop()
        with pytest.raises(EngineError, match="no host is left: "):
            list(answers)


@pytest.mark.machine
def test_all_hosts_that_cannot_be_reached_are_named() -> None:
    nowhere = ["ssh://127.0.0.1:9", "ssh://127.0.0.2:9"]
    with pytest.raises(MachineError) as raised, ssh_hosts(nowhere, unheard):
        pass
    assert set(re.findall(r"127\.0\.0\.[12]:9", str(raised.value))) == {
        "127.0.0.1:9",
        "127.0.0.2:9",
    }


@pytest.mark.machine
def test_a_job_that_ends_the_engine_is_told_with_its_host(servers: list[SshServer]) -> None:
    with (
        pytest.raises(EngineError, match="disklab-engine simulate ended early on box"),
        ssh_hosts([servers[0].destination], unheard) as hosts,
    ):
        list(hosts.simulate([{"cell": "no number"}]))
