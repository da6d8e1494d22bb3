"""Prices of one's own: `disklab advise --prices FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.catalog import Price, load_catalog, vm_price, volume_price
from disklab.catalog.load import with_more

from tests.in_process import disklab

MINE = """prices:
- {region: us-central1, per: hour, vms: {gcp/n2-standard-8: 0.31}}
- {region: eastus, per: month, disks: {azure/P30: 100}}
- region: us-central1
  per: month
  formulas: {gcp/hyperdisk-ml: {per_gib: 0.1}}
"""


def usd(price: object) -> float:
    assert isinstance(price, Price), price
    return price.usd_per_month


def test_a_price_of_ones_own_comes_before_the_catalogues(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE)
    with with_more(file):
        catalog = load_catalog()
        assert usd(vm_price(catalog, "gcp/n2-standard-8", region="us-central1")) == 226.3
        assert usd(volume_price(catalog, "2 x azure/P30")) == 200.0
        # Of this disk the catalogue has no price.
        assert usd(volume_price(catalog, "gcp/hyperdisk-ml(100GiB)")) == 10.0
        assert not vm_price(catalog, "gcp/n2-standard-8").doubt("us-central1", None)  # type: ignore[union-attr]
    assert not isinstance(volume_price(load_catalog(), "gcp/hyperdisk-ml(100GiB)"), Price)


@pytest.mark.parametrize(
    ("was", "wrong", "told"),
    [
        ("gcp/n2-standard-8", "gcp/n2-standard-9", ":2: prices.0.vms.gcp/n2-standard-9"),
        ("formulas", "formula", ":6: prices.2.formula: 'formula': there is no such key"),
        ("azure/P30: 100", "azure/P31: 100", ":3: prices.1.disks.azure/P31"),
        ("per_gib: 0.1", "per_gib: much", ":6: prices.2.formulas.gcp/hyperdisk-ml.per_gib"),
    ],
)
def test_an_error_names_its_line_and_the_way_out(
    tmp_path: Path, was: str, wrong: str, told: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE.replace(was, wrong))
    asks = ("--cloud", "gcp", "--data", "1TB", "--reads", "100", "--p99", "10")
    refused = disklab("advise", *asks, "--prices", str(file))
    assert refused.returncode == 2
    assert f"{file}{told}" in refused.stderr
    assert "; " in refused.stderr.partition(told)[2]
