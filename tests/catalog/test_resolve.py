"""Every disk on every VM: a profile that holds together, or a refusal with its four parts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from disklab.catalog import (
    AttachedDisks,
    Catalog,
    HostRequest,
    Resolution,
    VolumeRequest,
    load_catalog,
    resolve,
)
from disklab.catalog.profile import Limit
from disklab.errors import UserError
from hypothesis import given, settings
from hypothesis import strategies as st

CATALOG = load_catalog([])
GIB = 1 << 30
DS14 = "azure/Standard_DS14_v2"


def resolved(disks: str, vm: str | None = None, **volume: Any) -> Resolution:
    return resolve(CATALOG, HostRequest(vm=vm), VolumeRequest(disks, **volume))


def refused(disks: str, vm: str | None = None, **volume: Any) -> list[str]:
    with pytest.raises(UserError) as caught:
        resolved(disks, vm, **volume)
    check_parts(caught.value)
    return [str(problem) for problem in caught.value.problems]


def check_parts(error: UserError) -> None:
    assert error.problems
    assert all(p.place and p.value and p.rule and p.way_out for p in error.problems)


def rates(limits: list[Limit]) -> list[tuple[str, str, int]]:
    return [(limit.scope, limit.unit, limit.per_s) for limit in limits]


def sized(name: str) -> str:
    """Return an expression that asks for a usual size where one must be chosen."""
    disk = CATALOG.disks.get(name)
    if name in CATALOG.families or (disk and not disk.facts.size_gib.fixed):
        return f"{name}({max(128, disk.facts.size_gib.least if disk else 0)}GiB)"
    return name


@given(
    name=st.sampled_from(CATALOG.disk_names()),
    vm=st.none() | st.sampled_from(sorted(CATALOG.vms)),
    caching=st.sampled_from(["None", "ReadOnly", "ReadWrite"]),
    count=st.integers(1, 80),
    chunk=st.none() | st.sampled_from([4096, 65536, 12345, 1 << 20]),
    size=st.none() | st.integers(0, 1 << 45),
    cache=st.none() | st.just(GIB),
    scale=st.sampled_from([Fraction(1), Fraction(1, 100), Fraction(0), Fraction(3)]),
)
@settings(max_examples=400, deadline=None)
def test_a_profile_or_a_refusal(  # noqa: PLR0913, PLR0917 - one argument for each thing that varies
    name: str,
    vm: str | None,
    caching: Any,
    count: int,
    chunk: int | None,
    size: int | None,
    cache: int | None,
    scale: Fraction,
) -> None:
    disks = sized(name) if count == 1 else f"{count} x {sized(name)}"
    volume = VolumeRequest(disks, caching=caching, chunk_bytes=chunk, size_bytes=size)
    host = HostRequest(vm=vm, host_cache_bytes=cache, scale=scale)
    try:
        resolution = resolve(CATALOG, host, volume)
    except UserError as error:
        check_parts(error)
        return
    profile = resolution.volume
    assert profile.size_bytes > 0
    assert profile.size_bytes % 4096 == 0
    assert len(profile.disks) == count
    assert (profile.chunk_bytes is None) == (count == 1)
    if caching != "None":
        assert resolution.host.cache is not None
        assert {disk.medium for disk in profile.disks} == {"remote"}
    if size is not None:
        assert profile.size_bytes <= size


def test_every_disk_resolves_somewhere() -> None:
    for name in CATALOG.disk_names():
        vms: list[str | None] = [None, *CATALOG.vms]
        assert any(_works(name, vm) for vm in vms), name


def _works(name: str, vm: str | None) -> bool:
    try:
        resolved(sized(name), vm)
    except UserError:
        return False
    return True


def test_every_vm_takes_a_disk() -> None:
    disks = {"azure": "azure/E10", "aws": "aws/gp3(100GiB)", "gcp": "gcp/pd-ssd(100GiB)"}
    for name, vm in CATALOG.vms.items():
        disk = disks[vm.vendor]
        if vm.series.caps.get(disk.partition("(")[0], {}) is None:
            disk = "gcp/hyperdisk-balanced(100GiB)"
        assert resolved(disk, name).host.name == name


def test_a_google_machine_limits_its_disks_by_its_vcpus() -> None:
    small, large = (resolved("gcp/pd-ssd(10TiB)", f"gcp/n2-standard-{n}").host for n in (8, 32))
    assert rates(small.uncached) == [("all", "ios", 15_000), ("all", "bytes", 800 << 20)]
    assert rates(large.uncached) == [("all", "ios", 60_000), ("all", "bytes", 1200 << 20)]


def test_p30_on_ds14_v2() -> None:
    host = resolved("4 x azure/P30", DS14, caching="ReadOnly").host
    assert rates(host.cached) == [("all", "ios", 64_000), ("all", "bytes", 512 * 1_024_000)]
    assert rates(host.uncached) == [("all", "ios", 51_200), ("all", "bytes", 768_000_000)]
    assert [limit.window_ns for limit in host.cached] == [0, 50_000_000]
    assert host.cache.capacity_bytes == 576 * GIB
    volume = host.volumes[0]
    assert (volume.chunk_bytes, volume.size_bytes) == (65536, 4096 * GIB)
    assert rates(volume.disks[0].limits) == [("all", "ios", 5000), ("all", "bytes", 200_000_000)]
    assert volume.disks[0].limits[0].io_unit_bytes == 262_144


def test_credits_last_thirty_minutes_at_the_top() -> None:
    ios, data = resolved("azure/P20").volume.disks[0].limits
    assert (ios.burst.per_s, ios.burst.credits) == (3500, (3500 - 2300) * 1800)
    assert (data.burst.per_s, data.burst.credits) == (170_000_000, 20_000_000 * 1800)
    vm = resolved("azure/P20", "azure/Standard_D8s_v3").host.uncached[0]
    assert (vm.burst.per_s, vm.burst.credits) == (16_000, (16_000 - 12_800) * 1800)


def test_gp2_has_a_credit_rule_of_its_own() -> None:
    small = resolved("aws/gp2(100GiB)").volume.disks[0].limits
    assert small[0].per_s == 300
    assert (small[0].burst.per_s, small[0].burst.credits) == (3000, 5_400_000)
    assert small[1].burst is None
    large = resolved("aws/gp2(1000GiB)").volume.disks[0].limits
    assert (large[0].per_s, large[0].burst) == (3000, None)
    assert large[1].per_s == 250 << 20


def test_scale_shrinks_credits_and_cache_and_keeps_rates() -> None:
    full = resolve(CATALOG, HostRequest(vm=DS14), VolumeRequest("azure/P20", caching="ReadOnly"))
    request = HostRequest(vm=DS14, scale=Fraction(1, 100))
    small = resolve(CATALOG, request, VolumeRequest("azure/P20", caching="ReadOnly"))
    assert small.host.cache.capacity_bytes == full.host.cache.capacity_bytes // 100 // 65536 * 65536
    for before, after in zip(
        full.volume.disks[0].limits, small.volume.disks[0].limits, strict=True
    ):
        assert after.per_s == before.per_s
        assert after.burst.credits == (before.burst.credits or 0) // 100


def test_a_family_with_a_size_is_the_next_tier_up() -> None:
    volume = resolved("azure/PremiumSSD(200GiB)").volume
    assert (volume.disks[0].name, volume.size_bytes) == ("azure/P15", 200 * GIB)
    assert resolved("azure/PremiumSSD", size_bytes=200 * GIB).volume == volume
    assert resolved("azure/StandardHDD(33GiB)").volume.disks[0].name == "azure/S6"


def test_size_cuts_the_device_and_nothing_else() -> None:
    whole, cut = resolved("azure/P30").volume, resolved("azure/P30", size_bytes=64 * GIB).volume
    assert cut.size_bytes == 64 * GIB
    assert cut.disks == whole.disks


def test_local_disks_are_those_of_the_vm() -> None:
    temp = resolved("local", "azure/Standard_E8ds_v4")
    assert temp.volume.size_bytes == 300 * GIB
    assert temp.volume.disks[0].medium == "temp"
    assert temp.volume.disks[0].limits == []
    nvme = resolved("nvme", "azure/Standard_L8s_v2").volume
    assert nvme.size_bytes == 1_920_000_000_000
    assert ("read", "ios", 400_000) in rates(nvme.disks[0].limits)
    assert ("write", "ios", 261_000) in rates(nvme.disks[0].limits)
    assert resolved("2 x nvme", "azure/Standard_L16s_v2").volume.size_bytes == 3_840_000_000_000
    assert resolved("ephemeral-os(100GiB)", DS14).volume.size_bytes == 100 * GIB


def test_which_of_a_vms_own_disks_is_meant_is_said() -> None:
    """A VM with a temp disk and NVMe disks has two kinds of `local` disks in its owner's mind."""
    both = "azure/Standard_L8s_v2"
    (told,) = [text for text in resolved("local", both).warnings if "NVMe" in text]
    assert told == f"`local` is the temp disk of {both} (80 GiB); its NVMe disks are `nvme`"
    assert not any("`nvme`" in text for text in resolved("nvme", both).warnings)
    with pytest.raises(UserError, match="is a temp disk: write `local`"):
        resolved("nvme", "azure/Standard_E8ds_v4")
    with pytest.raises(UserError, match="its own disks are NVMe: write `nvme`"):
        resolved("local", "aws/i4i.large")


