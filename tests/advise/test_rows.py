"""One truth per option: over random finalists, sketches and failures, in words too."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from disklab.advice.candidates import Candidate
from disklab.advice.options import RANKS, Option, ranked
from disklab.advice.promise import MOST_USED, bought, with_room
from disklab.advice.rows import ALTERNATIVES, Row, alternatives, rows_of, why_not
from disklab.advice.simulator import Fidelity, Tried
from disklab.results import TrialResult
from disklab.results.records import Band, Bands, Bottleneck
from disklab.results.required import Bounds, Kept, Outcome, Point, Required, judge

from tests.advise.test_search import candidates

FIDELITIES: tuple[Fidelity, ...] = ("full", "quick", "sketch")


def result(
    p99_ms: float, used: float = 0.4, rate: float = 1300.0, does: float = 1.0
) -> TrialResult:
    return TrialResult(
        experiment="t",
        mode="predict",
        trial=0,
        factors={},
        ops_per_s=rate * does,
        loop={"kind": "open", "rate_per_s": rate},
        latency_ms={"p99": p99_ms},
        bottleneck=Bottleneck(resource="node CPU", utilisation=used),
    )


ROOM = Required(all=Bounds(p99_ms=10), rate_per_s=1000, head_room_ratio=0.3)


def tried(candidate: Candidate, chance: random.Random, fidelity: Fidelity) -> Tried:
    one = result(chance.choice((2.0, 9.0, 12.0, 400.0)), chance.choice((0.4, 0.95)))
    told = bought(ROOM, [one])
    if fidelity == "quick" and chance.random() < 0.3:
        one = one.model_copy(update={"bands": Bands(figures={"p99_ms": Band(low=0.8, high=80)})})
        told = judge(ROOM, [one])
    return Tried(candidate, one, told, told.outcome is Outcome.MET, fidelity, ROOM)


@pytest.mark.parametrize("seed", range(200))
def test_hardware_stands_once_by_its_surest_figures_and_ranks_as_its_outcome(seed: int) -> None:
    chance = random.Random(seed)
    some = chance.sample(candidates(), 8)
    looked = [tried(chance.choice(some), chance, chance.choice(FIDELITIES)) for _ in range(20)]
    full = [one for one in looked if one.fidelity == "full"]
    options = ranked(
        Option(one.candidate, (one.result,), one.kept, 3, None) for one in full[: len(full) // 2]
    )
    rows = rows_of(options, looked, 3)
    hardware = [row.candidate.hardware for row in rows]
    assert len(set(hardware)) == len(hardware)
    assert set(hardware) == {one.candidate.hardware for one in looked} | set(hardware)
    assert [row.option for row in rows[: len(options)]] == options
    for row in rows:
        own = [one for one in looked if one.candidate.hardware == row.candidate.hardware]
        surest = min(FIDELITIES.index(one.fidelity) for one in own)
        assert FIDELITIES.index(row.fidelity) == (0 if row.option else surest)
        assert row.fidelity == "full" or row.outcome is not Outcome.MET
        # A band that leaves doubt is surer than a figure alone.
        same = [one for one in own if one.fidelity == row.fidelity]
        assert row.option or bool(row.result.bands) == any(one.result.bands for one in same)
        assert row.raised is not bool(row.option or row.result.bands)
        assert (row.why == "") == (row.outcome is Outcome.MET)
    rest = [RANKS.index(row.outcome) for row in rows[len(options) :] if not row.candidate.lossy]
    assert rest == sorted(rest)
    if rows and rows[0].outcome is Outcome.MET:
        told = alternatives(rows)
        assert len(told) <= ALTERNATIVES
        names = {row.name for row in rows[1:]}
        for line in told:
            assert any(line.startswith(name) for name in names)
            assert " USD a month" in line or "the same price" in line


def test_a_limit_that_is_nearly_full_leaves_no_room() -> None:
    crowded = bought(ROOM, [result(2.0, used=(MOST_USED + 0.05) * 1.3)])
    assert str(crowded) == "missed: node CPU 75 % (at most 70 % full)"
    assert bought(ROOM, [result(2.0, used=(MOST_USED - 0.05) * 1.3)]).outcome is Outcome.MET
    # The old way: no head-room is asked for.
    bare = ROOM.model_copy(update={"head_room_ratio": 0.0})
    assert bought(bare, [result(2.0, used=0.97, rate=1000.0)]).outcome is Outcome.MET


@pytest.mark.parametrize(
    ("raised", "outcome", "says"),
    [
        (result(9.0), Outcome.MET, ""),
        (result(95.0), Outcome.MISSED, "p99 with 30 % more load 95 ms (at most 10 ms)"),
        (result(2.0, does=0.8), Outcome.MISSED, "carries with 30 % more load 1,040/s, 80 %"),
    ],
)
def test_the_promise_is_kept_with_the_load_grown(
    raised: TrialResult, outcome: Outcome, says: str
) -> None:
    told = Kept(Outcome.MET, (Point("p99", Outcome.MET, "at most 10 ms", "2 ms", 0.2),))
    judged = with_room(told, bought(ROOM, [raised]), ROOM.head_room_ratio)
    assert judged.outcome is outcome
    assert says in str(judged)
    assert judged.achieved_ratio is None


def test_each_alternative_is_one_plain_sentence_with_money() -> None:
    attached = [one for one in candidates() if not one.local]
    cheap, answer, dear = (
        replace(one, usd_per_month=usd)
        for one, usd in zip(
            (attached[0], attached[len(attached) // 2], attached[-1]),
            (800.0, 1000.0, 1200.0),
            strict=True,
        )
    )
    missed = bought(ROOM, [result(95.0, used=0.85)])
    met: Any = Kept(Outcome.MET, ())
    options = [Option(one, (result(2.0),), met, 3, None) for one in (answer, dear)]
    looked = [Tried(cheap, result(95.0, used=0.85), missed, promising=False, fidelity="full")]
    assert alternatives(rows_of(options, looked, 3)) == [
        f"3 x {cheap.hardware} would save 200 USD a month, but misses your 10 ms (p99 95 ms): the "
        "nodes' CPU is 85 % busy.",
        f"3 x {dear.hardware} does the same for 200 USD a month more.",
    ]
    # What misses the promise for the same price is no way to save.
    looked = [replace(looked[0], candidate=replace(cheap, usd_per_month=1000.0))]
    assert alternatives(rows_of(options, looked, 3)) == [
        f"3 x {dear.hardware} does the same for 200 USD a month more."
    ]


def test_more_load_is_not_why_data_are_lost_with_a_vm() -> None:
    cheap, answer, *_ = candidates()
    met = Kept(Outcome.MET, ())
    lossy = Row(replace(cheap, lossy=True), 1, met, result(2.0), "quick")
    dearer = replace(answer, usd_per_month=cheap.usd_per_month + 100)
    assert "but loses its data" in why_not(lossy, Row(dearer, 1, met, result(2.0), "full"), 0.3)
