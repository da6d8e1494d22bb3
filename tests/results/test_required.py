"""Whether a cell keeps what its file requires, and carries its offered rate."""

from __future__ import annotations

import random
from typing import Any

import pytest
from disklab.errors import UserError
from disklab.results import TrialResult
from disklab.results.required import (
    Outcome,
    carried_ratio,
    is_overloaded,
    kept,
    least_ratio,
    only_durability,
    paced_at,
    required_of,
)
from disklab.spec import parse

from tests.results.made import result

FILE = """
title: t
cluster: {nodes: 3, vm: azure/Standard_E16s_v3, volumes: {data: {disks: %s, caching: %s}}}
database: {engine: cassandra, replication_factor: 3}
dataset: {rows: 1M, row: 1 x 1000B}
workload: {operations: {read: 80%%, write: 20%%}, load: {rate: 1000/s}}
require: %s
"""


def required(asked: str, disks: str = "4 x azure/P30", caching: str = "None") -> Any:
    """Return what a file requires, as a stored run tells it."""
    trial = parse(FILE % (disks, caching, asked)).trials("predict")[0]
    return required_of(trial.spec.model_dump(mode="json"))


def cell(p99_ms: float = 5.0, rate: float = 1000.0, **more: Any) -> TrialResult:
    """Return a repeat of an open loop at 1000/s."""
    told: dict[str, Any] = {
        "ops_per_s": rate,
        "loop": {"kind": "open", "rate_per_s": 1000.0},
        "latency_ms": {"p99": p99_ms},
        "per_operation": {"read": {"latency_ms": {"p99": p99_ms}}},
    }
    return TrialResult(experiment="t", mode="predict", trial=0, factors={}, **{**told, **more})


def test_a_bound_is_met_missed_or_inside_the_range_of_the_repeats() -> None:
    asked = required("{read: {p99: 10ms}}")
    for figures, outcome in (
        ([5.0, 9.0], Outcome.MET),
        ([10.0, 10.0], Outcome.MET),
        ([11.0, 12.0], Outcome.MISSED),
        ([9.0, 12.0], Outcome.CANNOT_TELL),
    ):
        assert kept(asked, [cell(figure) for figure in figures]).outcome is outcome


def test_a_bound_inside_the_band_of_a_prediction_cannot_be_told() -> None:
    asked = required("{read: {p99: 10ms}}")
    for high, outcome in ((1.2, Outcome.MET), (2.5, Outcome.CANNOT_TELL)):
        bands = {"figures": {"p99_ms": {"low": 0.8, "high": high}}}
        assert kept(asked, [cell(5.0, bands=bands)]).outcome is outcome


def test_an_overload_inside_the_band_of_the_rate_cannot_be_told() -> None:
    bands = {"figures": {"ops_per_s": {"low": 0.7, "high": 1.2}}}
    told = kept(required("{read: {p99: 10ms}}"), [cell(rate=900.0, bands=bands)])
    assert told.outcome is Outcome.CANNOT_TELL


def test_an_overloaded_cell_has_no_latency() -> None:
    told = kept(required("{read: {p99: 10ms}}"), [cell(90_000.0, rate=730.0)])
    assert told.outcome is Outcome.CANNOT_SUSTAIN
    assert str(told) == ("cannot sustain: carries 730/s, 73 % of what is offered (offered 1,000/s)")


STATED = "{recovery: 1h}\nfailures: {vm_lost_per_year: 8%, replaced_after: 15min}"


def recovered(*times_s: float | None) -> Any:
    found = [cell(recovery=None if s is None else {"whole_s": s}) for s in times_s]
    return kept(required(STATED), found)


def test_a_lost_node_is_back_in_time_in_every_repeat() -> None:
    assert recovered(3_600).outcome is Outcome.MET
    assert recovered(900, 7_200).outcome is Outcome.CANNOT_TELL
    late = recovered(7_200)
    assert late.outcome is Outcome.MISSED
    assert str(late) == "missed: recovery 2.0 h (within 60 min)"
    assert recovered(900, None).outcome is Outcome.CANNOT_TELL


