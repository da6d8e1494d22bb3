"""TPC-C on a real PostgreSQL and MariaDB: loaded, run, and held against the conditions."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from disklab.databases import Database
from disklab.databases.sql import Sql
from disklab.engine import LoadDone, LoadJob, LoadProgress, LoadReady, LoadRun, run_load
from disklab.engine.load import TRANSACTIONS, ClosedLoop, Generator, Stop, TpccOutcome
from disklab.errors import UserError
from disklab.results.histogram import decode
from disklab.workloads.tpcc import check_job, load_job, run_job

from tests.databases.servers import asking, mariadb, postgresql
from tests.databases.servers import done as last

pytestmark = pytest.mark.machine

WAREHOUSES = 2
CONNECTIONS = 8
SEED = 11
CONTENT = (
    "SELECT sum(hashtext(concat(c_first, c_last, c_data, c_discount))) FROM disklab_tpcc.customer"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgresql(tls=False) as database:
        yield database


@pytest.fixture(scope="module")
def loaded(server: Database) -> Database:
    """Two warehouses. Every test leaves them consistent, which the next one that looks sees."""
    done = last(load_job(server.target, WAREHOUSES, SEED))
    assert done.errors == {}
    return server


@pytest.fixture
def sql(loaded: Database) -> Iterator[Sql]:
    with asking(loaded) as sql:
        sql.ask("SET search_path = disklab_tpcc")
        yield sql


def said(done: LoadDone) -> TpccOutcome:
    return done.tpcc


def restless(
    database: Database, stop: Stop, connections: int = CONNECTIONS, **changed: Any
) -> LoadJob:
    target = {**database.target, **changed}
    return run_job(
        target, WAREHOUSES, SEED, stop, connections=connections, keying_and_thinking=False
    )


def broken(database: Database) -> dict[int, int]:
    """Return the violations of each condition that does not hold."""
    done = last(check_job(database.target, WAREHOUSES))
    assert done.errors == {}
    conditions = said(done).conditions
    assert [condition.number for condition in conditions] == list(range(1, 13))
    assert all(condition.passed == (condition.violations == 0) for condition in conditions)
    assert all((condition.example is None) == condition.passed for condition in conditions)
    return {one.number: one.violations for one in conditions if not one.passed}


@pytest.mark.long
def test_a_load_writes_what_the_standard_asks_and_shows_progress(server: Database) -> None:
    ready, *intervals, done = run_load(load_job(server.target, 1, SEED))
    assert isinstance(ready, LoadReady)
    assert isinstance(done, LoadDone)
    assert done.errors == {}
    assert ready.operations == sum(one.count for one in done.operations.values())
    assert any(isinstance(event, LoadProgress) for event in intervals)
    rows = dict(said(done).rows)
    lines = rows.pop("order_line")
    assert rows == {
        "item": 100_000,
        "warehouse": 1,
        "district": 10,
        "customer": 30_000,
        "history": 30_000,
        "orders": 30_000,
        "new_order": 9_000,
        "stock": 100_000,
    }
    assert lines == pytest.approx(300_000, rel=0.01)
    with asking(server) as sql:
        first = sql.ask(CONTENT)
    assert last(load_job(server.target, 1, SEED)).errors == {}
    with asking(server) as sql:
        assert sql.ask(CONTENT) == first, "the same seed makes the same customers"
    assert last(load_job(server.target, 1, SEED + 1)).errors == {}
    with asking(server) as sql:
        assert sql.ask(CONTENT) != first


def test_fresh_tables_meet_all_conditions(loaded: Database) -> None:
    assert broken(loaded) == {}


def test_a_run_does_the_standard_s_mix_and_leaves_the_tables_consistent(
    loaded: Database, sql: Sql
) -> None:
    paid = "SELECT count(*) FROM history"
    ordered = "SELECT count(*) FROM orders"
    looked_at = (
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables"
        " WHERE relid = 'disklab_tpcc.stock'::regclass"
    )
    ((payments,),) = sql.ask(paid)
    ((orders,),) = sql.ask(ordered)
    ((stocks_before,),) = sql.ask(looked_at)
    done = last(restless(loaded, Stop(operations=3_000)))
    assert done.errors == {}
    outcome = said(done)
    counts = {kind: done.operations[kind].count for kind in TRANSACTIONS}
    assert sum(counts.values()) == 3_000
    # Three whole decks of a thousand, but for the card that each terminal still has in its hand.
    deck = {
        "new_order": 1350,
        "payment": 1290,
        "order_status": 120,
        "delivery": 120,
        "stock_level": 120,
    }
    assert counts == {kind: pytest.approx(count, abs=CONNECTIONS) for kind, count in deck.items()}
    # What the tables say happened is what the run says.
    assert sql.ask(paid) == [[str(int(payments) + counts["payment"])]]
    assert sql.ask(ordered) == [[str(int(orders) + counts["new_order"] - outcome.rolled_back)]]
    # One row of stock for each line ordered, some 200 for each look at the stock: not all of it.
    ((stocks,),) = sql.ask(looked_at)
    most = 1.5 * (outcome.lines + 200 * counts["stock_level"])
    assert outcome.lines < int(stocks) - int(stocks_before) < most
    assert 1 <= outcome.rolled_back <= 40
    assert outcome.lines == pytest.approx(10 * counts["new_order"], rel=0.05)
    assert outcome.remote_lines == pytest.approx(0.01 * outcome.lines, rel=0.5)
    assert outcome.remote_payments == pytest.approx(0.15 * counts["payment"], rel=0.3)
    assert outcome.by_last_name == pytest.approx(0.6 * 1410, rel=0.2)
    assert outcome.mix_ratio == pytest.approx(
        dict(zip(TRANSACTIONS, (0.45, 0.43, 0.04, 0.04, 0.04), strict=True)),
        abs=CONNECTIONS / 3_000,
    )
    assert outcome.tpmc == pytest.approx(counts["new_order"] / done.elapsed_s * 60)
    assert outcome.efficiency_ratio == pytest.approx(outcome.tpmc / (12.86 * WAREHOUSES))
    assert any("no keying and think times" in remark for remark in outcome.remarks)
    for kind in TRANSACTIONS:
        assert decode(done.response[kind]).total == counts[kind]
    assert broken(loaded) == {}


def test_terminals_key_in_and_think(loaded: Database) -> None:
    job = run_job(loaded.target, WAREHOUSES, SEED, Stop(duration_s=8.0), connections=2)
    workload = job.workload.model_copy(update={"terminals_per_warehouse": 100})
    done = last(job.model_copy(update={"workload": workload}))
    assert done.errors == {}
    outcome = said(done)
    assert outcome.terminals == 200
    # 200 terminals with rounds of 21 s: 76 in 8 s, give or take five deviations.
    count = sum(one.count for one in done.operations.values())
    assert 35 <= count <= 120
    assert decode(done.lateness).total == count
    assert not any("no keying" in remark for remark in outcome.remarks)
    assert any("100 terminals a warehouse" in remark for remark in outcome.remarks)


def test_what_waits_too_long_fails_and_leaves_nothing(loaded: Database, sql: Sql) -> None:
    ((before,),) = sql.ask("SELECT count(*) FROM history")
    # Every payment meets a locked warehouse; orders, deliveries and questions go on.
    sql.ask("BEGIN; SELECT w_id FROM warehouse FOR UPDATE")
    done = last(restless(loaded, Stop(duration_s=3.0), request_timeout_ms=500))
    sql.ask("ROLLBACK")
    assert done.operations["payment"].count == 0
    # On a busy machine another transaction may take its half second too.
    failed = sum(done.errors.values())
    assert failed == sum(kind.failed for kind in done.operations.values())
    assert 0 < 0.9 * failed < done.operations["payment"].failed
    assert set(done.errors) <= {"57014 query_canceled", "client_timeout"}
    assert done.operations["new_order"].count > 0
    assert any(f"{failed} transactions failed" in remark for remark in said(done).remarks)
    assert sql.ask("SELECT count(*) FROM history") == [[before]]


def test_what_another_transaction_undid_is_tried_again_and_counted(
    loaded: Database, sql: Sql
) -> None:
    # A number of a sequence stays taken when its transaction is undone.
    sql.ask("CREATE SEQUENCE attempts")
    sql.ask(
        "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "DECLARE attempt bigint := nextval('disklab_tpcc.attempts'); BEGIN "
        "IF attempt % 5 = 0 OR attempt > 1000000 "
        "THEN RAISE 'made to fail' USING ERRCODE = '40001'; END IF; "
        "IF attempt % 7 = 0 THEN RAISE 'made to fail' USING ERRCODE = '40P01'; END IF; "
        "RETURN NEW; END $$"
    )
    sql.ask("CREATE TRIGGER undo BEFORE INSERT ON history FOR EACH ROW EXECUTE FUNCTION undo()")
    ((before,),) = sql.ask("SELECT count(*) FROM history")
    done = last(restless(loaded, Stop(operations=300), connections=1))
    assert done.errors == {}
    paid = done.operations["payment"].count
    ((attempts,),) = sql.ask("SELECT last_value FROM attempts")
    numbers = range(1, int(attempts) + 1)
    serialization = sum(number % 5 == 0 for number in numbers)
    deadlocks = sum(number % 7 == 0 and number % 5 != 0 for number in numbers)
    assert said(done).retries == {"40001": serialization, "40P01": deadlocks}
    assert int(attempts) == paid + serialization + deadlocks
    assert sql.ask("SELECT count(*) FROM history") == [[str(int(before) + paid)]]
    # What never comes through is a failure, after so many attempts, and is not counted as done.
    sql.ask("SELECT setval('attempts', 1000000)")
    done = last(restless(loaded, Stop(operations=60), connections=1))
    failed = done.operations["payment"].failed
    assert failed > 0
    assert done.operations["payment"].count == 0
    assert done.errors == {"40001 serialization_failure": failed}
    assert said(done).retries == {"40001": 9 * failed, "40P01": 0}
    sql.ask("DROP TRIGGER undo ON history; DROP FUNCTION undo(); DROP SEQUENCE attempts")
    assert broken(loaded) == {}


def test_each_condition_can_fail(loaded: Database, sql: Sql) -> None:
    # Each change is undone by the second sign. They break different things, so that one check sees
    # whether each condition counts its own.
    changes = [
        "UPDATE warehouse SET w_ytd = w_ytd {} 1 WHERE w_id = 1",
        "UPDATE district SET d_ytd = d_ytd {} 1 WHERE d_w_id = 2 AND d_id = 1",
        "UPDATE district SET d_next_o_id = d_next_o_id {} 1 WHERE d_w_id = 1 AND d_id = 2",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt {} 1 WHERE o_w_id = 1 AND o_d_id = 3 AND o_id = 5",
        "UPDATE customer SET c_balance = c_balance {} 1 "
        " WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 7",
        "UPDATE customer SET c_delivery_cnt = c_delivery_cnt {} 1"
        " WHERE c_w_id = 1 AND c_d_id = 4 AND c_id = 7",
    ]
    for change in changes:
        sql.ask(change.format("+"))
    line = "ol_w_id = 1 AND ol_d_id = 5 AND ol_o_id = 5 AND ol_number = 1"
    sql.ask(f"UPDATE order_line SET ol_delivery_d = NULL WHERE {line}")
    old = "no_w_id = 1 AND no_d_id = 6"
    ((gone,),) = sql.ask(f"SELECT min(no_o_id) + 1 FROM new_order WHERE {old}")
    sql.ask(f"DELETE FROM new_order WHERE {old} AND no_o_id = {gone}")
    found = broken(loaded)
    assert found == {number: 2 if number in {1, 11} else 1 for number in range(1, 13)}
    for change in changes:
        sql.ask(change.format("-"))
    sql.ask(f"UPDATE order_line SET ol_delivery_d = now() WHERE {line}")
    sql.ask(f"INSERT INTO new_order VALUES (1, 6, {gone})")
    assert broken(loaded) == {}


def test_a_run_needs_tables_of_its_size(loaded: Database) -> None:
    with pytest.raises(UserError, match="loaded for 2 warehouses"):
        last(check_job(loaded.target, 3))
    half = restless(loaded, Stop(operations=1)).model_copy(update={"generator": Generator(count=2)})
    with pytest.raises(UserError, match="one generator"):
        last(half)
    cql = {"protocol": "cql", "contact_points": ["127.0.0.1:9042"]}
    with pytest.raises(UserError, match="TPC-C is transactions"):
        last(check_job(cql, 1))


@pytest.mark.long
def test_a_load_that_was_killed_is_no_load() -> None:
    with postgresql(tls=False) as server:
        with LoadRun(load_job(server.target, 1, SEED)) as run:
            for event in run:
                if isinstance(event, LoadProgress):
                    os.kill(run.pid, signal.SIGKILL)
                    break
        with pytest.raises(UserError, match="came to its end"):
            last(check_job(server.target, 1))
        job = load_job(server.target, 1, SEED)
        assert last(job.model_copy(update={"load": ClosedLoop(threads=4)})).errors == {}
        done = last(check_job(server.target, 1))
        assert all(condition.passed for condition in said(done).conditions)


def test_mariadb_does_the_same_transactions_and_stays_consistent() -> None:
    with mariadb(columns=0) as server, server.fills():
        done = last(load_job(server.target, 1, SEED))
        assert done.errors == {}
        rows = dict(said(done).rows)
        assert rows.pop("order_line") == pytest.approx(300_000, rel=0.01)
        assert (rows["stock"], rows["new_order"], rows["item"]) == (100_000, 9_000, 100_000)
        sql = server.primary.connection()
        sql.ask("USE disklab_tpcc")
        job = run_job(
            server.target,
            1,
            SEED,
            Stop(operations=1_000),
            connections=CONNECTIONS,
            keying_and_thinking=False,
        )
        done = last(job)
        assert done.errors == {}
        outcome = said(done)
        counts = {kind: done.operations[kind].count for kind in TRANSACTIONS}
        assert sum(counts.values()) == 1_000
        assert all(counts.values())
        assert outcome.lines == pytest.approx(10 * counts["new_order"], rel=0.1)
        assert sql.ask("SELECT count(*) - 30000 FROM history") == [[str(counts["payment"])]]
        ordered = str(counts["new_order"] - outcome.rolled_back)
        assert sql.ask("SELECT count(*) - 30000 FROM orders") == [[ordered]]
        # All that was done fits together, but for what is changed here.
        sql.ask(
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_id = 5 AND o_w_id = 1 AND o_d_id = 3"
        )
        done = last(check_job(server.target, 1))
        broken = {one.number: one.example for one in said(done).conditions if not one.passed}
        assert broken.keys() == {4, 6}
        assert broken[6].startswith("order 1 3 5 ")
