"""A PostgreSQL that runs already: loaded, left as it was, and its password told to nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from disklab.databases import Database

from tests.databases.servers import asking, points_of, postgresql

from .bench import MEASURE, THREADS, Bench, rows_in

EXPERIMENT = rows_in("{engine: postgresql}", more=THREADS)
OURS = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'disklab_%'"


@pytest.fixture(
    scope="module",
    params=[pytest.param(False, id="plain", marks=pytest.mark.long), pytest.param(True, id="TLS")],
)
def server(request: pytest.FixtureRequest) -> Iterator[Database]:
    with postgresql(tls=request.param) as database:
        yield database


def prepared(bench: Bench, server: Database) -> str:
    """Write the files for a server; return its password."""
    target = server.target
    points = points_of(target)
    (point,) = points
    password = str(target["password"])
    bench.environment["BENCH_PASSWORD"] = password
    bench.write("e.yaml", EXPERIMENT)
    bench.write(
        "h.yaml",
        dedent(
            f"""
            database:
              addresses: ["{point}"]
              user: {target["user"]}
              database: {target["database"]}
              password_variable: BENCH_PASSWORD
              tls: {str(target["tls"]).lower()}
            """
        ),
    )
    return password


def test_it_is_loaded_and_left_as_it_was(bench: Bench, server: Database) -> None:
    password = prepared(bench, server)
    code, _, err = bench.run(*MEASURE, "--yes", "--quick")
    assert code == 0, err
    bench.nothing_is_left()
    (run,) = bench.runs()
    results = run.results()
    assert [one.mode for one in results] == ["measure", "measure"]
    for one in results:
        assert one.status in ("ok", "invalid"), one
        assert one.ops_per_s
        assert one.errors == {}
        assert any("was measured as it ran" in text for text in one.warnings)
    with asking(server) as sql:
        assert sql.ask(OURS) == []
    secret = password.encode()
    written = [file for file in bench.folder.rglob("*") if file.is_file()]
    assert [file for file in written if secret in file.read_bytes()] == []
    assert password not in err


def test_a_level_that_cannot_be_is_refused(bench: Bench, server: Database) -> None:
    prepared(bench, server)
    varied = EXPERIMENT + "  cluster.volumes.data.disks: [azure/P30, azure/P40]\n"
    bench.write("e.yaml", varied)
    err = bench.refused("--plan")
    assert "cluster.volumes.data.disks" in err
    assert "does not change a database that is already running" in err


def test_a_missing_password_is_told_before_anything_is_made(bench: Bench, server: Database) -> None:
    prepared(bench, server)
    del bench.environment["BENCH_PASSWORD"]
    assert "h.yaml:6: database.password_variable: BENCH_PASSWORD" in bench.refused("--yes")
    assert bench.runs() == []


def test_a_password_in_the_file_is_refused(bench: Bench, server: Database) -> None:
    prepared(bench, server)
    text = (bench.folder / "h.yaml").read_text(encoding="utf-8")
    bench.write("h.yaml", text.replace("password_variable: BENCH_PASSWORD", "password: hunter2"))
    err = bench.refused("--yes")
    assert "there is no such key; did you mean" in err
    assert "hunter2" not in err


def test_what_a_killed_run_has_left_is_dropped_by_clean(
    bench: Bench, server: Database, tmp_path: Path
) -> None:
    prepared(bench, server)
    long = EXPERIMENT.replace("duration: 2s", "duration: 100s")
    bench.write("e.yaml", long)
    with bench.start(*MEASURE, "--yes", "--repeat", "1") as process:
        bench.wait_for_change(process)
        with asking(server) as sql:
            bench.wait_until(lambda: len(sql.ask(OURS)) == 1)
        process.kill()
        process.communicate(timeout=60)
    _, out, _ = bench.told("clean")
    assert "undid the schema or keyspace disklab_" in out
    with asking(server) as sql:
        assert sql.ask(OURS) == []
    bench.nothing_is_left()