@pytest.mark.parametrize("size", ["D8as_v4", "E8as_v4"])
def test_the_cached_path_of_amd_bursts_too(size: str) -> None:
    """Azure's pages of Dasv4 and Easv4: 128 MB/s cached and 400 for half an hour."""
    host = resolved("azure/P30", f"azure/Standard_{size}", caching="ReadOnly").host
    (limit,) = [limit for limit in host.cached if limit.unit == "bytes"]
    assert (limit.per_s, limit.burst.per_s) == (128 * 1024_000, 400 * 1024_000)


def test_non_premium_sizes_have_no_limit_on_attached_disks() -> None:
    host = resolved("azure/E10", "azure/Standard_D4_v2").host
    assert (host.uncached, host.cache) == ([], None)
    assert rates(host.cached) == [
        ("all", "ios", 24_000),
        ("read", "bytes", 375_000_000),
        ("write", "bytes", 187_000_000),
    ]


def test_a_dated_latency_profile_can_be_chosen() -> None:
    usual, older = resolved("azure/P30"), resolved("azure/P30", latency="2020")
    assert usual.volume.disks[0].latency != older.volume.disks[0].latency
    assert "2020, 2022" in refused("azure/P30", latency="1999")[0]


def test_assumptions_are_told() -> None:
    assert "premium-v2-2022" in resolved("azure/PremiumV2(8GiB)").warnings[0]
    assert resolved("azure/P30", latency="2020").warnings == ()
    (warning,) = resolved("azure/P30").warnings
    assert "premium-ssd-2022 rest on little evidence: reads: 2 measurements of 2 sour" in warning
    d8s_v5 = HostRequest(vm="azure/Standard_D8s_v5", host_cache_bytes=GIB)
    told = resolve(CATALOG, d8s_v5, VolumeRequest("azure/P30", caching="ReadOnly")).warnings
    assert any("as you stated" in warning for warning in told)
    assert any("inferred" in warning for warning in told)


