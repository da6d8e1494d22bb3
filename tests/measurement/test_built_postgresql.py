"""A PostgreSQL that disklab builds on a host: over SSH, filled once, and nothing of it left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.databases.postgresql.configuration import PORT
from disklab.hosts.addresses import free_addresses

from tests.databases.servers import need
from tests.machines.ssh_server import SshServer

from .bench import MEASURE, THREADS, Bench, rows_in
from .test_format import SIZE
from .test_format import prepared as prepared_disk

EXPERIMENT = rows_in("{engine: postgresql, settings: {shared_buffers: 64MB}}", more=THREADS)


@pytest.fixture
def volume() -> Iterator[Path]:
    """A directory that the server's user may pass through; pytest's own are closed to others."""
    need("postgresql")
    folder = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    folder.chmod(0o755)
    try:
        yield folder
        assert list(folder.iterdir()) == []
        assert servers_in(folder) == []
    finally:
        shutil.rmtree(folder)


def servers_in(folder: Path) -> list[str]:
    """Return the working directories of programs that run below a folder."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            # Of another's process, which lies on a disk that is gone, this is an I/O error.
            at = os.readlink(f"/proc/{process}/cwd")
        except OSError:
            continue
        if at.startswith(f"{folder}/"):
            found.append(at)
    return found


def prepared(bench: Bench, ssh_server: SshServer, volume: Path, text: str = EXPERIMENT) -> str:
    """Write the files; return the address of the server to be."""
    address = free_addresses(1, (PORT,))[0]
    bench.write("e.yaml", text)
    host = f"{{address: box, private_address: {address}, volumes: {{data: {volume}}}}}"
    bench.write("h.yaml", f"ssh_config: {ssh_server.config}\nhosts: {{n1: {host}}}\n")
    return address


