"""How a real PostgreSQL makes room for rows that change: the rules that the simulator follows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from disklab.databases import Database
from disklab.engine import LoadDone, LoadJob, run_load
from disklab.engine.load import ClosedLoop, RowSize, RowsWorkload, Stop, load_target

from tests.databases.servers import asking, postgresql

pytestmark = pytest.mark.machine

ROWS = 420
UPDATES = 3 * ROWS
COLUMNS = 5
PAGE_BYTES = 8192
MOST_SECONDS_TO_END = 30.0
BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'disklab'"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    # Vacuum would give pages back, some minutes later.
    with postgresql(tls=False, autovacuum="off") as database:
        yield database


@dataclass(frozen=True)
class Grown:
    """A table before and after its rows were written again, in pages."""

    filled: int
    pages: int
    hot: int
    moved: int


def load(database: Database, rows: RowsWorkload, count: int, threads: int) -> None:
    """Write rows; raises AssertionError when one could not be."""
    job = LoadJob(
        seed=5,
        target=load_target(database.target),
        workload=rows,
        load=ClosedLoop(threads=threads),
        stop=Stop(operations=count),
        interval_ms=200,
    )
    *_, done = run_load(job)
    assert isinstance(done, LoadDone)
    assert done.errors == {}


def grown(
    database: Database, threads: int, column_bytes: int, sizes: list[RowSize] | None = None
) -> Grown:
    """Fill a table in the order of keys, and write rows at random again."""
    rows = RowsWorkload(
        rows=ROWS,
        columns=COLUMNS,
        column_bytes=column_bytes,
        sizes=sizes,
        keys="sequential",
        operations={"write": 1.0},
    )
    with asking(database) as sql:
        sql.ask("TRUNCATE rows")
        load(database, rows, ROWS, 1)
        sql.ask("VACUUM rows")
        size = "SELECT pg_relation_size('rows'), pg_stat_get_tuples_updated('rows'::regclass), "
        size += "pg_stat_get_tuples_hot_updated('rows'::regclass)"
        first = sql.ask(f"SELECT pg_stat_reset(); {size}")[-1]
        load(database, rows.model_copy(update={"keys": "uniform"}), UPDATES, threads)
        # A backend tells what it did before it ends, which is some time after its client has.
        deadline = time.monotonic() + MOST_SECONDS_TO_END
        while int(sql.ask(BACKENDS)[-1][0]) and time.monotonic() < deadline:
            time.sleep(0.05)
        last = sql.ask(size)[-1]
    hot, updates = int(last[2]), int(last[1])
    assert updates == UPDATES
    filled, pages = (int(one[0]) // PAGE_BYTES for one in (first, last))
    return Grown(filled, pages, hot, updates - hot)


def test_a_row_that_fills_more_than_half_a_page_always_moves(server: Database) -> None:
    seen = grown(server, 1, column_bytes=818)
    assert seen.filled == ROWS
    assert seen.hot == 0
    # Nobody else waits for the table: one page at a time.
    assert seen.pages - seen.filled == UPDATES


def test_a_row_stays_once_its_page_has_room_for_another_version(server: Database) -> None:
    seen = grown(server, 1, column_bytes=205)
    assert seen.filled == ROWS // 7
    # Each page of the fill, and each that its rows have moved to, loses one row before it has room.
    assert seen.moved <= 1.3 * seen.filled
    assert seen.pages - seen.filled <= 1.3 * seen.filled / 7 + 1


def test_many_who_wait_add_pages_for_each_other(server: Database) -> None:
    seen = grown(server, 24, column_bytes=818)
    added = seen.pages - seen.filled
    # Twenty for each that waits, so that some are left; more than 512 at once are never added.
    # Who waits may find a page instead whose row has moved (1,259 pages were seen once).
    assert UPDATES - 24 <= added <= UPDATES + 512 + 24


def test_rows_of_several_sizes_share_pages(server: Database) -> None:
    sizes = [
        RowSize(column_bytes=16, share_ppm=600_000),
        RowSize(column_bytes=820, share_ppm=400_000),
    ]
    seen = grown(server, 1, column_bytes=338, sizes=sizes)
    # A large row has a page to itself and small ones: as many pages as large rows, four standard
    # deviations of whose number are 40.
    assert abs(seen.filled - 0.4 * ROWS) < 40