@pytest.mark.parametrize("rate", [125, 1000])
def test_a_rate_at_either_end_may_be_asked_for(rate: int) -> None:
    disk = f"azure/PremiumV2(250GiB, 4000 IOPS, {rate} MB/s)"
    limits = rates(resolved(disk).host.volumes[0].disks[0].limits)
    assert ("all", "bytes", rate * 1_000_000) in limits


REFUSALS = [
    ("P30", None, {}, "did you mean azure/P30?"),
    ("azure/P31", None, {}, "did you mean"),
    ("azure/P30", "azure/DS14_v2", {}, "did you mean azure/Standard_DS14_v2?"),
    ("azure/PremiumV2(10GiB, 80000 IOPS)", None, {}, "min(80000, max(3000, 500 x GiB))"),
    ("azure/PremiumV2(10GiB, 80000 IOPS)", None, {}, "or for at least 160 GiB"),
    ("azure/PremiumV2(250GiB, 3000 IOPS, 1000 MB/s)", None, {}, "for at least 4000 IOPS"),
    ("azure/PremiumV2", None, {}, "azure/PremiumV2(250GiB)"),
    ("azure/Ultra(4GiB, 5000 IOPS)", None, {}, "100 to 4000 IOPS at 4 GiB"),
    ("azure/P30(2048GiB)", None, {}, "choose azure/P40"),
    ("azure/P30(9000 IOPS)", None, {}, "5000 IOPS, which follow from its size"),
    ("azure/P4(on-demand-burst)", None, {}, "no on-demand bursting"),
    ("azure/P30(512GiB, performance-plus)", None, {}, "513 GiB or more"),
    ("azure/P50", DS14, {"caching": "ReadOnly"}, "ends at 4095 GiB"),
    ("azure/Ultra(8GiB)", DS14, {"caching": "ReadOnly"}, "Azure Ultra Disk has no host caching"),
    ("azure/P30", None, {"caching": "ReadOnly"}, "no VM is given"),
    ("azure/P30", "azure/Standard_L8s_v2", {"caching": "ReadOnly"}, "has no host cache"),
    ("azure/P30", "azure/Standard_D8s_v5", {"caching": "ReadWrite"}, "is not published"),
    ("local", DS14, {"caching": "ReadOnly"}, "is on the host itself"),
    ("local", None, {}, "no VM is given"),
    ("local", "azure/Standard_E8s_v4", {}, "has no temp disk"),
    ("nvme", DS14, {}, "has no local NVMe disk"),
    ("ephemeral-os", "azure/Standard_D8s_v5", {}, "has no ephemeral OS disk"),
    ("ephemeral-os(9TiB)", DS14, {}, "has at most 576 GiB"),
    ("64 x azure/P80", "azure/Standard_E104is_v5", {}, "use at most 28 of these disks"),
    ("5 x azure/P4", "azure/Standard_DS1_v2", {}, "takes 4 data disks, not 5"),
    ("2 x local", DS14, {}, "has 1 temp disk"),
    ("2 x nvme", "azure/Standard_L8s_v2", {}, "has 1 NVMe disks"),
    ("azure/P30", "azure/Standard_D14_v2", {}, "does not support premium storage"),
    ("aws/gp3(10GiB)", DS14, {}, "is a disk of aws"),
    ("azure/P30", None, {"chunk_bytes": 65536}, "one disk alone is not striped"),
    ("2 x azure/P30", None, {"chunk_bytes": 5000}, "a chunk is a power of two"),
    ("azure/P4", None, {"size_bytes": 33 * GIB}, "azure/P4 gives 32GiB in all"),
    ("azure/PremiumSSD(40000GiB)", None, {}, "ends at 32767 GiB"),
]


