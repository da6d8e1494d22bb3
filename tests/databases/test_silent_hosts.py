"""A database's host that vanishes without a word, and comes back: what the load makes of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from disklab.databases import NodePlace, Request, Sizes, provision
from disklab.databases.this_machine import ThisMachine
from disklab.engine import LoadDone, LoadJob, LoadProgress, run_load
from disklab.engine.load import OpenLoop, RowsWorkload, Stop, load_target
from disklab.hosts.delays import Link, NetworkWish, RoundTrip
from disklab.hosts.namespaces import EmulatedHosts, HostWish
from disklab.hosts.places import Places

from tests.databases.servers import GIB, need
from tests.hosts.conftest import Lab, new_lab

pytestmark = [pytest.mark.machine, pytest.mark.alone, pytest.mark.long]

ROWS = 500
RATE_PER_S = 100.0
CUT_AT_S, JOINED_AT_S, ENDS_AT_S = 2.0, 8.0, 14.0
# The kernel ends a silent connection after 3 s; the rest is for a busy machine.
NOTICED_S = 5.0


def test_a_silent_host_is_noticed_and_load_goes_on_when_it_is_back() -> None:
    need("postgresql")
    with new_lab() as lab:
        home = lab.root / "database"
        for name in ("data", "run", "log"):
            (home / name).mkdir(parents=True)
        trip = RoundTrip.of_percentiles({50: 1000})
        wishes = [
            HostWish("n1", link=Link(zone="1"), shared=(home,)),
            HostWish("client", link=Link(zone="1")),
        ]
        places = Places(lab.run_dir, lab.data_dir)
        wish = NetworkWish({("1", "1"): trip})
        with EmulatedHosts.start(places, "silent", wishes, wish) as hosts:
            examine(lab, hosts, home)


def examine(lab: Lab, hosts: EmulatedHosts, home: Path) -> None:
    place = NodePlace(
        name="silent-n1",
        address=hosts["n1"].address,
        volumes={"data": home / "data"},
        run_dir=home / "run" / "n1",
        log_dir=home / "log",
        host=ThisMachine(hosts["n1"]),
    )
    with hosts["client"].inside_network():
        database = provision(Request("postgresql", Sizes(GIB), columns=1), [place])
        try:
            database.start()
            asked = LoadJob(
                seed=5,
                target=load_target(database.target),
                workload=RowsWorkload(
                    rows=ROWS, columns=1, column_bytes=100, keys="uniform", operations={"write": 1}
                ),
                load=OpenLoop(rate_per_s=RATE_PER_S, max_in_flight=20),
                stop=Stop(duration_s=ENDS_AT_S),
                interval_ms=200,
            )
            course, done = loaded(asked, hosts)
        finally:
            database.stop()
    before = [one for one in course if one.t_s <= CUT_AT_S]
    assert before[-1].errors == 0
    assert before[-1].operations > RATE_PER_S
    first = next(one for one in course if one.errors > 0)
    assert CUT_AT_S < first.t_s < CUT_AT_S + NOTICED_S
    away = [two for two in pairwise(course) if CUT_AT_S + 1 < two[0].t_s < JOINED_AT_S]
    assert all(one.operations == other.operations for one, other in away)
    end = course[-1]
    assert end.errors - course[-5].errors == 0, end.last_error
    assert end.operations > before[-1].operations + RATE_PER_S
    # Every arrival is accounted for: done, failed, or never sent because none could be.
    assert done.operations["write"].failed > 0


def loaded(asked: LoadJob, hosts: EmulatedHosts) -> tuple[list[LoadProgress], LoadDone]:
    """Run the load, cut the host's link in the middle and join it again."""
    course: list[LoadProgress] = []
    cut = joined = False
    for event in run_load(asked):
        if isinstance(event, LoadDone):
            return course, event
        if isinstance(event, LoadProgress):
            course.append(event)
            if not cut and event.t_s >= CUT_AT_S:
                hosts.cut("n1")
                cut = True
            if not joined and event.t_s >= JOINED_AT_S:
                hosts.join("n1")
                joined = True
    raise AssertionError("the load ended without a word")
