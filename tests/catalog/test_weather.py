"""The weather of disks: complete, with sources, and replaceable by a user's own file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from disklab.catalog import load_catalog
from disklab.catalog.description import describe_disk, describe_local
from disklab.catalog.weather import (
    LOCAL,
    WeatherFacts,
    compressed_year,
    weather_of,
    weather_of_disks,
)
from disklab.errors import UserError


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