@pytest.mark.parametrize(("disks", "vm", "volume", "message"), REFUSALS)
def test_refusals(disks: str, vm: str | None, volume: dict[str, Any], message: str) -> None:
    assert message in "\n".join(refused(disks, vm, **volume))


def test_the_largest_cached_disk_has_4095_gib() -> None:
    assert resolved("azure/P50(4095GiB)", DS14, caching="ReadOnly").volume.caching == "ReadOnly"


def test_several_problems_are_told_at_once() -> None:
    told = refused("80 x azure/P50", "azure/Standard_D14_v2", caching="ReadOnly", chunk_bytes=5000)
    assert len(told) == 5


def test_disks_that_are_attached_already_count() -> None:
    host, volume = HostRequest(vm="azure/Standard_DS1_v2"), VolumeRequest("2 x azure/P4")
    assert resolve(CATALOG, host, volume, AttachedDisks(data_disks=2))
    with pytest.raises(UserError, match="takes 4 data disks, not 5"):
        resolve(CATALOG, host, volume, AttachedDisks(data_disks=3))
    with pytest.raises(UserError, match="1 of them in use"):
        resolve(CATALOG, host, VolumeRequest("local"), AttachedDisks(temp_disks=1))


def test_the_catalogue_is_read_once_and_copied(tmp_path: Any) -> None:
    first: Catalog = load_catalog([])
    first.disks.clear()
    assert load_catalog([]).disks


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("aws/r6b.2xlarge", None),
        ("gcp/n4-standard-16", "gcp/n2-standard-16"),
        ("azure/Standard_DC4s_v3", "DC4as_v5"),
        ("azure/Standard_NC4as_v4", None),
        ("aws/r5b.2xlage", "aws/r5b.2xlarge"),
        ("azure/Standard_D8d_v5", "azure/Standard_D8ds_v5"),
    ],
)
def test_a_suggestion_is_of_the_same_product_line(name: str, near: str | None) -> None:
    with pytest.raises(UserError) as caught:
        resolve(CATALOG, HostRequest(vm=name), VolumeRequest("azure/P30"))
    (problem,) = caught.value.problems
    assert ("did you mean" in problem.way_out) is (near is not None)
    assert near is None or near in problem.way_out
    assert near is not None or "--catalog" in problem.way_out


@pytest.mark.parametrize(
    ("name", "near", "made"),
    [
        ("aws/c8i.2xlarge", "aws/c6i.2xlarge or", True),
        ("aws/r5x.large", "aws/r5.large or", True),
        ("gcp/m1-standard-8", "gcp/n1-standard-8 or", False),
        ("azure/Standard_NC4as_v4", "", True),
        ("other/large", "`disklab catalog` lists all sizes", False),
    ],
)
def test_a_missing_family_names_its_neighbour_and_what_adds_it(
    name: str, near: str, made: bool
) -> None:
    with pytest.raises(UserError) as caught:
        resolve(CATALOG, HostRequest(vm=name), VolumeRequest("azure/P30"))
    (problem,) = caught.value.problems
    way_out = problem.way_out or ""
    assert near in way_out
    assert "`--catalog FILE` adds others" in way_out
    assert ("disklab catalog --sizes LIST" in way_out) is made
