"""What `observe` writes can be read back, whatever it has seen; what caches tell of the rows."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path

import pytest
import yaml
from disklab import spec
from disklab.catalog.quantity import plain_number
from disklab.databases.observing import (
    CacheSeen,
    Count,
    Latency,
    NodeSeen,
    Reading,
    Shape,
    TableSeen,
    Understood,
)
from disklab.errors import MachineError
from disklab.observation.file import Stated, file_of
from disklab.observation.found import WorkingSet, busy, found_of, short_bytes, working_set
from disklab.observation.machine import Window
from disklab.spec.draft import Draft, draft, flow
from hypothesis import given
from hypothesis import strategies as st


def window(rate_per_s: float, p99_ms: float, tables: int = 1) -> Window:
    names = [f"shop.t{number}" for number in range(tables)]
    each = rate_per_s * 10 / tables
    readings = [
        Reading(
            number * 10.0,
            {name: Count(reads=each * number * 0.8, writes=each * number * 0.2) for name in names},
            latencies=tuple(Latency(name, "read", p99_ms / 2, p99_ms) for name in names[:1]),
        )
        for number in range(4)
    ]
    return Window(readings, [{} for _ in readings], 1_790_000_000.0, interrupted=False)


def shape(tables: int = 1) -> Shape:
    seen = [TableSeen(f"shop.t{number}", 1, 1e6, 400.0, 4, 1e9) for number in range(tables)]
    return Shape("MariaDB 10.11.6", (NodeSeen("10.0.0.4:3306"),), tuple(seen))


@given(
    st.floats(1, 1e9, allow_nan=False),
    st.floats(1e-6, 1e6),
    st.none() | st.floats(0.01, 2_592_000_000),
)
def test_any_figure_is_read_as_it_was_written(
    rate_per_s: float, p99_ms: float, promised_ms: float | None
) -> None:
    found = found_of("mariadb", window(rate_per_s, p99_ms), shape(), [])
    text = file_of(found, Stated("azure/Standard_E16s_v5", "4 x azure/P30", p99_ms=promised_ms))
    require = spec.parse(text, Path("seen.yaml")).cells[0].spec.require
    assert require.rate_per_s == pytest.approx(rate_per_s, rel=1e-3)


class Told:
    """A server that tells of one table."""

    def __init__(self, table: TableSeen) -> None:
        self.table = table

    def read(self) -> Reading:
        return Reading(0.0, {})

    def shape(self, tables: Collection[str]) -> Shape:
        return Shape("MariaDB 10.11.6", (NodeSeen("10.0.0.4:3306"),), (self.table,))

    def close(self) -> None:
        pass


@given(
    st.floats(0, 1e19),
    st.none() | st.floats(0, 1e19) | st.floats(1e6, 1e9),
    st.integers(0, 5000),
    st.floats(0, 1e19),
)
def test_any_table_is_refused_or_read_as_it_was_written(
    rows: float, row_bytes: float | None, columns: int, stored_bytes: float
) -> None:
    """As rows of blobs, of more columns than a row of ours has, and of what no disk holds."""
    table = TableSeen("shop.t0", 1, rows, row_bytes, columns, stored_bytes)
    try:
        told = Understood("mariadb", lambda: Told(table)).shape(["shop.t0"])
    except MachineError:
        assert max(rows * (row_bytes or 0), stored_bytes) > 1e14
        return
    found = found_of("mariadb", window(100.0, 2.0), told, [])
    text = file_of(found, Stated(None, None))
    (cell,) = spec.parse(text, Path("seen.yaml")).cells
    assert cell.spec.dataset is not None


@given(st.floats(1, 1e12))
def test_any_rate_of_a_draft_is_read_as_it_was_written(rate_per_s: float) -> None:
    text = draft(
        Draft(
            "cassandra",
            "azure/Standard_E16s_v5",
            ["azure/P30"],
            threads=None,
            rate_per_s=rate_per_s,
            p99_ms=10.0,
        )
    )
    require = yaml.safe_load(text)["require"]
    assert float(require["rate"].removesuffix("/s")) == pytest.approx(rate_per_s, rel=1e-9)
    assert "e+" not in text


@given(st.floats(0, 1e15), st.integers(3, 15))
def test_a_plain_number_has_no_exponent(value: float, digits: int) -> None:
    text = plain_number(value, digits)
    assert set(text) <= set("0123456789.")
    assert float(text) == pytest.approx(value, rel=1e-2, abs=1e-9)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), st.text(max_size=50)))
def test_settings_stay_values(settings: dict[str, str]) -> None:
    read = yaml.safe_load(flow(settings))
    assert {name: str(value) for name, value in read.items()} == {
        name: str(int(value)) if value.isascii() and value.isdigit() else value
        for name, value in settings.items()
    }


def test_a_shop_with_a_schema_for_each_client_is_told_in_seconds() -> None:
    tables = 5000
    begun = time.process_time()
    looked = window(1000.0, 5.0, tables)
    found = found_of("mariadb", looked, shape(tables), [])
    assert busy(looked) == []
    file_of(found, Stated())
    found.as_json()
    # Some 0.3 s here; with a sum for each table it was minutes.
    assert time.process_time() - begun < 10


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
