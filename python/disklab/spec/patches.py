"""Factors: how a level's patch changes the baseline.

A patch is merged into what is there, key by key. Three rules, and no others:
keys that are alternatives push each other out; some mappings are one value and are replaced whole;
`null` takes a key away.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem
from disklab.spec.located import Document, Key, Located, Scalar, leaves

# More cells than a simulation answers in minutes, or a person reads in a table.
MOST_TRIALS = 100_000

ALTERNATIVES: dict[Key, tuple[frozenset[str], ...]] = {
    (): (frozenset({"cluster"}), frozenset({"device"})),
    ("workload",): (
        frozenset({"operations", "keys", "load"}),
        frozenset({"sysbench"}),
        frozenset({"tpcc"}),
        frozenset({"tool"}),
        frozenset({"fio"}),
        frozenset({"trace"}),
    ),
    ("workload", "load"): (frozenset({"threads", "at_most"}), frozenset({"rate"})),
    ("procedure",): (frozenset({"closed_loop"}), frozenset({"fixed"}), frozenset({"variable"})),
    ("dataset",): (frozenset({"rows"}), frozenset({"fill"})),
}
"""Where a key of one group appears in a patch, the keys of the other groups go."""

WHOLE: frozenset[Key] = frozenset({("workload", "operations"), ("workload", "stop")})
"""Mappings that are one value: shares that make 100 %, and the end of a measurement."""

OWN_NAMES: frozenset[Key] = frozenset({("cluster", "volumes")})
"""Mappings whose keys are the user's names: a patch of a part needs the name to be there."""


@dataclass(frozen=True)
class Level:
    """One level of a factor and what it changes."""

    label: str | int | float
    patch: Located
    """A nested mapping; empty: the baseline."""


@dataclass(frozen=True)
class Factor:
    """What is varied, in the order of the file."""

    name: str
    levels: tuple[Level, ...]


def factors_of(document: Document, problems: list[Problem]) -> list[Factor]:
    """Return the factors of a file; what is wrong with them is added to the problems."""
    given = document.root.at(("factors",))
    if "factors" not in (document.root.mapping or {}):
        return []
    if given.mapping is None:
        place = document.place(("factors",))
        rule = "factors is a mapping of names to levels"
        problems.append(
            Problem(place, str(given), rule, "write {workload.load.threads: [64, 128]}")
        )
        return []
    found = []
    for name, levels in given.mapping.items():
        place = f"{document.path}:{levels.line}: factors.{name}"
        if isinstance(levels.value, list) and levels.value:
            made = _listed(name, levels.value, place, problems)
        elif levels.mapping:
            made = list(_named(name, levels.mapping, document, problems))
        else:
            way_out = f"write {name}: [a, b] or {name}: {{level: {{path: value}}}}"
            problems.append(Problem(place, str(levels), "a factor has levels", way_out))
            continue
        found.append(Factor(name, tuple(made)))
    trials = 1
    for factor in found:
        trials *= len(factor.levels)
    if trials > MOST_TRIALS:
        rule = f"a matrix has at most {MOST_TRIALS} trials"
        problems.append(
            Problem(document.place(("factors",)), f"{trials} trials", rule, "vary less")
        )
        return []
    return found


def _listed(name: str, values: list[Located], place: str, problems: list[Problem]) -> list[Level]:
    """Return the levels of a dotted path with a list of values."""
    made: list[Level] = []
    labels: set[str | int | float] = set()
    for item in values:
        label = label_of(item)
        if label in labels:
            rule = "each level may appear only once"
            problems.append(Problem(place, str(item), rule, "remove one of them"))
            continue
        labels.add(label)
        made.append(Level(label, _owned(nested(name, item), name)))
    return made


def label_of(item: Located) -> str | int | float:
    """Return a level's label: a number as a number, everything else as it was written."""
    value: object = item.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(item)
    return value


def _named(
    name: str, levels: dict[str, Located], document: Document, problems: list[Problem]
) -> Iterator[Level]:
    """Yield named levels; a level's key may be a dotted path."""
    for label, given in levels.items():
        patches = given.mapping
        if patches is None and given.value is not None:
            place = f"{document.path}:{given.line}: factors.{name}.{label}"
            rule = "a level is a mapping of paths to values; {} is the baseline"
            problems.append(Problem(place, str(given), rule, "write {cluster.vm: ...} or {}"))
        whole = Located({}, given.line)
        for path, value in (patches or {}).items():
            whole = _joined(whole, nested(path, value))
        yield Level(label, _owned(whole, name))


