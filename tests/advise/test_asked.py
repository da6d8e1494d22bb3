"""`disklab advise` without a file: the options stand for one, a year's minutes among them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from disklab import spec
from disklab.advice.bounds import serving_nodes
from disklab.advice.question import question_of
from disklab.advice.simulator import in_a_quiet_hour
from disklab.cli.advise_asked import Asked, read_rate
from disklab.cli.experiment_new import read_ms
from disklab.errors import UserError
from disklab.results.required import Bounds, Required
from disklab.spec import feasible
from disklab.spec.draft import held

from tests.in_process import disklab

FULL = Asked(
    cloud="azure",
    nodes=3,
    copies=3,
    data="2TB",
    row="1000B",
    reads=20000,
    writes=5000,
    p99=10,
    head_room=20,
    durable=True,
    budget=5000,
)


def test_options_make_the_question_of_the_docs() -> None:
    question = question_of(FULL.experiment())
    require, spec = question.require, question.spec
    assert require.latencies() == {"read": {"p99": 10}, "write": {"p99": 10}}
    assert (require.rate_per_s, require.head_room_ratio) == (25000, 0.2)
    assert (require.durability, require.budget_usd_per_month) == ("survives deallocation", 5000)
    assert spec.dataset.rows == 2_000_000_000
    assert spec.workload.operations.read == 0.8


@pytest.mark.parametrize("data", ["1GB", "500GB", "40TB", "400TB"])
@pytest.mark.parametrize("cloud", ["azure", "aws"])
def test_the_search_begins_with_disks_that_hold_the_data(cloud: str, data: str) -> None:
    asked = Asked(cloud=cloud, data=data, reads=100, p99=20, nodes=12)
    assert question_of(asked.experiment()).spec.cluster is not None


@pytest.mark.parametrize(
    ("durable", "durability"),
    [
        (None, "survives a lost VM"),
        (True, "survives deallocation"),
        (False, "may be lost"),
    ],
)
def test_no_data_are_lost_with_one_vm_unless_that_is_said(
    durable: bool | None, durability: str
) -> None:
    asked = Asked(database="postgresql", data="1GB", reads=100, p99=20, durable=durable)
    assert question_of(asked.experiment()).require.durability == durability
    assert (durable is False) == ("--may-be-lost" in asked.given())


@pytest.mark.parametrize(
    ("state", "caches", "left"), [(None, "warm", 0), ("cold", "cold", 0), ("rested", "warm", 1)]
)
def test_what_is_bought_is_judged_in_its_steady_state_unless_another_is_asked_for(
    state: Literal["cold", "rested"] | None, caches: str, left: float
) -> None:
    before = question_of(replace(FULL, state=state).experiment()).spec.before
    assert (before.page_cache, before.credits_ratio) == (caches, left)


def test_large_data_are_spread_over_several_disks() -> None:
    assert held("aws/gp3", 20) == "aws/gp3(100GiB)"
    assert held("aws/gp3", 10_000) == "2 x aws/gp3(15000GiB)"


def test_everything_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(UserError) as caught:
        Asked(nodes=3).experiment()
    assert [one.place for one in caught.value.problems] == ["--data", "--p99", "--reads"]


def test_options_ask_for_one_server_of_postgresql() -> None:
    asked = Asked(database="postgresql", data="500GB", reads=8000, writes=500, p99=10)
    spec = question_of(asked.experiment()).spec
    assert (spec.database.engine, spec.cluster.nodes) == ("postgresql", 1)
    assert serving_nodes(spec) == 1
    with pytest.raises(UserError) as caught:
        Asked(database="postgresql", nodes=3, data="1GB", reads=1, p99=1).experiment()
    assert [problem.place for problem in caught.value.problems] == ["--nodes"]


ASKED_OF_POSTGRESQL = Asked(
    database="postgresql",
    data="64GB",
    reads=4000,
    writes=200,
    p99=10,
    durable=True,
)


def test_options_ask_for_what_holds_without_burst_credits() -> None:
    question = question_of(ASKED_OF_POSTGRESQL.experiment())
    assert question.spec.before.credits_ratio == 0
    assert not any("credits" in note for note in question.notes)


def test_a_file_that_counts_on_credits_is_warned_about(tmp_path: Path) -> None:
    text = ASKED_OF_POSTGRESQL.experiment().document.text.replace("credits: 0%", "credits: 100%")
    assert "credits: 100%" in text
    notes = question_of(spec.parse(text, tmp_path / "asked.yaml")).notes
    assert any("100% of the burst credits" in note for note in notes)


@pytest.mark.parametrize(
    ("wanted", "region", "words"),
    [
        (("P300", "nvme"), "eastus", "did you mean azure/P30"),
        (("L16s_v33",), "eastus", "L16s_v3"),
        ((), "mars", "no price of this region is known"),
    ],
)
def test_what_the_catalogue_does_not_have_is_refused_before_anything_runs(
    wanted: tuple[str, ...], region: str, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        question_of(FULL.experiment(), wanted, region)


def test_a_series_may_be_named() -> None:
    question = question_of(FULL.experiment(), ("Lsv3", "nvme"), "East US")
    assert question.wanted == ("Lsv3", "nvme")


def test_the_version_is_the_newest_unless_it_is_said() -> None:
    def version(asked: Asked) -> str | None:
        database = question_of(asked.experiment()).spec.database
        return database.version if database is not None else None

    assert version(FULL) == "5.0"
    assert version(replace(FULL, version="4.1")) == "4.1"
    assert version(ASKED_OF_POSTGRESQL) is None


def test_other_percentiles_and_storage_alone_may_be_asked_for() -> None:
    other = replace(FULL, p99=None, p95=5, p999=50).experiment()
    assert question_of(other).require.latencies()["read"] == {"p95": 5, "p99.9": 50}
    storage = question_of(replace(FULL, p99=None, storage_p99=2).experiment()).require
    assert (storage.storage_p99_ms, storage.latencies()) == (2, {})


@pytest.mark.parametrize(("text", "per_s"), [("20000", 20000), ("20k", 20000), ("2.5k/s", 2500)])
def test_a_rate_is_written_as_people_do(text: str, per_s: float) -> None:
    assert read_rate(text) == per_s


@pytest.mark.parametrize(("text", "ms"), [("10", 10), ("10ms", 10), ("1.5s", 1500)])
def test_a_time_is_milliseconds_or_has_its_unit(text: str, ms: float) -> None:
    assert read_ms(text) == ms


@pytest.mark.parametrize(("option", "text"), [("--reads", "many"), ("--p99", "10 apples")])
def test_what_is_no_amount_is_told_with_its_value(option: str, text: str) -> None:
    told = disklab("advise", "--data", "1GB", option, text)
    assert told.returncode == 2
    assert f"{text}: " in told.stderr
    assert "write" in told.stderr


@pytest.mark.parametrize(("option", "text"), [("--database", "redis"), ("--cloud", "ibm")])
def test_a_choice_that_there_is_not_is_told_without_the_librarys_heading(
    option: str, text: str
) -> None:
    refused = disklab("advise", "--data", "1GB", option, text)
    assert refused.returncode == 2
    assert f"Invalid value for '{option}': '{text}' is not one of" in refused.stderr


def test_regions_are_told_by_their_names_alone() -> None:
    with pytest.raises(UserError) as caught:
        question_of(FULL.experiment(), (), "mars")
    assert "not stated" not in caught.value.problems[0].way_out
    assert "eastus" in caught.value.problems[0].way_out


SERVER = Asked(database="mysql", data="1GB", reads=500, p99=10)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (replace(SERVER, version="3"), "MySQL is simulated from 5.7 on"),
        (replace(SERVER, database="postgresql", row="20kB"), "a row of 20044 bytes in a page"),
        (replace(SERVER, p99=0), "no operation takes 0 ms"),
        (replace(SERVER, p99=None, storage_p99=0), "no storage takes 0 ms"),
    ],
)
def test_what_cannot_be_or_is_not_simulated_is_refused_at_once(asked: Asked, words: str) -> None:
    """MySQL 3 ended in a traceback after a search of cells that were all refused (2026-11-29)."""
    with pytest.raises(UserError, match=words):
        question_of(asked.experiment())


@pytest.mark.parametrize("database", ["postgresql", "mariadb", "mysql"])
def test_tpcc_is_asked_for_by_its_warehouses(
    database: Literal["postgresql", "mariadb", "mysql"],
) -> None:
    asked = Asked(database=database, tpcc=1000, p99=500)
    question = question_of(asked.experiment(), growth_ratio=0.3)
    assert question.require.latencies() == {"all": {"p99": 500}}
    assert question.rate_per_s == pytest.approx(150, rel=0.001)
    # More load is more warehouses, whose terminals rest as all do.
    assert question.raised.tree["workload"]["tpcc"]["warehouses"] == 1300
    # A warehouse is about 100 MB.
    assert 1e11 < feasible.node_bytes(question.spec) < 1.4e11


def test_a_file_of_tpcc_without_rests_must_name_its_rate() -> None:
    text = Asked(database="mysql", tpcc=100, p99=500).experiment().document.text
    busy = text.replace("connections: 100", "connections: 100, terminals: no wait")
    assert busy != text
    with pytest.raises(UserError, match="what is bought must carry a rate"):
        question_of(spec.parse(busy, Path("t.yaml")))
    told = busy.replace("require: {", "require: {rate: 50/s, ")
    question = question_of(spec.parse(told, Path("t.yaml")))
    assert question.raised.tree["workload"]["tpcc"]["warehouses"] == 100
    beside = re.sub(r"(?m)^client: .*", "client: {on_server: true}", told)
    with pytest.raises(UserError, match=r"client.on_server: true: .*the load's machines the same"):
        question_of(spec.parse(beside, Path("t.yaml")))


@pytest.mark.parametrize(
    ("asked", "places"),
    [
        (Asked(tpcc=10, p99=5), ["--tpcc"]),
        (
            Asked(database="mysql", tpcc=10, p99=5, data="1TB", reads=5, commits=2),
            ["--data", "--reads", "--commits"],
        ),
        (Asked(database="mysql", tpcc=10), ["--p99"]),
    ],
)
def test_tpcc_brings_its_own_data_and_load(asked: Asked, places: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        asked.experiment()
    assert [problem.place for problem in caught.value.problems] == places


def test_local_disks_that_are_too_small_name_all_that_the_vm_has() -> None:
    for disks, way_out in (
        ("local", "or disks: 2 x nvme, which the VM has"),
        ("nvme", "or disks: 2 x nvme, which the VM has"),
        ("2 x nvme", "or larger disks"),
    ):
        with pytest.raises(UserError) as caught:
            spec.parse(LARGE.replace("DISKS", disks), Path("t.yaml"))
        assert caught.value.problems[0].way_out.endswith(way_out)


LARGE = """
title: t
cluster: {nodes: 3, vm: azure/Standard_L16s_v3, volumes: {data: {disks: DISKS}}}
database: {engine: cassandra, replication_factor: 3}
dataset: {rows: 4G, row: 1 x 1000B}
workload: {operations: {read: 100%}, load: {rate: 100/s}, stop: {duration: 10s}}
"""


TEXT = """\
title: weather
cluster: {nodes: 3, vm: aws/m5.2xlarge, volumes: {data: {disks: "aws/gp3(500GiB)"}}}
database: {engine: cassandra, replication_factor: 3}
dataset: {rows: 20M, row: 5 x 818B}
workload: {operations: {read: 100%}, load: {rate: 500/s}, stop: {duration: 5s}}
require: REQUIRE
"""


def experiment(folder: Path, require: str) -> spec.Experiment:
    path = folder / "x.yaml"
    path.write_text(TEXT.replace("REQUIRE", require))
    return spec.load(path)


def test_every_bound_is_to_be_kept_for_that_share(tmp_path: Path) -> None:
    asked = experiment(tmp_path, "{read: {p99: 10ms}, all: {p99: 20ms}}")
    question = question_of(asked, of_time="99.9%")
    assert question.require.of_time_ratio == 0.999
    assert question.require.read.of_time_ratio == 0.999


def test_a_share_of_time_needs_a_latency(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--of-time: 99\.9%: no latency is required"):
        question_of(experiment(tmp_path, "{rate: 500/s}"), of_time="99.9%")


def test_the_search_judges_a_quiet_hour() -> None:
    asked = Required(all=Bounds(p99_ms=10, of_time_ratio=0.999), rate_per_s=500)
    quiet = in_a_quiet_hour(asked)
    assert quiet.of_time_ratio is None
    assert list(quiet.latencies()) == [("all", "p99", 10)]
    assert quiet.rate_per_s == 500


@pytest.mark.parametrize(
    ("asked", "place", "way_out"),
    [
        (Asked("mysql", copies=2), "--copies", "write --copies 1"),
        (Asked("etcd", copies=2), "--copies", "write --copies 3"),
        (Asked("mysql", version="99"), "--version", "write --version 9"),
    ],
)
def test_an_error_names_the_option_and_not_the_file_that_it_stands_for(
    asked: Asked, place: str, way_out: str
) -> None:
    asked = replace(asked, data="3GB", reads=100, writes=50, p99=20)
    with pytest.raises(UserError) as error, asked.in_options():
        question_of(asked.experiment())
    (problem,) = error.value.problems
    assert problem.place == place
    assert problem.way_out.startswith(way_out)


@pytest.mark.parametrize("text", ["30%", "30 %", "30"])
def test_a_number_may_have_its_unit(text: str) -> None:
    shop = ["--data", "1GB", "--reads", "1", "--p99", "10", "--budget", "1 usd"]
    ended = disklab("advise", *shop, "--head-room", text)
    assert ended.stdout.startswith(
        "Nothing can do it for 1 USD a month.\nThe cheapest whose limits"
    )


def test_an_amount_that_is_none_is_told_with_one_that_is() -> None:
    ended = disklab("advise", "--budget", "cheap")
    assert "cheap: a number from 0.01" in " ".join(ended.stderr.replace("│", " ").split())
