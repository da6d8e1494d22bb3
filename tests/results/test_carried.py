"""One rule says whether an offered rate was carried."""

from __future__ import annotations

import random

import pytest
from disklab.results import TrialResult
from disklab.results.required import carried_ratio, is_overloaded, paced_at

from tests.results.made import result


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
