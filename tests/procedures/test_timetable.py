"""Faults on a timetable: the order of steps, what becomes of failures, what a course says."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases import NodePlace, Request, Sizes
from disklab.errors import DisklabError, EngineError, MachineError, UserError
from disklab.events import TimedStep
from disklab.hosts.delays import Between, Link
from disklab.hosts.places import Places
from disklab.procedures.breaking import Breaker, Ground
from disklab.procedures.build import node_wish
from disklab.results import StepTaken
from disklab.results.timetable import in_words, recovery_of, steps_in_words
from disklab.spec import ClusterTrial
from disklab.spec.amounts import only
from disklab.spec.timetable_checks import ends_whole

from tests.fakes.world import World

from .conftest import Rehearsal

HEAD = """
title: What does a lost node cost?
cluster: {nodes: 3, vm: azure/Standard_DS14_v2, volumes: {data: {disks: local}}}
database: {engine: cassandra, replication_factor: 3}
dataset: {rows: 10k, row: 1 x 100B}
workload: {operations: {read: 100%}, load: {threads: 4}, stop: {duration: 10s}}
rehearse: {time_dilation: 2}
"""
EXPERIMENT = (
    HEAD
    + """
events:
  - {at: 1ms, lose: n2}
  - {at: 3ms, replace: n2}
  - {at: 4ms, stall: n3}
  - {at: 5ms, mend: n3}
  - {at: 6ms, kill: n1}
  - {at: 7ms, start: n1}
  - {at: 8ms, restart: n3}
  - {at: 9ms, migrate: n2, host: {vm: azure/Standard_L8s}}
  - {at: 10ms, add: n4}
  - {at: 11ms, repair: n2}
  - {at: 12ms, credits: n2}
  - {at: 13ms, migrate: n2}
  - {at: 14ms, decommission: n1}
"""
)
CONDUCTED = [
    "database: kill n2",
    "node: lose",
    "database: replace n2",
    "node: stall of data",
    "node: recover of data",
    "database: kill n1",
    "database: start n1",
    "database: restart n3",
    "database: add n2b near n2",
    "database: decommission n2",
    "database: add n4",
    "database: repair n2b",
    "node: credits 0",
    "database: add n2c near n2b",
    "database: decommission n2b",
    "database: decommission n1",
]
CATALOG = load_catalog()


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path, EXPERIMENT)


def conducted(world: World) -> list[str]:
    """Return the steps of the timetable, in the order in which they were taken."""
    return [step for step in world.steps if step in CONDUCTED]


def test_every_step_is_taken_in_order_and_told(world: World, rehearsal: Rehearsal) -> None:
    (result,) = rehearsal(world).results()
    assert result.status == "ok", result
    assert conducted(world) == CONDUCTED
    told = [one for one in rehearsal.events if isinstance(one, TimedStep)]
    assert [one.ended_s is None for one in told] == [True, False] * 13
    seen = result.recovery
    assert [one.kind for one in seen.steps] == [
        "lose", "replace", "stall", "mend", "kill", "start", "restart", "migrate", "add", "repair",
        "credits", "migrate", "decommission",
    ]  # fmt: skip
    assert all(one.begun_s >= one.at_s for one in seen.steps)
    assert seen.rows_checked
    assert seen.rows_lost == 0
    # Looked at before and behind each event that moves data, and at no other.
    assert [one.streamed_bytes for one in seen.steps] == [
        None, 1000, None, None, None, 1000, 1000, 1000, 1000, 1000, None, 1000, 1000,
    ]  # fmt: skip
    # The fake tells 2.0 and 0.5 s of this machine's, which runs at half speed.
    parts = {one.kind: one.parts_s for one in seen.steps}
    assert parts["replace"] == {"process": 1.0, "stream": 0.25}
    assert parts["kill"] == {}
    assert "(process 1 s)" in steps_in_words(seen)
    full = {one.kind: one.cpu_ratio for one in seen.steps}
    assert full["kill"] is None
    assert 0 <= full["replace"] <= 1
    # Every node was up at the end, so all rows were read from all copies too.
    assert "database: is whole" in world.steps
    assert seen.at_all.rows_lost == 0
    assert not world.standing


NETWORKED = """
title: What do broken links cost?
cluster:
  nodes: 3
  zones: 3
  network: azure/standard
  vm: azure/Standard_DS14_v2
  volumes: {data: {disks: azure/P30}}
