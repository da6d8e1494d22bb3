"""What is bought has room: the search, the file's own check and the model agree on the bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from disklab import spec
from disklab.advice.candidates import field_of
from disklab.advice.levers import MOST_FILLED
from disklab.advice.question import GROWTH, question_of
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.engine.process import simulate
from disklab.prediction.cells import prepare
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
