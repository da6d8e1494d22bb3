"""Another user of this machine, while a database is rehearsed: what he asks he does not get.

Each test runs as `nobody` against real servers and files.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import CQL_PORT, JOLOKIA_PORT, STORAGE_PORT
from disklab.databases.cassandra.jolokia import ORIGIN, STORAGE
from disklab.databases.postgresql.cluster import PostgreSQL
from disklab.databases.postgresql.configuration import PORT, USER
from disklab.databases.postgresql.installation import find_postgresql
from disklab.engine import LoadRun, server_account
from disklab.engine.load import Stop

from tests.databases.conftest import OnDisk
from tests.databases.servers import job_of_large_rows, postgresql
from tests.databases.strangers import (
    as_nobody,
    cql_answers,
    jolokia_status,
    listening,
    psql_said,
    readable_with,
    signalled,
    writable,
)

pytestmark = pytest.mark.machine


def uids(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("Uid:")]
    return {int(word) for word in line.split()[1:]}


def test_a_cassandra_answers_nobody_who_does_not_know_its_secrets(cassandra: OnDisk) -> None:
    database, place = cassandra.database, cassandra.place
    assert isinstance(database, Cassandra)
    pids = database.observe().pids
    # The storage port of a node that is alone: see tests/privilege/test_nobody.py.
    at = {port: (place.address, port) for port in (CQL_PORT, STORAGE_PORT, JOLOKIA_PORT)}
    assert listening(pids) == set(at.values())
    logins = (("cassandra", "cassandra"), ("disklab", ""), ("disklab", "disklab"))
    answers = as_nobody(lambda: cql_answers(at[CQL_PORT], *logins))
    assert answers == [3, 0, 0, 0, 0]

    login = f"{database.nodes[0].jolokia.user}:{database.nodes[0].jolokia.password}"
    read = {"type": "read", "mbean": STORAGE, "attribute": "OperationMode"}
    # How a library of one's own gets into the process.
    loads = {
        "type": "exec",
        "mbean": "com.sun.management:type=DiagnosticCommand",
        "operation": "jvmtiAgentLoad",
        "arguments": [["/nonexistent.so"]],
    }
    properties = {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": "ClassPath"}

    def asked(request: dict[str, Any], login: str = "", origin: str = ORIGIN) -> Any:
        return as_nobody(lambda: jolokia_status(at[JOLOKIA_PORT], request, login, origin))

    for request in (read, loads):
        assert asked(request)[0] == 401
        assert asked(request, "disklab:wrong")[0] == 401
    # Who knows the secret can ask what disklab asks, and from no web page.
    assert asked(read, login) == [200, 200]
    assert asked(loads, login)[1] == 403
    assert asked(properties, login)[1] == 403
    assert 403 in asked(read, login, origin="http://example.org")


def test_nothing_of_a_cassandra_can_be_read_written_or_signalled(cassandra: OnDisk) -> None:
    database, place = cassandra.database, cassandra.place
    assert isinstance(database, Cassandra)
    account = server_account()
    (pid,) = database.observe().pids
    assert uids(pid) == {account.uid}
    secrets = [str(database.target["password"]), database.nodes[0].jolokia.password]
    folders = [place.run_dir, place.log_dir, *place.volumes.values()]
    with LoadRun(
        job_of_large_rows(database.target, 1, read=1.0).model_copy(update=ENDLESS)
    ) as load:
        next(iter(load))
        assert uids(load.pid) == {account.uid}
        assert as_nobody(lambda: writable(folders)) == []
        assert as_nobody(lambda: readable_with([cassandra.lab.root], secrets)) == []
        assert as_nobody(lambda: signalled([pid, load.pid])) == []
    # Root finds them: they were looked for in the right places.
    assert any("jolokia.properties" in path for path in readable_with(folders, secrets))


ENDLESS = {"stop": Stop(duration_s=60.0)}


def test_a_postgresql_answers_and_shows_nobody_anything() -> None:
    account = server_account()
    program = find_postgresql().program("psql")
    with postgresql(tls=False) as database:
        assert isinstance(database, PostgreSQL)
        server = database.primary
        pids = list(server.pids())
        for pid in pids:
            assert uids(pid) == {account.uid}
        address = (server.place.address, PORT)
        assert listening(pids) == {address}
        for user, password in ((USER, ""), (USER, "disklab"), ("postgres", ""), ("nobody", "")):
            said = as_nobody(partial(psql_said, program, address, user, password))
            assert "password" in said or "no pg_hba.conf entry" in said, said
        secret = str(database.target["password"])
        assert psql_said(program, address, USER, secret) == ""
        place = server.place
        folders = [place.run_dir, place.log_dir, *place.volumes.values()]
        assert as_nobody(lambda: writable(folders)) == []
        assert as_nobody(lambda: readable_with([place.run_dir.parent], [secret])) == []
        assert as_nobody(lambda: signalled(pids)) == []
        data = server.files.data
        assert (data.stat().st_mode & 0o777, data.stat().st_uid) == (0o700, account.uid)
