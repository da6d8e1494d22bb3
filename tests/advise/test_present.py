"""What runs now beside what advice found: move or stay, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.advice.present import Present, present_of
from disklab.advice.question import question_of
from disklab.catalog import load_catalog
from disklab.catalog.price import Price, vm_price, volume_price

FILE = """
title: Should this Cassandra move, and to what?
OBSERVED
require: {read: {p99: 20ms}, rate: 4000/s}
cluster:
  nodes: 3
  vm: azure/Standard_E16s_v3
  volumes: {data: {disks: 4 x azure/P30, caching: ReadOnly}}
database: {engine: cassandra, replication_factor: 3}
dataset: {rows: 100M, row: 1 x 1000B}
workload: {operations: {read: 100%}, load: {rate: 4000/s}}
"""


@dataclass
class Candidate:
    """What of an option's candidate is asked."""

    hardware: str
    usd_per_month: float


@dataclass
class Found:
    """What of an option is asked."""

    candidate: Candidate
    name: str


def found(hardware: str, usd: float) -> Any:
    return Found(Candidate(hardware, usd), f"3 x {hardware}")


def present(observed: str) -> Present | None:
    text = FILE.replace("OBSERVED", observed)
    return present_of(question_of(spec.parse(text, Path("observed.yaml"))))


STATED = "observed: {at: now, for: 300s, hardware: stated, p99: 7ms}"


def test_what_runs_is_priced_as_options_are() -> None:
    now = present(STATED)
    assert now is not None
    assert now.name == "3 x E16s_v3 with 4 x P30, ReadOnly"
    prices = (
        vm_price(load_catalog(), "azure/Standard_E16s_v3"),
        volume_price(load_catalog(), "4 x azure/P30"),
    )
    each = sum(one.usd_per_month for one in prices if isinstance(one, Price))
    assert now.usd_per_month == pytest.approx(3 * each)
    assert now.keeps


def test_a_file_that_was_not_observed_or_only_assumed_compares_with_nothing() -> None:
    assert present("") is None
    assert present("observed: {at: now, for: 300s, hardware: assumed}") is None


def test_the_answer_moves_stays_or_costs_more() -> None:
    now = present(STATED)
    assert now is not None
    assert now.usd_per_month is not None
    cheaper = found("L8s_v3 with local NVMe", now.usd_per_month - 1000)
    assert now.verdict(cheaper) == "Move to 3 x L8s_v3 with local NVMe"
    assert now.difference(cheaper).startswith("That saves 1,000 USD a month (")
    dearer = found("E32s_v3 with 4 x P40", now.usd_per_month + 500)
    assert now.verdict(dearer).startswith("Stay on 3 x E16s_v3 with 4 x P30, ReadOnly")
    assert "costs 500 more" in now.verdict(dearer)
    same = found("E16s_v3 with 4 x P30, ReadOnly", now.usd_per_month)
    assert "is the cheapest that surely keeps the promise" in now.verdict(same)
    assert now.difference(same) == ""


def test_what_runs_and_misses_the_promise_is_left_though_it_costs_less() -> None:
    now = present(STATED.replace("7ms", "70ms"))
    assert now is not None
    assert not now.keeps
    assert now.usd_per_month is not None
    dearer = found("E32s_v3 with 4 x P40", now.usd_per_month + 500)
    assert now.verdict(dearer).startswith("Move to")
    assert "That costs 500 USD a month" in now.difference(dearer)
    assert "p99 of 70 ms, longer than is asked for" in now.difference(dearer)


def test_a_price_that_nobody_knows_is_said() -> None:
    now = present(STATED)
    assert now is not None
    unknown = replace(now, usd_per_month=None)
    one = found("L8s_v3 with local NVMe", 100.0)
    assert unknown.verdict(one).startswith("Move to")
    assert "is not known" in unknown.difference(one)
