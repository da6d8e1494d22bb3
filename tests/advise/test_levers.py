"""Levers: what is turned, on which options, and that a compaction counts with its room."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.advice.candidates import Candidate, field_of
from disklab.advice.levers import (
    COMPACTION,
    collected,
    collectors,
    compactions,
    cost_of,
    one_more,
    singly,
    tuned,
)
from disklab.advice.options import Option
from disklab.advice.question import FACTOR, Question, question_of
from disklab.advice.simulator import Simulator
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.prediction.cells import prepare
from disklab.results.required import Kept, Outcome

FILE = """
title: t
cluster:
  nodes: 3
  vm: azure/Standard_E8s_v3
  volumes: {{data: {{disks: 4 x azure/P30}}}}
client: {{nodes: 2, vm: azure/Standard_E16s_v3}}
database:
  engine: cassandra
  replication_factor: 3
  table: {{compaction: {compaction}}}
dataset: {{rows: 500M, row: 1 x 1000B}}
workload:
  operations: {{read: {read}%, write: {write}%}}
  load: {{rate: 2000/s}}
  stop: {{duration: 10s}}
require: {{rate: 2000/s}}
"""
CALIBRATION = calibration_for("cassandra")


def question(compaction: str, read: int = 80) -> Question:
    text = FILE.format(compaction=compaction, read=read, write=100 - read)
    return question_of(spec.parse(text, Path("t.yaml")), ("P20", "P30", "E8s_v3"))


def candidates(asked: Question) -> dict[str, Candidate]:
    field = field_of(asked, load_catalog(), CALIBRATION)
    return {one.hardware: one for one in field.candidates}


@pytest.mark.parametrize(
    ("compaction", "read", "others"),
    [
        ("size-tiered", 80, ("leveled",)),
        ("unified", 80, ("leveled",)),
        ("leveled", 80, ()),
        ("leveled", 20, ("size-tiered",)),
    ],
)
def test_another_compaction_is_tried_where_it_may_help(
    compaction: str, read: int, others: tuple[str, ...]
) -> None:
    assert compactions(question(compaction, read).spec) == others


def test_a_compaction_that_wants_less_room_lets_smaller_disks_be_bought() -> None:
    asked = question("size-tiered")
    small, large = (candidates(asked)[f"E8s_v3 with {d}"] for d in ("P30", "2 x P30"))
    assert small.name == "E8s_v3 with P30, leveled compaction"
    assert small.patch()[COMPACTION] == "leveled"
    assert large.fixed == {}
    assert large.name == "E8s_v3 with 2 x P30"
    kept = Kept(Outcome.MET, ())
    assert Option(small, (), kept, 3, None).needs == ["leveled compaction for the data to fit"]
    assert Option(large, (), kept, 3, None).needs == []


def test_a_compaction_without_room_on_the_disks_is_not_tried() -> None:
    asked = question("leveled", 20)
    small, large = (candidates(asked)[f"E8s_v3 with {d}"] for d in ("P30", "2 x P30"))
    assert not any(COMPACTION in one.settings for one in tuned(small, asked.spec))
    assert any(one.settings[COMPACTION] == "size-tiered" for one in tuned(large, asked.spec)[1:])


def test_each_variant_is_simulated_and_its_compaction_reaches_the_simulator() -> None:
    asked = question("size-tiered", read=20)
    found = candidates(asked)
    both = [found["E8s_v3 with P30"], found["E8s_v3 with 2 x P30"]]
    variants = [
        variant for one in both for variant in collected((one, *tuned(one, asked.spec)), asked.spec)
    ]
    names = [one.name for one in variants]
    assert len(set(names)) == len(names) == 10
    simulated = Simulator(asked, load_catalog(), CALIBRATION, workers=1).quick(variants)
    assert sorted(simulated) == sorted(names)
    experiment = asked.experiment({one.name: one.patch() for one in variants})
    jobs = {
        str(trial.factors[FACTOR]): prepare(trial, load_catalog(), CALIBRATION, "t").job
        for trial in experiment.trials("predict")
    }
    told = [job["database"]["database"]["compaction"] for one in names if (job := jobs[one])]
    strategies = ["size-tiered", "leveled"]
    ways = ["size-tiered", *strategies]
    assert told == ["leveled"] * 4 + ways + ways


def test_levers_are_turned_one_by_one_beside_what_must_stay() -> None:
    asked = question("size-tiered")
    small = candidates(asked)["E8s_v3 with P30"]
    bare, *turned = singly(tuned(small, asked.spec)[0], asked.spec)
    assert bare.settings == {COMPACTION: "leveled"}
    assert len(turned) == 3
    more = one_more(bare, asked.spec)
    assert [words for _, words, _ in more] == ["128 concurrent reads", "8 KiB read-ahead", "ZGC"]
    # What each takes is said beside what it gives.
    assert ["processor" in cost for _, _, cost in more] == [False, False, True]
    large = candidates(asked)["E8s_v3 with 2 x P30"]
    (leveled,) = (one for one in one_more(large, asked.spec) if one[1] == "leveled compaction")
    assert leveled[2] == "more writes in the background"


def test_a_log_that_is_longer_between_checkpoints_is_replayed_for_longer() -> None:
    cost = cost_of("database.settings.max_wal_size", "16GB", candidates(question("leveled"))[P30])
    assert cost == "a crash leaves up to 16 GB of log to replay, 2 minutes or more"


P30 = "E8s_v3 with P30"


@pytest.mark.parametrize(
    ("database", "tried"),
    [
        ("'5.0'", ("zgc",)),
        ("'3.11'", ()),
        ("'5.0'\n  jvm: {collector: g1}", ()),
    ],
)
def test_a_collector_that_never_stops_for_long_is_tried_where_java_has_it(
    database: str, tried: tuple[str, ...]
) -> None:
    text = FILE.format(compaction="leveled", read=80, write=20)
    text = text.replace("engine: cassandra", f"engine: cassandra\n  version: {database}", 1)
    assert collectors(question_of(spec.parse(text, Path("t.yaml"))).spec) == tried


def turned_of_mariadb(nodes: int, read: int, require: str = "") -> set[str]:
    """Return the settings that are turned on three P30s of a MariaDB."""
    text = FILE.format(compaction="leveled", read=read, write=100 - read)
    text = text.replace("cassandra", "mariadb").replace("nodes: 3", f"nodes: {nodes}")
    text = text.replace("factor: 3\n  table: {compaction: leveled}", f"factor: {nodes}")
    text = text.replace("500M", "50M").replace("require: {", f"require: {{{require}")
    asked = question_of(spec.parse(text, Path("t.yaml")), ("P30", "E8s_v3"))
    option, *_ = field_of(asked, load_catalog(), calibration_for("mariadb")).candidates
    paths = {path for one in singly(option, asked.spec) for path in one.settings}
    return {path.removeprefix("database.settings.") for path in paths}


@pytest.mark.parametrize(
    ("nodes", "read", "settings"),
    [
        (1, 50, {"innodb_log_file_size"}),
        (3, 50, {"wsrep_slave_threads", "innodb_log_file_size"}),
        (3, 100, set[str]()),
    ],
)
def test_settings_of_writes_are_turned_that_lose_nothing(
    nodes: int, read: int, settings: set[str]
) -> None:
    assert turned_of_mariadb(nodes, read) - {"cluster.volumes.data.read_ahead"} == settings


@pytest.mark.parametrize(
    ("version", "setting"),
    [
        ("'5.7.44'", "innodb_log_file_size"),
        ("8.0.29", "innodb_log_file_size"),
        ("8.0.30", "innodb_redo_log_capacity"),
        ("8.4.3", "innodb_redo_log_capacity"),
        ("null", "innodb_redo_log_capacity"),
    ],
)
def test_a_setting_is_turned_where_a_release_has_it(version: str, setting: str) -> None:
    text = FILE.format(compaction="leveled", read=50, write=50)
    text = text.replace("cassandra", f"mysql\n  version: {version}").replace("nodes: 3", "nodes: 1")
    text = text.replace("factor: 3\n  table: {compaction: leveled}", "factor: 1")
    asked = question_of(spec.parse(text.replace("500M", "50M"), Path("t.yaml")), ("P30", "E8s_v3"))
    option, *_ = field_of(asked, load_catalog(), calibration_for("mysql")).candidates
    turned = {path for one in singly(option, asked.spec) for path in one.settings}
    logs = {path for path in turned if "log" in path}
    assert logs == {f"database.settings.{setting}"}
    (words,) = (words for _, words, cost in one_more(option, asked.spec) if "replay" in cost)
    assert words.endswith("of redo log")


def test_what_can_lose_a_database_is_turned_for_those_alone_who_say_so() -> None:
    assert "innodb_doublewrite" not in turned_of_mariadb(1, 50)
    assert "innodb_doublewrite" in turned_of_mariadb(1, 50, "durability: may be lost, ")
