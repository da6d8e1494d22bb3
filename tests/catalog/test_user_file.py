"""Users add disks in a file; what is wrong with it is told with file, line, key, rule, way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.catalog import HostRequest, VolumeRequest, load_catalog, resolve
from disklab.errors import UserError

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
