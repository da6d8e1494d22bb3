"""What a lost VM costs an option: simulated beside its load, and said with what bounds it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from disklab import spec
from disklab.advice.options import Option
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.prediction.cells import prepare
from disklab.prediction.outages import Rebuilt, rebuild_times

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
