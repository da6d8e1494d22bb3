"""Settings of databases: names and values that a server would believe."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import yaml
from disklab import spec
from disklab.database_facts import DATABASES
from disklab.database_settings import setting_problems, settings_of
from disklab.databases import NodePlace, Sizes
from disklab.databases.cassandra.settings import merged
from disklab.databases.etcd.configuration import MemberFiles
from disklab.databases.etcd.configuration import arguments as etcd_arguments
from disklab.databases.etcd.configuration import plan_memory as plan_etcd
from disklab.databases.postgresql.configuration import ServerFiles, as_text, server_settings

from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.words import hostile_word

TEXT = """\
title: settings
cluster: {{nodes: 1, vm: azure/Standard_E8s_v3, volumes: {{data: {{disks: azure/P30}}}}}}
database: {{engine: {engine}, settings: {settings}}}
dataset: {{rows: 1M, row: 1 x 1000B}}
workload: {{operations: {{read: 100%}}, load: {{threads: 1}}}}
"""
PLAIN = re.compile(r"[A-Za-z0-9_.µ/+ -]{1,64}")
"""All that a value has which a server is given."""
SUSPECT = re.compile(
    r"command|librar|preload|conninfo|_file$|-file$|director|_dirs?$|-dir$|urls?$|address|class"
    r"|include|keystore|script|exec|plugin|discovery|_conf|seed|authen|path$|hba|ident"
)
"""Parts of names that speak of files, commands, libraries or hosts."""
INNOCENT = {
    *("repair_command_pool_full_strategy", "repair_command_pool_size"),
    *("uuid_sstable_identifiers_enabled", "authentication_timeout", "geqo_seed"),
    *("log_executor_stats", "log_recovery_conflict_waits", "log_replication_commands"),
    *("max_parallel_apply_workers_per_subscription", "max_sync_workers_per_subscription"),
    *("quote_all_identifiers", "standard_conforming_strings"),
}
"""Names with such a part that speak of nothing of the kind; looked at one by one."""


def _name(engine: str, chance: random.Random, yard: Yard) -> str:
    listed = settings_of(engine)
    known = [*listed.settings, *listed.reasons, *listed.dangers]
    name = chance.choice(known)
    match chance.randrange(6):
        case 0:
            return name.upper()
        case 1:
            at = chance.randrange(len(name))
            return name[:at] + chance.choice("_x-.=\n ") + name[at:]
        case 2:
            return hostile_word(chance, yard.canary)
        case 3:
            # One that another database has.
            return chance.choice([*settings_of(chance.choice(DATABASES)).settings])
        case _:
            return name


def _pair(engine: str, chance: random.Random, yard: Yard) -> tuple[str, Any]:
    """Return a name and a value: as a server takes them, almost so, or neither."""
    if chance.random() < 0.5:
        odd = [0, 1, 64, -1, 2**31, 2**63, 1.5, True, False, "64MB", "10s", "on", "64MiB/s"]
        value: Any = chance.choice([*odd, *[hostile_word(chance, yard.canary)] * len(odd)])
        return _name(engine, chance, yard), value
    name, kind = chance.choice([*settings_of(engine).settings.items()])
    usual: list[Any] = [*kind.values, *(["on", "off", True] if kind.type == "boolean" else [])]
    usual += [kind.least, kind.most] if kind.least is not None else []
    usual += [f"64{unit}" for unit in settings_of(engine).units.get(kind.type, ())]
    value = chance.choice([one for one in usual if one is not None] or [1])
    return name, value if chance.random() < 0.6 else f"{value}{hostile_word(chance, yard.canary)}"


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield settings of each database, through the file's reader and the server's files."""
    while True:
        for engine in DATABASES:
            pairs = dict(_pair(engine, chance, yard) for _ in range(chance.choice((1, 1, 2))))
            yield f"{engine}: {pairs!r}", partial(_attempt, engine, pairs, yard)


def _attempt(engine: str, pairs: dict[str, Any], yard: Yard) -> None:
    text = TEXT.format(engine=engine, settings=json.dumps(pairs))
    problems = setting_problems(engine, pairs)
    refused = {problem.place.removeprefix("database.settings.") for problem in problems}
    for name, value in pairs.items():
        if name in refused:
            continue
        if SUSPECT.search(name) and name not in INNOCENT:
            raise HurtError(f"{name} may be set to {value!r}")
        if PLAIN.fullmatch(str(value)) is None:
            raise HurtError(f"{name} takes {value!r}")
    database = spec.parse(text).trials("rehearse")[0].spec.database
    if problems:
        raise HurtError(f"the file was taken: {pairs!r}")
    assert database is not None
    _written(engine, dict(database.settings), yard)


def _written(engine: str, settings: dict[str, Any], yard: Yard) -> None:
    """Hold what a server would be given against what was asked: no line more, no word more."""
    place = NodePlace("n1", "127.64.0.1", {"data": yard.folder}, yard.folder, yard.folder)
    if engine == "postgresql":
        own = server_settings(ServerFiles(place), {}, {}, tls=False)
        lines = as_text({**own, **settings}).splitlines()
        if len(lines) != len({**own, **settings}):
            raise HurtError(f"{settings!r} became {lines}")
    elif engine == "cassandra":
        text = yaml.safe_dump(merged(settings, {}, {name: name for name in settings}))
        if yaml.safe_load(text) != settings:
            raise HurtError(f"{settings!r} became {text!r}")
    elif engine == "etcd":
        plan = plan_etcd(Sizes(1 << 30))
        words = etcd_arguments(MemberFiles(place), [place], plan, settings, 1)
        if any(re.fullmatch(r"--[a-z0-9-]+=[^\n\x00]*", word) is None for word in words):
            raise HurtError(f"{settings!r} became {words}")


KIND = Kind(
    "settings",
    "one or two settings of a database: real names, names of another one, slips, and words that "
    "name commands, files or hosts. None is taken that the list lacks, or with a value that is "
    "more than a word or a number; what a server is given has a line or a word for each",
    tries,
)
