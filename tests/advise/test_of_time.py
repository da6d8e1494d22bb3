"""Advice by a year's minutes: what is asked, and what the search leaves to the finalists."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.advice.question import question_of
from disklab.advice.simulator import in_a_quiet_hour
from disklab.errors import UserError
from disklab.results.required import Bounds, Required

TEXT = """\
title: weather
cluster: {nodes: 3, vm: aws/m5.2xlarge, volumes: {data: {disks: "aws/gp3(500GiB)"}}}
database: {engine: cassandra, replication_factor: 3}
dataset: {rows: 20M, row: 5 x 818B}
workload: {operations: {read: 100%}, load: {rate: 500/s}, stop: {duration: 5s}}
require: REQUIRE
"""


def experiment(folder: Path, require: str) -> spec.Experiment:
    path = folder / "x.yaml"
    path.write_text(TEXT.replace("REQUIRE", require))
    return spec.load(path)


def test_every_bound_is_to_be_kept_for_that_share(tmp_path: Path) -> None:
    asked = experiment(tmp_path, "{read: {p99: 10ms}, all: {p99: 20ms}}")
    question = question_of(asked, of_time="99.9%")
    assert question.require.of_time_ratio == 0.999
    assert question.require.read.of_time_ratio == 0.999


def test_a_share_of_time_needs_a_latency(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--of-time: 99\.9%: no latency is required"):
        question_of(experiment(tmp_path, "{rate: 500/s}"), of_time="99.9%")


def test_the_search_judges_a_quiet_hour() -> None:
    asked = Required(all=Bounds(p99_ms=10, of_time_ratio=0.999), rate_per_s=500)
    quiet = in_a_quiet_hour(asked)
    assert quiet.of_time_ratio is None
    assert list(quiet.latencies()) == [("all", "p99", 10)]
    assert quiet.rate_per_s == 500
