"""What volumes and VMs cost, against the published figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.catalog import NoPrice, Price, load_catalog, vm_price, volume_price
from disklab.catalog.description import _doubt
from disklab.catalog.price import DEFAULT_TERMS
from disklab.errors import UserError

CATALOG = load_catalog([])


def price(disks: str) -> Price:
    found = volume_price(CATALOG, disks)
    assert isinstance(found, Price), found
    return found


def test_disks_of_a_list() -> None:
    one = price("azure/P30")
    assert (one.usd_per_month, one.region, one.source) == (135.17, "East US", ("east_us_snippet",))
    assert one.status == "published"
    assert price("4 x azure/P30").usd_per_month == 540.68
    assert price("azure/PremiumSSD(1000GiB)") == one
    # All sizes of a family are of one region, so that none looks cheap because its list is older.
    names = [f"azure/{tier}" for tier in ("P1", "P30", "P60", "P70", "P80", "E10", "E60", "E80")]
    assert {price(name).region for name in names} == {"East US"}
    assert price("azure/P80").usd_per_month == 3604.11


def test_a_price_to_be_paid_in_advance_or_derived_says_so() -> None:
    told = {(prices.terms, prices.status): _doubt(prices) for prices in CATALOG.prices}
    assert told[DEFAULT_TERMS, "published"] is None
    others = {key: words for key, words in told.items() if key != (DEFAULT_TERMS, "published")}
    assert others
    for (terms, status), words in others.items():
        parts = [terms] * (terms != DEFAULT_TERMS) + [status] * (status != "published")
        assert words == ", ".join(parts)


def test_ios_that_are_billed_are_in_the_price() -> None:
    two = price("2 x azure/E10")
    # 147,200 an hour, 0.002 USD for 10,000, 730 hours.
    assert two.usd_per_month == pytest.approx(2 * (9.60 + 147_200 / 1e4 * 0.002 * 730), abs=0.01)
    assert "of which 42.98 for I/Os" in (two.note or "")
    assert two.source == ("east_us_snippet", "standard_ssd_io_2026")
    # So a database's E30 costs more than a P30, whose I/Os are free.
    assert price("azure/E30").usd_per_month > price("azure/P30").usd_per_month


def test_a_family_takes_its_tier_from_the_size_of_the_volume() -> None:
    found = volume_price(CATALOG, "2 x azure/PremiumSSD", size_bytes=2 << 40)
    assert found == price("2 x azure/P30")


@pytest.mark.parametrize("name", ["azure/PremiumV2", "azure/Ultra"])
def test_disks_by_formula_cost_what_was_quoted(name: str) -> None:
    quotes = next(prices.quotes[name] for prices in CATALOG.prices if name in prices.quotes)
    # The fit of Ultra holds for the larger disks only, as its note says.
    large = [quote for quote in quotes if name == "azure/PremiumV2" or quote[3] > 200]
    assert len(large) >= 4
    for gib, iops, mb_per_s, eur in large:
        formula = next(
            prices.formulas[name]
            for prices in CATALOG.prices
            if prices.currency == "EUR" and name in prices.formulas
        )
        fit = formula.at(*(type(eur)(part) for part in (gib, iops, mb_per_s)))
        assert float(fit) == pytest.approx(float(eur), rel=0.0101)


def test_a_disk_by_formula_counts_what_was_bought() -> None:
    plain = price("azure/PremiumV2(250GiB)")
    assert (plain.status, plain.date) == ("published", "2026-08-13")
    assert plain.usd_per_month == pytest.approx(250 * 0.081, abs=0.01)
    more = price("2 x azure/PremiumV2(250GiB, 10000 IOPS, 250 MB/s)").usd_per_month
    assert more == pytest.approx(2 * (20.25 + 7000 * 0.0052 + 125 * 0.041), abs=0.02)
    # What Azure's calculator asked, by the source.
    assert price("azure/Ultra(4GiB, 100 IOPS, 1 MB/s)").usd_per_month == pytest.approx(5.79)


def test_what_is_not_in_the_price_is_said() -> None:
    assert "fees of on-demand bursting" in str(price("azure/P30(on-demand-burst)").note)
    assert price("local").usd_per_month == 0
    assert "in its price" in str(price("2 x nvme").note)


def test_no_price() -> None:
    assert volume_price(CATALOG, "gcp/hyperdisk-ml(100GiB)") == NoPrice(
        "no price in USD in the catalogue for gcp/hyperdisk-ml"
    )
    only_eur = volume_price(CATALOG, "azure/S80")
    assert only_eur == NoPrice("no price in USD in the catalogue for azure/S80 (only in EUR)")


def test_a_vm_costs_730_hours() -> None:
    found = vm_price(CATALOG, "azure/Standard_DS14_v2")
    assert isinstance(found, Price)
    assert found.usd_per_month == pytest.approx(1.482 * 730)
    assert (found.region, found.date, found.source) == ("eastus", "2026-06-18", ("karp_price",))
    europe = vm_price(CATALOG, "azure/Standard_DS14_v2", region="westeurope")
    assert isinstance(europe, Price)
    assert europe.region == "westeurope"
    aws = vm_price(CATALOG, "aws/i3.large")
    assert isinstance(aws, Price)
    assert aws.usd_per_month == pytest.approx(0.156 * 730)
    assert aws.region == "us-east-1"


def test_an_impossible_disk_has_no_price_but_a_reason() -> None:
    with pytest.raises(UserError, match="80000 IOPS on 10 GiB"):
        volume_price(CATALOG, "azure/PremiumV2(10GiB, 80000 IOPS)")
    with pytest.raises(UserError, match="did you mean azure/Standard_DS14_v2"):
        vm_price(CATALOG, "azure/DS14_v2")


def test_a_price_of_ones_own_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "sources: {contract: {at: our contract, date: '2026-01-01'}}\n"
        "prices:\n"
        "- {source: contract, region: East US, currency: USD, per: month, date: '2026-01-01',\n"
        "   disks: {azure/P30: 100}}\n"
    )
    found = volume_price(load_catalog([file]), "azure/P30")
    assert isinstance(found, Price)
    assert (found.usd_per_month, found.source) == (100.0, ("contract",))
