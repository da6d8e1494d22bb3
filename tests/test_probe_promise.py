"""What a disk owes in a cell, against figures worked out by hand from the vendors' pages."""

from __future__ import annotations

from typing import Any

import pytest
from disklab.catalog.profile import HostProfile, VolumeProfile
from disklab.probe.cells import KIB, MIB, Cell, Direction, Plan, Profile
from disklab.probe.promise import Placement, Promise, State, below, mixture, promise, quantile
from hypothesis import given
from hypothesis import strategies as st

MB = 1_000_000


def limit(unit: str, per_s: int, **more: Any) -> dict[str, Any]:
    return {"scope": "all", "unit": unit, "per_s": per_s, "window_ns": 0} | more


def latency(read_ns: int, write_ns: int) -> dict[str, Any]:
    return {
        "read": {"quantiles_ppm_ns": [[1_000_000, read_ns]]},
        "write": {"quantiles_ppm_ns": [[1_000_000, write_ns]]},
        "flush": {"quantiles_ppm_ns": [[1_000_000, 0]]},
    }


P30 = {
    "name": "azure/P30",
    "medium": "remote",
    "limits": [limit("ios", 5000, io_unit_bytes=256 * KIB), limit("bytes", 200 * MB)],
    "latency": latency(2_400_000, 1_300_000),
}
# DS14_v2: the cached MB/s are lower than the uncached ones.
DS14_V2 = HostProfile.model_validate(
    {
        "version": 1,
        "name": "azure/Standard_DS14_v2",
        "seed": 1,
        "cached": [limit("ios", 64000), limit("bytes", 512 * MB)],
        "uncached": [limit("ios", 51200), limit("bytes", 768 * MB)],
        "cache": {
            "capacity_bytes": 1 << 30,
            "block_bytes": 64 * KIB,
            "latency": latency(200_000, 300_000),
        },
        "volumes": [],
    }
)


def owed(  # noqa: PLR0913 - each is a part of a disk
    cell: Cell,
    *,
    disks: list[dict[str, Any]] | None = None,
    caching: str = "None",
    duration_s: float = 10.0,
    state: State | None = None,
    charges_writes: bool = False,
) -> Promise:
    disks = disks or [P30]
    cache = DS14_V2.cache.model_copy(update={"charges_writes": charges_writes})
    host = DS14_V2.model_copy(update={"cache": cache})
    volume = VolumeProfile.model_validate(
        {
            "name": "data",
            "size_bytes": 1 << 40,
            "caching": caching,
            "disks": disks,
            "chunk_bytes": 64 * KIB if len(disks) > 1 else None,
        }
    )
    plan = Plan((cell,), duration_s, size_bytes=MIB)
    return promise(Placement(host, volume), cell, plan, state or State())


def loaded(direction: Direction, block_bytes: int) -> Cell:
    return Cell(Profile.ASYNC, direction, block_bytes)


READ, WRITE = Direction.RANDREAD, Direction.RANDWRITE


@pytest.mark.parametrize(
    ("block_bytes", "iops", "bound_by"),
    [
        # Azure's own example for a P30: 8 KiB 5000 IOPS, 64 KiB 200 MB/s, 1 MiB 200 MB/s.
        (8 * KIB, 5000, "disk 0 5000 IOPS"),
        (64 * KIB, 200 * MB / (64 * KIB), "disk 0 200 MB/s"),
        (MIB, 200 * MB / MIB, "disk 0 200 MB/s"),
    ],
)
def test_an_uncached_p30(block_bytes: int, iops: float, bound_by: str) -> None:
    for direction in (READ, WRITE):
        found = owed(loaded(direction, block_bytes))
        assert found.iops == pytest.approx(iops)
        assert found.bytes_per_s == pytest.approx(iops * block_bytes)
        assert found.bound_by == bound_by
        assert found.hit_ratio is None


def test_large_ios_count_in_units_of_256_kib() -> None:
    disk = {**P30, "limits": [limit("ios", 500, io_unit_bytes=256 * KIB)]}
    assert owed(loaded(READ, MIB), disks=[disk]).iops == pytest.approx(500 / 4)


def test_a_warm_read_only_cache_pays_the_cached_budget_alone() -> None:
    found = owed(loaded(READ, 4 * KIB), caching="ReadOnly")
    assert (found.iops, found.bound_by) == (64000, "vm cached 64000 IOPS")
    # The trap: for large reads the cache is slower than four disks without it.
    large = owed(loaded(READ, MIB), caching="ReadOnly")
    assert large.bytes_per_s == pytest.approx(512 * MB)
    assert owed(loaded(READ, MIB), disks=[P30] * 4).bytes_per_s == pytest.approx(768 * MB)


def test_a_read_only_write_pays_the_disk() -> None:
    assert owed(loaded(WRITE, 4 * KIB), caching="ReadOnly").bound_by == "disk 0 5000 IOPS"


def test_a_read_write_write_is_acknowledged_by_the_cache() -> None:
    assert owed(loaded(WRITE, 4 * KIB), caching="ReadWrite").bound_by == "vm cached 64000 IOPS"


def test_a_read_write_cache_may_charge_its_writes_to_the_disk() -> None:
    found = owed(loaded(WRITE, 4 * KIB), caching="ReadWrite", charges_writes=True)
    assert found.bound_by == "disk 0 5000 IOPS"


