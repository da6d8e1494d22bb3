"""Who may come in over PostgreSQL's wire: each way to authenticate, with and without TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disklab.databases import Database
from disklab.databases.postgresql.cluster import PostgreSQL
from disklab.databases.postgresql.configuration import ServerFiles
from disklab.engine import LoadDone, LoadJob, run_load
from disklab.engine.load import ClosedLoop, RowsWorkload, Stop, load_target
from disklab.errors import UserError

from tests.databases.servers import asking, postgresql

pytestmark = pytest.mark.machine

ROWS = 50
# Not only letters: SASLprep, the quoting of MD5 and the bytes of a message all see it.
PASSWORD = "pä ss'wörd€"
# Role, the way that pg_hba.conf asks of it, and how the server keeps its password.
ROLES = (
    ("by_scram", "scram-sha-256", "scram-sha-256"),
    ("by_md5", "md5", "md5"),
    ("by_md5_kept_as_scram", "md5", "scram-sha-256"),
    ("in_clear_text", "password", "scram-sha-256"),
    ("trusted", "trust", "scram-sha-256"),
    ("rejected", "reject", "scram-sha-256"),
)
WAYS = [role for role, way, _ in ROLES if way != "reject"]
WITH_PASSWORD = [role for role, way, _ in ROLES if way not in ("reject", "trust")]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with postgresql(tls=request.param) as made:
        assert isinstance(made, PostgreSQL)
        access = made.primary.files.configuration / "pg_hba.conf"
        kind = "hostssl" if request.param else "hostnossl"
        lines = [f"{kind} all {role} 127.0.0.0/8 {way}\n" for role, way, _ in ROLES]
        access.write_text("".join(lines) + access.read_text())
        with asking(made) as sql:
            for role, _, kept in ROLES:
                quoted = PASSWORD.replace("'", "''")
                sql.ask(
                    f"SET password_encryption = '{kept}'; "
                    f"CREATE ROLE {role} LOGIN PASSWORD '{quoted}'; GRANT ALL ON rows TO {role}"
                )
            sql.ask("SELECT pg_reload_conf()")
        assert last(made, operations={"write": 1.0}).operations["write"].count == ROWS
        yield made


def last(database: Database, operations: dict[str, float] | None = None, **target: Any) -> LoadDone:
    asked = LoadJob(
        seed=3,
        target=load_target({**database.target, **target}),
        workload=RowsWorkload(
            rows=ROWS,
            columns=5,
            column_bytes=50,
            keys="sequential",
            operations=operations or {"read": 1.0},
        ),
        load=ClosedLoop(threads=2),
        stop=Stop(operations=ROWS),
    )
    *_, done = run_load(asked)
    assert isinstance(done, LoadDone)
    assert done.errors == {}
    return done


@pytest.mark.parametrize("role", WAYS)
def test_the_right_password_opens(database: Database, role: str) -> None:
    done = last(database, user=role, password=PASSWORD)
    assert done.operations["read"].count == ROWS


@pytest.mark.parametrize("role", WITH_PASSWORD)
@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("pä ss'wörd", "28P01: password authentication failed"),
        ("", "28P01|28000|password"),
        (None, "the server asks for a password"),
    ],
)
def test_a_wrong_password_and_none_are_refused_in_words(
    database: Database, role: str, password: str | None, why: str
) -> None:
    with pytest.raises(UserError, match=why) as refused:
        last(database, user=role, password=password)
    assert PASSWORD not in str(refused.value)


def test_who_is_trusted_needs_no_password(database: Database) -> None:
    assert last(database, user="trusted").operations["read"].count == ROWS
    assert last(database, user="trusted", password="wrong").operations["read"].count == ROWS


def test_who_may_not_come_in_is_told_so(database: Database) -> None:
    with pytest.raises(UserError, match=r"28000: pg_hba.conf rejects"):
        last(database, user="rejected", password=PASSWORD)
    with pytest.raises(UserError, match=r'28000: role "nobody_knows" does not exist|28000'):
        last(database, user="nobody_knows", password=PASSWORD)
    # As the server wants it, or not at all.
    tls = bool(database.target["tls"])
    with pytest.raises(UserError, match=f"with{'out' if tls else ''} TLS"):
        last(database, user="by_scram", password=PASSWORD, tls=not tls)


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture
def authority(open_folder: Path) -> tuple[Path, Path]:
    """Make an authority's certificate and key."""
    certificate, key = open_folder / "authority.crt", open_folder / "authority.key"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=authority", "-out", str(certificate), "-keyout", str(key)),
    )
    return certificate, key


def _sign(server: ServerFiles, authority: tuple[Path, Path], name: str, folder: Path) -> None:
    """Give the server a certificate of that authority for this name."""
    request, extensions, made = folder / "asked", folder / "extensions", folder / "made.crt"
    _openssl(
        *("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server"),
        *("-out", str(request), "-keyout", str(folder / "made.key")),
    )
    extensions.write_text(f"subjectAltName={name}\n")
    certificate, key = authority
    _openssl(
        *("x509", "-req", "-days", "2", "-in", str(request), "-out", str(made)),
        *("-CA", str(certificate), "-CAkey", str(key), "-CAcreateserial"),
        *("-extfile", str(extensions)),
    )
    # Written over, not replaced: they belong to the server's user, as it demands.
    server.certificate.write_bytes(made.read_bytes())
    server.key.write_bytes((folder / "made.key").read_bytes())


def test_a_certificate_is_held_against_authority_and_name(
    authority: tuple[Path, Path], tmp_path: Path
) -> None:
    with postgresql(tls=True) as made:
        assert isinstance(made, PostgreSQL)
        files = made.primary.files
        assert last(made, operations={"write": 1.0}).errors == {}
        # The one that the server made for itself is its own authority.
        assert last(made, ca_file=str(files.certificate)).errors == {}
        with pytest.raises(UserError, match="certificate"):
            last(made, ca_file=str(authority[0]))
        address = made.primary.place.address
        for name, good in ((f"IP:{address}", True), ("IP:127.9.9.9", False), ("DNS:x", False)):
            _sign(files, authority, name, tmp_path)
            with asking(made) as sql:
                sql.ask("SELECT pg_reload_conf()")
            # Without an authority whoever answers is believed.
            assert last(made).errors == {}
            if good:
                assert last(made, ca_file=str(authority[0])).errors == {}
                continue
            with pytest.raises(UserError, match="certificate"):
                last(made, ca_file=str(authority[0]))
