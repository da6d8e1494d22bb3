"""YugabyteDB's provider against PostgreSQL, which speaks the same protocol.

No registry has a YugabyteDB. A program called `yugabyted` starts PostgreSQL here, with `version()`
and `yb_servers()` that answer as YugabyteDB's do: everything that goes over the wire is real, and
nothing that YugabyteDB does by itself is tested. docs/databases.md says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from disklab.databases import Conditions, Database, NodePlace, Request, Sizes, provision
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.yugabytedb import ysql
from disklab.databases.yugabytedb.nodes import Yugabyted
from disklab.databases.yugabytedb.running import RunningCluster
from disklab.errors import MachineError, UserError
from disklab.hosts.addresses import free_addresses

from tests.conftest import IN_CI

VERSION = "PostgreSQL 11.2-YB-2.18.1.0-b84 on x86_64-pc-linux-gnu, compiled by clang"
# What `yugabyted start` is asked for, and a PostgreSQL in its place.
STAND_IN = """#!/bin/bash
set -eu
echo "$@" >> {folder}/asked
for word in "$@"; do case $word in
  --base_dir=*) base=${{word#*=}} ;;
  --advertise_address=*) address=${{word#*=}} ;;
esac; done
{bin}/initdb -D "$base" -U yugabyte --auth=scram-sha-256 -L {share} \\
  --pwfile=<(printf %s "$YSQL_PASSWORD") >/dev/null 2>&1 || true
single="{bin}/postgres --single -j -D $base"
echo 'CREATE DATABASE yugabyte' | $single postgres >/dev/null || true
printf '%s;\\n\\n' "ALTER DATABASE yugabyte SET search_path = public, pg_catalog" \\
  "CREATE OR REPLACE FUNCTION public.version() RETURNS text
   AS 'SELECT ''{version}''' LANGUAGE sql" \\
  "CREATE OR REPLACE FUNCTION public.yb_servers() RETURNS TABLE (host text, port int)
   AS 'VALUES (''$address'', 5433)' LANGUAGE sql" | $single yugabyte >/dev/null
exec {bin}/postgres -D "$base" -p 5433 -c listen_addresses="$address" \\
  -c unix_socket_directories=''
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with `bin/yugabyted`."""
    try:
        installation = find_postgresql()
    except UserError as error:
        if not IN_CI:
            pytest.skip(str(error))
        raise
    folder = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    # The server runs as a user who may not look into a folder of root's alone.
    folder.chmod(0o755)
    program = folder / "bin" / "yugabyted"
    program.parent.mkdir()
    major = installation.major
    program.write_text(
        STAND_IN.format(
            folder=folder,
            bin=installation.folder,
            share=f"/usr/share/postgresql/{major}",
            version=VERSION,
        )
    )
    program.chmod(0o755)
    # It says there what it was asked for, as a user who may write nothing else here.
    (folder / "asked").touch()
    (folder / "asked").chmod(0o666)
    monkeypatch.setenv("YUGABYTE_HOME", str(folder))
    # YSQL's hash keys are the one word of our SQL that PostgreSQL does not know.
    monkeypatch.setattr("disklab.databases.yugabytedb.table.HASH", "")
    yield folder
    shutil.rmtree(folder)


def request(**changed: object) -> Request:
    asked = Request("yugabytedb", Sizes(32 << 30))
    return replace(asked, **changed)  # type: ignore[arg-type]


@pytest.fixture
def node(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yugabyted]:
    data = home / "data"
    data.mkdir()
    (address,) = free_addresses(1, (ysql.YSQL_PORT, ysql.MASTER_WEB_PORT))
    place = NodePlace("n1", address, {"data": data}, home / "run", home / "logs")
    made = provision(request(settings={"ysql_max_connections": 80}), [place])
    assert isinstance(made, Yugabyted)
    made.start()
    # For what comes to it as to any running cluster.
    monkeypatch.setenv("PGPASSWORD", str(made.target["password"]))
    try:
        yield made
    finally:
        made.stop()


def test_nodes_are_started_with_data_on_the_volume_and_found_by_ysql(
    node: Yugabyted, home: Path
) -> None:
    asked = (home / "asked").read_text().split()
    assert f"--base_dir={home}/data/yugabyted" in asked
    assert f"--advertise_address={node.places[0].address}" in asked
    assert "--insecure" in asked
    assert "--ysql_enable_auth=true" in asked
    assert "start_cql_proxy=false" in (home / "asked").read_text()
    password = str(node.target["password"])
    assert password not in (home / "asked").read_text()
    assert "--join" not in " ".join(asked), "the first node joins nobody"
    flags = next(word for word in asked if word.startswith("--tserver_flags="))
    assert "ysql_max_connections=80" in flags
    assert "memory_limit_hard_bytes=" in flags
    assert node.facts is not None
    assert node.facts.version == "2.18.1.0-b84"
    assert node.facts.tablet_servers == (f"{node.places[0].address}:5433",)
    assert any("never tried against a real one" in note for note in node.notes)
    seen = node.observe()
    assert seen.metrics == {"tablet_servers": 1.0}
    assert len(seen.pids) > 3
    node.make_cold()
    node.settle(Conditions(empty=True, flushed=False))


def test_the_others_join_the_first(home: Path) -> None:
    places = [
        NodePlace(f"n{n}", f"127.0.0.{n}", {"data": home / f"n{n}"}, home / "run", home / "logs")
        for n in (1, 2, 3)
    ]
    made = provision(request(replication_factor=3), places)
    assert isinstance(made, Yugabyted)
    joins = ["--join=127.0.0.1" in made.command(place) for place in places]
    assert joins == [False, True, True]


def test_a_running_cluster_is_examined_and_never_stopped(node: Yugabyted) -> None:
    address = f"{node.places[0].address}:{ysql.YSQL_PORT}"
    cluster: Database = provision(request(address=address), [])
    assert isinstance(cluster, RunningCluster)
    cluster.start()
    assert any("YugabyteDB 2.18.1.0-b84, 1 tablet servers" in note for note in cluster.notes)
    assert cluster.target["contact_points"] == [address]
    assert cluster.observe().metrics == {"tablet_servers": 1.0}
    cluster.settle(Conditions(empty=True, flushed=False, compacted=False))
    with pytest.raises(UserError, match="YSQL cannot flush"):
        cluster.settle(Conditions())
    with pytest.raises(UserError, match="not ours to drop"):
        cluster.make_cold()
    cluster.stop()
    assert node.observe().metrics, "it runs on"


def test_tls_that_is_asked_for_is_never_left_out(node: Yugabyted) -> None:
    address = f"{node.places[0].address}:{ysql.YSQL_PORT}"
    cluster = provision(request(address=address, tls=True), [])
    with pytest.raises(MachineError, match="does not support SSL"):
        cluster.start()
    cluster.stop()


def test_a_postgresql_is_no_yugabytedb(node: Yugabyted, monkeypatch: pytest.MonkeyPatch) -> None:
    node._connected().ask("DROP FUNCTION public.version()")
    cluster = provision(request(address=node.places[0].address), [])
    with pytest.raises(UserError, match="answers as PostgreSQL"):
        cluster.start()
    cluster.stop()


class Master(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/api/v1/cluster-config"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(b'{"replication_info": {"live_replicas": {"num_replicas": 3}}}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        pass


def test_the_replication_factor_is_what_a_master_says(
    node: Yugabyted, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = node.places[0].address
    assert ysql.replication_factor(host) is None, "no master answers"
    with HTTPServer((host, ysql.MASTER_WEB_PORT), Master) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert ysql.replication_factor(host) == 3
        cluster = provision(request(address=host), [])
        with pytest.raises(UserError, match="has replication factor 3"):
            cluster.start()
        cluster.stop()
        server.shutdown()


def test_without_yugabyted_the_way_out_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("YUGABYTE_HOME", str(tmp_path))
    place = NodePlace("n1", "127.0.0.1", {"data": tmp_path}, tmp_path / "run", tmp_path / "logs")
    with pytest.raises(UserError) as refused:
        provision(request(replication_factor=3, tls=True, table={"compression": "lz4"}), [place])
    told = {problem.place: problem for problem in refused.value.problems}
    assert set(told) == {
        "database.replication_factor",
        "database.tls",
        "database.table.compression",
        "database.engine",
    }
    assert "rehearse: {engine: postgresql}" in told["database.engine"].way_out
