"""What is bought has room for its data, and a lost VM costs it what was simulated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from disklab import spec
from disklab.advice.candidates import field_of
from disklab.advice.levers import MOST_FILLED
from disklab.advice.options import Option
from disklab.advice.question import GROWTH, question_of
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.engine.process import simulate
from disklab.prediction.cells import prepare
from disklab.prediction.outages import Rebuilt, rebuild_times
from disklab.spec import feasible
from disklab.spec.model import ClusterTrial

FILE = """title: Room
require: {{all: {{p99: 50ms}}, rate: 1000/s}}
cluster:
  nodes: 1
  vm: azure/Standard_E16s_v3
  volumes: {{data: {{disks: "azure/PremiumV2(2000GiB)", filesystem: xfs}}}}
client: {{nodes: 1, vm: azure/Standard_E16s_v3}}
database: {{engine: {engine}, replication_factor: 1}}
dataset: {{rows: {rows}, row: {columns} x {column}B}}
workload: {{operations: {{read: 80%, write: 20%}}, load: {{rate: 1000/s}}, stop: {{duration: 10s}}}}
before: {{page_cache: warm}}
"""


def experiment(engine: str, columns: int, column: int, rows: int | None = None) -> spec.Experiment:
    """Return an experiment whose rows make 100 GB, unless their number is given."""
    number = rows or 10**11 // (columns * column)
    text = FILE.format(engine=engine, rows=number, columns=columns, column=column)
    return spec.parse(text, Path("room.yaml"))


SHAPES = [(1, 16), (1, 100), (10, 20), (1, 420), (5, 200), (1, 1000), (1, 2000), (3, 1200)]
LARGE = [(1, 2700), (1, 4050), (1, 5000), (2, 3000), (1, 7900)]


@pytest.mark.parametrize("engine", ["mariadb", "mysql", "postgresql"])
@pytest.mark.parametrize(("columns", "column"), [*SHAPES, *LARGE])
def test_the_model_lays_no_more_than_the_search_makes_room_for(
    engine: str, columns: int, column: int
) -> None:
    """On a volume of just what is stored; the model refuses data that it has no room for."""
    trial = next(iter(experiment(engine, columns, column).trials("predict")))
    prepared = prepare(trial, load_catalog(), calibration_for(engine), "room.yaml")
    assert prepared.job is not None, prepared
    job = json.loads(json.dumps(prepared.job))
    assert isinstance(trial.spec, ClusterTrial)
    (key,) = [name for name, part in job.items() if isinstance(part, dict) and "tables" in part]
    for volume in job[key]["cluster"]["host"]["volumes"]:
        volume["size_bytes"] = int(feasible.node_bytes(trial.spec))
    head = {"cell": 0, "seed": 1, "fidelity": "sketch", "ablate": []}
    (answer,) = simulate([{**head, **job}])
    places = [reason["place"] for reason in answer.get("reasons", ())]
    assert "tables" not in places, answer


@pytest.mark.parametrize("engine", ["cassandra", "mariadb", "mysql", "postgresql"])
@pytest.mark.parametrize("growth", [0.0, GROWTH, 1.0])
def test_options_hold_the_grown_data_with_room(engine: str, growth: float) -> None:
    asked = question_of(experiment(engine, 1, 1000), ("E8s_v5", "P30"), growth_ratio=growth)
    options = field_of(asked, load_catalog(), calibration_for(engine)).candidates
    assert options
    for option in options:
        grown = feasible.node_bytes(asked.spec) * (1 + growth)
        filled = grown / option.made.volume.size_bytes
        assert filled <= (MOST_FILLED if growth else 1.0), option.name


TEXT = """\
title: recovery
cluster:
  nodes: 3
  vm: azure/Standard_DS14_v2
  volumes: {data: {disks: 4 x azure/P30}}
database: {engine: cassandra, replication_factor: 3}
dataset: {rows: 10M, row: 5 x 818B}
workload:
  operations: {read: 50%, write: 50%}
  load: {rate: 300/s}
  stop: {duration: 20s}
"""


def times(text: str) -> Any:
    (trial,) = spec.parse(text, "x.yaml").trials("predict")
    job = prepare(trial, load_catalog([]), calibration_for("cassandra"), "x.yaml").job
    return rebuild_times({0: (trial, job)}, 1, None).get(0)


def test_a_node_streams_its_share_with_the_limit_that_bounds_it() -> None:
    found = times(TEXT)
    streamed_s = 10_000_000 * 4255 / (2 * 24 * 2**20)
    assert found.seconds == pytest.approx(48.2 + streamed_s, rel=0.02)
    assert found.bound == "stream throughput"


def test_an_unthrottled_stream_is_bound_by_the_disks() -> None:
    # One P10 of 100 MB/s takes what two nodes send.
    fast = TEXT.replace("4 x azure/P30", "azure/P10").replace("10M", "2M")
    fast = fast.replace("factor: 3}", "factor: 3, settings: {stream_throughput_outbound: 1GiB/s}}")
    found = times(fast)
    assert "disk" in found.bound
    # Without its burst credits, which last for minutes; MiB, and what a window is ahead.
    assert found.seconds - 48.2 == pytest.approx(2_000_000 * 4255 / 104.9e6, rel=0.05)


def test_one_copy_cannot_be_streamed() -> None:
    assert times(TEXT.replace("replication_factor: 3", "replication_factor: 1")) is None


@pytest.mark.parametrize(
    ("kind", "rebuilt", "told"),
    [
        (
            "nvme",
            Rebuilt(7200, "stream throughput", ""),
            "that node's data; streaming them again takes 2.0 hours, limited by stream throughput",
        ),
        ("nvme", None, "that node's data, of which there is no other copy"),
        (
            "managed",
            Rebuilt(600, "latency", ""),
            "nothing: the disks move to another VM; a replaced node takes 10 minutes",
        ),
        ("managed", None, "nothing: the disks move to another VM"),
    ],
)
def test_what_is_lost_is_said(kind: str, rebuilt: Rebuilt | None, told: str) -> None:
    candidate: Any = SimpleNamespace(local=kind == "nvme")
    kept: Any = None
    option = Option(candidate, (), kept, 3, None)
    assert replace(option, rebuilt=rebuilt).lost == told
