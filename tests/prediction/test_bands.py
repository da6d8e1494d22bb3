"""Bands of predictions, ranges of a file, and which cells tell parameters apart."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import Residual, calibration_for
from disklab.errors import UserError
from disklab.prediction.bands import bands_of, design_of, within_offered
from disklab.prediction.cells import prepare
from disklab.prediction.design import EIGHT_OF_TEN, NOISE, Matrix, choose, tell
from disklab.prediction.uncertain import (
    MOST_RANGES,
    Key,
    Uncertain,
    Unknown,
    read_ranged,
    unknowns_of,
)
from disklab.report.verdict import Basis, Outcome, Quantity, Sample, judge
from disklab.results import Bands, Mover
from disklab.results.bands import TENTH, band, band_of_ratio, mover_of_ratio

from tests.in_process import disklab

ROOT = Path(__file__).parents[2]
THREADS = ROOT / "experiments/cassandra-disk-caching-threads.yaml"
ONE_CELL = (
    "--only",
    "cluster.volumes.data.caching=ReadOnly",
    "--only",
    "workload.load.threads=128",
)
NEVER = 1.0
"""A residual that leaves nothing."""


def unknowns(count: int) -> list[Unknown]:
    return [Unknown(("parameter", f"p{number}"), 1.5, "") for number in range(count)]


@pytest.mark.parametrize("count", [1, 15, 16, 31, 60])
def test_unknowns_are_moved_independently_of_each_other(count: int) -> None:
    design = design_of(unknowns(count))
    assert len(design) == next(size for size in (16, 32, 64) if size > count)
    products = design.signs.T @ design.signs
    assert np.array_equal(products, len(design) * np.eye(count))
    assert not design.signs.sum(axis=0).any()


def test_more_unknowns_than_the_largest_design_tells_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="128 unknowns"):
        design_of(unknowns(128))


def test_the_band_is_that_of_the_sum_of_all_effects() -> None:
    design = design_of(unknowns(7))
    effects = np.array([0.3, -0.2, 0.1, 0.05, 0, 0, 0.02])
    logs = (design.signs @ effects).tolist()
    true = math.sqrt(float(effects @ effects))
    found = band(logs, NEVER)
    assert found.high == pytest.approx(math.exp(TENTH * true))
    assert found.low == pytest.approx(math.exp(-TENTH * true))
    wider = band(logs, 1.5)
    assert math.log(wider.high) == pytest.approx(math.hypot(TENTH * true, math.log(1.5)))


def test_where_a_limit_binds_the_upper_side_is_narrow() -> None:
    design = design_of(unknowns(3))
    logs = np.minimum(design.signs @ np.array([0.3, 0.2, 0.1]), 0.01).tolist()
    found = band(logs, NEVER)
    assert found.high < 1.02
    assert found.low < 0.7


@pytest.mark.parametrize(("load", "high"), [("rate: 25000/s", 25.0 / 24), ("threads: 64", 1.15)])
def test_a_rate_ends_at_what_is_offered(load: str, high: float) -> None:
    text = f"""
