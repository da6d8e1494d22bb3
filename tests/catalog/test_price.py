"""What volumes and VMs cost, and the weather of disks: complete, with sources, replaceable."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from disklab.catalog import NoPrice, Price, load_catalog, vm_price, volume_price
from disklab.catalog.description import _doubt, describe_disk, describe_local
from disklab.catalog.price import DEFAULT_TERMS
from disklab.catalog.weather import (
    LOCAL,
    WeatherFacts,
    compressed_year,
    weather_of,
    weather_of_disks,
)
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


def test_every_family_has_every_number_with_a_source() -> None:
    catalog = load_catalog()
    for name in (*catalog.families, LOCAL):
        weather = weather_of(catalog, name, name.partition("/")[0])
        assert set(weather) == set(WeatherFacts.model_fields), name
        for odds in weather.odds.values():
            assert odds.status != "own"
            assert set(odds.source) <= set(catalog.sources)


def test_promises_are_taken_where_there_are_any() -> None:
    catalog = load_catalog()
    for name, ratio, status in (
        ("aws/gp3", 0.01, "promise"),
        ("aws/io2", 0.001, "promise"),
        ("azure/PremiumSSDv2", 0.001, "promise"),
        ("azure/UltraDisk", 0.001, "assumed"),
        ("gcp/pd-balanced", 0.001, "assumed"),
    ):
        odds = weather_of(catalog, name, name.partition("/")[0]).odds["slow_ratio"]
        assert (odds.value, odds.status) == (ratio, status), name


def test_the_catalogue_shows_it() -> None:
    catalog = load_catalog()
    shown = {
        fact["fact"]: fact for fact in describe_disk(catalog, catalog.disks["aws/gp3"])["weather"]
    }
    slow = shown["slower than promised"]
    assert slow["value"] == "1.000% of the time (0.067% to 1.000%)"
    assert (slow["status"], slow["source"]) == ("promise", ["aws_opt"])
    local = {fact["fact"]: fact for fact in describe_local(catalog, "local")["weather"]}
    assert local["slower than promised"]["status"] == "observation"


def test_a_users_file_replaces_single_numbers(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("weather: {aws/gp3: {slow_ratio: 0.002}, any: {stalls_per_year: 3}}")
    catalog = load_catalog([path])
    weather = weather_of(catalog, "aws/gp3", "aws")
    assert (weather["slow_ratio"], weather.odds["slow_ratio"].status) == (0.002, "own")
    assert weather["stalls_per_year"] == 3
    assert weather["slow_min"] == 6
    assert weather_of(load_catalog([]), "aws/gp3", "aws")["slow_ratio"] == 0.01


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("weather: {aws/gp9: {slow_ratio: 0.1}}", "weather is that of a family of disks"),
        ("weather: {aws/gp3: {slow_ratio: 0.9}}", "slow_ratio is at most 0.5"),
        ("weather: {aws/gp3: {slow_ratio: -1}}", "greater than or equal to 0"),
        ("weather: {aws/gp3: {slow_ratio: .nan}}", "greater than or equal to 0"),
        ("weather: {aws/gp3: {stalls_per_year: .inf}}", "at most 10000"),
        ("weather: {aws/gp3: {slow_ratio: true}}", "valid dictionary"),
        ("weather: {aws/gp3: {slow: 0.1}}", "there is no such key"),
        ("weather: {any: {slow_min: {value: 2, low: 3}}}", "low, value and high must grow"),
        ("weather: {any: {slow_min: {value: 2, status: promise}}}", "must name its source"),
        ("weather: {any: {slow_min: {value: 2, source: nobody}}}", "a key of `sources`"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=rule):
        load_catalog([path])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("disks", "seconds"), [("aws/gp3", 600), ("azure/P30", 60), ("local", 20)])
def test_a_compressed_year_has_each_kind_at_least_once(
    disks: str, seconds: float, seed: int
) -> None:
    weather = weather_of_disks(load_catalog(), disks, "azure")
    spells = compressed_year(weather, seconds, seed)
    assert spells == compressed_year(weather, seconds, seed)
    assert any(spell.times is None for spell in spells)
    assert any(spell.shared for spell in spells)
    alone = [spell.times for spell in spells if spell.times is not None and not spell.shared]
    if disks != "local":
        assert any(times < 2 for times in alone)
        assert any(2 <= times <= 10 for times in alone)
        assert any(times > 10 for times in alone)
    ends = [(spell.at_s, spell.at_s + spell.lasts_s) for spell in spells]
    assert all(end <= begin + 0.2 for (_, end), (begin, _) in pairwise(ends))
    assert ends[-1][1] <= seconds + 0.2
    assert all(spell.lasts_s > 0 for spell in spells)
