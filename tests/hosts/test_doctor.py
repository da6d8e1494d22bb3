"""`disklab doctor`: checks, the measured envelope, and which disks fit it."""

from __future__ import annotations

import pytest
from disklab.catalog import HostRequest, VolumeRequest, load_catalog, resolve
from disklab.engine import Envelope
from disklab.hosts.doctor import shortfalls

from .conftest import Lab

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