database: {engine: cassandra, replication_factor: 3}
dataset: {rows: 10k, row: 1 x 100B}
workload: {operations: {read: 100%}, load: {threads: 4}, stop: {duration: 10s}}
"""


@dataclass
class SeenNetwork:
    """Stands in for hosts in namespaces: notes what is asked of their links."""

    steps: list[str] = field(default_factory=list)

    def change_link(self, name: str, **parts: object) -> None:
        shown = ", ".join(f"{key} {value}" for key, value in parts.items() if value)
        self.steps.append(f"{name}: {shown or 'joined'}")

    def change_way(self, one: str, other: str, way: Between) -> None:
        self.steps.append(f"{one}-{other}: {'as before' if way == Between() else way}")

    def restore_link(self, name: str) -> None:
        self.steps.append(f"{name}: as before")

    def link(self, name: str) -> Link:
        del name
        return Link(bytes_per_s=100_000_000)

    def __getitem__(self, name: str) -> SeenNetwork:
        return self


def test_links_zones_and_moved_disks_are_taken_as_the_file_says(world: World) -> None:
    what = spec.parse(
        NETWORKED
        + """
events:
  - {at: 1s, cut: n1-client}
  - {at: 2s, join: client-n1}
  - {at: 3s, slow_link: n2, round_trip: 20ms, bandwidth: 8Mbit/s}
  - {at: 4s, join: n2}
  - {at: 5s, lossy: n2-n3, loss: 5%}
  - {at: 6s, join: n3-n2}
  - {at: 7s, lose_zone: 2}
  - {at: 8s, start: n2}
  - {at: 9s, move: n1, host: {vm: azure/Standard_DS13_v2, caching: None}}
