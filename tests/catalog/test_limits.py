"""Every path from a VM to a disk has limits, well known or less so; Google's disks share theirs."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import pytest
from disklab.catalog import HostRequest, Resolution, VolumeRequest, load_catalog, resolve
from disklab.catalog.load import VmEntry
from disklab.catalog.profile import HostProfile, Limit
from disklab.catalog.provisioning import (
    Bought,
    cached_limits,
    disk_limits,
    nvme_limits,
    uncached_limits,
)
from disklab.catalog.resolve import joined, together
from disklab.errors import UserError

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


MIB = 1 << 20


def made(vm: str, *disks: str) -> list[Resolution]:
    requests = [VolumeRequest(text, name=f"v{number}") for number, text in enumerate(disks)]
    return [resolve(CATALOG, HostRequest(vm), request) for request in requests]


def rates(limits: list[Limit]) -> dict[str, int]:
    return {f"{limit.scope} {limit.unit}": limit.per_s for limit in limits}


def path(host: HostProfile, volume: int) -> int:
    """What a volume alone does a second, in I/Os."""
    own = host.volumes[volume].disks
    alike = [each for each in host.volumes if each.disks[0].name == own[0].name]
    alone = rates(own[0].limits)["all ios"] * len(own)
    return min(
        rates(host.uncached)["all ios"], alone if len(alike) == 1 else pool(host, volume)["all ios"]
    )


def pool(host: HostProfile, volume: int) -> dict[str, int]:
    """What all volumes of the name of one have together."""
    disks = [
        disk
        for each in host.volumes
        for disk in each.disks
        if disk.name == host.volumes[volume].disks[0].name
    ]
    return {
        f"{limit.scope} {limit.unit}": min(
            limit.most, limit.of_host + sum(disk.shared[number].part for disk in disks)
        )
        for number, limit in enumerate(disks[0].shared)
    }


@pytest.mark.parametrize("disk", ["gcp/pd-balanced", "gcp/pd-ssd"])
def test_the_baseline_of_a_vm_counts_once(disk: str) -> None:
    one = together(made("gcp/n2-standard-16", f"{disk}(150GiB)"))
    two = together(made("gcp/n2-standard-16", f"{disk}(100GiB)", f"{disk}(50GiB)"))
    (own,) = one.volumes[0].disks
    assert not own.shared, "alone it shares with nobody, and need not say so"
    assert pool(two, 0) == pool(two, 1) == rates(own.limits)
    # Alone each may use all of it, as a small disk for a log beside a large one does.
    assert path(two, 0) == path(two, 1) == path(one, 0)


def test_a_stripe_has_what_one_disk_of_its_size_has() -> None:
    one = together(made("gcp/n2-standard-16", "gcp/pd-ssd(400GiB)"))
    four = together(made("gcp/n2-standard-16", "4 x gcp/pd-ssd(100GiB)"))
    assert path(four, 0) == path(one, 0) == 18_000


def test_each_type_has_a_limit_and_a_cap_of_its_own() -> None:
    disks = ("gcp/pd-ssd(2000GiB)", "gcp/pd-balanced(5000GiB)")
    host = together(made("gcp/n2-standard-16", *disks))
    assert (path(host, 0), path(host, 1)) == (25_000, 20_000)
    assert rates(host.uncached) == {"all ios": 25_000, "all bytes": 1200 * MIB}


CAPS = [
    ("gcp/n2-standard-4", "gcp/pd-balanced", {"all ios": 15_000, "all bytes": 240 * MIB}),
    ("gcp/n2-standard-32", "gcp/pd-balanced", {"all ios": 50_000, "all bytes": 1200 * MIB}),
    ("gcp/n2-standard-32", "gcp/pd-ssd", {"all ios": 60_000, "all bytes": 1200 * MIB}),
    (
        "gcp/n1-standard-8",
        "gcp/pd-standard",
        {
            "read ios": 5000,
            "write ios": 15_000,
            "read bytes": 800 * MIB,
            "write bytes": 400 * MIB,
        },
    ),
    (
        "gcp/e2-medium",
        "gcp/pd-ssd",
        {"read ios": 12_000, "write ios": 10_000, "all bytes": 200 * MIB},
    ),
    (
        "gcp/c3-standard-22",
        "gcp/hyperdisk-balanced",
        {"all ios": 120_000, "all bytes": 1800 * MIB},
    ),
]


@pytest.mark.parametrize(("vm", "disk", "cap"), CAPS, ids=lambda each: str(each)[:30])
def test_a_vm_caps_disks_as_google_documents_it(vm: str, disk: str, cap: dict[str, int]) -> None:
    assert rates(together(made(vm, f"{disk}(1000GiB)")).uncached) == cap


def test_a_machine_is_refused_disks_that_it_does_not_take() -> None:
    with pytest.raises(UserError) as refused:
        made("gcp/c4-standard-8", "gcp/pd-ssd(100GiB)")
    (problem,) = refused.value.problems
    assert problem.rule.startswith("gcp/c4-standard-8 takes no gcp/pd-ssd (source ")
    assert problem.way_out.startswith("choose gcp/hyperdisk-balanced ")


def test_disks_of_other_vendors_have_their_limits_apart() -> None:
    host = together(made("azure/Standard_D8s_v5", "azure/P30", "azure/P10"))
    assert [rates(each.disks[0].limits)["all ios"] for each in host.volumes] == [5000, 500]


@pytest.mark.parametrize(
    ("disks", "reads", "writes"),
    [("gcp/local-ssd", 170_000, 90_000), ("8 x gcp/local-ssd", 680_000, 360_000)],
)
def test_local_disks_have_what_google_states_of_so_many(
    disks: str, reads: int, writes: int
) -> None:
    (volume,) = together(made("gcp/n2-standard-16", disks)).volumes
    own = rates(volume.disks[0].limits)
    assert own["read ios"] * len(volume.disks) == reads
    assert own["write ios"] * len(volume.disks) == writes


def test_a_host_that_runs_has_what_the_vm_has_and_its_disks_what_it_caps_of_them() -> None:
    (alone,) = made("gcp/n2-standard-16", "gcp/pd-balanced(5000GiB)")
    assert rates(alone.host.uncached)["all ios"] == 20_000
    runs = joined(alone, Fraction(1))
    # A pd-ssd that joins later is not held by what the VM allows a pd-balanced.
    assert rates(runs.host.uncached)["all ios"] == 25_000
    assert rates(runs.volume.disks[0].limits)["all ios"] == 20_000
    assert runs.host.volumes == [runs.volume]
    (other,) = made("azure/Standard_D8s_v5", "azure/P30")
    assert joined(other, Fraction(1)) == other


def test_what_is_shared_is_told_of_such_disks_alone() -> None:
    (shares,), (other,) = (
        made("gcp/n2-standard-16", "gcp/pd-ssd(10GiB)"),
        made("azure/Standard_D8s_v5", "azure/P30"),
    )
    told = joined(shares, Fraction(1)).volume.model_dump(mode="json")["disks"][0]["shared"]
    assert told[0] == {"scope": "all", "unit": "ios", "of_host": 6000, "part": 300, "most": 25_000}
    assert "shared" not in joined(other, Fraction(1)).volume.model_dump(mode="json")["disks"][0]