def test_a_mix_pays_the_disk_for_its_writes_alone_and_owes_both_latencies() -> None:
    mix = Direction(random=True, read_percent=75)
    # Reads come from the cache; the disk's 5000 IOPS are a quarter of all.
    found = owed(loaded(mix, 4 * KIB), caching="ReadOnly")
    assert (found.iops, found.bound_by) == (20_000, "disk 0 5000 IOPS")
    assert found.hit_ratio == 0.75
    writes = {**P30, "limits": [limit("ios", 1000, scope="write")]}
    assert owed(loaded(mix, 4 * KIB), disks=[writes]).iops == 4000
    alone = owed(Cell(Profile.SYNC, mix, 4 * KIB), caching="ReadOnly")
    assert alone.percentiles_ns["read"][99.0] == 200_000
    assert alone.percentiles_ns["write"][50.0] == 1_300_000
    assert alone.iops == pytest.approx(1e9 / (0.75 * 200_000 + 0.25 * 1_300_000))


def test_misses_share_the_disk() -> None:
    # Three of four reads hit, so the disk's 5000 IOPS carry 20000 in all.
    state = State(hit_ratio=0.75)
    assert owed(loaded(READ, 4 * KIB), caching="ReadOnly", state=state).iops == pytest.approx(20000)


def test_a_stripe_sums_its_disks() -> None:
    assert owed(loaded(READ, 4 * KIB), disks=[P30] * 4).iops == pytest.approx(20000)


def test_credits_carry_the_burst_as_far_as_they_go() -> None:
    burst = {"per_s": 3500, "credits": 3380 * 1800}
    p4 = {**P30, "limits": [limit("ios", 120, burst=burst)]}
    cell = loaded(WRITE, 8 * KIB)
    assert owed(cell, disks=[p4]).iops == 3500
    empty = State(credits_left={("disk 0", "ios"): 0})
    assert owed(cell, disks=[p4], state=empty).iops == 120
    # 2000 credits over 10 s add 200 IOPS to the baseline.
    some = State(credits_left={("disk 0", "ios"): 2000})
    assert owed(cell, disks=[p4], state=some).iops == pytest.approx(320)


def test_depth_one_owes_the_disks_latency() -> None:
    cell = Cell(Profile.SYNC, READ, 4 * KIB)
    found = owed(cell)
    assert found.percentiles_ns["read"][50.0] == 2_400_000
    assert found.iops == pytest.approx(1e9 / 2_400_000)
    assert found.bound_by == "latency at 1 outstanding"
    cached = owed(cell, caching="ReadOnly")
    assert cached.percentiles_ns["read"][99.0] == 200_000


def test_depth_one_behind_a_cap_owes_a_rate_and_no_percentiles() -> None:
    p4 = {**P30, "limits": [limit("ios", 120)]}
    found = owed(Cell(Profile.SYNC, READ, 4 * KIB), disks=[p4])
    assert found.iops == 120
    assert found.percentiles_ns is None


def test_larger_blocks_take_longer() -> None:
    slow = latency(1_000_000, 1_000_000)
    slow["read"]["per_kib_ns"] = 1000
    found = owed(Cell(Profile.SYNC, READ, 68 * KIB), disks=[{**P30, "limits": [], "latency": slow}])
    assert found.percentiles_ns["read"][50.0] == 1_064_000


def test_a_mixture_of_two_constants_is_a_step() -> None:
    hit, miss = [(0, 200), (1_000_000, 200)], [(0, 2400), (1_000_000, 2400)]
    mixed = mixture(hit, miss, 0.75)
    assert [quantile(mixed, ppm) for ppm in (1, 740_000, 760_000, 999_999)] == [
        200,
        200,
        2400,
        2400,
    ]


steps = st.lists(st.integers(1, 10**9), min_size=2, max_size=6).map(sorted)


@st.composite
def distributions(draw: st.DrawFn) -> list[tuple[int, int]]:
    values = draw(steps)
    inner = st.integers(1, 999_999)
    size = len(values) - 2
    ppm = sorted(draw(st.lists(inner, min_size=size, max_size=size, unique=True)))
    return list(zip([0, *ppm, 1_000_000], values, strict=True))


@given(distributions(), distributions(), st.floats(0, 1), st.floats(0, 1_000_000))
def test_a_mixture_lies_between_its_parts(
    first: list[tuple[int, int]], second: list[tuple[int, int]], share: float, ppm: float
) -> None:
    mixed = quantile(mixture(first, second, share), ppm)
    ends = sorted([quantile(first, ppm), quantile(second, ppm)])
    # A quantile moves by one ppm of rounding; at a steep place that is the next point.
    near = [quantile(d, p) for d in (first, second) for p in (max(0, ppm - 2), min(1e6, ppm + 2))]
    assert min(ends[0], *near) - 1 <= mixed <= max(ends[1], *near) + 1


@given(distributions(), st.floats(0, 1_000_000))
def test_below_is_the_inverse_of_quantile(of: list[tuple[int, int]], ppm: float) -> None:
    # Where the quantiles are flat, every ppm of the flat part has the same value.
    assert quantile(of, below(of, quantile(of, ppm))) == pytest.approx(quantile(of, ppm), abs=2)
