"""What a cache tells of the rows that are asked for: known working sets, simulated caches."""

from __future__ import annotations

import random
from collections import OrderedDict

import pytest
from disklab.databases.observing import CacheSeen
from disklab.observation.found import WorkingSet, short_bytes, working_set

ROWS = 10_000


def readings(asked: int, room: int, seed: int = 1) -> tuple[CacheSeen, CacheSeen]:
    """Return readings of an LRU cache before and after uniform reads of `asked` rows.

    `room`: how many rows it holds at most.
    """
    chance, cache = random.Random(seed), OrderedDict[int, None]()
    hits = requests = 0.0
    seen = []
    for _ in range(2):
        for _ in range(60_000):
            row = chance.randrange(asked)
            requests += 1
            hits += row in cache
            cache[row] = None
            cache.move_to_end(row)
            if len(cache) > room:
                cache.popitem(last=False)
        full = len(cache) >= 0.95 * room
        seen.append(CacheSeen("key cache", "rows", float(len(cache)), full, hits, requests))
    return seen[0], seen[1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("asked", [1_500, 3_000, 6_000])
def test_a_full_cache_tells_the_working_set(asked: int, seed: int) -> None:
    told = working_set(*readings(asked, 1_000, seed), ROWS)
    assert isinstance(told, WorkingSet)
    assert told.ratio == pytest.approx(asked / ROWS, rel=0.1)
    assert told.least < asked / ROWS < told.most


def test_a_cache_with_room_holds_what_is_asked_for() -> None:
    told = working_set(*readings(2_000, 9_000), ROWS)
    assert isinstance(told, WorkingSet)
    assert told.ratio == pytest.approx(0.2, rel=0.05)


def test_reads_of_everything_ask_for_everything() -> None:
    told = working_set(*readings(ROWS, 1_000), ROWS)
    assert isinstance(told, WorkingSet)
    assert told.ratio == pytest.approx(1.0, rel=0.1)


def test_what_a_cache_cannot_tell_is_said() -> None:
    few = CacheSeen("key cache", "rows", 10.0, True, 5.0, 10.0)
    assert "too few" in str(working_set(few, few, ROWS))
    whole = CacheSeen("key cache", "rows", float(ROWS), False, 5e5, 5e5)
    nothing = CacheSeen("key cache", "rows", 0.0, False, 0.0, 0.0)
    assert "cannot show" in str(working_set(nothing, whole, ROWS))
    filling = CacheSeen("key cache", "rows", 100.0, False, 1e4, 1e5)
    assert "still being filled" in str(working_set(nothing, filling, ROWS))
    assert "holds nothing" in str(
        working_set(nothing, CacheSeen("key cache", "rows", 0.0, False, 0.0, 5e3), ROWS)
    )
    # From so much on it tells nothing, or that all reads are of what it holds.
    most = CacheSeen("key cache", "rows", 0.98, False, 4e5, 5e5)
    assert "cannot show" in str(working_set(nothing, most, 1.0))
    nearly = CacheSeen("key cache", "rows", 100.0, True, 9_800.0, 10_000.0)
    assert "nearly all reads" in str(working_set(nothing, nearly, ROWS))


def test_a_row_of_a_thousand_bytes_is_told_in_kb() -> None:
    assert short_bytes(999.4) == "999 B"
    assert short_bytes(1000.0) == "1.0 kB"
