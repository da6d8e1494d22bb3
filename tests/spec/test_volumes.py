"""Volumes that a database would leave empty are refused: they cost money and change nothing."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.errors import UserError

TEXT = """
title: A log on a disk of its own
cluster:
  nodes: 1
  vm: azure/Standard_D4s_v5
  volumes: {{data: {{disks: azure/P20}}, {name}: {{disks: azure/P1}}}}
database: {{engine: {engine}, replication_factor: 1}}
dataset: {{rows: 10M, row: 1 x 100B}}
workload: {{operations: {{write: 100%}}, load: {{threads: 8}}, stop: {{duration: 20s}}}}
"""


@pytest.mark.parametrize(
    ("engine", "name", "way_out"),
    [
        ("postgresql", "pg_wal", "did you mean wal?"),
        ("postgresql", "pg_log", "call its log's volume wal"),
        ("cassandra", "wal", "call its log's volume commitlog"),
        ("cassandra", "commit_log", "did you mean commitlog?"),
        ("etcd", "journal", "call its log's volume wal"),
    ],
)
def test_a_volume_that_is_not_used_is_refused(engine: str, name: str, way_out: str) -> None:
    with pytest.raises(UserError) as caught:
        spec.parse(TEXT.format(engine=engine, name=name)).trials("predict")
    (problem,) = caught.value.problems
    assert problem.place.endswith(f"cluster.volumes.{name}")
    assert "does not use it" in problem.rule
    assert problem.way_out == way_out


@pytest.mark.parametrize(
    ("engine", "name"),
    [("postgresql", "wal"), ("postgresql", "commitlog"), ("cassandra", "commitlog")],
)
def test_a_volume_of_the_log_is_used(engine: str, name: str) -> None:
    (trial,) = spec.parse(TEXT.format(engine=engine, name=name)).trials("predict")
    assert trial.refused is None
