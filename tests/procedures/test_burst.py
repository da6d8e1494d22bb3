"""Device experiments: credits that run out in mid-run, and what is told beside the figures."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.probe.cells import KIB, PERCENTILES, Cell, Direction, Profile
from disklab.probe.fio import Latency, Measurement, Side
from disklab.probe.fio_results import beyond_this_machine
from disklab.probe.run import CellResult
from disklab.probe.verdict import Outcome, Verdict
from disklab.procedures import burst
from disklab.procedures.burst import CreditsCourse, Pass
from disklab.spec import Trial

FILE = Path(__file__).parents[2] / "experiments/yugabytedb-disk-types.yaml"
KEY = ("data", "disk 0 ios")


def trial(disk: str = "Premium SSD", scale: Fraction = Fraction(1, 100)) -> Trial:
    return spec.load(FILE).select(disk=disk).trials("rehearse", scale=scale)[0]


def course(gone_at_s: float, *, passes: int = 1, seconds: int = 10) -> CreditsCourse:
    """A load at 900/s until its credits are gone, at 300/s afterwards; seen half a second late."""
    made = []
    for number in range(passes):
        begun = 1000.0 * number
        looks = [begun - 0.2, *(begun + 0.5 + second for second in range(seconds))]
        left = [max(0.0, 1 - max(0.0, look - begun) / gone_at_s) for look in looks]
        rates = [
            (begun + second, begun + second + 1, 900.0 if second + 1 <= gone_at_s else 300.0)
            for second in range(seconds)
        ]
        made.append(Pass({KEY: list(zip(looks, left, strict=True))}, rates, begun))
    return CreditsCourse(made)


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("gone_at_s", [3.0, 4.3, 6.9])
def test_the_second_and_the_rates_before_and_after(gone_at_s: float, passes: int) -> None:
    (one,) = burst.gone(course(gone_at_s, passes=passes), trial(), load_catalog())
    assert one.at_s == pytest.approx(gone_at_s, abs=0.11)
    assert one.full_at_s == pytest.approx(one.at_s * 100, rel=0.02)
    assert (one.ops_per_s_before, one.ops_per_s_after) == (900, 300)
    assert (one.volume, one.limit, one.passes) == (*KEY, passes)


def test_the_next_size_has_its_price_for_the_whole_cluster() -> None:
    (one,) = burst.gone(course(4.0), trial(), load_catalog())
    assert (one.next_size.disks, one.next_size.iops) == ("azure/P20", 2300)
    # Three nodes; $73.22 instead of $38.02 a month (East US, as the catalogue has it).
    assert one.next_size.more_usd_per_month == pytest.approx(3 * (73.22 - 38.02), abs=0.02)
    text = burst.in_words(one)
    assert "ran out 4 s into the load (7 min on the full system): 900 ops/s before, 300" in text
    assert "azure/P20, has 2,300 IOPS all the time: 105.60 USD a month more" in text


def test_disks_whose_speed_is_chosen_have_no_next_size() -> None:
    assert burst.next_size(trial("Ultra"), "data", load_catalog()) is None


@pytest.mark.parametrize(
    "left",
    [
        [1.0, 0.9, 0.8, 0.7, 0.6],
        # Gone before the load began: there is no rate from before.
        [0.0, 0.0, 0.0, 0.0, 0.0],
        # Gone as it ended: there is none from after.
        [1.0, 0.75, 0.5, 0.25, 0.0],
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_compare(left: list[float]) -> None:
    looks = list(zip(itertools.count(), left, strict=False))
    seen = Pass({KEY: [(float(at), one) for at, one in looks]}, [(0.0, 4.0, 500.0)], 0.0)
    assert burst.gone(CreditsCourse([seen]), trial(), load_catalog()) == []


CELL = Cell(Profile.ASYNC, Direction.RANDWRITE, 8 * KIB)
MS = 1_000_000


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_limit_of_this_machine_is_a_warning(outcome: Outcome) -> None:
    latency = Latency(float(MS), MS, MS, dict.fromkeys(PERCENTILES, MS))
    measured = Measurement(
        CELL, {"write": Side(60, 60 * 8192, latency)}, latency, 60.0, "fio-3.33", ()
    )
    reason = "short by 43%, and this machine is why: a FLUSH was under way"
    cell = CellResult("OS disk", "", measured, verdict=Verdict(outcome, "IOPS", 1.0, 2.0, reason))
    told = [f"IOPS: {reason}"] if outcome is Outcome.BEYOND_MACHINE else []
    assert beyond_this_machine(cell) == told
