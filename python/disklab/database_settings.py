"""Which settings an experiment may give a database: `databases/X/settings.yaml`, and the check.

A server believes its settings: some of them name commands that it runs, libraries that it loads or
files that it writes. So what is not in the list, with a type and a range, is refused, by the reader
of a file, by root's part and by whoever writes a server's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from disklab.catalog.suggest import did_you_mean, suggestions
from disklab.database_facts import facts_of
from disklab.errors import Problem
from disklab.kits import is_kit, kit_of
from disklab.reading import PART, yaml_value
from disklab.setting_kinds import (
    SWITCHES,
    DatabaseSettings,
    Setting,
    SettingKind,
    as_text,
    spelled,
)

__all__ = ["SWITCHES", "Setting", "setting_problem", "setting_problems", "settings_of", "spelled"]
MOST_SHOWN = 80
_LINE = re.compile(r"\d+(\.\d+)*", re.ASCII)


@cache
def settings_of(engine: str) -> DatabaseSettings:
    """Return the settings of a database of the registry, or of a kit."""
    if is_kit(engine):
        kit = kit_of(engine).kit
        return DatabaseSettings(units=kit.units, settings=kit.settings)
    file = resources.files("disklab") / "databases" / engine / "settings.yaml"
    content = yaml_value(file.read_text(encoding="utf-8"), PART, str(file), ours=True)
    return DatabaseSettings.model_validate(content)


def setting_problem(
    engine: str, name: str, value: Setting, place: str, release: str | None = None
) -> Problem | None:
    """Return what is wrong with a setting, of a release where one is named; None: nothing."""
    listed, title = settings_of(engine), facts_of(engine).title
    kind = listed.settings.get(name)
    shown = _shortened(repr(value))
    if kind is None:
        return _refused(engine, name, shown, place)
    numbers = _LINE.match(release or "")
    if numbers is not None and not kind.has(numbers[0]):
        rule = f"{title} {numbers[0]} has no such setting: releases {_range(kind)} have it"
        others = {other for other, each in listed.settings.items() if each.has(numbers[0])}
        return Problem(place, shown, rule, _nearest(name, others, engine))
    broken = kind.rule_broken(value, listed)
    if broken is None:
        return None
    otherwise = f"write it as {title} does"
    way_out = did_you_mean(as_text(value), kind.values, otherwise) if kind.values else otherwise
    return Problem(place, shown, broken, way_out)


def _refused(engine: str, name: str, shown: str, place: str) -> Problem:
    """Return why a name is not in the list."""
    listed, title = settings_of(engine), facts_of(engine).title
    if name in listed.reasons:
        rule = f"disklab sets this itself: {listed.reasons[name]}"
        return Problem(place, shown, rule, "leave it out")
    if name in listed.dangers:
        rule = f"no experiment may set this of {title}: {listed.dangers[name]}"
        return Problem(place, shown, rule, "leave it out")
    rule = f"is no setting of {title} that an experiment may have"
    return Problem(place, _shortened(name), rule, _nearest(name, listed.settings, engine))


def setting_problems(
    engine: str, settings: Mapping[str, Setting], release: str | None = None
) -> list[Problem]:
    """Return what is wrong with settings, for whoever is about to write them down."""
    found = (
        setting_problem(engine, name, value, f"database.settings.{name}", release)
        for name, value in settings.items()
    )
    return [problem for problem in found if problem is not None]


def _nearest(name: str, known: Iterable[str], engine: str) -> str:
    if not suggestions(name, known):
        page = "docs/kits.md" if is_kit(engine) else "docs/databases.md"
        return f"{page} says which {facts_of(engine).title} takes"
    return did_you_mean(name, known, "")


def _range(kind: SettingKind) -> str:
    since = [] if kind.since is None else [f"from {kind.since}"]
    return " ".join([*since, *([] if kind.until is None else [f"up to {kind.until}"])])


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."
