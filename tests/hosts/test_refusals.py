"""Mistakes word for word, beside this file; `disklab doctor`; which addresses are taken."""

from __future__ import annotations

import os
import re
import shlex
import socket
from pathlib import Path

import pytest
from disklab.catalog import HostRequest, VolumeRequest, load_catalog, resolve
from disklab.engine import Envelope
from disklab.hosts.addresses import free_addresses
from disklab.hosts.doctor import shortfalls

from .conftest import Lab

MESSAGES = Path(__file__).with_name("messages.txt")
DS14 = "azure/Standard_DS14_v2"

NOTHING_ATTACHED = """
disk attach azure/P31
disk attach P30
disk attach azure/P30 --vm azure/DS14
disk attach azure/P50 --vm azure/Standard_DS14_v2 --caching ReadOnly
disk attach 'azure/Ultra(64GiB, 5000 IOPS, 200 MB/s)' --vm azure/Standard_DS14_v2 --caching ReadOnly
disk attach azure/P30 --vm azure/Standard_L8s_v2 --caching ReadOnly
disk attach azure/P30 --vm azure/Standard_D8s_v5 --caching ReadOnly
disk attach azure/P30 --caching ReadOnly
disk attach 'azure/PremiumV2(10GiB, 80000 IOPS)'
disk attach '5 x azure/P4' --vm azure/Standard_DS1_v2
disk attach local
disk attach nvme --vm azure/Standard_DS14_v2
disk attach azure/P30 --vm azure/Standard_D14_v2
disk attach '80 x azure/P50' --vm azure/Standard_D14_v2 --caching ReadOnly --stripe 5000
disk attach azure/P30 --name ../etc
disk attach azure/P30 --host 'a b'
disk attach azure/P30 --size many
disk attach azure/P30 --scale 1/0
disk attach azure/P30 --scale 2
disk attach azure/P30 --mount /proc
disk attach azure/P30 --mount /usr
disk attach azure/P30 --mount /no/such/dir
disk attach azure/P30 --size 64MiB --filesystem xfs
disk attach azure/P30 --reformat
disk attach azure/P80 --preallocate
disk attach azure/P80 --memory
disk attach azure/P30 --read-ahead 8B
disk show nothing
disk detach /dev/null
disk detach /dev/nosuch
"""

ATTACHED = """
disk attach azure/P30 --size 64MiB
disk attach azure/P30 --size 64MiB --name more --vm azure/Standard_L8s_v2
disk attach azure/P30 --size 64MiB --name more --scale 1/2
disk detach dta
disk set data
disk set data --iops 0
disk set data --throughput 200
disk set data --latency fast
disk set data --latency premium-ssd-2002
disk set data --credits 150%
disk set data --credits full
disk set data --caching ReadOnly
disk set data --read-ahead 8B
disk fail data explode
disk fail data stal
disk fail data error-rate
disk fail data error-rate 101%
disk fail data slow very
disk fail data stall soon
disk fail data recover now
disk fail data stall --disk 0
disk fail data slow 2x --disk 7
"""


@pytest.mark.machine
def test_the_messages(lab: Lab) -> None:
    told = [refusal(lab, command) for command in NOTHING_ATTACHED.strip().splitlines()]
    lab.attach("azure/P50", "--size", "64MiB", "--vm", DS14)
    told += [refusal(lab, command) for command in ATTACHED.strip().splitlines()]
    text = "\n".join(told)
    if os.environ.get("DISKLAB_UPDATE_SNAPSHOTS"):
        MESSAGES.write_text(text)
    assert text == MESSAGES.read_text()


def refusal(lab: Lab, command: str) -> str:
    """Return a command and its message, without what differs from machine to machine."""
    message = lab.refused(*shlex.split(command)).replace(str(lab.root), "LAB")
    message = re.sub(r"has \d+[KMGT]?i?B free", "has N free", message)
    message = re.sub(r"(/\S+) has N free", "FOLDER has N free", message)
    message = re.sub(r"has \d+ bytes of memory available", "has N of memory available", message)
    return f"$ disklab {command}\n{message}"


