"""What runs now beside what advice found: move or stay, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.advice.advise import How, beside, compared, rehearsable
from disklab.advice.answer import Advice
from disklab.advice.candidates import Field, field_of
from disklab.advice.present import Present, most_per_s, present_of
from disklab.advice.question import question_of
from disklab.catalog import load_catalog
from disklab.catalog.price import Price, vm_price, volume_price
from disklab.databases.calibration import calibration_for
from disklab.results.required import Kept, Outcome, Point

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
    settings: dict[str, Any] = field(default_factory=dict)


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
    cheaper = found("L8s_v3 with local NVMe", now.usd_per_month - 1000)
    assert now.verdict(cheaper) == "Move to 3 x L8s_v3 with local NVMe"
    assert now.difference(cheaper).startswith("That saves 1,000 USD a month (")
    dearer = found("E32s_v3 with 4 x P40", now.usd_per_month + 500)
    assert now.verdict(dearer).startswith("Stay on 3 x E16s_v3 with 4 x P30, ReadOnly")
    assert "costs 500 more" in now.verdict(dearer)
    same = found("E16s_v3 with 4 x P30, ReadOnly", now.usd_per_month)
    turned = found("E16s_v3 with 4 x P30, ReadOnly", now.usd_per_month)
    turned.candidate.settings["database.settings.concurrent_reads"] = 128
    assert "ReadOnly with 128 concurrent reads: it is the cheapest" in now.verdict(turned)
    assert "is the cheapest that surely meets the requirement" in now.verdict(same)
    assert now.difference(same) == ""


def test_what_runs_and_misses_the_promise_is_left_though_it_costs_less() -> None:
    now = present(STATED.replace("7ms", "70ms"))
    assert not now.keeps
    dearer = found("E32s_v3 with 4 x P40", now.usd_per_month + 500)
    assert now.verdict(dearer).startswith("Move to")
    assert "That costs 500 USD a month" in now.difference(dearer)
    assert "p99 of 70 ms, longer than is asked for" in now.difference(dearer)


def test_a_price_that_nobody_knows_is_said() -> None:
    unknown = replace(present(STATED), usd_per_month=None)
    one = found("L8s_v3 with local NVMe", 100.0)
    assert unknown.verdict(one).startswith("Move to")
    assert "is not known" in unknown.difference(one)


SMALL = (
    FILE.replace("OBSERVED", STATED)
    .replace("4 x azure/P30, caching: ReadOnly", "azure/P30")
    .replace("E16s_v3", "E8s_v3")
    .replace("4000/s}}", "1500/s}, stop: {duration: 10s}}")
    .replace("rate: 4000/s}", "rate: RATE/s}")
    .replace("{p99: 20ms}", "{p99: 200ms}")
)


def simulated(text: str, tmp_path: Path) -> Advice:
    """Return the advice that has what runs now and one other option, at full fidelity."""
    question = question_of(spec.parse(text, Path("observed.yaml")), ("P30", "E8s_v3"))
    looked = field_of(question, load_catalog(), calibration_for("cassandra"))
    options = [one for one in looked.candidates if one.hardware == "E8s_v3 with 2 x P30"]
    advice = Advice(question, Field(options), [], [], 0)
    how = How(bands=False, out=tmp_path)
    known = beside(advice, compared(advice), options, how, lambda _: None)
    advice.options = list(known.values())
    return advice


def test_what_runs_is_simulated_beside_the_options(tmp_path: Path) -> None:
    advice = simulated(SMALL.replace("RATE", "1500"), tmp_path)
    (option,) = advice.options
    assert advice.now.name == "3 x E8s_v3 with azure/P30".replace("azure/", "")
    told = advice.sentences()[1]
    first = (
        "In the simulation 3 x E8s_v3 with P30, the current system, meets the requirement: "
        "it carries 1,500/s"
    )
    assert told.startswith(first)
    p99 = advice.now.latency("p99")
    assert p99
    assert f", p99 {p99}; " in told
    assert "its own server reported a p99 of 7 ms" in told
    assert f"Moving takes the p99 from {p99} to {option.latency('p99')} and the rate" in told
    assert (most_per_s(option) or 0) > (most_per_s(advice.now) or 0) > 1500
    found = advice.as_json()["now"]
    assert found["simulated"]["option"] == advice.now.name
    assert found["usd_per_month"] == found["simulated"]["usd_per_month"] > 0
    point = Point("write p99", Outcome.MISSED, "at most 20 ms", "36 ms")
    failed = replace(advice.now, kept=Kept(Outcome.MISSED, (point,)))
    told = replace(advice.present, simulated=failed).does(option)
    assert "misses the requirement: write p99 36 ms (at most 20 ms). It carries 1,500/s" in told
    # It is no option to buy, yet a rehearsal compares with it.
    assert [one["option"] for one in advice.as_json()["options"]] == [option.name]
    again = spec.parse(rehearsable(advice), Path("again.yaml"))
    assert {trial.factors["option"] for trial in again.trials("predict")} == {
        "E8s_v3 with P30",
        "E8s_v3 with 2 x P30",
    }


def test_what_runs_and_is_too_weak_for_the_rate_is_told_so(tmp_path: Path) -> None:
    advice = simulated(SMALL.replace("RATE", "4000"), tmp_path)
    told = advice.sentences()[1]
    assert advice.now is not None
    assert "the current system, cannot sustain the rate: it carries 2," in told
    assert "%); its own server reported a p99 of 7 ms." in told
    assert not advice.as_json()["now"]["keeps_promise"]


def test_what_runs_and_cannot_be_simulated_says_why() -> None:
    told = replace(present(STATED), unknown="the simulator has no such caching").does(None)
    assert told == (
        "The current system, 3 x E16s_v3 with 4 x P30, ReadOnly, could not be simulated: the "
        "simulator has no such caching."
    )


def test_hardware_that_nobody_stated_is_said_to_be_missing() -> None:
    text = FILE.replace("OBSERVED", "observed: {at: now, for: 300s, hardware: assumed}")
    question = question_of(spec.parse(text, Path("observed.yaml")))
    assert (
        "The current system is not compared"
        in Advice(question, Field([]), [], [], 0).sentences()[-1]
    )
    plain = question_of(spec.parse(FILE.replace("OBSERVED", ""), Path("observed.yaml")))
    assert not any(
        "current system" in line for line in Advice(plain, Field([]), [], [], 0).sentences()
    )


@pytest.mark.parametrize(
    ("told_ms", "outcome", "keeps"),
    [
        (7.0, Outcome.MISSED, True),
        (7.0, Outcome.CANNOT_SUSTAIN, False),
        (70.0, Outcome.MET, False),
        (None, Outcome.MET, True),
        (None, Outcome.CANNOT_TELL, False),
    ],
)
def test_what_a_server_tells_goes_before_what_is_simulated(
    told_ms: float | None, outcome: Outcome, keeps: bool
) -> None:
    now = present(STATED if told_ms is None else STATED.replace("7ms", f"{told_ms:g}ms"))
    judged: Any = SimulatedNow(Kept(outcome, ()))
    assert replace(now, p99_ms=told_ms, simulated=judged).keeps is keeps


@dataclass
class SimulatedNow:
    """What of a simulated option the judgement asks."""

    kept: Kept