def nested(path: str, value: Located) -> Located:
    """Return `{a: {b: value}}` for `a.b`."""
    for step in reversed(path.split(".")):
        value = Located({step: value}, value.line)
    return value


def _joined(one: Located, other: Located) -> Located:
    """Return two patches of one level as one."""
    if one.mapping is None or other.mapping is None:
        return other
    entries = dict(one.mapping)
    for key, value in other.mapping.items():
        entries[key] = _joined(entries[key], value) if key in entries else value
    return replace(other, value=entries)


def _owned(patch: Located, factor: str) -> Located:
    """Return the patch with every value marked as the factor's."""
    if patch.mapping is not None:
        entries = {key: _owned(value, factor) for key, value in patch.mapping.items()}
        return replace(patch, value=entries, set_by=factor)
    return replace(patch, set_by=factor)


@dataclass
class Merge:
    """Merges the levels of one trial into the baseline; notes what contradicts."""

    document: Document
    problems: list[Problem]

    def tree(self, base: Located, levels: tuple[Level, ...]) -> Located:
        """Return the trial's values."""
        for level in levels:
            base = self.merged(base, level.patch, ())
        return base

    def merged(self, base: Located, patch: Located, key: Key) -> Located:
        """Return the base with the patch in it."""
        before, entries = base.mapping, patch.mapping
        if before is None or entries is None or key in WHOLE:
            self.check_overwrite(base, patch, key)
            return patch
        result = dict(before)
        for gone in pushed_out(key, set(before), set(entries)):
            self.check_overwrite(result.pop(gone), patch, (*key, gone), gone=True)
        for name, value in entries.items():
            inner = (*key, name)
            if value.value is None:
                if name in result:
                    self.check_overwrite(result.pop(name), value, inner, gone=True)
            elif name in result:
                result[name] = self.merged(result[name], value, inner)
            else:
                self.check_name(before, value, inner)
                result[name] = value
        return replace(base, value=result)

    def check_overwrite(
        self, base: Located, patch: Located, key: Key, *, gone: bool = False
    ) -> None:
        """Note when another factor has set what this one changes."""
        same = not gone and base.plain() == patch.plain()
        for at, leaf in leaves(base, key):
            if leaf.set_by is None or leaf.set_by == patch.set_by or same:
                continue
            path = ".".join(map(str, at))
            place = f"{self.document.path}:{patch.line}: {path}"
            rule = (
                f"the factors {leaf.set_by!r} (line {leaf.line}) and {patch.set_by!r} both set it"
            )
            value = f"{leaf} and {'another choice' if gone else patch}"
            self.problems.append(Problem(place, value, rule, "let one factor decide it"))
            return

    def check_name(self, before: dict[str, Located], value: Located, key: Key) -> None:
        """Note when a patch changes a part of something that has never been named."""
        if key[:-1] not in OWN_NAMES or "disks" in (value.mapping or {}):
            return
        place = f"{self.document.path}:{value.line}: {'.'.join(map(str, key))}"
        rule = "a level patches what the baseline has, or gives a whole volume"
        way_out = did_you_mean(str(key[-1]), before, f"known here are {', '.join(before)}")
        self.problems.append(Problem(place, str(key[-1]), rule, way_out))


def pushed_out(key: Key, before: set[str], patch: set[str]) -> list[str]:
    """Return the keys that go because the patch names an alternative to them."""
    groups = ALTERNATIVES.get(key, ())
    named = [group for group in groups if group & patch]
    # None, or a contradiction, in the patch or in the baseline, that the model will refuse.
    if len(named) != 1 or named[0] & before:
        return []
    return [name for group in groups if group is not named[0] for name in group & before]


def combinations(factors: list[Factor]) -> Iterator[tuple[Level, ...]]:
    """Yield one level of each factor, the last factor fastest."""
    return itertools.product(*(factor.levels for factor in factors))


__all__ = ["MOST_TRIALS", "Factor", "Level", "Merge", "Scalar", "combinations", "factors_of"]
