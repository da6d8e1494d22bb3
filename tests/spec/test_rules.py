"""Rules of an experiment that no message of a whole file shows."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.catalog.quantity import parse_disks
from disklab.errors import UserError
from disklab.spec import ClusterTrial
from disklab.spec.amounts import only
from disklab.spec.bundled import typed
from disklab.spec.feasible import LARGER, larger
from disklab.spec.procedures import ThreadSteps
from disklab.spec.timetable_checks import ends_whole

EXPERIMENT = """
title: Which rules?
cluster: {{nodes: 3, vm: azure/Standard_DS14_v2, volumes: {{data: {{disks: azure/P30}}}}}}
database: {{engine: cassandra, replication_factor: 3}}
dataset: {{rows: 10k, row: 1 x 100B}}
workload: {{operations: {{read: 100%}}, load: {{threads: 4}}, stop: {{duration: 10s}}}}
events: [{events}]
"""


def test_steps_of_threads_end_at_the_most() -> None:
    assert ThreadSteps(start=6, factor=4, most=96).each() == [6, 24, 96]
    assert ThreadSteps(start=7, factor=1.1, most=9).each() == [7, 8, 9]
    assert ThreadSteps(start=64, most=8).each() == [8]


def test_a_bundled_file_is_typed_by_its_name() -> None:
    name = "cassandra-vm-types"
    assert typed(f"/usr/lib/disklab/experiments/{name}.yaml") == name
    for other in (f"/home/me/{name}.yaml", "/usr/lib/disklab/experiments/mine.yaml"):
        assert typed(other) == other


def test_more_room_is_on_all_local_disks_that_a_vm_has() -> None:
    vm = load_catalog([]).vms["azure/Standard_L16s_v2"]
    every = "disks: 2 x nvme, which the VM has"
    told = [larger(vm, parse_disks(disks)) for disks in ("nvme", "local", "2 x nvme", "azure/P30")]
    assert told == [every, every, LARGER, LARGER]


@pytest.mark.parametrize(
    ("events", "whole"),
    [
        ("{at: 1s, kill: n2}", False),
        ("{at: 1s, kill: n2}, {at: 2s, start: n2}", True),
        ("{at: 1s, add: n4}, {at: 2s, decommission: n3}", True),
    ],
)
def test_a_timetable_ends_whole_when_all_that_are_left_are_up(events: str, whole: bool) -> None:
    (trial,) = spec.parse(EXPERIMENT.format(events=events)).trials("rehearse")
    assert ends_whole(only(ClusterTrial, trial.spec)) is whole


def test_a_node_moves_to_a_vm_that_there_is() -> None:
    moved = "{at: 1s, move: n1, host: {vm: azure/Standard_DS14_v3}}"
    with pytest.raises(UserError, match="Standard_DS14_v3"):
        spec.parse(EXPERIMENT.format(events=moved)).trials("rehearse")
