"""Slow and lossy ways between hosts: which commands, on which host, and what is left of them.

No kernel with netem is to be had here: hosts have a stand-in for tc, and the refusal is real.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from disklab.hosts.delays import Between
from disklab.machines.local import LocalMachine
from disklab.machines.netns import NamespaceMachine
from disklab.machines.protocol import Child, Command, Finished
from disklab.measurement import host_links
from disklab.measurement.host_links import HostLinks, Shape
from disklab.measurement.journal import HANDLE, Journal, undo_all

from tests.databases.servers import need
from tests.programs import wait_until

from .bench import Bench
from .emulated import Served, served_hosts
from .fake_tc import LOG, SCRIPT


class Host(LocalMachine):
    """A host that keeps what tc was asked for; nothing else of it is asked."""

    def __init__(self, name: str, address: str) -> None:
        super().__init__(name, address)
        self.said: list[str] = []
        self.root = "0:"
        self.guards: list[Guard] = []

    def run(self, command: Command, seconds: float = 60.0) -> Finished:
        words = list(command.words)
        said = ""
        match words:
            case ["ip", "-o", "route", "get", address]:
                said = f"{address} dev eth0 src {self.address} uid 0 \n    cache \n"
            case ["tc", "qdisc", "show", "dev", "eth0"]:
                said = (
                    f"qdisc {'prio' if self.root == HANDLE else 'mq'} {self.root} root refcnt 2\n"
                )
            case ["tc", *rest]:
                self.said.append(" ".join(rest))
                if rest[:2] == ["qdisc", "add"] and "root" in rest:
                    self.root = HANDLE
                if rest[:2] == ["qdisc", "del"] and "root" in rest:
                    self.root = "0:"
            case _:
                pytest.fail(f"{words} is not asked for")
        return Finished(0, said.encode(), b"")

    def start(self, command: Command) -> Child:  # type: ignore[override]
        assert list(command.words)[:2] == ["sh", "-c"]
        assert self.root == "0:", "it is there before there is anything to undo"
        self.guards.append(Guard())
        return self.guards[-1]  # type: ignore[return-value]


class Guard:
    """A guard that has said that it is ready, and does nothing when it is ended."""

    ended = False

    def lines(self) -> object:
        return iter([b"ready"])

    def __exit__(self, *_: object) -> None:
        self.ended = True


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Host]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return {
        name: Host(name, f"10.0.0.{number}") for number, name in enumerate(("n1", "n2", "c1"), 1)
    }


def links_of(hosts: dict[str, Host], folder: Path) -> HostLinks:
    ends = {"n1": [hosts["n1"]], "n2": [hosts["n2"]], "client": [hosts["c1"]]}
    return HostLinks(ends, Journal(folder))


def test_a_slow_link_delays_both_ends_of_each_way_and_nothing_else(
    hosts: dict[str, Host], tmp_path: Path
) -> None:
    links = links_of(hosts, tmp_path)
    links.change_link("n2", extra_ns=2_500_000, loss_ppm=0, bytes_per_s=None, cut=False)
    added = "qdisc add dev eth0 root handle d15c: prio bands 16 priomap" + 16 * " 0"
    delay = "netem limit 100000 delay 2500.000us"
    filtered = "filter add dev eth0 parent d15c: protocol ip pref"
    assert hosts["n1"].said == [
        added,
        f"qdisc add dev eth0 parent d15c:2 {delay}",
        f"{filtered} 2 u32 match ip dst 10.0.0.2/32 flowid d15c:2",
    ]
    assert hosts["c1"].said == hosts["n1"].said, "the client's way to it, and no other"
    assert hosts["n2"].said == [
        added,
        f"qdisc add dev eth0 parent d15c:2 {delay}",
        f"{filtered} 2 u32 match ip dst 10.0.0.1/32 flowid d15c:2",
        f"qdisc add dev eth0 parent d15c:3 {delay}",
        f"{filtered} 3 u32 match ip dst 10.0.0.3/32 flowid d15c:3",
    ]
    for host in hosts.values():
        host.said.clear()
    # A second change replaces the first one; `restore_link` undoes both.
    links.change_link("n2", extra_ns=0, loss_ppm=50_000)
    assert hosts["n1"].said == [
        "qdisc change dev eth0 parent d15c:2 netem limit 100000 loss 5.0000%"
    ]
    links.restore_link("n2")
    for host in hosts.values():
        assert host.said[-1] == "qdisc del dev eth0 root handle d15c:"
        assert host.root == "0:"
        assert [guard.ended for guard in host.guards] == [True]
    assert Journal.of(tmp_path).left() == []


def test_a_way_has_a_bandwidth_beside_a_lossy_link_and_ends_by_itself(
    hosts: dict[str, Host], tmp_path: Path
) -> None:
    links = links_of(hosts, tmp_path)
    links.change_link("n1", loss_ppm=10_000)
    links.change_way("n1", "n2", Between(bytes_per_s=1_000_000, extra_ns=1_000_000))
    both = "netem limit 100000 delay 1000.000us loss 1.0000% rate 8000000bit"
    assert f"qdisc change dev eth0 parent d15c:2 {both}" in hosts["n1"].said
    links.restore_link("n1")
    assert hosts["c1"].root == "0:"
    assert hosts["n1"].said[-2:] == [
        "qdisc del dev eth0 parent d15c:3",
        "qdisc change dev eth0 parent d15c:2 netem limit 100000 delay 1000.000us rate 8000000bit",
    ]
    links.restore()
    assert [host.root for host in hosts.values()] == ["0:"] * 3


def test_what_a_killed_run_has_left_is_undone_and_another_discipline_stays(
    hosts: dict[str, Host], tmp_path: Path
) -> None:
    links = links_of(hosts, tmp_path)
    links.change_link("n2", extra_ns=1_000_000)
    # Somebody has given one of them a discipline of his own meanwhile.
    hosts["n1"].root = "1:"
    assert undo_all(Journal.of(tmp_path), dict(hosts)) == []
    assert [host.root for host in hosts.values()] == ["1:", "0:", "0:"]


def test_losses_and_delays_of_two_links_add_up() -> None:
    both = Shape(1000, 500_000, 50).and_also(Shape(500, 500_000, None))
    assert both == Shape(1500, 750_000, 50)
    assert Shape().and_also(Shape()) == Shape()


@pytest.mark.machine
def test_a_host_without_netem_is_refused_with_what_its_kernel_says() -> None:
    problems = [*host_links.shaping_lacks("h.yaml:3", LocalMachine(), {"n2": "127.0.0.1"})]
    if not problems:
        pytest.skip("this kernel has netem")
    (problem,) = problems
    assert "Specified qdisc kind is unknown" in problem.rule
    assert "modprobe" in problem.way_out


def fake_tc(served: Served) -> None:
    """Give each host a stand-in for tc that knows the host's own network."""
    for name in (*served.volumes, "c1"):
        host = served.hosts[name]
        real = host.run(Command(["sh", "-c", "command -v tc"])).stdout.decode().strip()
        host.files.write(PurePosixPath(real), SCRIPT.encode(), 0o755)
        own = host.run(Command(["readlink", "/proc/self/ns/net"])).stdout
        host.files.write(PurePosixPath("/var/tmp/tc.own"), own)


