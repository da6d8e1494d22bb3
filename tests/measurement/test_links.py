"""Which routes a timetable's cuts ask of which hosts, and where no link is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.hosts.delays import Between
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command, Finished
from disklab.measurement import host_links, hosts_file, preparation
from disklab.measurement.host_links import HostLinks
from disklab.measurement.journal import Journal, undo_all


class Host(LocalMachine):
    """A host that keeps routes of its own, as ip(8) would; nothing else of it is asked."""

    def __init__(self, name: str, address: str, ssh_from: str = "10.9.9.9") -> None:
        super().__init__(name, address)
        self.routes: list[str] = []
        self.ssh_from = ssh_from

    def run(self, command: Command, seconds: float = 60.0) -> Finished:
        words = list(command.words)
        said, code = "", 0
        match words:
            case ["ip", "route", "add", "blackhole", address, "proto", "219"]:
                self.routes.append(address)
            case ["ip", "route", "show", "type", "blackhole", "proto", "219", address]:
                said = "".join(f"blackhole {one}\n" for one in self.routes if one == address)
            case ["ip", "route", "del", "blackhole", address, "proto", "219"]:
                self.routes.remove(address)
            case ["printenv", "SSH_CONNECTION"]:
                said = f"{self.ssh_from} 5000 {self.address} 22\n"
            case ["sh", "-c", _]:
                pass
            case _:
                pytest.fail(f"{words} is not asked for links")
        return Finished(code, said.encode(), b"")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Host]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return {
        name: Host(name, f"10.0.0.{number}")
        for number, name in enumerate(("n1", "n2", "n3", "c1"), 1)
    }


def links_of(hosts: dict[str, Host], folder: Path) -> tuple[HostLinks, Journal]:
    journal = Journal(folder)
    ends = {name: [hosts[name]] for name in ("n1", "n2", "n3")}
    return HostLinks({**ends, "client": [hosts["c1"]]}, journal), journal


def routes(hosts: dict[str, Host]) -> dict[str, list[str]]:
    return {name: sorted(one.routes) for name, one in hosts.items() if one.routes}


def test_a_whole_link_and_a_way_are_cut_at_both_ends_and_joined_apart(
    hosts: dict[str, Host], tmp_path: Path
) -> None:
    links, journal = links_of(hosts, tmp_path)
    links.change_link("n2", cut=True)
    alone = {
        "n1": ["10.0.0.2"],
        "n2": ["10.0.0.1", "10.0.0.3", "10.0.0.4"],
        "n3": ["10.0.0.2"],
        "c1": ["10.0.0.2"],
    }
    assert routes(hosts) == alone
    assert links.link("n2").cut
    links.change_way("n1", "n2", Between(cut=True))
    assert routes(hosts) == alone
    links.restore_link("n2")
    # The way that was cut by itself stays so.
    assert routes(hosts) == {"n1": ["10.0.0.2"], "n2": ["10.0.0.1"]}
    links.change_way("n1", "n2", Between())
    assert routes(hosts) == {}
    assert journal.left() == []


def test_what_a_killed_run_has_cut_is_joined_from_its_journal(
    hosts: dict[str, Host], tmp_path: Path
) -> None:
    links, _ = links_of(hosts, tmp_path)
    links.change_way("n3", "client", Between(cut=True))
    hosts["c1"].routes.append("10.8.8.8")
    # Somebody restarted one of them meanwhile.
    hosts["n3"].routes.clear()
    assert undo_all(Journal.of(tmp_path), dict(hosts)) == []
    assert routes(hosts) == {"c1": ["10.8.8.8"]}, "a route of somebody else stays"


def test_no_host_is_cut_off_from_us(hosts: dict[str, Host]) -> None:
    class Far:
        """As a host over SSH: not this machine."""

        name, address, run, is_here = "n1", "10.0.0.1", hosts["n1"].run, False

    others = {"n2": "10.0.0.2", "box": "box.example"}
    (named,) = host_links.missing("h:1", Far(), others)  # type: ignore[arg-type]
    assert "to change the connection to box its IP address is needed" in named.rule
    hosts["n1"].ssh_from = "10.0.0.2"
    (ours,) = host_links.missing("h:1", Far(), {"n2": "10.0.0.2"})  # type: ignore[arg-type]
    assert "our SSH comes from n2" in ours.rule
    (here,) = host_links.missing("h:1", hosts["n1"], others)
    assert "the links of its own machine" in here.rule


EXPERIMENT = """
title: What does a dead link cost?
cluster:
  nodes: 1
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P30}}
  network: azure/standard
database: {engine: postgresql}
dataset: {rows: 2k, row: 5 x 100B}
workload: {operations: {read: 100%}, load: {threads: 4}, stop: {duration: 9s}}
events: [{at: 4s, FIRST}, {at: 6s, THEN}]
"""


@pytest.mark.parametrize(
    ("more", "first", "then", "told"),
    [
        ("", "cut: n1", "join: n1", "write may_change: .links. at n1"),
        (", may_change: [links]", "cut: n1", "join: n1", "add a host of role client"),
        (", may_change: [links]", "slow: n1", "mend: n1", "the underlying disk is yours"),
        (", may_change: [links]", "lose: n1", "start: n1", "does not lose, move or add a machine"),
        (
            ", may_change: [links]",
            "slow_link: n1, round_trip: 5ms",
            "join: n1",
            "write may_change: .network. at n1",
        ),
        (
            ", may_change: [network]",
            "slow_link: n1, bandwidth: 1MB/s",
            "join: n1",
            "on hosts a bandwidth applies to the connection between two",
        ),
        (
            ", may_change: [network]",
            "lossy: n1, loss: 5%",
            "join: n1",
            "add a host of role client",
        ),
    ],
)
def test_other_breaks_are_refused_with_their_reason(
    more: str, first: str, then: str, told: str
) -> None:
    text = f"hosts: {{n1: {{address: n1, volumes: {{data: /mnt/data}}{more}}}}}"
    what = spec.parse(EXPERIMENT.replace("FIRST", first).replace("THEN", then))
    with pytest.raises(UserError, match=told):
        preparation.wanted(what, hosts_file.parse(text, "h.yaml"), preparation.Options())