title: An open loop
cluster: {{nodes: 1, vm: azure/Standard_D8s_v5, volumes: {{data: {{disks: azure/P40}}}}}}
database: {{engine: postgresql}}
dataset: {{rows: 1M, row: 1 x 1000B}}
workload: {{operations: {{read: 100%}}, load: {{{load}}}, stop: {{duration: 60s}}}}
"""
    (trial,) = spec.parse(text).trials("predict")
    nominal = {"ops_per_s": 24_000.0}
    design = design_of(unknowns(3))
    bands = bands_of(design, nominal, [nominal] * len(design), {})
    figure = within_offered(bands, nominal, trial.spec).figures["ops_per_s"]
    assert figure.high == pytest.approx(high)
    assert figure.low == pytest.approx(1 / 1.15)


def test_a_range_reaches_both_of_its_ends_where_a_limit_binds_at_one() -> None:
    ranged = Unknown(("range", "credits"), 1.5, "")
    design = design_of([ranged, *unknowns(3)])
    draws = [{"ops_per_s": 428.0 if sign > 0 else 233.0} for sign in design.signs[:, 0]]
    never = Residual(within=NEVER, pairs=NEVER)
    found = bands_of(design, {"ops_per_s": 374.0}, draws, {"ops_per_s": never})
    figure = found.figures["ops_per_s"]
    assert 374 * figure.low == pytest.approx(233)
    assert 374 * figure.high == pytest.approx(428)


def bands_with(draws: list[float], design: str = "one") -> Bands:
    figures = {"ops_per_s": band(draws, NEVER)}
    movers = [Mover(name="latency", within=1.2, ratios={"ops_per_s": math.exp(draws[0])})]
    return Bands(figures=figures, design=design, draws={"ops_per_s": draws}, movers=movers)


def test_what_two_cells_share_cancels_in_their_ratio_and_only_with_the_same_draws() -> None:
    shared = [0.3, -0.3, 0.3, -0.3]
    first, second = bands_with(shared), bands_with([log + 0.001 for log in shared])
    alike = band_of_ratio(first, second, "ops_per_s")
    assert 0.99 < alike.low <= 1 <= alike.high < 1.01
    others = band_of_ratio(first, bands_with(shared, "two"), "ops_per_s")
    assert others.low < 0.7
    assert others.high > 1.4
    assert mover_of_ratio(first, second, "ops_per_s") == ""
    assert mover_of_ratio(first, bands_with([-log for log in shared]), "ops_per_s") == "latency"
    assert band_of_ratio(first, second, "p99_ms") is None


def test_a_verdict_on_predictions_rests_on_bands_and_never_on_repeats_of_a_seed() -> None:
    moved = [0.02, -0.02]

    def judged(after: float, bands: Bands | None) -> Any:
        first = Sample((100.0, 101.0, 100.5), predicted=True, bands=bands)
        return judge(Quantity.OPS, first, Sample((after,) * 3, predicted=True, bands=bands))

    surely = judged(150, bands_with(moved))
    assert surely.basis is Basis.BANDS
    assert surely.outcome is Outcome.HIGHER
    assert surely.interval.confidence == 0.8
    wide = Bands(draws={"ops_per_s": moved}, pair_residuals={"ops_per_s": 2.0})
    assert judged(150, wide).outcome is Outcome.CANNOT_TELL
    assert judged(150, wide).more_repeats is None
    assert judged(150, None).basis is Basis.SINGLE
    assert judged(150, None).outcome is Outcome.CANNOT_TELL


def uncertain(file: str, index: int) -> Uncertain:
    trial = spec.load(ROOT / "experiments" / file).trials("predict")[index]
    calibration = calibration_for(trial.spec.database.engine) if trial.spec.database else None
    job = prepare(trial, load_catalog(), calibration, file).job
    return Uncertain(trial, calibration, job, file)


@pytest.mark.parametrize(
    "file",
    [
        "cassandra-local-or-attached.yaml",
        "yugabytedb-disk-types.yaml",
        "azure-local-disks.yaml",
    ],
)
def test_a_cell_whose_unknowns_stay_is_the_cell_itself(file: str) -> None:
    cell = uncertain(file, 0)
    assert json.loads(json.dumps(cell.moved({}))) == json.loads(json.dumps(cell.job))


def test_each_unknown_of_a_cell_changes_its_job() -> None:
    cell = uncertain("cassandra-local-or-attached.yaml", 3)
    names = [one.name for one in unknowns_of([cell])]
    assert len(names) == len(set(names))
    for one in unknowns_of([cell]):
        assert cell.moved({one.key: 0.2}) != cell.job, one.name


def test_what_the_rows_tell_together_is_moved_together() -> None:
    cell = uncertain("cassandra-local-or-attached.yaml", 3)
    design = design_of(unknowns_of([cell]))
    names: list[Key] = [("parameter", "message_cpu_ns"), ("parameter", "write_cpu_ns")]
    moved = np.array([[design.shifts(d)[key] for key in names] for d in range(len(design))])
    assert np.corrcoef(moved.T)[0, 1] == pytest.approx(-0.95, abs=1e-6)
    deviation = moved.std(axis=0)
    assert deviation[1] == pytest.approx(math.log(1.35) / TENTH)


def test_reads_of_one_copy_have_no_unknowns_of_writes_or_copies() -> None:
    cell = uncertain("cassandra-disk-caching-threads.yaml", 0)
    names = {one.name for one in unknowns_of([cell])}
    assert "read_cpu_ns" in names
    assert not names & {"write_cpu_ns", "message_cpu_ns", "table_write_bytes_per_s"}


def predicted(out: Path, *arguments: str) -> Any:
    words = ["predict", str(THREADS), *ONE_CELL, "--fidelity", "quick"]
    ran = disklab(*words, *arguments, "--json", "--out", str(out), code=0)
    (line,) = ran.stdout.splitlines()
    return json.loads(line)


def test_a_prediction_has_bands_and_the_same_figures_without_them(tmp_path: Path) -> None:
    banded, plain = predicted(tmp_path), predicted(tmp_path, "--no-bands")
    assert plain["bands"] is None
    same = ("ops_per_s", "latency_ms")
    assert [banded[name] for name in same] == [plain[name] for name in same]
    found = banded["bands"]
    assert found["confidence"] == 0.8
    wanted = {"ops_per_s", "p50_ms", "p95_ms", "p99_ms", "read_ios_per_operation"}
    assert wanted <= found["figures"].keys()
    for figure in found["figures"].values():
        assert 0.2 < figure["low"] <= 1 <= figure["high"] < 5
    # The cached throughput of the VM binds; nothing of the uncached disk behind it can matter.
    by_rate = max(found["movers"], key=lambda one: abs(math.log(one["ratios"]["ops_per_s"])))
    assert by_rate["name"] == "limit: vm cached"
    assert by_rate["ratios"]["ops_per_s"] == pytest.approx(1.06, abs=0.02)


DEVICE = """
title: A disk alone
device: {{vm: {vm}, volume: {{disks: {disks}}}}}
workload: {{fio: {{{fio}}}, stop: {{duration: 1s}}}}
"""


def of_device(vm: str, disks: str, fio: str) -> dict[str, float]:
    """Return the unknowns of a device by their names, with their ranges."""
    fio = fio if "rw:" in fio else f"rw: randwrite, {fio}"
    text = DEVICE.format(vm=vm, disks=disks, fio=fio)
    (trial,) = spec.parse(text, "device.yaml").trials("predict")
    job = prepare(trial, load_catalog(), None, "device.yaml").needed()
    return {one.key[1]: one.within for one in Uncertain(trial, None, job, "").unknowns()}


@pytest.mark.parametrize(
    ("fio", "more"),
    [
        ("bs: 4k", set()),
        ("bs: 4k, depth: 32", {"several I/Os at once"}),
        ("bs: 4k, jobs: 4", {"several I/Os at once"}),
        ("bs: 16k", set()),
        ("bs: 1M", {"each KiB of large I/Os"}),
    ],
)
def test_large_and_many_ios_are_known_less_well(fio: str, more: set[str]) -> None:
    alone = of_device("aws/m5.4xlarge", "aws/gp3(500GiB)", "bs: 4k")
    assert of_device("aws/m5.4xlarge", "aws/gp3(500GiB)", fio).keys() - alone.keys() == more


def test_reads_beside_writes_are_known_less_well_where_their_limits_are_apart() -> None:
    mixed = "bs: 4k, rw: randrw"
    local, bought = (
        of_device(vm, disks, mixed).keys()
        for vm, disks in (("aws/i4i.large", "nvme"), ("aws/m5.large", "aws/gp3(9GiB)"))
    )
    assert "reads beside writes" in local
    assert "reads beside writes" not in bought
    assert "reads beside writes" not in of_device("aws/i4i.large", "nvme", "bs: 4k")


def test_a_flush_that_was_measured_has_a_range_of_its_own() -> None:
    unknown = of_device("gcp/n2-standard-16", "gcp/local-ssd", "bs: 4k, fdatasync: 1")
    assert unknown["gcp-local-ssd flushes"] > unknown["gcp-local-ssd writes"]
    assert not any(
        "flushes" in name for name in of_device("aws/m5.large", "aws/gp3(9GiB)", "bs: 4k")
    )


def test_what_a_vendor_states_of_a_local_disk_is_known_less_well_than_a_bought_limit() -> None:
    local = of_device("gcp/c3-standard-8-lssd", "nvme", "bs: 4k")
    assert local["nvme"] > of_device("aws/m5.large", "aws/gp3(9GiB)", "bs: 4k")["disk"]


EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def changed(folder: Path, old: str, new: str) -> Path:
    text = (EXPERIMENTS / "cassandra-disk-caching-threads.yaml").read_text(encoding="utf-8")
    assert old in text
    path = folder / "ranged.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "ends"),
    [
        ("read: 100%", "read: 0..25%", ("0%", "12.5%", "25%")),
        ("row: 5 x 818B", "row: 5 x 100B..4KiB", ("100B", "640B", "4KiB")),
        ("rows: 150M", "rows: 100M..400M", ("100M", "200M", "400M")),
        ("read_ahead: 64KiB", "read_ahead: 32KiB..128KiB", ("32KiB", "64KiB", "128KiB")),
        ("title: Does", "title: 1..2 Does", None),
        ("# a pass", "# credits: 1..2 a pass", None),
    ],
)
def test_a_range_has_a_middle_and_two_ends(
    tmp_path: Path, old: str, new: str, ends: tuple[str, str, str] | None
) -> None:
    found = read_ranged(changed(tmp_path, old, new), {}).ranges
    assert [(one.low, one.middle, one.high) for one in found] == ([ends] if ends else [])


def test_a_file_without_ranges_is_itself() -> None:
    for path in EXPERIMENTS.glob("*.yaml"):
        assert read_ranged(path, {}).ranges == (), path


def test_the_ends_are_experiments_of_their_own(tmp_path: Path) -> None:
    ranged = read_ranged(changed(tmp_path, "rows: 150M", "rows: 100M..400M"), {})
    (one,) = ranged.ranges
    cells = [ranged.at({one.name: sign}).trials("predict")[0].spec for sign in (-1.0, 0.0, 1.0)]
    assert [cell.dataset.rows for cell in cells] == [100_000_000, 200_000_000, 400_000_000]


@pytest.mark.parametrize("text", ["400M..100M", "100M..3KiB", "5M..5M"])
def test_ends_out_of_order_are_refused_with_their_place(tmp_path: Path, text: str) -> None:
    path = changed(tmp_path, "rows: 150M", f"rows: {text}")
    with pytest.raises(UserError, match="is not a range") as refused:
        read_ranged(path, {})
    assert "ranged.yaml:16: rows" in str(refused.value)


def test_a_file_has_as_many_ranges_as_can_be_tried(tmp_path: Path) -> None:
    path = changed(tmp_path, "rows: 150M", "rows: 1M..2M\n" * MOST_RANGES)
    assert len(read_ranged(path, {}).ranges) == MOST_RANGES
    path.write_text(path.read_text() + "threads: 1..2\n")
    with pytest.raises(UserError, match=f"{MOST_RANGES + 1} ranges"):
        read_ranged(path, {})


def test_a_range_that_matters_is_in_the_band_and_named(tmp_path: Path) -> None:
    path = changed(tmp_path, "read_ahead: 64KiB", "read_ahead: 64KiB..256KiB")
    only = ("--only", "caching=ReadOnly", "--only", "threads=128", "--fidelity", "quick")
    ran = disklab("predict", str(path), *only, "--json", "--out", str(tmp_path / "runs"), code=0)
    bands = json.loads(ran.stdout)["bands"]
    # What binds are the bytes of the cached reads: a row costs 64 KiB and more, up to four times.
    named = {one["name"]: one for one in bands["movers"]}
    (name,) = (name for name in named if name.startswith("range: read_ahead"))
    assert named[name]["ratios"]["ops_per_s"] < 0.8
    assert "64KiB to 256KiB" in named[name]["because"]
    assert bands["figures"]["ops_per_s"]["low"] < 0.8
    assert bands["figures"]["ops_per_s"]["high"] > 1.25


A, B = "overhead_ns", "read_cpu_ns"


def of(*slopes: float) -> Matrix:
    """Return what one figure tells that moves by these slopes."""
    row = np.array([slopes])
    found: Matrix = row.T @ row / NOISE**2
    return found


def test_a_parameter_is_known_as_well_as_its_figure() -> None:
    only, none = tell(of(0.5, 0.0), (A, B))
    # A figure with 5 % noise that moves half as much as the parameter tells it to 10 %.
    assert only.within == pytest.approx(math.exp(EIGHT_OF_TEN * 0.1), rel=1e-3)
    assert (none.name, none.within, none.like) == (B, None, "")


def test_what_moves_everything_alike_is_not_told_apart() -> None:
    both = sum((of(0.5, 0.25) for _ in range(10)), np.zeros((2, 2)))
    first, second = tell(both, (A, B))
    assert second.like == A
    # The sum is known by ten figures.
    expected = math.exp(EIGHT_OF_TEN * 0.1 / math.sqrt(10))
    assert first.within == pytest.approx(expected, rel=1e-3)


def test_more_noise_tells_less() -> None:
    (twice,) = tell(of(1.0), (A,), 2 * NOISE)
    (once,) = tell(of(1.0), (A,))
    assert math.log(twice.within) == pytest.approx(2 * math.log(once.within), rel=1e-3)


def test_cells_are_chosen_for_what_others_do_not_tell() -> None:
    cells = [of(1.0, 0.0), of(0.9, 0.0), of(0.0, 0.3)]
    assert choose(cells, [10, 10, 10], 20) == [0, 2]
    assert choose(cells, [10, 10, 10], 30) == [0, 2, 1]


def test_a_dear_cell_must_tell_more() -> None:
    alike = [of(1.0), of(1.0)]
    assert choose(alike, [30, 10], 10) == [1]
    # Without the time for any there is one all the same: the caller has checked the time.
    assert choose(alike, [30, 20], 10) == [1]
