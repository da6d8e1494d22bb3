"""Settings and table options against the version that will run; what is refused, all at once."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from disklab import spec
from disklab.database_settings import Setting
from disklab.databases import NodePlace, Request, Sizes, provision, this_machine
from disklab.databases.cassandra.configuration import default_settings
from disklab.databases.cassandra.distribution import exact_version, fetched, unpacked
from disklab.databases.cassandra.settings import (
    check_settings,
    dilated_timing,
    known_settings,
    merged,
    usual_timing,
)
from disklab.databases.cassandra.sizing import plan_memory
from disklab.errors import MachineError, UserError
from disklab.hosts.addresses import free_addresses
from disklab.hosts.control_group import marked_processes

from tests.databases.conftest import PORTS, request

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SMALL = Sizes(1 << 30)


@pytest.fixture(scope="session")
def known() -> dict[str, str]:
    return known_settings(fetched().classes)


def place(tmp_path: Path) -> NodePlace:
    return NodePlace("n1", "127.64.0.1", {"data": tmp_path}, tmp_path / "run", tmp_path / "log")


def test_the_versions_own_names_and_the_old_ones_are_known(known: dict[str, str]) -> None:
    assert known["concurrent_reads"] == "concurrent_reads"
    assert known["commitlog_sync_period"] == "commitlog_sync_period"
    assert known["commitlog_sync_period_in_ms"] == "commitlog_sync_period"
    assert "logger" not in known  # a constant of the class


def test_unknown_ours_and_double_settings_are_problems(known: dict[str, str]) -> None:
    asked: dict[str, Setting] = {
        "concurrent_read": 64,
        "data_file_directories": "/tmp",
        "commitlog_sync_period": "5s",
        "commitlog_sync_period_in_ms": 5000,
    }
    found = check_settings(asked, known, "5.0.6")
    assert [problem.place.rpartition(".")[2] for problem in found] == [
        "concurrent_read",
        "data_file_directories",
        "commitlog_sync_period_in_ms",
    ]
    assert "concurrent_reads" in found[0].way_out
    assert "volumes `data` and `commitlog`" in found[1].rule
    assert "the same setting as commitlog_sync_period" in found[2].rule


def test_a_user_setting_replaces_the_default_under_either_name(known: dict[str, str]) -> None:
    defaults = default_settings(plan_memory(request().sizes), known, None)
    assert "commitlog_sync_period" in defaults
    settings = merged({"commitlog_sync_period_in_ms": 2000}, defaults, known)
    assert settings["commitlog_sync_period_in_ms"] == 2000
    assert "commitlog_sync_period" not in settings
    # Whatever is set by default must be a setting of this version.
    assert set(defaults) <= set(known)


def test_the_default_period_goes_with_another_way_to_sync_the_commit_log() -> None:
    """Cassandra does not start with `batch` and a period."""
    known = {name: name for name in ("commitlog_sync", "commitlog_sync_period")}
    defaults = {"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"}
    assert merged({"commitlog_sync": "batch"}, defaults, known) == {"commitlog_sync": "batch"}
    assert merged({"commitlog_sync": "periodic"}, defaults, known) == defaults


def test_a_version_that_was_asked_for_reads_files_as_it_does(known: dict[str, str]) -> None:
    plan = plan_memory(request().sizes)
    assert default_settings(plan, known, None)["disk_access_mode"] == "mmap"
    assert "disk_access_mode" not in default_settings(plan, known, "5.0")


def test_every_problem_of_a_request_comes_at_once(tmp_path: Path) -> None:
    asked = replace(request(), settings={"foo": 1}, table={"compression": "lz5", "ttl": 1})
    with pytest.raises(UserError) as refused:
        provision(asked, [place(tmp_path)])
    places = [problem.place for problem in refused.value.problems]
    assert places == ["database.settings.foo", "database.table.compression", "database.table.ttl"]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("asked", "nodes", "rule"),
    [
        (Request("casandra", SMALL), 1, "did you mean cassandra"),
        (Request("cassandra", SMALL, replication_factor=3), 1, "--nodes 3"),
        (Request("etcd", SMALL, replication_factor=3), 1, "as many copies as nodes"),
        (Request("etcd", SMALL, table={"compression": "lz4"}), 1, "no such option"),
        (Request("redis", SMALL, replication_factor=3), 1, "as many copies as nodes"),
        (Request("redis", SMALL, replication_factor=3), 3, "as one server so far"),
        (Request("redis", SMALL, tls=True), 1, "without TLS so far"),
        (Request("redis", SMALL, settings={"loadmodule": "/x.so"}), 1, "it names a file"),
        (Request("redis", SMALL, table={"compression": "lz4"}), 1, "no such option"),
        (Request("redis", SMALL, version="8.0"), 1, "runs the Redis that is installed"),
        (Request("mariadb", SMALL, replication_factor=4), 4, "more than half of its nodes"),
        (
            Request("mariadb", SMALL, replication_factor=2, settings={"log_bin": "off"}),
            2,
            "from the primary's binary log",
        ),
    ],
)
def test_what_cannot_be_is_refused(asked: Request, nodes: int, rule: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rule):
        provision(asked, [replace(place(tmp_path), name=f"n{number}") for number in range(nodes)])


def test_what_cannot_be_had_is_predicted_or_stood_in_for(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        provision(replace(request(), engine="yugabytedb"), [place(tmp_path)])
    (problem,) = refused.value.problems
    assert problem.place == "database.engine"
    assert "rehearse: {engine: postgresql}" in problem.way_out


@pytest.mark.parametrize(
    ("asked", "exact"), [(None, "5.0.6"), ("4.1", "4.1.10"), ("5.0.5", "5.0.5")]
)
def test_versions(asked: str | None, exact: str) -> None:
    assert exact_version(asked) == exact


def test_a_version_that_cannot_run_is_refused() -> None:
    with pytest.raises(UserError, match="does not run on Java 17"):
        exact_version("3.11")


def test_a_folder_that_is_no_cassandra_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="binary tarball"):
        unpacked(tmp_path)


def test_a_tarballs_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    ours = fetched()
    libraries = tmp_path / "lib"
    libraries.mkdir()
    for jar in ours.libraries.glob("*.jar"):
        name = jar.name.replace("cassandra-all-", "apache-cassandra-")
        (libraries / name).symlink_to(jar)
    found = unpacked(tmp_path)
    assert found.version == ours.version
    assert found.classes.parent == libraries


def test_changed_files_in_the_cache_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = fetched()
    copy = tmp_path / "disklab/cassandra" / ours.version
    (copy / "lib").mkdir(parents=True)
    for jar in ours.libraries.glob("*.jar"):
        (copy / "lib" / jar.name).symlink_to(jar)
    (copy / "manifest.json").write_bytes((ours.libraries.parent / "manifest.json").read_bytes())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetched().libraries == copy / "lib"
    victim = copy / "lib" / ours.jamm.name
    victim.unlink()
    victim.write_bytes(b"changed")
    with pytest.raises(MachineError, match=f"{victim.name} is not what was fetched"):
        fetched()


def test_without_maven_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("disklab.databases.fetching.find_program", lambda _: None)
    with pytest.raises(UserError, match="CASSANDRA_HOME"):
        fetched()
    assert list(tmp_path.rglob("*.jar")) == []


def test_a_value_that_cassandra_refuses_is_shown_in_its_own_words(open_folder: Path) -> None:
    asked = replace(request(), settings={"concurrent_reads": 1})
    where = replace(place(open_folder), address=free_addresses(1, PORTS)[0])
    database = provision(asked, [where])
    with pytest.raises(MachineError, match="ended by itself with code") as refused:
        database.start()
    assert "concurrent_reads must be at least 2" in str(refused.value)
    assert marked_processes(open_folder / "run") == []


def test_a_program_at_the_address_of_a_node_is_never_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "FREE_SECONDS", 0.1)
    address = free_addresses(1, PORTS)[0]
    database = provision(request(), [replace(place(tmp_path), address=address)])
    with socket.create_server((address, PORTS[0])) as stranger:
        with pytest.raises(MachineError, match=f"another program listens at {address}:9042"):
            database.start()
        stranger.settimeout(0.1)
        with pytest.raises(TimeoutError):
            stranger.accept()
    assert marked_processes(tmp_path / "run") == []


def test_periods_and_rates_follow_the_time_dilation(known: dict[str, str]) -> None:
    settings = {
        **usual_timing(known),
        "commitlog_sync_period_in_ms": 10000,
        "cache_load_timeout": "30s",
        "concurrent_reads": 64,
        "stream_throughput_outbound": "0MiB/s",
        "commitlog_sync": "periodic",
        "auto_snapshot": False,
    }
    slow = dilated_timing(settings, 8)
    assert slow["commitlog_sync_period_in_ms"] == 80_000
    assert slow["cache_load_timeout"] == "240s"
    assert slow["read_request_timeout"] == "40000ms"
    assert slow["compaction_throughput"] == f"{8 << 20}B/s"
    same = ("concurrent_reads", "stream_throughput_outbound", "commitlog_sync", "auto_snapshot")
    assert all(slow[name] == settings[name] for name in same)
    assert dilated_timing(settings, 1) == settings
    # What a settings file leaves out is throttled by default, and as much slower.
    usual = dilated_timing(usual_timing(known), 2)
    for name in ("stream_throughput_outbound", "entire_sstable_stream_throughput_outbound"):
        assert usual[name] == f"{12 << 20}B/s"


def test_every_usual_period_is_a_setting_of_the_version(known: dict[str, str]) -> None:
    assert set(usual_timing(known)) <= set(known)
    old = {
        name: name
        for name in (
            "read_request_timeout_in_ms",
            "compaction_throughput_mb_per_sec",
            "stream_throughput_outbound_megabits_per_sec",
        )
    }
    assert dilated_timing(usual_timing(old), 4) == {
        "read_request_timeout_in_ms": 20_000,
        "compaction_throughput_mb_per_sec": 16,
        "stream_throughput_outbound_megabits_per_sec": 50,
    }


def test_the_settings_of_the_study_of_local_disks_reach_its_nodes(known: dict[str, str]) -> None:
    (trial, *_) = spec.load(EXPERIMENTS / "cassandra-local-or-attached.yaml").trials("rehearse")
    asked = trial.spec.database.settings
    assert check_settings(asked, known, "5.0") == []
    settings = dilated_timing(merged(asked, usual_timing(known), known), 8)
    # A rate is as much slower as time is; what is synced at a time stays, as the disks' windows do.
    assert settings["compaction_throughput_mb_per_sec"] == 128 // 8
    assert "compaction_throughput" not in settings
    assert settings["trickle_fsync"] is True
    assert settings["trickle_fsync_interval_in_kb"] == 10240