@pytest.mark.machine
def test_no_message_lacks_a_part() -> None:
    for line in MESSAGES.read_text().splitlines():
        if line.startswith("error: "):
            place, value, rest = line.removeprefix("error: ").split(": ", 2)
            rule, _, way_out = rest.rpartition("; ")
            assert all([place, value, rule, way_out]), line


CATALOG = load_catalog([])


def short(disks: str, envelope: Envelope, vm: str | None = None, **volume: str) -> list[str]:
    request = VolumeRequest(disks, **volume)  # type: ignore[arg-type]
    found = resolve(CATALOG, HostRequest(vm=vm), request)
    return [one.limit for one in shortfalls(found.host, found.volume, envelope)]


def test_what_stands_in_the_way() -> None:
    usual = Envelope(p50_ns=80_000, p99_ns=200_000, iops=150_000, bytes_per_s=3_000_000_000)
    assert short("azure/P30", usual) == []
    assert short("azure/P30(on-demand-burst)", usual) == []
    nvme = short("nvme", usual, "azure/Standard_L8s_v2")
    assert nvme == ["IOPS", "latency"]
    slow = usual.model_copy(update={"iops": 4999, "bytes_per_s": 199_999_999})
    assert short("azure/P30", slow) == ["IOPS", "MB/s"]
    # Two disks ask for twice as much, and a VM may allow less.
    assert short("2 x azure/P30", usual.model_copy(update={"iops": 9999})) == ["IOPS"]
    small_vm = "azure/Standard_DS1_v2"
    assert short("4 x azure/P30", usual.model_copy(update={"iops": 3200}), small_vm) == []
    # Hits in the host cache are faster than the disk.
    lame = usual.model_copy(update={"p50_ns": 200_000})
    assert short("azure/P30", lame, "azure/Standard_DS14_v2") == []
    assert short("azure/P30", lame, "azure/Standard_DS14_v2", caching="ReadOnly") == ["latency"]


@pytest.mark.machine
def test_this_machine(lab: Lab) -> None:
    seen = lab.json("doctor")
    assert seen["able"]
    assert seen["envelope"]["iops"] > 0
    stored = lab.run_dir / "envelope.json"
    false = stored.read_text().replace(f'"iops":{seen["envelope"]["iops"]}', '"iops":1')
    stored.write_text(false)
    assert lab.json("doctor")["envelope"]["iops"] > 1, "an old figure is not believed"
    fits = {(fit["disk"], fit["vm"]): fit["shortfalls"] for fit in seen["disks"]}
    assert fits["azure/S4", None] == []
    assert {"azure/P30", "azure/PremiumV2(256GiB)", "gcp/local-ssd"} <= {disk for disk, _ in fits}
    assert any(disk == "nvme" for disk, _ in fits)
    assert lab.processes() == []


@pytest.mark.machine
def test_looking_only(lab: Lab) -> None:
    state = lab.state()
    seen = lab.json("doctor", "--no-measure")
    assert seen["envelope"] is None
    names = {check["name"] for check in seen["checks"]}
    assert {"kernel", "root", "FUSE", "loop devices", "engine", "fio", "memory groups"} <= names
    assert all(check["way_out"] for check in seen["checks"] if not check["ok"])
    assert lab.state() == state


PORT = 5432


def test_processes_that_start_together_search_different_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = set()
    for number in range(1000, 1000 + 16_384):
        monkeypatch.setattr(os, "getpid", lambda number=number: number)
        (address,) = free_addresses(1, ())
        found.add(address)
    assert len(found) == 16_384


def test_an_address_whose_port_is_taken_is_left_out() -> None:
    (first,) = free_addresses(1, (PORT,))
    with socket.create_server((first, PORT)):
        second = free_addresses(2, (PORT,))
    assert first not in second
    assert len(set(second)) == 2