def test_rows_without_another_copy_never_come_back() -> None:
    lost = cell(recovery={"whole_s": 60, "rows_lost": 3})
    assert str(kept(required(STATED), [lost])) == (
        "missed: recovery never: there is no other copy (within 60 min)"
    )


def test_a_year_counts_its_longest_recovery() -> None:
    year = {
        "lost_s": 900,
        "disk_lost_s": 5_000,
        "unavailable_min": 0,
        "row_unavailable_min": 0,
        "loss_probability": 0,
    }
    assert kept(required(STATED), [cell(recovery={"yearly": year})]).outcome is Outcome.MISSED


def test_a_recovery_without_a_loss_is_an_error_of_the_file() -> None:
    with pytest.raises(UserError, match="nothing is lost that could recover"):
        required("{recovery: 1h}")


def test_local_disks_and_readwrite_caches_do_not_survive_deallocation() -> None:
    asked = "{durability: survives deallocation}"
    for disks, caching, outcome in (
        ("local", "None", Outcome.MISSED),
        ("4 x azure/P30", "ReadWrite", Outcome.MISSED),
        ("4 x azure/P30", "ReadOnly", Outcome.MET),
    ):
        assert kept(required(asked, disks, caching), [cell()]).outcome is outcome


@pytest.mark.parametrize(
    ("asked", "copies", "outcome"),
    [
        ("", 1, Outcome.MISSED),
        ("", 3, Outcome.MET),
        (", durability: may be lost", 1, Outcome.MET),
        (", durability: survives deallocation", 3, Outcome.MISSED),
    ],
)
def test_a_single_copy_on_a_local_disk_keeps_no_promise_unless_the_file_drops_it(
    asked: str, copies: int, outcome: Outcome
) -> None:
    wanted = required(f"{{read: {{p99: 1s}}{asked}}}", "local").model_copy(
        update={"copies": copies}
    )
    told = kept(wanted, [cell()])
    assert told.outcome is outcome
    assert only_durability(told) == (outcome is Outcome.MISSED)


def test_head_room_follows_from_the_fullest_limit() -> None:
    asked = required("{head_room: 20%}")
    for used, outcome in ((0.8, Outcome.MET), (0.9, Outcome.MISSED)):
        bound = {"resource": "read slots", "utilisation": used}
        assert kept(asked, [cell(bottleneck=bound)]).outcome is outcome


def test_what_is_exactly_at_its_bound_is_no_miss() -> None:
    loop = {"kind": "closed", "threads": 8}
    told = kept(required("{rate: 1000/s}"), [cell(rate=rate, loop=loop) for rate in (900, 1000)])
    assert told.outcome is Outcome.CANNOT_TELL
    carried = 1000.0 * (1 + 0.2) * least_ratio([cell()])
    told = kept(required("{head_room: 20%}"), [cell(rate=carried)])
    assert "head-room" in {point.what for point in told.points}


def test_a_price_above_the_budget_or_unknown_is_told() -> None:
    asked = required("{budget: 5000 USD/month}")
    for price, outcome in (
        (4999.0, Outcome.MET),
        (5001.0, Outcome.MISSED),
        (None, Outcome.CANNOT_TELL),
    ):
        assert kept(asked, [cell(price_usd_per_month=price)]).outcome is outcome


def test_a_rate_that_was_never_offered_cannot_be_told() -> None:
    assert kept(required("{rate: 2000/s}"), [cell()]).outcome is Outcome.CANNOT_TELL


