"""What a disk owes in a cell, by hand from vendors' pages, and what people see of a probe."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from disklab.catalog.profile import HostProfile, VolumeProfile
from disklab.cli.probing import Follower
from disklab.cli.run_progress import RunView
from disklab.events import PhaseStarted, Progress
from disklab.probe import report
from disklab.probe.cells import KIB, MIB, PERCENTILES, Cell, Direction, Load, Plan, Profile
from disklab.probe.charts import sections, write_chart
from disklab.probe.fio import Latency, Measurement, Side
from disklab.probe.promise import Placement, Promise, State, below, mixture, promise, quantile
from disklab.probe.report import show
from disklab.probe.run import CellEnded, CellResult
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

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


MS = 1_000_000


def result(
    subject: str, profile: Profile, iops: float, p50_ns: int, load: Load | None = None
) -> CellResult:
    cell = Cell(profile, Direction.RANDREAD, 4 * KIB, load)
    percentiles = {p: round(p50_ns * (1 + p / 100)) for p in PERCENTILES}
    latency = Latency(float(p50_ns), p50_ns, 9 * p50_ns, percentiles)
    sides = {"read": Side(int(iops), int(iops) * cell.block_bytes, latency)}
    measured = Measurement(cell, sides, latency, 1.0, "fio-3.33", ())
    return CellResult(subject, "own file", measured)


def test_a_curve_rises_from_bottom_left_to_top_right() -> None:
    curve = {p: 1000.0 * (number + 1) ** 2 for number, p in enumerate(PERCENTILES)}
    *rows, labels, legend = [line.plain for line in report.percentile_curves({"disk": curve})]
    assert len(rows) == report.ROWS
    columns = [row.find("●") for row in reversed(rows) if "●" in row]
    assert columns == sorted(columns)
    assert sum(row.count("●") for row in rows) == len(PERCENTILES)
    assert rows[0].split()[0] == "289"  # 17 squared, in microseconds
    assert labels.split()[:3] == ["percentile", "1", "5"]
    assert labels.rstrip().endswith("99.99")
    assert legend.strip() == "● disk"


def test_equal_curves_stand_beside_each_other() -> None:
    flat = dict.fromkeys(PERCENTILES, 5000.0)
    text = "\n".join(line.plain for line in report.percentile_curves({"one": flat, "two": flat}))
    assert text.count("●▲") == len(PERCENTILES)


def test_bars_are_in_proportion_and_carry_the_promise() -> None:
    full, half = report.bars([("a", 100.0, 50.0, "x"), ("b", 50.0, None, "y")])
    assert full.plain.count("█") == report.BAR - 1  # one of them shows the promise
    assert full.plain.index("┃") - full.plain.index("█") == report.BAR // 2
    assert half.plain.count("█") == report.BAR // 2
    assert "┃" not in half.plain


def test_several_disks_stand_side_by_side() -> None:
    out = Console(file=io.StringIO(), width=150)
    results = [
        result(name, profile, iops, p50_ns)
        for name, iops, p50_ns in (("uncached", 5000.0, 3 * MS), ("cached", 60000.0, MS // 5))
        for profile in Profile
    ]
    show(results, out)
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()
    first = next(number for number, line in enumerate(lines) if "sync randread 4k" in line)
    assert "uncached" in lines[first]
    assert "cached" in lines[first + 1]
    assert any(
        line.split() == ["●", "uncached", "randread", "▲", "cached", "randread"] for line in lines
    )


def test_a_cell_is_shown_as_a_trial_of_a_run() -> None:
    out = Console(file=io.StringIO(), width=150)
    ended = result("here", Profile.SYNC, 5000.0, MS)
    with RunView(out) as view:
        tell = Follower("here", [(0, {})], view, as_json=False)
        tell(PhaseStarted("fill", "here: writing 4k before reading it"))
        tell(PhaseStarted("measure", f"here: {ended.cell.title}"))
        tell(Progress("measure", 0.5, None, None, None))
        tell(CellEnded(ended))
    assert isinstance(out.file, io.StringIO)
    filled, began, phase, done = out.file.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert filled == "  fill: here: writing 4k before reading it"
    assert began.startswith("trial 1 of 1: cell here: sync randread 4k; repeat 1 (about ")
    assert phase == "  measure"
    assert done.startswith(
        "ok      disk here, cell sync randread 4k; repeat 1: 5,000 ops/s, p50 1.50"
    )


@pytest.mark.parametrize("suffix", [".svg", ".html", ".png"])
def test_a_chart_file_is_self_contained(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"chart{suffix}"
    write_chart([result("a disk", profile, 5000.0, MS) for profile in Profile], file)
    content = file.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG")
    else:
        assert b"a disk" in content
        assert b'src="http' not in content
        # Where each chart's figures come from: what was probed, and by which programs.
        assert b"Probe of a disk \xc2\xb7 disklab 0" in content
        assert b"\xc2\xb7 fio-3.33 \xc2\xb7 20" in content
        assert content.count(b"<figcaption") == content.count(b"<figure")


def test_charts_say_the_load_of_their_own_cells(tmp_path: Path) -> None:
    own = result("data", Profile.ASYNC, 9_000.0, MS, Load(8, 32))
    (rates,) = sections([own])
    assert rates.lead.startswith("8 jobs, depth 32.")
    write_chart([own], tmp_path / "own.svg")
    assert "Rates: 8 jobs, depth 32." in (tmp_path / "own.svg").read_text()
    out = io.StringIO()
    show([own], Console(file=out, width=150))
    assert "8 jobs, depth 32; bars are MB/s, ┃ the promise" in out.getvalue()
    (both,) = sections([own, result("data", Profile.ASYNC, 9_000.0, MS)])
    assert both.lead.startswith("8 jobs, depth 32; 4 jobs, depth 256.")