def test_it_is_built_filled_loaded_and_removed(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    address = prepared(bench, ssh_server, volume)
    out = bench.plan()
    assert f"its data in {volume}" in out
    assert f"{address}:5432" in out
    assert list(volume.iterdir()) == []
    run = bench.measured()
    results = run.results()
    assert [one.mode for one in results] == ["measure", "measure"]
    for one in results:
        assert one.ops_per_s
        assert one.errors == {}
        assert any("the load came from the machine" in text for text in one.warnings)
        extra = one.model_extra or {}
        assert extra["host"] == "n1/data"
        # What a starting server reads itself is a small part of them.
        assert extra["page_cache"].startswith("restart, ")
        assert float(extra["page_cache"].split()[1].rstrip("%")) < 50
        assert abs(extra["clock"]["ahead_ms"]) <= 1 + extra["clock"]["error_ms"]
    log = (run.folder / "logs" / "n1-output.log").read_text(encoding="utf-8")
    assert "database system is ready to accept connections" in log
    assert "database system is shut down" in log
    fills = [phase for one in results for phase in one.phases if phase.name == "fill"]
    assert len(fills) == 1


def start_and_kill(bench: Bench, volume: Path, *more: str) -> None:
    """Start a measurement and kill it, as soon as its data are full, while it loads them."""
    with bench.start(*MEASURE, "--yes", "--repeat", "1", *more) as process:

        def is_full() -> bool:
            assert process.poll() is None
            return any('"filled"' in file.read_text() for file in volume.glob("*/.disklab-filled"))

        bench.wait_until(is_full)
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.long
def test_a_killed_run_goes_on_with_its_full_data(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    prepared(bench, ssh_server, volume)
    start_and_kill(bench, volume)
    (first,) = bench.runs()
    run = bench.measured("measure", "--resume", first.folder.name, "--yes")
    results = run.results()
    assert len(results) == 2
    for one in results:
        assert one.errors == {}
    assert [phase for one in results for phase in one.phases if phase.name == "fill"] == []


@pytest.mark.long
def test_clean_stops_and_removes_what_a_killed_run_has_left(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    prepared(bench, ssh_server, volume)
    start_and_kill(bench, volume)
    assert servers_in(volume) != []
    _, out, _ = bench.told("clean")
    assert "undid the database in" in out
    bench.nothing_is_left()


@pytest.mark.long
def test_an_empty_disk_is_formatted_for_it_and_its_host_may_drop_its_page_cache(
    bench: Bench, ssh_server: SshServer, tmp_path: Path
) -> None:
    need("postgresql")
    text = EXPERIMENT.replace("[2, 4]", "[2]") + "before: {page_cache: cold}\n"
    bench.write("e.yaml", text)
    address = free_addresses(1, (PORT,))[0]
    with prepared_disk(tmp_path) as disk:
        named = f"{{by_id: {disk.name}, size: {SIZE}, kind: loop}}"
        host = (
            f"{{address: box, private_address: {address}, may_change: [page_cache], "
            f"volumes: {{data: {{format: true, disk: {named}}}}}}}"
        )
        bench.write("h.yaml", f"ssh_config: {ssh_server.config}\nhosts: {{n1: {host}}}\n")
        empty = disk.content
        out = bench.plan()
        assert f"disk by-id/{disk.name}" in out
        assert "its clean page cache dropped before each cold trial" in out
        assert disk.content == empty, "a plan changes nothing"
        run = bench.measured()
        (result,) = run.results()
        assert "after all clean pages of n1" in (result.model_extra or {})["page_cache"]
        assert disk.content != empty
        # Unmounted, and the mount point is gone.
        assert str(disk.device) not in Path("/proc/self/mounts").read_text(encoding="utf-8")
        assert not [one for one in Path("/mnt").iterdir() if run.folder.name[-40:] in one.name]


QUORUM = """
title: What does a lost standby cost on hosts?
cluster:
  nodes: 3
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P30}}
database: {engine: postgresql, replication_factor: 3, tls: false, settings: {shared_buffers: 64MB}}
dataset: {rows: 1k, row: 5 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  load: {rate: 50/s}
  stop: {duration: 10s}
before: {page_cache: as-left}
events: [{at: 4s, kill: n3}, {at: 6s, start: n3}]
"""


@pytest.mark.long
def test_a_quorum_of_servers_is_built_and_survives_a_standby(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    names = ("n1", "n2", "n3")
    addresses = free_addresses(3, (PORT,))
    # One machine by three names of ssh: a host of its own for each server.
    config = ssh_server.config.read_text(encoding="utf-8")
    ssh_server.config.write_text(config.replace("Host box", "Host box n1 n2 n3"), encoding="utf-8")
    hosts = []
    for name, address in zip(names, addresses, strict=True):
        (volume / name).mkdir(mode=0o755)
        own = f"address: {name}, private_address: {address}"
        hosts.append(f"{name}: {{{own}, volumes: {{data: {volume / name}}}}}")
    bench.write("h.yaml", f"ssh_config: {ssh_server.config}\nhosts: {{{', '.join(hosts)}}}\n")
    bench.write("e.yaml", QUORUM)
    (result,) = bench.measured().results()
    assert any("synchronous_standby_names" in text or "ANY 1" in text for text in result.warnings)
    seen = result.recovery
    # One of two standbys still confirms every commit.
    assert seen.failed_operations == 0
    assert (seen.rows_checked, seen.rows_lost, seen.rows_wrong) == (1000, 0, 0)
    for name in names:
        assert list((volume / name).iterdir()) == []
        (volume / name).rmdir()


BROKEN = """
title: What does a kill cost on this host?
cluster:
  nodes: 1
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P30}}
database: {engine: postgresql, replication_factor: 1, tls: false}
dataset: {rows: 2k, row: 5 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  load: {rate: 100/s}
  stop: {duration: 14s}
before: {page_cache: as-left}
events: [{at: 4s, kill: n1}, {at: 6s, start: n1}, {at: 10s, restart: n1}]
"""


def test_a_server_on_a_host_is_killed_and_started_under_load(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    prepared(bench, ssh_server, volume, BROKEN)
    (result,) = bench.measured().results()
    seen = result.recovery
    assert [f"{one.kind} {one.node}" for one in seen.steps] == ["kill n1", "start n1", "restart n1"]
    assert seen.failed_operations
    assert (seen.rows_checked, seen.rows_lost, seen.rows_wrong) == (2000, 0, 0)
    assert seen.updates_lost == 0


def test_events_that_would_break_a_host_are_refused(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    prepared(bench, ssh_server, volume, BROKEN.replace("{at: 4s, kill: n1}", "{at: 4s, lose: n1}"))
    assert "disklab does not lose, move or add a machine of yours" in bench.refused("--plan")


def test_what_cannot_be_built_is_refused_with_its_line(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    prepared(bench, ssh_server, volume, EXPERIMENT.replace("nodes: 1", "nodes: 3"))
    err = bench.refused("--plan")
    assert "cluster.nodes: 3" in err
    assert "there are 1 (n1)" in err
    volume.chmod(0o700)
    prepared(bench, ssh_server, volume)
    assert "is closed to the user" in bench.refused("--yes")
    assert bench.runs() == []
