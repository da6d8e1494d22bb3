"""etcd: one member and three, certificates, a killed member, and the rule of its documentation."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
from disklab.databases import Conditions, NodePlace, Request, Sizes, provision
from disklab.databases.etcd import gateway
from disklab.databases.etcd.cluster import Etcd
from disklab.databases.etcd.configuration import (
    CLIENT_PORT,
    LEAST_ENTRIES,
    PORTS,
    plan_memory,
)
from disklab.databases.etcd.gateway import quantile, rules
from disklab.databases.etcd.installation import RELEASES, find_etcd
from disklab.engine.load import (
    ClosedLoop,
    KnownVersions,
    LoadDone,
    LoadJob,
    LoadProgress,
    LoadRun,
    RowSize,
    RowsWorkload,
    Stop,
    load_target,
)
from disklab.errors import MachineError, UserError
from disklab.hosts.addresses import free_addresses

from tests.conftest import IN_CI

GIB = 1 << 30
ROWS = 400


@contextmanager
def etcd(nodes: int, version: str | None = None) -> Iterator[Etcd]:
    """Yield running members on plain directories."""
    try:
        find_etcd(version=version)
    except UserError as error:
        if not IN_CI:
            pytest.skip(str(error))
        raise
    root = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    # The server is run by a user who may not look into a folder of root's alone.
    root.chmod(0o755)
    places = []
    for number, address in enumerate(free_addresses(nodes, PORTS), 1):
        volumes = {name: root / f"{name}{number}" for name in ("data", "wal")}
        for volume in volumes.values():
            volume.mkdir()
        run_dir, log_dir = root / f"run{number}", root / "log"
        places.append(NodePlace(f"n{number}", address, volumes, run_dir, log_dir))
    sizes = Sizes(GIB, nodes=nodes)
    request = Request("etcd", sizes, replication_factor=nodes, version=version)
    database = provision(request, places)
    assert isinstance(database, Etcd)
    try:
        database.start()
        yield database
    finally:
        database.stop()
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def one() -> Iterator[Etcd]:
    with etcd(1) as database:
        yield database


def job(database: Etcd, operations: dict[str, float], stop: Stop, threads: int = 16) -> LoadJob:
    return LoadJob(
        seed=3,
        target=load_target(database.target),
        workload=RowsWorkload(
            rows=ROWS,
            columns=3,
            column_bytes=301,
            keys="uniform" if "read" in operations else "sequential",
            operations=operations,
            content_seed=3,
        ),
        load=ClosedLoop(threads=threads),
        stop=stop,
        interval_ms=200,
    )


def done(asked: LoadJob) -> LoadDone:
    with LoadRun(asked) as run:
        *_, last = run
    assert isinstance(last, LoadDone)
    return last


def look_for(database: Etcd, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        database.observe()
        time.sleep(0.05)


def fill(database: Etcd) -> None:
    filled = done(job(database, {"write": 1.0}, Stop(operations=ROWS)))
    assert filled.operations["write"].count == ROWS, filled.last_error


def test_rows_are_read_back_as_they_were_written(one: Etcd) -> None:
    fill(one)
    mixed = done(job(one, {"read": 0.5, "write": 0.5}, Stop(operations=1_000)))
    assert not mixed.errors, mixed.last_error
    assert mixed.wrong_rows == mixed.missing_rows == 0
    assert sum(kind.count for kind in mixed.operations.values()) == 1_000


def test_rows_of_several_sizes_are_read_back_whole(one: Etcd) -> None:
    sizes = [RowSize(column_bytes=16, share_ppm=600_000)]
    sizes += [RowSize(column_bytes=1400, share_ppm=400_000)]
    whole = job(one, {"write": 1.0}, Stop(operations=ROWS))
    several = whole.workload.model_copy(update={"sizes": sizes})
    try:
        assert not done(whole.model_copy(update={"workload": several})).errors
        reads = several.model_copy(update={"operations": {"read": 1.0}})
        read = done(whole.model_copy(update={"workload": reads}))
        assert not read.errors, read.last_error
        assert read.operations["read"].count == ROWS
        assert done(job(one, {"read": 1.0}, Stop(operations=200))).wrong_rows == 200
    finally:
        fill(one)


def test_what_was_not_written_is_missing_and_other_content_is_wrong(one: Etcd) -> None:
    fill(one)
    reads = job(one, {"read": 1.0}, Stop(operations=200))
    assert isinstance(reads.workload, RowsWorkload)
    other = reads.workload.model_copy(update={"content_seed": 4})
    assert done(reads.model_copy(update={"workload": other})).wrong_rows == 200
    more = reads.workload.model_copy(update={"rows": 100 * ROWS})
    assert done(reads.model_copy(update={"workload": more})).missing_rows > 150


def test_the_versions_of_keys_are_read_back(one: Etcd) -> None:
    asked = job(one, {"write": 1.0}, Stop(operations=ROWS))
    assert isinstance(asked.workload, RowsWorkload)
    known = KnownVersions()
    for operations, judged in (({"write": 1.0}, 0), ({"read": 1.0}, ROWS)):
        work = asked.workload.model_copy(update={"versions": known, "operations": operations})
        seen = done(asked.model_copy(update={"workload": work}))
        assert not seen.errors, seen.last_error
        assert seen.versions is not None
        assert seen.versions.judged_reads == judged
        assert seen.versions.stale_reads == 0
        known = seen.versions.known
    # They are other content than what was filled.
    assert done(job(one, {"read": 1.0}, Stop(operations=ROWS))).wrong_rows > 0


def test_emptied_and_cold_and_stopped_and_started(one: Etcd) -> None:
    fill(one)
    one.settle(Conditions())
    cold = one.make_cold()
    assert cold.way == "restart"
    assert any("reads all of it" in note for note in one.notes)
    assert not done(job(one, {"read": 1.0}, Stop(operations=100))).errors, "rows survive a restart"
    one.settle(Conditions(empty=True, flushed=False, compacted=False))
    assert done(job(one, {"read": 1.0}, Stop(operations=50))).missing_rows == 50
    one.stop()
    assert one.observe().pids == ()
    one.start()


def test_nobody_without_a_certificate_is_answered(one: Etcd) -> None:
    (member,) = one.nodes
    folder = member.files.configuration
    context = ssl.create_default_context(cafile=str(folder / "authority.pem"))
    stranger = http.client.HTTPSConnection(member.place.address, CLIENT_PORT, context=context)
    with pytest.raises((ssl.SSLError, ConnectionError)):  # noqa: PT012 - TLS 1.3 tells at the answer
        stranger.request("GET", "/metrics")
        stranger.getresponse()
    stranger.close()
    assert member.gateway.is_healthy()
    for name in ("member.key", "client.key"):
        assert (folder / name).stat().st_mode & 0o077 == 0
    assert (folder / "client.key").stat().st_uid == os.geteuid()
    bare = {key: value for key, value in one.target.items() if key != "tls"}
    plain = job(one, {"read": 1.0}, Stop(operations=10))
    assert "PRIVATE KEY" not in repr(plain)
    with pytest.raises(UserError, match="etcd cannot be reached"):
        done(plain.model_copy(update={"target": load_target(bare)}))


def test_one_member_that_dies_is_the_end(one: Etcd) -> None:
    pid = one.nodes[0].process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(MachineError, match="was killed by SIGKILL"):
        look_for(one, 5.0)
    one.stop()
    one.start()


def test_a_load_survives_the_killing_of_one_of_three() -> None:
    with etcd(3) as three:
        fill(three)
        killed = after = 0
        with LoadRun(job(three, {"read": 0.5, "write": 0.5}, Stop(duration_s=8.0))) as run:
            for event in run:
                if isinstance(event, LoadProgress):
                    after = event.operations
                    if not killed and event.operations > 200:
                        pid = three.nodes[0].process.pid
                        assert pid is not None
                        os.kill(pid, signal.SIGKILL)
                        killed = event.operations
                last = event
        assert isinstance(last, LoadDone)
        assert killed
        assert after > killed + 100, f"operations went on: {last.errors}, {last.last_error}"
        assert last.wrong_rows == last.missing_rows == 0
        seen = three.observe()
        assert seen.metrics["members"] == 2
        assert any("n1" in note and "went on without it" in note for note in three.notes)
        # It comes back on its data.
        three.stop()
        three.start()
        assert three.observe().metrics["members"] == 3
        assert not done(job(three, {"read": 1.0}, Stop(operations=200))).errors


BUILT = [pytest.param(line, marks=pytest.mark.long) for line in RELEASES]  # CI: building: minutes


@pytest.mark.parametrize("version", [None, *BUILT])
def test_an_empty_member_takes_the_place_of_a_dead_one(version: str | None) -> None:
    with etcd(3, version) as three:
        assert version is None or three.versions["etcd"] == RELEASES[version]
        fill(three)
        before = {one.number for one in three.nodes[0].gateway.members()}
        three.kill_node("n2")
        three.replace_node("n2")
        asked = three.nodes[0].gateway
        now = {one.number for one in asked.members()}
        assert len(now) == 3
        assert len(now & before) == 2, "the dead one is forgotten"
        assert three.observe().metrics["members"] == 3
        assert not three.notes[len(three.plan.reasons) + 1 :], "a death that was asked for is none"
        # The new one counts: with it alone beside one other, a majority is left, and it has all.
        three.kill_node("n3")
        three.nodes[1].wait_until_healthy()
        read = done(job(three, {"read": 1.0}, Stop(operations=ROWS)))
        assert read.wrong_rows == read.missing_rows == 0
        assert read.operations["read"].count > ROWS * 2 / 3, read.last_error
        three.start_node("n3")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("etcd", Sizes(GIB), replication_factor=3), "as many copies as nodes"),
        (
            Request("etcd", Sizes(GIB), settings={"snapshot-cuont": 1}),
            "did you mean snapshot-count",
        ),
        (Request("etcd", Sizes(GIB), settings={"wal-dir": "/tmp"}), "disklab sets this itself"),
        (Request("etcd", Sizes(GIB), table={"compression": "lz4"}), "no such option"),
    ],
)
def test_what_cannot_be(request_: Request, message: str) -> None:
    folder = Path("/nonexistent")
    place = NodePlace("n1", "127.0.0.1", {"data": folder}, folder, folder)
    with pytest.raises(UserError, match=message):
        provision(request_, [place])


def test_fsyncs_are_counted(one: Etcd) -> None:
    before = one.observe().counters
    fill(one)
    grown = {name: value - before[name] for name, value in one.observe().counters.items()}
    assert grown["wal_fsyncs"] >= 10
    assert grown[gateway.within("wal_fsync", 8192)] <= grown["wal_fsyncs"]
    assert grown["wal_fsync_s"] > 0
    assert {f"{name}s" for name in ("wal_fsync", "backend_commit")} <= set(grown)


def test_the_quantile_is_that_of_prometheus() -> None:
    # 60 within 1 ms, 30 more within 2 ms, 10 more within 4 ms; the 99th of 100 is 9/10 of the way.
    counts = [60.0, 90.0] + [100.0] * 12
    found = quantile(0.99, 100, counts)
    assert found.value == pytest.approx(2 + 2 * 0.9)
    assert (found.low, found.high) == (2.0, 4.0)
    assert quantile(0.5, 100, counts).value == pytest.approx(50 / 60)
    beyond = quantile(0.99, 200, counts)
    assert (beyond.value, beyond.high) == (8192, 8192)


@pytest.mark.parametrize(
    ("edge_ms", "slow", "kept", "sure"),
    [(4, 1, True, True), (16, 1, False, False), (32, 1, False, True), (16, 4, True, True)],
)
def test_the_rule(edge_ms: int, slow: int, *, kept: bool, sure: bool) -> None:
    """All fsyncs take just up to an edge, in the machine's time."""

    def growth(name: str) -> float | None:
        if name == "wal_fsyncs":
            return 1000.0
        at = {gateway.within("wal_fsync", edge): edge for edge in gateway.EDGES_MS}.get(name)
        return None if at is None else 1000.0 * (at >= edge_ms)

    (found,) = rules(growth, slow)
    assert (found.kept, found.sure, found.below_ms) == (kept, sure, 10.0)


def test_few_fsyncs_are_no_99th_percentile() -> None:
    assert not list(rules(lambda _: 40.0, 1))


def test_the_log_between_snapshots_follows_the_scale() -> None:
    full, small = plan_memory(Sizes(8 * GIB)), plan_memory(Sizes(GIB // 4))
    assert full.entries == 100_000
    assert full.limit == pytest.approx(8 * GIB, rel=0.01)
    assert small.reasons
    scaled = Sizes(8 * GIB, scale=Fraction(1, 100))
    assert plan_memory(scaled).entries == LEAST_ENTRIES


def test_the_port_is_the_usual_one(one: Etcd) -> None:
    points = one.target["contact_points"]
    assert isinstance(points, list)
    assert points[0].endswith(f":{CLIENT_PORT}")
