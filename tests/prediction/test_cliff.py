"""Past the host cache, ReadOnly goes over to None in proportion to the hits that are left."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.prediction import Options, predict
from disklab.results import TrialResult

CLIFF = Path("experiments/cassandra-cache-cliff.yaml")
STORED_ROW_BYTES = 4255 + 19
"""A row of the study, and its entry in the index."""
PAGES_OF_A_ROW = 2.04
CACHE_BYTES = 576 << 30


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], TrialResult]:
    """Every cell of the experiment, a fiftieth of its rows, memory and cache."""
    experiment = spec.load(CLIFF)
    out = tmp_path_factory.mktemp("runs")
    run = predict(experiment, Options(fidelity="quick", out=out), lambda _: None)
    return {
        (str(result.factors["dataset.rows"]), str(result.factors["data disks"])): result
        for result in run.results()
    }


def mean_ms(result: TrialResult) -> float:
    return result.latency_ms["mean"]


@pytest.mark.parametrize("rows", ["50M", "150M"])
def test_while_the_data_fit_readonly_is_as_fast_as_local(
    cells: dict[tuple[str, str], TrialResult], rows: str
) -> None:
    cached, local = cells[rows, "attached, ReadOnly"], cells[rows, "local"]
    assert cached.host_cache_hit_ratio == pytest.approx(1.0, abs=0.001)
    assert cached.ops_per_s == pytest.approx(local.ops_per_s, rel=0.03)
    none = cells[rows, "attached, None"]
    assert cached.ops_per_s > 3 * none.ops_per_s


@pytest.mark.parametrize(("rows", "count"), [("1000M", 1_000), ("2000M", 2_000)])
def test_past_the_cache_time_follows_the_hit_ratio(
    cells: dict[tuple[str, str], TrialResult], rows: str, count: int
) -> None:
    cached, none = cells[rows, "attached, ReadOnly"], cells[rows, "attached, None"]
    hits = cached.host_cache_hit_ratio
    fits = CACHE_BYTES / (count * 10**6 * STORED_ROW_BYTES / 6)
    # The index was written last and stays: only the two pages of a row miss.
    ios = cached.telemetry.model_dump()["read_ios_per_operation"]
    assert hits == pytest.approx(1 - (1 - fits) * PAGES_OF_A_ROW / ios, abs=0.04)
    # No limit binds here, so the time of a read is a mixture of the two: a little less, because the
    # warm reads are so many that they wait for the client.
    warm = mean_ms(cells["500M", "attached, ReadOnly"])
    mixed = hits * warm + (1 - hits) * mean_ms(none)
    assert 0.8 * mixed < mean_ms(cached) < 1.05 * mixed
    assert warm < mean_ms(cached) < mean_ms(none)


@pytest.mark.parametrize("rows", ["500M", "1000M", "2000M"])
def test_data_that_outgrow_the_local_disk_are_refused(
    cells: dict[tuple[str, str], TrialResult], rows: str
) -> None:
    refused = cells[rows, "local"]
    assert refused.status == "refused"
    assert "holds 224 GiB" in str(refused.reason.rule)
