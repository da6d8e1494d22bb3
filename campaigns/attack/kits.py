"""Kits: names of files in experiments, words for settings and loads, twisted kit files."""

from __future__ import annotations

import json
import math
import random
import tarfile
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import yaml
from disklab import spec
from disklab.database_settings import setting_problems
from disklab.databases.fetching import unpack
from disklab.kits import engine_of, is_there, kit_named, read_kit, shipped
from disklab.kits.plan import Plan, Spot
from disklab.kits.results import Reader
from disklab.kits.schema import Kit, Tool

from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.settings import PLAIN
from campaigns.attack.words import hostile_word

TEXT = """\
title: kits
cluster: {{nodes: 1, vm: azure/Standard_D4s_v5, volumes: {{data: {{disks: azure/P10}}}}}}
database: {{engine: kit, kit: {kit}, settings: {settings}}}
workload: {{tool: {{load: {load}, parameters: {parameters}}}, stop: {{duration: 8s}}}}
"""
EMPTY = Tool(run=("x",))
OWN_WORDS = ["{run}", "{volume.data}", "{node.address}\n", "always\nport 1", "1 --exec", "no\0"]


def _word(chance: random.Random, yard: Yard) -> str:
    return chance.choice([hostile_word(chance, yard.canary), chance.choice(OWN_WORDS)])


def _plan(kit: Kit, settings: dict[str, str]) -> Plan:
    programs = {program.name: "/p" for program in kit.programs}
    spot = Spot("n1", "127.0.0.1", dict.fromkeys(kit.volumes, "/v"), "/r", programs)
    return Plan(kit, [spot], dict.fromkeys([*kit.memory, "node"], 1 << 28), settings)


def _named(word: str, yard: Yard) -> None:
    text = TEXT.format(kit=json.dumps(word), settings="{}", load="x", parameters="{}")
    try:
        spec.parse(text)
    finally:
        if is_there(word) and word not in shipped():
            raise HurtError(f"an experiment brought the kit {word!r}")


def _set(name: str, settings: dict[str, Any], parameters: dict[str, Any]) -> None:
    kit = kit_named(name).kit
    text = TEXT.format(
        kit=name,
        settings=json.dumps(settings),
        load=next(iter(kit.loads), "x"),
        parameters=json.dumps(parameters),
    )
    refused = bool([*setting_problems(engine_of(name), settings)])
    if not refused:
        plain, given = _plan(kit, {}), _plan(kit, {key: str(v) for key, v in settings.items()})
        for file in kit.files:
            before, after = plain.text(0, file.name), given.text(0, file.name)
            if len(before.splitlines()) != len(after.splitlines()):
                raise HurtError(f"{settings!r} became {after!r}")
    taken = spec.parse(text).trials("rehearse")[0].spec
    if refused:
        raise HurtError(f"the file was taken: {settings!r}")
    assert taken.workload.tool is not None
    for value in taken.workload.tool.parameters.values():
        if PLAIN.fullmatch(str(value)) is None:
            raise HurtError(f"a load takes {value!r}")


def _twisted(text: str, yard: Yard) -> None:
    file = yard.folder / "kit.yaml"
    file.write_text(text, encoding="utf-8")
    kit = read_kit(file).kit
    for program in kit.programs:
        if ".." in f"{program.path}{program.script}{program.lock}":
            raise HurtError(f"{program!r} leads out of its folder")
    for each in kit.files:
        _plan(kit, {}).text(0, each.name)


ANSWERS = (
    *('{"count": 1e999}', '{"count": NaN, "failed": -1, "seconds": 0}', '{"count": true}'),
    *('{"a": ' * 5000, "9" * 400, "second 1e400", "\x1b[2J", "\0", '"SET","1e9999"', "1 us 99999"),
    *("a" * 60_000, '"SET",' + '"1",' * 9000, "t:0:-5", "P50: ,us | P90: 1us | P99: .us"),
)
SLOW_SECONDS = 10.0


