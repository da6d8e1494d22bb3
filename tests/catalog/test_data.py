"""The catalogue's own files have all that they need; users are told what is wrong in theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from disklab import reading
from disklab.catalog import HostRequest, VolumeRequest, load_catalog, resolve
from disklab.catalog.description import describe_disk, describe_local, describe_vm
from disklab.catalog.form import Lines
from disklab.catalog.profile import Distribution, latency_profile, mean_ns, quantile_ns
from disklab.catalog.quantity import LOCAL_DISKS
from disklab.errors import UserError

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


GOOD = """\
sources:
  bench: {at: our own fio run, date: '2026-11-01'}
latencies:
  array:
    read: {status: measured, source: bench, percentiles_us: {1: 90, 50: 120, 99: 300}}
    write: {status: assumed, source: bench, like: array/read, mean_us: 200}
    flush: {status: assumed, source: bench, constant_us: 0}
families:
  mine/arrays:
    title: Our storage array
    provenance: {default: {source: bench}}
    latency: {default: array}
    disks:
      fast: {size_gib: 100, iops: 9000, mb_per_s: 400}
      free:
        size_gib: {least: 1, most: 50}
        iops: {included: 100, most: {per_gib: 100}}
        mb_per_s: 50
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return file


def test_own_disks_are_used_like_the_others(tmp_path: Path) -> None:
    catalog = load_catalog([written(tmp_path, GOOD)])
    volume = resolve(catalog, HostRequest(), VolumeRequest("mine/fast")).volume
    assert [limit.per_s for limit in volume.disks[0].limits] == [9000, 400_000_000]
    on_azure = HostRequest(vm="azure/Standard_DS14_v2")
    assert resolve(catalog, on_azure, VolumeRequest("mine/free(10GiB, 1000 IOPS)"))
    with pytest.raises(UserError, match="1 to 1000 IOPS at 10 GiB"):
        resolve(catalog, on_azure, VolumeRequest("mine/free(10GiB, 1001 IOPS)"))


def test_the_environment_names_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLAB_CATALOG", str(written(tmp_path, GOOD)))
    assert "mine/fast" in load_catalog().disks


def test_the_file_in_the_home_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISKLAB_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "disklab").mkdir()
    (tmp_path / "disklab/catalog.yaml").write_text(GOOD)
    assert "mine/fast" in load_catalog().disks


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "iops: 9000",
            "iosp: 9000",
            "mine.yaml:14: families.mine/arrays.disks.fast.iosp: 'iosp': there is no such key; "
            "did you mean iops?",
        ),
        (
            "title: Our",
            "titel: Our",
            "mine.yaml:9: families.mine/arrays.title: 'title': this key is required; add it",
        ),
        ("most: 50", "most: many", "mine.yaml:16: families.mine/arrays.disks.free.size_gib.most:"),
        ("source: bench}}", "source: bnech}}", "did you mean bench or"),
        ("default: array", "default: arrya", "did you mean array?"),
        ("mine/arrays", "arrays", "the name of a family or series reads vendor/name"),
        ("mine/arrays", "azure/arrays", "azure/fast"),
        ("like: array/read", "like: array/write", "leads in a circle"),
        ("like: array/read", "like: array/reads", "`like` reads NAME/read"),
        ("99: 300", "99: 30", "percentiles and their times must both grow"),
        ("      fast:", "      free: {size_gib: 1}\n      fast:", "the key stands on line"),
        ("sources:", "sources: [", "is not YAML"),
        ("per_gib: 100", "per_gib: 100, per_iops: 1", "give exactly one of value, per_gib"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    if new == "azure/arrays":  # a vendor prefix may be shared, a name not
        text = text.replace("      fast:", "      P30:")
        message = "a disk of this name is in the catalogue already"
    with pytest.raises(UserError) as caught:
        load_catalog([written(tmp_path, text)])
    assert message in str(caught.value)
    for problem in caught.value.problems:
        assert str(tmp_path / "mine.yaml") in problem.place


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("iops: 9000", "iosp: 9000").replace("title: Our", "titel: Our")
    with pytest.raises(UserError) as caught:
        load_catalog([written(tmp_path, text), tmp_path / "missing.yaml"])
    assert len(caught.value.problems) == 4
