"""The hosts file: every problem at once, each with its line; the probe of all its hosts."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.measurement import preparation
from disklab.measurement.hosts_file import Hosts, parse
from disklab.measurement.probing import outliers
from disklab.probe.cells import KIB, PERCENTILES, Cell, Direction, Profile
from disklab.probe.fio import Latency, Measurement, Side
from disklab.probe.run import CellResult
from disklab.results import Run

from .bench import EXPERIMENT, Bench


def read(text: str) -> Hosts:
    return parse(dedent(text), "hosts.yaml")


def refused(text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_hosts_with_everything() -> None:
    hosts = read(
        """
        hosts:
          n1:
            address: ubuntu@10.0.0.4
            private_address: 10.1.0.4
            zone: 1
            volumes:
              data: /mnt/data
              commitlog: {disk: {lun: 0, size: 1TiB, kind: scsi}, format: true}
            may_change: [read_ahead, governor]
          here: {local: true, role: client}
        groups:
          disk: {azure/P30: [n1], azure/P40: [n1/commitlog]}
        """
    ).file
    assert hosts.hosts["n1"].volumes["data"].directory == "/mnt/data"
    disk = hosts.hosts["n1"].volumes["commitlog"].disk
    assert (disk.size_bytes, disk.lun) == (1 << 40, 0)
    assert hosts.hosts["n1"].zone == "1"


def test_every_problem_is_told_with_its_line() -> None:
    told = refused(
        """
        hosts:
          n1:
            adress: 10.0.0.4
            volumes: {data: data}
          n2:
            address: -oProxyCommand=reboot
            volumes: {data: {disk: {size: 1TiB, kind: floppy}, format: true}}
          n3: {address: n3, volumes: {data: /mnt/../etc}, may_change: [hostname]}
        """
    )
    assert "hosts.yaml:4: hosts.n1.adress: adress: there is no such key; did you mean address?" in (
        told
    )
    for beginning in (
        "hosts.yaml:5: hosts.n1.volumes.data.directory: ",
        "hosts.yaml:7: hosts.n2.address: -oProxyCommand=reboot: a destination is what ssh takes",
        "hosts.yaml:8: hosts.n2.volumes.data.disk.kind: floppy: is not one of scsi, nvme",
        "hosts.yaml:9: hosts.n3.volumes.data.directory: /mnt/../etc: a path here is absolute",
        "hosts.yaml:9: hosts.n3.may_change.0: hostname: is not one of read_ahead, governor",
    ):
        assert any(one.startswith(beginning) for one in told), (beginning, told)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hosts: {n1: {volumes: {data: /mnt}}}", "either reached at an address, or local: true"),
        ("hosts: {n1: {address: a}}", "a node has volumes"),
        (
            "hosts: {n1: {local: true, role: client}, n2: {local: true, role: client}}",
            "where n1 is",
        ),
        ("hosts: {'../n': {local: true, volumes: {data: /a}}}", "a name has 1 to 64 letters"),
        (
            "hosts: {n1: {local: true, volumes: {data: /a}}}\ngroups: {disk: {P30: [n2]}}",
            "groups.disk.P30.0: 'n2': is none of the hosts",
        ),
        (
            "hosts: {n1: {local: true, volumes: {data: {directory: /a, format: true}}}}",
            "only named disks are formatted",
        ),
        (
            "hosts: {n1: {local: true, volumes: {data: {disk: {by_id: a, lun: 1, size: 1GiB, "
            "kind: scsi}, format: true}}}}",
            "named by either by_id or lun",
        ),
    ],
)
def test_what_cannot_be(text: str, says: str) -> None:
    assert any(says in one for one in refused(text)), refused(text)


def test_a_run_has_its_hosts_before_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []

    def info_text(run: Run) -> str:
        there.append((run.folder / preparation.HOSTS).exists())
        return "{}"

    monkeypatch.setattr(Run, "_info_text", info_text)
    hosts = parse("hosts: {n1: {address: n1, volumes: {data: /mnt/data}}}", "h.yaml")
    wanted = preparation.wanted(spec.parse(EXPERIMENT), hosts, preparation.Options())
    preparation.create(wanted, [], tmp_path)
    assert there == [True], "one that is killed in between can be resumed"


@pytest.mark.parametrize(
    "address",
    [
        'address: "ubuntu@10.0.0.4:2222"',
        'address: "ssh://ubuntu@10.0.0.4:2222"',
        "address: ubuntu@10.0.0.4, port: 2222",
    ],
)
def test_a_port_points_at_the_configuration_of_ssh(address: str) -> None:
    text = f"hosts:\n  n1: {{{address}, volumes: {{data: /mnt}}}}\n"
    with pytest.raises(UserError) as caught:
        parse(text, Path("hosts.yaml"))
    told = str(caught.value)
    assert "Host NAME; HostName 10.0.0.4; User ubuntu; Port 2222" in told
    assert "`ssh_config:`" in told


CELL = Cell(Profile.ASYNC, Direction.RANDREAD, 4 * KIB)


def result(spot: str, iops: float) -> CellResult:
    latency = Latency(1e6, 1, 2_000_000, dict.fromkeys(PERCENTILES, 1_000_000))
    sides = {"read": Side(round(iops), round(iops) * 4096, latency)}
    return CellResult(spot, "", Measurement(CELL, sides, latency, 1.0, "", ()))


def test_the_host_with_a_seventh_is_named() -> None:
    spots = [result(f"n{number}/data", 5000 + number) for number in range(5)]
    (one,) = outliers([*spots, result("bad/data", 714.0)])
    assert str(one) == (
        "bad/data: async randread 4k: 714 IOPS, 7.0 times fewer than usual here (5,002)"
    )
    assert outliers([result("a/data", 5000), result("b/data", 700)]) == []
    assert outliers([result(f"n{n}/data", 5000 + 100 * n) for n in range(4)]) == []


def test_all_volumes_are_probed_and_left_as_they_were(bench: Bench) -> None:
    second = bench.folder / "second"
    second.mkdir()
    bench.write(
        "h.yaml",
        f"hosts: {{here: {{local: true, volumes: {{data: {bench.data}, more: {second}}}}}}}",
    )
    words = ["probe", "--hosts", "h.yaml", "--profile", "sync", "--rw", "randread", "--bs", "4k"]
    words += ["--duration", "1s", "--size", "16M"]
    code, _, err = bench.run(*words)
    assert code == 2
    assert "give --yes" in err
    code, out, err = bench.run(*words, "--yes", "--json")
    assert code == 0, err
    told = [json.loads(line) for line in out.splitlines()]
    assert [one["factors"]["subject"] for one in told] == ["here/data", "here/more"]
    bench.nothing_is_left()
    assert list(second.iterdir()) == []
    probes = bench.folder / "state/disklab/probes"
    assert list(probes.iterdir()) == []