def _answered(tool: Tool, lines: list[str]) -> None:
    begun = time.process_time()
    reader = Reader(tool.results, "a tool")
    for line in lines:
        reader.take(line)
    reader.check("")
    if not all(map(math.isfinite, [*reader.numbers.values(), *sum(reader.buckets, ())])):
        raise HurtError(f"{lines!r} became {reader.numbers}")
    if time.process_time() - begun > SLOW_SECONDS:
        raise HurtError(f"{lines!r} took {SLOW_SECONDS} s")


def _unpacked(name: str, yard: Yard) -> None:
    """Unpack an archive that wants to write elsewhere."""
    folder, archive = yard.folder / "unpacked", yard.folder / "a.archive"
    folder.mkdir(exist_ok=True)
    before = yard.victim.read_bytes() if yard.victim.exists() else None
    if name.startswith("zip"):
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr(name[3:], "hostile")
    else:
        with tarfile.open(archive, "w") as made:
            member = tarfile.TarInfo(name[3:])
            if name.startswith("lnk"):
                member.type, member.linkname, member.name = tarfile.SYMTYPE, name[3:], "link"
            made.addfile(member)
    try:
        unpack(archive, folder)
    finally:
        led = [file for file in folder.rglob("*") if folder not in file.resolve().parents]
        after = yard.victim.read_bytes() if yard.victim.exists() else None
        if led or before != after or yard.canary.exists():
            raise HurtError(f"an archive's {name!r} led out of its folder: {led}")


def _twist(value: Any, chance: random.Random, yard: Yard) -> Any:
    """Return a part of a kit with one place of it replaced by something else."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice([*value])
        return {**value, key: _twist(value[key], chance, yard)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], _twist(value[at], chance, yard), *value[at + 1 :]]
    return chance.choice([_word(chance, yard), None, -1, 2**70, [], {}, "../../x", "(a+)+$", True])


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield names, settings and parameters of each kit, and kit files with a place replaced."""
    while True:
        for name in shipped():
            kit = kit_named(name).kit
            word = chance.choice([_word(chance, yard), f"../{name}", str(yard.folder / "kit.yaml")])
            yield f"kit {word!r}", partial(_named, word, yard)
            settings = {key: _word(chance, yard) for key in chance.sample([*kit.settings], 1)}
            load = next(iter(kit.loads.values()), None)
            own = [*load.parameters] if load is not None else []
            parameters = {key: _word(chance, yard) for key in own} if chance.random() < 0.5 else {}
            given = {} if parameters else settings
            yield f"{name}: {given!r} {parameters!r}", partial(_set, name, given, parameters)
            tool = chance.choice([*kit.loads.values(), *filter(None, [kit.check])] or [EMPTY])
            lines = chance.choices([*ANSWERS, _word(chance, yard)], k=4)
            yield f"{name} answers {lines!r:.80}", partial(_answered, tool, lines)
            out = chance.choice(["../victim", "/../../victim", str(yard.victim), "a/../../ran"])
            way = chance.choice(["zip", "tar", "lnk"])
            yield f"an archive: {way} {out}", partial(_unpacked, way + out, yard)
            written = (kit_named(name).folder / "kit.yaml").read_text(encoding="utf-8")
            twisted = yaml.safe_dump(_twist(yaml.safe_load(written), chance, yard))
            yield f"a kit file: {twisted[:80]!r}", partial(_twisted, twisted, yard)


KIND = Kind(
    "kits",
    "an experiment that names a kit by a path or a word of a shell; hostile words for settings and "
    "parameters of the kits that come along; kit files with one place replaced; answers of load "
    "tools that are no figures; archives that lead elsewhere. No experiment brings a kit, no value "
    "becomes a line more, a kit file is read or refused, figures are finite, nothing is written "
    "beside a program's folder",
    tries,
)
