"""etcd: one member and three, certificates, a killed member, and the rule of its documentation."""

from __future__ import annotations

import http.client
import os
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import pytest
from disklab.databases import Request, Sizes
from disklab.databases.etcd import gateway
from disklab.databases.etcd.cluster import Etcd
from disklab.databases.etcd.configuration import (
    CLIENT_PORT,
    LEAST_ENTRIES,
    plan_memory,
)
from disklab.databases.etcd.gateway import quantile, rules
from disklab.databases.etcd.installation import RELEASES
from disklab.engine.load import (
    LoadDone,
    LoadProgress,
    LoadRun,
    Stop,
)

from tests.databases.servers import GIB, ROWS, done, fill, job, points_of, running
from tests.databases.suite import DatabaseSuite, Traits


@contextmanager
def etcd(nodes: int, version: str | None = None) -> Iterator[Etcd]:
    """Yield running members on plain directories."""
    asked = Request("etcd", Sizes(GIB, nodes=nodes), replication_factor=nodes, version=version)
    with running(asked, "data", "wal") as database:
        assert isinstance(database, Etcd)
        yield database


@pytest.fixture(scope="module")
def served() -> Iterator[Etcd]:
    with etcd(1) as database:
        yield database


class TestEtcd(DatabaseSuite):
    traits = Traits(
        engine="etcd",
        title="etcd",
        grows="wal_fsyncs",
        stranger={"tls": None},
        turned_away="etcd cannot be reached",
        own_setting="name",
        kinds={"read": 0.5, "write": 0.5},
        is_all_read=True,
    )

    def pid_of(self, served: Any) -> int:
        pid: int = served.nodes[0].process.pid
        return pid


def look_for(database: Etcd, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        database.observe()
        time.sleep(0.05)


def test_nobody_without_a_certificate_is_answered(served: Etcd) -> None:
    (member,) = served.nodes
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


def test_a_load_survives_the_killing_of_one_of_three() -> None:
    with etcd(3) as three:
        fill(three)
        killed = after = 0
        with LoadRun(job(three, {"read": 0.5, "write": 0.5}, Stop(duration_s=8.0))) as run:
            for event in run:
                if isinstance(event, LoadProgress):
                    after = event.operations
                    if not killed and event.operations > 200:
                        os.kill(three.nodes[0].process.pid, signal.SIGKILL)
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
        before = {member.number for member in three.nodes[0].gateway.members()}
        three.kill_node("n2")
        three.replace_node("n2")
        asked = three.nodes[0].gateway
        now = {member.number for member in asked.members()}
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


def test_fsyncs_are_counted(served: Etcd) -> None:
    before = served.observe().counters
    fill(served)
    grown = {name: value - before[name] for name, value in served.observe().counters.items()}
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


def test_the_port_is_the_usual_one(served: Etcd) -> None:
    points = points_of(served.target)
    assert points[0].endswith(f":{CLIENT_PORT}")