def is_shaped(host: NamespaceMachine) -> bool:
    return "tc.root" in host.files.names(PurePosixPath("/var/tmp"))


EXPERIMENT = """
title: What does a slow link cost?
cluster:
  nodes: 1
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P30}}
  network: azure/standard
database: {engine: postgresql, settings: {shared_buffers: 64MB}}
dataset: {rows: 500, row: 1 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  load: {rate: 20/s}
  stop: {duration: LONGs}
before: {page_cache: as-left}
events:
  - {at: 2s, slow_link: n1, round_trip: 5ms}
  - {at: 4s, join: n1}
  - {at: 5s, lossy: n1-client, loss: 5%}
  - {at: LASTs, join: n1-client}
"""
MEASURE = ("measure", "e.yaml", "--hosts", "h.yaml")


def prepared(bench: Bench, served: Served, last_s: int) -> None:
    need("postgresql")
    text = EXPERIMENT.replace("LAST", str(last_s)).replace("LONG", str(last_s + 3))
    bench.write("e.yaml", text)
    served.more = {"may_change": ["network"]}
    bench.write("h.yaml", served.text())


@pytest.mark.machine
@pytest.mark.long
def test_a_timetable_on_hosts_gives_tc_exactly_its_commands(bench: Bench, tmp_path: Path) -> None:
    with served_hosts(1, tmp_path) as served:
        prepared(bench, served, 7)
        fake_tc(served)
        code, out, err = bench.run(*MEASURE, "--plan")
        assert code == 0, err
        assert out.count("delayed, lost or slowed by tc (netem)") == 2
        assert "lead nowhere" not in out
        assert not any(is_shaped(served.hosts[name]) for name in ("n1", "c1"))
        code, _, err = bench.run(*MEASURE, "--yes", "--quick", "--repeat", "1")
        assert code == 0, err
        for name, other in (("n1", "c1"), ("c1", "n1")):
            host = served.hosts[name]
            device = host_links.device_to(host, served.hosts[other].address)
            assert host.files.read(PurePosixPath(LOG)).decode().splitlines() == commands(
                device, served.hosts[other].address
            )
            assert not is_shaped(host)
        served.nothing_is_left()
    (result,) = bench.whole_run().results()
    seen = result.recovery
    kinds = [one.kind for one in seen.steps]
    assert kinds == ["slow_link", "join", "lossy", "join"]


def commands(device: str, address: str) -> list[str]:
    """Return what a host is told for the timetable above."""
    root = f"qdisc add dev {device} root handle d15c: prio bands 16 priomap" + 16 * " 0"
    band = f"qdisc add dev {device} parent d15c:2 netem limit 100000"
    whole = f"{address}/32 flowid d15c:2"
    match = f"filter add dev {device} parent d15c: protocol ip pref 2 u32 match ip dst {whole}"
    gone = f"qdisc del dev {device} root handle d15c:"
    slow = [root, f"{band} delay 2500.000us", match, gone]
    return [*slow, root, f"{band} loss 5.0000%", match, gone]


@pytest.mark.machine
@pytest.mark.long
def test_a_killed_run_leaves_a_guard_and_clean_undoes_it(bench: Bench, tmp_path: Path) -> None:
    with served_hosts(1, tmp_path) as served:
        prepared(bench, served, 60)
        fake_tc(served)
        ends = [served.hosts[name] for name in ("n1", "c1")]
        with bench.start(*MEASURE, "--yes", "--quick", "--repeat", "1") as process:
            bench.wait_until(lambda: all(map(is_shaped, ends)) or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            process.kill()
            process.communicate(timeout=60)
        assert all(map(is_shaped, ends))
        # The guard of one host is ended as its keeper ends it when the lease is over.
        found = ends[1].run(Command(["sh", "-c", f"pgrep -f 'trap .tc qdisc del.*{HANDLE}'"]))
        guards = found.stdout.decode().split()
        assert guards, "it runs on"
        ends[1].run(Command(["kill", "-TERM", *guards]))
        wait_until(lambda: not is_shaped(ends[1]))
        assert is_shaped(ends[0])
        _, out, err = bench.run("clean")
        assert not any(map(is_shaped, ends)), out + err
        served.nothing_is_left()
    bench.nothing_is_left()
