"""Every path from a VM to a disk has a limit of I/Os and of bytes, known well or less well."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import pytest
from disklab.catalog import load_catalog
from disklab.catalog.load import VmEntry
from disklab.catalog.profile import Limit
from disklab.catalog.provisioning import (
    Bought,
    cached_limits,
    disk_limits,
    nvme_limits,
    uncached_limits,
)

CATALOG = load_catalog([])
WHOLE = {(scope, unit) for scope in ("read", "write") for unit in ("ios", "bytes")}
UNLIMITED = "no VM limit applies to standard disks on sizes without premium storage"
"""What a series says whose VMs have no limit, by a source."""
VENDORS = sorted({vm.vendor for vm in CATALOG.vms.values()})


def limited(limits: Iterable[Limit]) -> set[tuple[str, str]]:
    """What is limited: reads and writes, I/Os and bytes."""
    found: set[tuple[str, str]] = set()
    for limit in limits:
        scopes = ("read", "write") if limit.scope == "all" else (limit.scope,)
        found |= {(scope, limit.unit) for scope in scopes}
    return found


@pytest.mark.parametrize("vm", CATALOG.vms.values(), ids=lambda vm: vm.name)
def test_what_a_vm_brings_along_is_limited(vm: VmEntry) -> None:
    if vm.facts.nvme is not None:
        assert "nvme" in vm.series.latency, "its disks cannot be named"
        assert limited(nvme_limits(vm)) == WHOLE
    if vm.facts.temp_gib or vm.series.host_cache != "none" or vm.series.ephemeral_os:
        assert limited(cached_limits(vm, Fraction(1))) == WHOLE


@pytest.mark.parametrize("vendor", VENDORS)
def test_each_attached_disk_is_limited_behind_each_vm(vendor: str) -> None:
    disks = {}
    for disk in CATALOG.disks.values():
        if disk.vendor == vendor:
            size = Fraction(disk.facts.size_gib.most)
            iops, mb = (
                int(rate.included.at(size, 3000)) if rate else None
                for rate in (disk.facts.iops, disk.facts.mb_per_s)
            )
            bought = Bought(size, iops, mb, on_demand=False)
            disks[disk.name] = limited(disk_limits(disk, bought, Fraction(1)))
    assert disks
    for vm in (vm for vm in CATALOG.vms.values() if vm.vendor == vendor):
        behind = limited(uncached_limits(vm, Fraction(1)))
        assert behind == WHOLE or any(UNLIMITED in note for note in vm.series.notes), vm.name
        for name, own in disks.items():
            assert own | behind == WHOLE, (vm.name, name)
            assert own == WHOLE, name


def test_what_no_vendor_publishes_is_marked_with_a_band() -> None:
    m6id, i3 = CATALOG.vms["aws/m6id.large"], CATALOG.vms["aws/i3.4xlarge"]
    band = m6id.inferred["nvme.total_write_mb_per_s"]
    assert band.status == "inferred"
    assert band.within > i3.inferred["nvme.total_write_mb_per_s"].within
    # 33,542 I/Os a second: between what goes with one on m5d and on i7i.
    assert 4863 * 33_542 < m6id.facts.nvme.total_read_mb_per_s * 1_000_000 < 7855 * 33_542
    # Two disks of 1900 GB, of which one was measured.
    assert i3.facts.nvme.total_write_mb_per_s == round(2 * 808.775652)
