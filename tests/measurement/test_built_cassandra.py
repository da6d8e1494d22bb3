"""Cassandras that disklab builds on hosts: over SSH, filled once, and nothing of them left."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.results import TrialResult

from .bench import Bench, rows_in
from .emulated import Served, served_hosts

# Machines that test have other things to do as well.
PATIENT = "settings: {write_request_timeout: 20s, read_request_timeout: 20s}"
EXPERIMENT = rows_in(
    f"{{engine: cassandra, replication_factor: 3, consistency: QUORUM, {PATIENT}}}",
    more="before: {page_cache: as-left}\n",
).replace("nodes: 1", "nodes: 3")
MEASURE = ("measure", "e.yaml", "--hosts", "h.yaml")


def alone(text: str) -> str:
    """Return an experiment on one node."""
    return text.replace("nodes: 3", "nodes: 1").replace("_factor: 3", "_factor: 1")


def measured(bench: Bench, served: Served, nodes: list[str]) -> TrialResult:
    """Show the plan, measure, and check what the run and the hosts have afterwards."""
    bench.write("h.yaml", served.text())
    code, out, err = bench.told(*MEASURE, "--plan")
    assert code == 0, err
    assert out.count("make    a Cassandra 5.0.6 node on Java 17") == len(nodes)
    assert out.count("load    comes from here") == 1
    served.nothing_is_left()
    with bench.start(*MEASURE, "--yes", "--quick") as process:
        _, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    bench.nothing_is_left()
    served.nothing_is_left()
    (run,) = bench.runs()
    (result,) = run.results()
    assert result.status in ("ok", "invalid"), result
    assert result.errors == {}
    assert result.ops_per_s
    assert any("Cassandra was built on n1" in text for text in result.warnings)
    extra = result.model_extra or {}
    assert extra["host"] == ", ".join(f"{name}/data" for name in nodes)
    (client,) = extra["clients"]
    assert client["operations"] > 0
    assert [phase.name for phase in result.phases].count("fill") == 1
    for name in nodes:
        log = (run.folder / "logs" / f"{name}-system.log").read_text(encoding="utf-8")
        # What a node says when it is drained: it was stopped in order, and heard to the end.
        assert "DRAINED" in log
        assert "Safepoint" in (run.folder / "logs" / f"{name}-gc.log").read_text(encoding="utf-8")
    return result


@pytest.mark.machine
@pytest.mark.long
def test_a_node_is_built_filled_loaded_and_removed(bench: Bench, tmp_path: Path) -> None:
    bench.write("e.yaml", alone(EXPERIMENT))
    with served_hosts(1, tmp_path) as served:
        result = measured(bench, served, ["n1"])
    extra = result.model_extra or {}
    assert abs(extra["clock"]["ahead_ms"]) <= 1 + extra["clock"]["error_ms"]
    (node,) = extra["hosts"]
    # The rows came from its disk or its memory, and went to the client over its network.
    assert node["sent_mb_per_s"] > 0
    assert 0 < node["busy_ratio"] <= 1


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_three_nodes_keep_three_copies(bench: Bench, tmp_path: Path) -> None:
    bench.write("e.yaml", EXPERIMENT)
    with served_hosts(3, tmp_path) as served:
        result = measured(bench, served, ["n1", "n2", "n3"])
    extra = result.model_extra or {}
    assert [one["host"] for one in extra["hosts"]] == ["n1", "n2", "n3"]


def test_a_cluster_that_the_hosts_cannot_be_is_refused(bench: Bench) -> None:
    bench.write("e.yaml", EXPERIMENT)
    code, _, err = bench.told(*MEASURE, "--plan")
    assert code == 2
    assert "cluster.nodes: 3" in err
    assert "there are 1 (here)" in err
    wal = EXPERIMENT.replace("azure/P30}}", "azure/P30}, commitlog: {disks: azure/P10}}")
    bench.write("e.yaml", alone(wal))
    code, _, err = bench.told(*MEASURE, "--plan")
    assert code == 2
    assert "have no volume of this name" in err
