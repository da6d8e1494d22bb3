"""The catalogue's own files: complete, with sources, and true to what was collected."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from disklab import reading
from disklab.catalog import load_catalog
from disklab.catalog.description import describe_disk, describe_local, describe_vm
from disklab.catalog.form import Lines
from disklab.catalog.profile import Distribution, latency_profile, mean_ns, quantile_ns
from disklab.catalog.quantity import LOCAL_DISKS

CATALOG = load_catalog([])
DATA = Path(__file__).parents[2] / "python/disklab/data"


def test_the_vm_sizes_and_disks_of_azure_are_all_there() -> None:
    assert sum(name.startswith("azure/") for name in CATALOG.vms) == 386
    tiers = {name.split("/")[1] for name in CATALOG.disks if name.startswith("azure/")}
    steps = (1, 2, 3, 4, 6, 10, 15, 20, 30, 40, 50, 60, 70, 80)
    expected = {f"{letter}{step}" for letter in "PE" for step in steps}
    expected |= {f"S{step}" for step in steps[3:]} | {"PremiumV2", "Ultra"}
    assert tiers == expected


@pytest.mark.parametrize("file", sorted(DATA.rglob("*.yaml")), ids=lambda path: path.name)
def test_no_key_stands_twice(file: Path) -> None:
    assert Lines(file.read_text(), str(file), reading.CATALOGUE).repeated() == []


def test_no_disk_stands_twice() -> None:
    """Advice would offer both; disks of one size are known by their names, P30 and E30."""
    disks = [(disk.family_name, disk.facts) for disk in CATALOG.disks.values()]
    assert all(facts not in disks[:number] for number, facts in enumerate(disks))


def test_every_source_is_used_or_kept_for_a_note() -> None:
    text = "".join(file.read_text() for file in DATA.rglob("*.yaml"))
    for key, source in CATALOG.sources.items():
        assert source.at, key
        assert not source.at.startswith("/"), key
    assert "/work" not in text


def test_every_fact_has_a_source_and_a_status() -> None:
    described = [describe_disk(CATALOG, disk) for disk in CATALOG.disks.values()]
    described += [describe_vm(CATALOG, vm) for vm in CATALOG.vms.values()]
    for one in described:
        for fact in one["facts"]:
            assert fact["source"], (one["name"], fact)
            assert fact["status"]
            assert set(fact["source"]) <= set(one["sources"])
        for price in one["prices"]:
            assert price["date"], one["name"]
            assert price["region"]
    assert all(describe_local(CATALOG, name)["notes"] for name in LOCAL_DISKS)


@pytest.mark.parametrize("name", sorted(CATALOG.latencies))
def test_latency_tables_are_whole_and_grow(name: str) -> None:
    profile = latency_profile(CATALOG, name)
    for distribution in (profile.read, profile.write, profile.flush):
        points = distribution.quantiles_ppm_ns
        assert points[-1][0] == 1_000_000
        assert points == sorted(points)
        assert [ns for _, ns in points] == sorted(ns for _, ns in points)
        assert len(points) == 1 or points[0][0] == 0


def published(distribution: Distribution, percent: float, kib: int) -> float:
    return quantile_ns(distribution, int(percent * 10_000), kib) / 1000


def test_measured_percentiles_come_back_at_the_size_of_the_measurement() -> None:
    uncached = latency_profile(CATALOG, "premium-ssd-2020").write
    assert published(uncached, 50, 8) == 2474
    assert published(uncached, 99.99, 8) == 9634
    cached = latency_profile(CATALOG, "host-cache-2020").write
    assert published(cached, 50, 8) == 51
    assert published(latency_profile(CATALOG, "nvme-lsv2-2020").write, 99, 8) == 121


def test_averages_come_back_as_the_mean() -> None:
    for name, read_us, write_us in (
        ("premium-ssd-2022", 2300, 1300),
        ("premium-v2-2022", 680.5, 700),
        ("ultra-2022", 400, 400),
    ):
        profile = latency_profile(CATALOG, name)
        assert abs(mean_ns(profile.read) / 1000 - read_us) < 1
        assert abs(mean_ns(profile.write) / 1000 - write_us) < 1


def test_the_fit_of_the_2019_study() -> None:
    read = latency_profile(CATALOG, "premium-ssd-2020").read
    # 2.7 ms + 0.0147 ms/KiB is the body's centre; the tail of a tenth moves the median by 2 %.
    assert abs(published(read, 50, 64) - (2761 + 14.7 * 64)) < 1
    assert read.per_kib_ns == 14_700


def test_the_data_are_plain_yaml() -> None:
    for file in DATA.rglob("*.yaml"):
        assert isinstance(yaml.safe_load(file.read_text()), dict), file