"""
    )
    (trial,) = what.trials("rehearse")
    assert trial.refused is None
    cluster = trial.spec.cluster
    places = Places(world.folder / "run", world.folder / "data")
    nodes = {
        name: world.make_node(
            CATALOG, node_wish(trial, name, only(ClusterTrial, trial.spec).cluster), places, print
        )
        for name in ("n1", "n2", "n3")
    }
    request = Request("cassandra", Sizes(1))
    place = NodePlace("n1", "127.0.0.1", {}, world.folder, world.folder)
    database = world.provision(request, [place], print)
    network = SeenNetwork()
    for node in nodes.values():
        node.volumes = {}
    ground = Ground(
        nodes,
        database,
        cluster,
        lambda _: 3 << 30,
        network=network,  # type: ignore[arg-type]
        links=network,
    )
    breaker = Breaker(ground, threading.Event())
    world.steps.clear()
    for event in trial.spec.events:
        breaker.do(event, None)
    assert network.steps == [
        "client-n1: Between(bytes_per_s=None, extra_ns=0, loss_ppm=0, cut=True)",
        "client-n1: as before",
        "n2: as before",
        "n2: bytes_per_s 1000000, extra_ns 10000000",
        "n2: as before",
        "n2: bytes_per_s 100000000",
        "n2-n3: Between(bytes_per_s=None, extra_ns=0, loss_ppm=50000, cut=False)",
        "n2-n3: as before",
        "n2: cut True",
        "n2: joined",
    ]
    assert world.steps == [
        "database: n1 out of reach",
        "database: n1 within reach",
        "database: n2 within reach",
        "database: n2 within reach",
        "database: kill n2",
        "node: lose",
        "database: start n2",
        "database: n1 leaves its disks",
        "node: move to azure/Standard_DS13_v2, None",
        "database: start n1 with 3 GiB",
    ]


def test_links_and_zones_that_are_not_there_are_refused() -> None:
    wrong = (
        "events: [{at: 1s, cut: n9}, {at: 2s, join: n1}, {at: 3s, lose_zone: 4},"
        " {at: 4s, move: n1}, {at: 5s, slow: n7}]"
    )
    with pytest.raises(UserError) as told:
        spec.parse(NETWORKED + wrong)
    text = str(told.value)
    for part in (
        "n9: the cluster has no such node; it has n1 to n3",
        "at 2 s the link of n1 is as it was at first",
        "4: the cluster has 3 zones",
        "a move is to another VM size, with the same disks",
        "n7: the cluster has no such node",
    ):
        assert part in text, text
    without = NETWORKED.replace("  network: azure/standard\n", "")
    with pytest.raises(UserError, match=r"without cluster\.network nodes have no links"):
        spec.parse(without + "events: [{at: 1s, cut: n2}]")
    with pytest.raises(UserError, match="on a VM's own disk, which cannot be moved"):
        spec.parse(HEAD + "events: [{at: 1s, move: n1, host: {vm: azure/Standard_L8s}}]")
    with pytest.raises(UserError, match="its link is cut"):
        spec.parse(
            NETWORKED + "events: [{at: 1s, kill: n2}, {at: 2s, cut: n2}, {at: 3s, start: n2}]"
        )


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("slow_link: n1", "a slow link, and nothing else, has a round_trip"),
        ("cut: client", "without the client's link there is no load"),
        ("cut: n1-n1", "a link is that of a node, or between two"),
        ("kill: n1, loss: 5%", "a lossy link, and nothing else, has a loss"),
        ("slow_link: n1, bandwidth: 5", "a bandwidth is an amount of data a second"),
    ],
)
def test_a_link_has_the_figures_of_its_event(event: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        spec.parse(NETWORKED + f"events: [{{at: 1s, {event}}}]")


def test_whole_is_who_has_all_nodes_links_and_disks() -> None:
    for events, whole in (
        ("{at: 1s, cut: n2}", False),
        ("{at: 1s, cut: n2}, {at: 2s, join: n2}", True),
        ("{at: 1s, kill: n2}", False),
        ("{at: 1s, lose_zone: 2}, {at: 2s, start: n2}", True),
        ("{at: 1s, stall: n2}", False),
        ("{at: 1s, add: n4}, {at: 2s, decommission: n1}", True),
    ):
        (trial,) = spec.parse(NETWORKED + f"events: [{events}]").trials("rehearse")
        assert ends_whole(only(ClusterTrial, trial.spec)) is whole, events


@pytest.mark.parametrize("broken", ["{at: 1ms, stall: n3}", "{at: 1ms, slow: n3}"])
@pytest.mark.parametrize("then", ["", ", {at: 2ms, kill: n1}"])
def test_a_disk_that_nobody_mends_is_mended_before_the_database_ends(
    world: World, rehearsal: Rehearsal, broken: str, then: str
) -> None:
    rehearsal.text = f"{HEAD}\nevents: [{broken}{then}]\n"
    world.broken = {"database: kill n1": MachineError("kill failed")}
    (result,) = rehearsal(world).results()
    assert result.status == ("failed" if then else "ok"), result
    last = world.steps.index("database: stop")
    assert world.steps[:last].count("node: recover of data") == 1


@pytest.mark.parametrize("step", sorted(set(CONDUCTED)))
@pytest.mark.parametrize("error", [MachineError, EngineError])
def test_a_failed_step_fails_the_trial_with_its_reason(
    world: World, rehearsal: Rehearsal, step: str, error: type[DisklabError]
) -> None:
    world.broken = {step: error(f"{step} failed")}
    (result,) = rehearsal(world).results()
    assert result.status == "failed"
    assert f"{step} failed" in result.reason.rule
    assert conducted(world) == CONDUCTED[: CONDUCTED.index(step) + 1]
    assert not world.standing


def test_an_interrupt_at_any_step_leaves_nothing(world: World, rehearsal: Rehearsal) -> None:
    rehearsal(world)
    steps = list(world.steps)
    for name in sorted(set(CONDUCTED)):
        world.steps.clear()
        world.error, world.fail_at = KeyboardInterrupt, steps.index(name) + 1
        run = rehearsal(world)
        assert not world.standing, name
        world.steps.clear()
        world.fail_at = None
        assert {one.status for one in rehearsal(world, run).results()} == {"ok"}, name


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = (
        "events: [{at: 1s, kill: n2}, {at: 20s, start: n2}, {at: 2s, mend: n1}, {at: 3s, kill: n4},"
        " {at: 4s, lose: n1}, {at: 5s, start: n1}]"
    )
    with pytest.raises(UserError) as told:
        spec.parse(HEAD + wrong)
    text = str(told.value)
    for part in (
        "20s: the load runs from 0 s to 10 s",
        "at 2 s n1 is well, which mend is not for",
        "n4: the cluster has no such node; it has n1 to n3",
        "the data of n1 were on a disk of its VM and are lost with it; write replace",
    ):
        assert part in text, text


@pytest.mark.parametrize("word", ["zone", "partition", "fail", "stop"])
def test_what_cannot_be_is_refused_by_name(word: str) -> None:
    with pytest.raises(UserError, match=f"{word} cannot be rehearsed yet"):
        spec.parse(HEAD + f"events: [{{at: 1s, {word}: n2}}]")


def test_a_database_is_asked_for_what_it_can_do() -> None:
    text = EXPERIMENT.replace("engine: cassandra", "engine: etcd")
    with pytest.raises(UserError, match="migrate is not known for etcd"):
        spec.parse(text)


def test_real_hosts_and_nodes_that_do_not_run_are_refused() -> None:
    what = spec.parse(EXPERIMENT)
    refused = str(what.trials("measure")[0].refused)
    assert "disklab does not lose, move or add a machine of yours" in refused
    fewer = what.trials("rehearse", nodes=2)[0].refused
    assert fewer is not None
    assert "this rehearsal has 2 of the cluster's nodes" in str(fewer)


def course(*rates: float) -> tuple[list[float], list[float]]:
    return [float(second) for second in range(1, len(rates) + 1)], list(rates)


def step(kind: str, begun_s: float, ended_s: float) -> StepTaken:
    return StepTaken(kind=kind, node="n2", at_s=begun_s, begun_s=begun_s, ended_s=ended_s)


def test_the_course_says_how_long_it_took_to_come_back() -> None:
    ends, rates = course(10, 10_000, 10_000, 10_000, 0, 0, 6_000, 6_000, 9_600, *([10_000] * 3))
    steps = [step("kill", 4.0, 4.0), step("start", 5.0, 8.5)]
    found = recovery_of(steps, ends, rates, 7)
    assert found.ops_per_s_before == 10_000
    assert found.lowest_ops_per_s == 2_000
    assert found.unavailable_s == 2
    # The mean of seconds 9 to 11 is the first that is 95 or more.
    assert found.back_s == 4
    assert found.whole_s == 4.5
    assert found.failed_operations == 7


def test_what_disklab_itself_took_is_left_out_and_told() -> None:
    """A host that takes 4 s to be taken away holds its start back: the database is not to blame."""
    ends, rates = course(10, 100, 100, 100, 0, 0, 0, 0, 0, 0, 100, 100, 100)
    lost = StepTaken(kind="lose", node="n1", at_s=4.0, begun_s=4.0, ended_s=9.0)
    start = StepTaken(kind="start", node="n1", at_s=5.0, begun_s=9.0, ended_s=10.0)
    found = recovery_of([lost, start], ends, rates, 0, [(4.5, 9.0)])
    # Until second 5 it was to be away: only the other 4 are ours.
    assert (found.held_s, found.whole_s, found.unavailable_s, found.back_s) == (4, 2, 2, 2)
    # What was to be away for longer anyway was held back by nothing.
    later = start.model_copy(update={"at_s": 9.0})
    assert recovery_of([lost, later], ends, rates, 0, [(4.5, 9.0)]).held_s == 0
    # A move is one step, which has it inside; two that wait for the same time wait once.
    moved = StepTaken(kind="move", node="n1", at_s=4.0, begun_s=4.0, ended_s=10.0)
    assert recovery_of([moved], ends, rates, 0, [(4.5, 9.0)]).whole_s == 1.5
    both = [lost, start, start.model_copy(update={"node": "n2", "begun_s": 9.5})]
    assert recovery_of(both, ends, rates, 0, [(4.5, 9.0)]).held_s == 4


def test_what_never_falls_is_back_at_once_and_what_stays_low_never() -> None:
    ends, rates = course(10, 100, 100, 100, 99, 101, 100)
    assert recovery_of([step("move", 3.0, 4.0)], ends, rates, 0).whole_s == 1
    assert recovery_of([step("kill", 3.0, 3.0)], ends, rates, 0).back_s == 0
    ends, rates = course(10, 100, 100, 50, 50, 50, 50)
    assert recovery_of([step("kill", 3.0, 3.0)], ends, rates, 0).back_s is None


def test_chance_is_no_loss() -> None:
    # 82 in a second of 100 Poisson arrivals is nothing; of 100,000 it is a fault.
    for scale, back_s in ((1, 0), (1_000, None)):
        ends, rates = course(*(scale * rate for rate in (10, 100, 100, 100, 82, 100, 90, 85)))
        assert recovery_of([step("kill", 4.0, 4.0)], ends, rates, 0).back_s == back_s


def test_a_step_before_the_second_interval_has_nothing_to_compare_with() -> None:
    ends, rates = course(10, 100, 100)
    found = recovery_of([step("kill", 0.5, 0.5)], ends, rates, 0)
    assert found.ops_per_s_before is None
    assert found.back_s is None


def test_hosts_that_come_later_are_checked_before_anything_is_made() -> None:
    wrong = (
        "events: [{at: 1s, migrate: n2, host: {vm: azure/Standard_L9s}},"
        " {at: 2s, migrate: n1, host: {disks: azure/P31}}]"
    )
    with pytest.raises(UserError) as told:
        spec.parse(HEAD + wrong)
    text = str(told.value)
    assert "events.0.host.vm: 'azure/Standard_L9s': no such VM size" in text
    assert "events.1.host.disks: 'azure/P31': no such disk" in text


def test_nodes_come_and_go_in_their_order() -> None:
    wrong = (
        "events: [{at: 1s, add: n5}, {at: 2s, decommission: n1}, {at: 3s, kill: n4},"
        " {at: 4s, kill: n2, host: {vm: azure/Standard_L8s}}]"
    )
    with pytest.raises(UserError, match="host is that of a new node, which kill does not make"):
        spec.parse(HEAD + wrong)
    with pytest.raises(UserError) as told:
        spec.parse(HEAD + wrong.replace(", host: {vm: azure/Standard_L8s}", ""))
    text = str(told.value)
    for part in (
        "n5: the cluster has no such node; it has n1 to n4",
        "each of 3 copies is on a node of its own, and no more would be left",
        "at 3 s n4 is to come, which kill is not for",
    ):
        assert part in text, text
    with pytest.raises(UserError, match="at 2 s n3 is killed, and a repair asks every copy"):
        spec.parse(HEAD + "events: [{at: 1s, kill: n3}, {at: 2s, repair: n2}]")
    with pytest.raises(UserError, match="add is not known for PostgreSQL"):
        spec.parse(
            HEAD.replace("engine: cassandra, replication_factor: 3", "engine: postgresql")
            + "events: [{at: 1s, add: n4}]"
        )


def test_a_machine_that_was_full_is_named_as_what_bound_the_recovery() -> None:
    def told(ratio: float | None) -> str:
        steps = [
            StepTaken(kind="lose", node="n2", at_s=2, begun_s=2, ended_s=2),
            StepTaken(kind="replace", node="n2", at_s=3, begun_s=3, ended_s=9, cpu_ratio=ratio),
        ]
        return in_words(recovery_of(steps, [1, 2, 3, 4], [9, 9, 5, 9], 0))

    assert "whole again after 7 s, limited by this machine's processors (97% used)" in told(0.97)
    assert "processors" not in told(0.94)
    assert "processors" not in told(None)