@pytest.mark.parametrize(
    ("ceiling", "outcome"), [(1000, Outcome.CANNOT_TELL), (None, Outcome.MISSED)]
)
def test_what_a_ceiling_held_back_is_not_missed(ceiling: int | None, outcome: Outcome) -> None:
    loop = {"kind": "closed", "threads": 8, "at_most_per_s": ceiling}
    told = kept(required("{rate: 2000/s}"), [cell(ops_per_s=1000.0, loop=loop)])
    assert told.outcome is outcome


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("{}", "asks for something"),
        ("{read: {}}", "has a percentile"),
        ("{read: {p99: 10}}", "write 10s or 10ms"),
        ("{budget: 100 EUR/month}", "USD a month"),
        ("{reed: {p99: 3ms}}", "did you mean read"),
    ],
)
def test_a_wrong_requirement_is_refused_with_its_line(asked: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        required(asked)
    assert "experiment.yaml:7: require" in str(caught.value)
    assert words in str(caught.value)


def test_bounds_on_operations_that_the_workload_does_not_have_are_refused() -> None:
    text = FILE % ("local", "None", "{write: {p99: 10ms}}")
    with pytest.raises(UserError, match="the workload has no writes"):
        parse(text.replace("{read: 80%, write: 20%}", "{read: 100%}"))


@pytest.mark.parametrize(
    ("storage_ms", "outcome"),
    [(1.5, Outcome.MET), (2.5, Outcome.MISSED), (None, Outcome.CANNOT_TELL)],
)
def test_storage_is_judged_apart_from_the_whole(storage_ms: float | None, outcome: Outcome) -> None:
    told = kept(required("{storage_p99: 2ms}"), [cell(p99_ms=60, storage_p99_ms=storage_ms)])
    assert told.outcome is outcome


def open_loop(
    done: float, *, rate: float = 1000.0, seconds: float = 60.0, **loop: str
) -> TrialResult:
    told = {"kind": "open", "rate_per_s": rate, "arrivals": "poisson", **loop}
    return result().model_copy(update={"ops_per_s": done, "duration_s": seconds, "loop": told})


def test_a_rate_is_carried_from_97_percent_on() -> None:
    assert not is_overloaded([open_loop(972)])
    assert is_overloaded([open_loop(968)])
    assert carried_ratio([open_loop(968), open_loop(990), open_loop(700)]) == pytest.approx(0.968)


def test_a_short_run_of_random_arrivals_is_given_its_chance() -> None:
    # 100 arrivals: one standard deviation is a tenth.
    assert not is_overloaded([open_loop(70, rate=100, seconds=1)])
    assert is_overloaded([open_loop(55, rate=100, seconds=1)])
    assert is_overloaded([open_loop(70, rate=100, seconds=1, arrivals="even")])


def test_chance_alone_is_hardly_ever_an_overload() -> None:
    chance = random.Random(7)
    seconds, rate = 10.0, 50.0
    wrong = 0
    for _ in range(2000):
        done, at = 0, chance.expovariate(rate)
        while at < seconds:
            done, at = done + 1, at + chance.expovariate(rate)
        wrong += is_overloaded([open_loop(done / seconds, rate=rate, seconds=seconds)])
    assert wrong <= 2


def test_a_closed_loop_is_never_overloaded() -> None:
    closed = result().model_copy(
        update={"ops_per_s": 10.0, "loop": {"kind": "closed", "threads": 8}}
    )
    assert not is_overloaded([closed])
    assert carried_ratio([closed]) is None


def test_a_ceiling_is_held_from_97_percent_on_and_never_an_overload() -> None:
    loop = {"kind": "closed", "threads": 8, "at_most_per_s": 1000}
    held, below = (
        result().model_copy(update={"ops_per_s": done, "loop": loop}) for done in (971.0, 968.0)
    )
    assert (paced_at([held]), paced_at([below])) == (1000, None)
    assert not is_overloaded([below])
    assert carried_ratio([below]) is None
    faster = held.model_copy(update={"loop": {**loop, "at_most_per_s": 990}})
    assert paced_at([held, faster]) is None, "two ceilings are none"
