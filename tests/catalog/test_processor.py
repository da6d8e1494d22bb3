"""How fast the vCPUs of VM series are beside each other, and what that rests on."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.catalog import cpu_speed, load_catalog
from disklab.catalog.processor import REFERENCE
from disklab.errors import UserError

CATALOG = load_catalog([])
SERIES = sorted({vm.series_name for vm in CATALOG.vms.values()})


def test_the_reference_is_one() -> None:
    speed = cpu_speed(CATALOG, "azure/Standard_D4ds_v5")
    assert (speed.value, speed.assumed) == (1, False)
    assert speed.processors == ("Xeon Platinum 8370C",)
    assert speed == cpu_speed(CATALOG, REFERENCE)


@pytest.mark.parametrize("series", SERIES)
def test_each_series_has_a_speed_with_a_source(series: str) -> None:
    """No series of today is 3 times as fast, or a third: vCPUs of 2015 to 2026 lie within it."""
    speed = cpu_speed(CATALOG, series)
    assert 1 / 3 < speed.value < 3
    assert 1 < speed.within < 2
    assert speed.processors
    assert set(speed.source) <= CATALOG.sources.keys()
    assert speed.assumed == all(row.like for row in CATALOG.processors[series])


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("azure/Dsv3", "azure/Dsv4"),
        ("azure/Dsv4", "azure/Dsv5"),
        ("azure/Dsv5", "azure/Dsv6"),
        ("azure/Dasv5", "azure/Dasv6"),
        ("azure/Lsv2", "azure/Lsv3"),
        ("aws/m5", "aws/m6i"),
        ("aws/m6i", "aws/m7i"),
        ("aws/r6g", "aws/r7g"),
        ("aws/r7g", "aws/r8g"),
        ("aws/i3", "aws/i3en"),
        ("aws/i3en", "aws/i4i"),
        ("aws/i4i", "aws/i7i"),
        ("gcp/n2", "gcp/c3"),
    ],
)
def test_a_newer_generation_is_faster(older: str, newer: str) -> None:
    assert cpu_speed(CATALOG, newer).over(cpu_speed(CATALOG, older)) > 1.1


def test_graviton_is_as_much_faster_as_aws_says() -> None:
    """AWS on its own generations: Graviton3 25 % faster than 2, Graviton4 30 % faster than 3."""
    second, third, fourth = (cpu_speed(CATALOG, f"aws/r{n}g") for n in (6, 7, 8))
    for faster, slower, stated in ((third, second, 1.25), (fourth, third, 1.30)):
        assert stated / slower.within < faster.over(slower) < stated * slower.within


def test_one_processor_has_one_speed_in_every_family() -> None:
    for series in ("azure/Esv5", "azure/Edsv5", "azure/Lsv3", "azure/Ebdsv5", "aws/m6i"):
        assert cpu_speed(CATALOG, series).value == pytest.approx(1, rel=0.05), series


def test_a_size_that_nobody_measured_says_so(tmp_path: Path) -> None:
    speed = cpu_speed(CATALOG, "mine/Blade")
    assert (speed.value, speed.assumed, speed.processors) == (1, True, ())
    file = tmp_path / "mine.yaml"
    file.write_text(
        "sources: {us: {at: our own coremark, date: '2026-11-01'}}\n"
        "processors:\n"
        "  azure/Laosv5:\n"
        "  - {size: Standard_L8aos_v5, vcpu: 8, cpu: EPYC, source: us, coremark: 200000}\n"
    )
    # CoreMark of another source compares with nothing, so the speed stays assumed.
    own = cpu_speed(load_catalog([file]), "azure/Laosv5")
    assert own.assumed
    file.write_text(file.read_text().replace("source: us", "source: azure_coremark"))
    own = cpu_speed(load_catalog([file]), "azure/Laosv5")
    assert own.value == pytest.approx(200_000 / 136_764)
    assert own.processors == ("EPYC",)
    assert not own.assumed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("azure/Dsv55: [{like: azure/Dsv5}]", "did you mean azure/Dsv5 or"),
        ("azure/Dsv5: [{like: azure/Ebdsv6}]", "a VM series with benchmarks of its own"),
        ("azure/Dsv5: [{size: D, vcpu: 2, cpu: X, source: us, web: 3}]", "a key of `sources`"),
        ("azure/Dsv5: [{size: D, vcpu: 2, cpu: X, source: sparecores}]", "and a score"),
        ("azure/Dsv5: [{like: azure/Dsv4, redis: 3}]", "or like"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"processors:\n  {text}\n")
    with pytest.raises(UserError) as caught:
        load_catalog([file])
    assert message in str(caught.value)
