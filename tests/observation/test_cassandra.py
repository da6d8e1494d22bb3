"""A real Cassandra whose load is known: what is found is what was asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from disklab import spec
from disklab.databases import Database
from disklab.databases.cassandra.configuration import access_settings
from disklab.databases.cassandra.observer import CassandraObserver
from disklab.databases.observing import Target
from disklab.observation.machine import LEAST_INTERVAL_S

from tests.databases.servers import asking_cql, points_of
from tests.observation.servers import (
    COLUMN_BYTES,
    COLUMNS,
    DISKLAB,
    ROWS,
    SECONDS,
    AsRole,
    cassandra,
    command,
    fill,
    loaded,
    observed,
    variables,
)
from tests.programs import ended

pytestmark = pytest.mark.machine

RATE, READ_RATIO = 300.0, 0.75
READINGS = 60
SECRET = "of-one-who-looks"
HARDWARE = ("--vm", "azure/Standard_E16s_v5", "--disks", "4 x azure/P30")


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with cassandra() as made:
        fill(made)
        with loaded(made, RATE, READ_RATIO):
            time.sleep(3.0)
            yield made


@pytest.mark.long
def test_what_is_found_is_what_was_asked_for(database: Database, tmp_path: Path) -> None:
    out = tmp_path / "observed.yaml"
    before = schema(database)
    told = observed("cassandra", database, out, "--for", "6s", *HARDWARE, "--p99", "20")
    assert told["reads_per_s"] == pytest.approx(RATE * READ_RATIO, rel=0.1)
    assert told["writes_per_s"] == pytest.approx(RATE * (1 - READ_RATIO), rel=0.1)
    assert told["read_ratio"] == pytest.approx(READ_RATIO, rel=0.1)
    assert told["row_bytes"] == pytest.approx(COLUMNS * COLUMN_BYTES, rel=0.001)
    assert told["rows"] == pytest.approx(ROWS, rel=0.1)
    assert set(told["p99_ms"]) == {"read", "write"}
    assert told["version"].startswith("Cassandra 5.0")
    assert told["machines"][0]["memory_bytes"] > 1 << 30
    assert schema(database) == before
    experiment = spec.load(out)
    cell = experiment.cells[0].spec
    assert cell.workload.load.rate_per_s == pytest.approx(RATE, rel=0.1)
    assert (cell.dataset.columns, cell.dataset.column_bytes) == (COLUMNS, COLUMN_BYTES)
    assert experiment.observed.hardware == "stated"


@pytest.mark.long
def test_advice_on_the_file_says_whether_to_move_and_what_it_saves(
    database: Database, tmp_path: Path
) -> None:
    out = tmp_path / "observed.yaml"
    observed("cassandra", database, out, "--for", "4s", *HARDWARE, "--p99", "20")
    few = ("--candidates", "P10,E4s_v4,E4s_v3", "--no-bands", "--json")
    ran = ended(
        [str(DISKLAB), "advise", str(out), *few, "--out", str(tmp_path / "runs")],
        most_s=SECONDS,
        code=0,
    )
    told = json.loads(ran.stdout)
    first = told["answer"][0]
    assert first.startswith("Move to 1 x E4s_v")
    assert "That saves" in first
    assert "against 1 x E16s_v5 with 4 x P30" in first
    saved = told["now"]["usd_per_month"] - told["options"][0]["usd_per_month"]
    assert told["now"]["saves_usd_per_month"] == pytest.approx(saved)
    assert saved > 0


@pytest.mark.long
def test_one_interrupt_ends_the_window_and_what_was_seen_is_used(
    database: Database, tmp_path: Path
) -> None:
    out = tmp_path / "observed.yaml"
    asked = command("cassandra", database, out, "--for", "10min")
    with subprocess.Popen(
        asked, env=variables(database), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert "watching for 600 s" in running.stderr.readline()
        time.sleep(4.0)
        running.send_signal(signal.SIGINT)
        said, complained = running.communicate(timeout=60)
    assert running.returncode == 0, complained
    told = json.loads(said)
    assert told["interrupted"]
    assert told["seconds"] < 60
    assert told["reads_per_s"] == pytest.approx(RATE * READ_RATIO, rel=0.1)
    assert out.exists()


@pytest.mark.long
def test_a_reading_costs_the_server_less_than_a_hundredth_of_a_core(database: Database) -> None:
    """By its CPU time: a rate on a busy machine does not tell a hundredth from nothing."""
    points, pids = points_of(database.target), database.observe().pids
    who = (str(database.target["user"]), str(database.target["password"]))
    observer = CassandraObserver.connect(Target(tuple(points), *who))
    try:
        for _ in range(READINGS):
            observer.read()
        before, begin = cpu_seconds(pids), time.monotonic()
        time.sleep(5.0)
        usual = (cpu_seconds(pids) - before) / (time.monotonic() - begin)
        before, begin = cpu_seconds(pids), time.monotonic()
        for _ in range(READINGS):
            observer.read()
        spent = cpu_seconds(pids) - before - usual * (time.monotonic() - begin)
    finally:
        observer.close()
    assert spent / READINGS / LEAST_INTERVAL_S < 0.01


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU time of processes until now."""
    words = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in words) / os.sysconf("SC_CLK_TCK")


def test_a_node_that_does_not_answer_is_an_error_and_no_file(tmp_path: Path) -> None:
    out = tmp_path / "observed.yaml"
    asked = (str(DISKLAB), "observe", "cassandra", "--address", "127.63.1.1:9", "--out", str(out))
    ran = ended(asked, code=1)
    assert "127.63.1.1:9" in ran.stderr
    assert not out.exists()


def schema(database: Database) -> list[str]:
    """Return all keyspaces and tables."""
    with asking_cql(database.target) as query:
        names = query.ask("SELECT keyspace_name, table_name, id FROM system_schema.tables")
    return sorted(map(str, names))


@pytest.mark.long
def test_a_known_working_set_is_found(tmp_path: Path) -> None:
    """Reads of a tenth of the rows: the key cache has room, and holds as many."""
    with cassandra() as made:
        fill(made)
        with loaded(made, 600.0, 1.0, asked_rows=ROWS // 10):
            time.sleep(20.0)
            told = observed("cassandra", made, tmp_path / "observed.yaml", "--for", "10s")
    assert told["working_set"]["ratio"] == pytest.approx(0.1, rel=0.1)
    assert told["read_ratio"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.long
def test_three_nodes_of_an_older_release_tell_a_role_of_few_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node tells of itself alone; what reads ask of copies shows their consistency."""
    # Nodes of our own have one role, which may do everything.
    monkeypatch.setattr(
        "disklab.databases.cassandra.cluster.access_settings",
        lambda known: {**access_settings(known), "authorizer": "CassandraAuthorizer"},
    )
    with cassandra("4.1", nodes=3) as made:
        fill(made)
        with asking_cql(made.target) as query:
            query.ask(f"CREATE ROLE watch WITH LOGIN = true AND PASSWORD = '{SECRET}'")
        watch = AsRole(made, "watch", SECRET)
        with loaded(made, RATE, READ_RATIO):
            time.sleep(3.0)
            refused = ended(
                command("cassandra", watch, tmp_path / "refused.yaml", "--for", "2s"),
                most_s=SECONDS,
                env=variables(watch),
                code=1,
            )
            assert "GRANT SELECT ON KEYSPACE system_views TO watch" in refused.stdout
            with asking_cql(made.target) as query:
                query.ask("GRANT SELECT ON KEYSPACE system_views TO watch")
            blind = observed("cassandra", watch, tmp_path / "blind.yaml", "--for", "4s")
            assert blind["row_bytes"] is None
            assert any("the rows of disklab.rows could not be" in one for one in blind["unseen"])
            with asking_cql(made.target) as query:
                query.ask("GRANT SELECT ON TABLE disklab.rows TO watch")
            told = observed("cassandra", watch, tmp_path / "observed.yaml", "--for", "12s")
    assert len(told["nodes"]) == 3
    assert told["reads_per_s"] == pytest.approx(RATE * READ_RATIO, rel=0.1)
    assert told["writes_per_s"] == pytest.approx(RATE * (1 - READ_RATIO), rel=0.1)
    assert told["rows"] == pytest.approx(ROWS, rel=0.1)
    assert told["row_bytes"] == pytest.approx(COLUMNS * COLUMN_BYTES, rel=0.001)
    assert told["copies"] == 3
    assert told["consistency"] == "LOCAL_QUORUM"
