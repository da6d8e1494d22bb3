"""A year of disk weather of a whole cell: simulated kinds, drawn minutes, the promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.databases.simulating import steps_of
from disklab.errors import UserError
from disklab.prediction.run import Options, predict
from disklab.prediction.weather import Kind
from disklab.prediction.year import Case
from disklab.report.subject import subjects_of
from disklab.report.weather import sentences, weather_section
from disklab.report.wording import significant
from disklab.results import Run, TrialResult
from disklab.results.required import Outcome, judged, percent_of_time
from disklab.results.weather import MINUTES_PER_MONTH, WeatherYear
from disklab.spec import ClusterTrial
from disklab.spec.amounts import only

from tests.dearest import processor_s
from tests.in_process import disklab

TEXT = """\
title: weather
cluster:
  nodes: 3
  vm: aws/m5.2xlarge
  volumes: {data: {disks: "aws/gp3(500GiB, 3000 IOPS, 125 MiB/s)"}}
client: {nodes: 1, vm: aws/m5.2xlarge}
database: {engine: cassandra, replication_factor: 3, consistency: LOCAL_QUORUM}
dataset: {rows: 20M, row: 5 x 818B}
workload:
  operations: {read: 80%, write: 20%}
  keys: uniform
  load: {rate: 300/s}
  stop: {duration: 5s}
require: {all: {p99: 100ms, of_time: 99.9%}}
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> spec.Experiment:
    path = tmp_path_factory.mktemp("weather") / "x.yaml"
    path.write_text(TEXT)
    return spec.load(path)


def predicted(experiment: spec.Experiment, *weather: Path) -> Run:
    options = Options(out=experiment.path.parent / "runs", weather=weather)
    return predict(experiment, options, lambda _: None)


@pytest.fixture(scope="module")
def run(experiment: spec.Experiment) -> Run:
    return predicted(experiment)


def result_of(run: Run) -> TrialResult:
    (result,) = run.results()
    return result


def year_of(run: Run) -> WeatherYear:
    return result_of(run).year


def test_every_minute_of_a_month_has_one_kind_of_weather(run: Run) -> None:
    year = year_of(run)
    assert sum(kind.minutes_per_month for kind in year.kinds) == pytest.approx(MINUTES_PER_MONTH)
    missed = sum(kind.minutes_per_month for kind in year.kinds if kind.above)
    assert missed == pytest.approx(year.above.mean)
    assert year.kept_ratio == pytest.approx(1 - missed / MINUTES_PER_MONTH)
    assert len(year.strip) == 365
    for minutes in (year.above, year.above_alone, year.above_together):
        assert minutes.low <= minutes.mean <= minutes.high


@pytest.mark.parametrize(
    ("kind", "nodes"),
    [
        (Kind("well"), []),
        (Kind("one", first=True), ["n1"]),
        (Kind("one"), ["n2"]),
        (Kind("two"), ["n2", "n3"]),
        (Kind("many", first=True), ["n1", "n2", "n3"]),
    ],
)
def test_weather_is_that_of_as_many_nodes(
    experiment: spec.Experiment, kind: Kind, nodes: list[str]
) -> None:
    (trial,) = experiment.trials("predict")
    job: Any = {}
    case = Case(only(ClusterTrial, trial.spec), job, job, job, None)
    assert case._nodes(kind) == nodes


def test_a_blocked_volume_misses_the_promise_and_a_quiet_hour_keeps_it(run: Run) -> None:
    kinds = {kind.what: kind for kind in year_of(run).kinds}
    quiet, blocked = kinds["a quiet hour"], kinds["one slow volume, in effect blocked"]
    assert not quiet.above
    assert blocked.above
    assert blocked.p99_ms > 10 * quiet.p99_ms
    # Three volumes, 1 % of the time, of which a tenth is so deep.
    assert blocked.minutes_per_month == pytest.approx(3 * 438 * 0.09 / 0.89, rel=0.15)
    assert kinds["a lost node"].minutes_per_month > 0
    # The whole JVM of its node stands still, and a third of the clients with it.
    stalled = kinds["a volume that serves nothing"]
    assert stalled.ops_per_s == pytest.approx(200, rel=0.05)
    assert stalled.failed_per_s == pytest.approx(100, rel=0.1)
    assert stalled.above


def test_what_failures_cost_stands_beside_it_although_the_file_states_none(run: Run) -> None:
    assert result_of(run).recovery.yearly.lost_s > 15 * 60


def test_the_promise_is_judged_by_the_year(run: Run) -> None:
    result = result_of(run)
    (kept,) = judged([result], run.planned()).values()
    (point,) = [point for point in kept.points if "p99" in point.what]
    assert point.asked == "at least 99.9 % of the minutes"
    year = year_of(run)
    low, high = year.kept_ends
    if low < 0.999 <= high:
        assert point.outcome is Outcome.CANNOT_TELL
    bare = result.model_copy(update={"year": None})
    (kept,) = judged([bare], run.planned()).values()
    assert kept.outcome is Outcome.CANNOT_TELL
    assert "predicted, not measured" in str(kept)


def test_changes_say_what_they_would_spare_and_cost(run: Run) -> None:
    back = {one.change: one for one in year_of(run).back}
    assert set(back) == {"another zone", "io2", "twice the IOPS"}
    io2 = back["io2"]
    assert io2.saved_min > 0.5 * year_of(run).above.mean
    assert io2.usd_per_month > 0


def test_numbers_that_would_turn_the_answer_are_named(run: Run) -> None:
    turns = {turn.number: turn for turn in year_of(run).turns}
    rare = turns["slower than promised"]
    # A fifteenth of the promised share was seen where anybody measured.
    assert rare.low > rare.high


def test_the_report_has_a_sentence_a_table_and_a_strip(run: Run) -> None:
    (subject,) = subjects_of([run])
    (said, why), *_ = sentences(subject.matrix)
    assert "of a year's minutes keep p99 at most 100 ms" in said
    assert "if volumes of a zone share nothing" in why
    (panel,) = weather_section(subject).panels
    assert "365 days" in panel.described
    assert panel.figures.rows[0][2] == percent_of_time(year_of(run).kept_ratio)


def test_a_users_own_numbers_replace_those_of_the_catalogue(
    experiment: spec.Experiment, run: Run, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("weather: {aws/gp3: {slow_ratio: 0}, any: {zone_events_per_year: 0}}")
    calm = year_of(predicted(experiment, mine))
    assert calm.above.mean < 0.1 * year_of(run).above.mean


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.999, "99.9 %"), (0.99995, "99.995 %"), (1, "100 %")]
)
def test_shares_of_time_keep_their_nines(ratio: float, text: str) -> None:
    assert percent_of_time(ratio) == text


@pytest.mark.parametrize("share", ["0%", "101%", "x"])
def test_a_share_of_time_lies_between_none_and_all(experiment: spec.Experiment, share: str) -> None:
    path = experiment.path.with_name("wrong.yaml")
    path.write_text(TEXT.replace("99.9%", share))
    with pytest.raises(UserError, match="of_time"):
        spec.load(path)


def test_a_device_has_no_year(tmp_path: Path) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(
        "title: one disk\ndevice: {vm: azure/Standard_DS14_v2, volume: {disks: azure/P30}}\n"
        "workload: {fio: {rw: randread, bs: 8k, depth: 1}, stop: {duration: 1s}}\n"
    )
    told: list[object] = []
    made = predict(spec.load(path), Options(out=tmp_path, year=True), told.append)
    assert result_of(made).year is None
    assert any("no year of weather" in str(event) for event in told)


REDIS = """\
title: nothing of it is simulated, and the run says how it would be
cluster: {nodes: 1, vm: azure/Standard_D2s_v5, volumes: {data: {disks: azure/P10}}}
client: {nodes: 1, vm: azure/Standard_D2s_v5}
database: {engine: redis}
dataset: {rows: 20k, row: 1 x 1000B}
workload: {operations: {write: 100%}, load: {rate: 100/s}, stop: {duration: 2s}}
"""


@pytest.mark.parametrize(
    ("words", "more", "depth"),
    [
        (["--year"], "", "full"),
        (["--year"], "factors: {dataset.rows: [1k, 2k, 3k, 4k, 5k]}\n", "quick"),
        (["--year"], "require: {all: {p99: 1s}}\n", "full"),
        (["--year", "--fidelity", "full"], "", "full"),
        ([], "", "full"),
    ],
)
def test_cells_beside_a_year_are_simulated_in_full_where_they_are_few_or_judged(
    tmp_path: Path, words: list[str], more: str, depth: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(REDIS + more)
    runs = tmp_path / "runs"
    ended = disklab("predict", str(path), *words, "--out", str(runs))
    (run,) = runs.iterdir()
    assert ("quick simulations" in ended.stderr) is (depth == "quick")
    assert Run.open(run).info.environment["fidelity"] == depth


def test_numbers_of_the_weather_are_read_before_anything_is_predicted(tmp_path: Path) -> None:
    path, runs = tmp_path / "x.yaml", tmp_path / "runs"
    path.write_text(ETCD)
    ended = disklab("predict", str(path), "--weather", "missing.yaml", "--out", str(runs))
    assert ended.returncode == 2
    assert "missing.yaml" in ended.stderr
    assert not runs.exists()


@pytest.mark.long
def test_a_year_of_local_and_attached_disks_takes_a_minute_of_processor(tmp_path: Path) -> None:
    before_s = processor_s()
    words = ["predict", "cassandra-local-or-attached", "--year", "--json", "--out", str(tmp_path)]
    results = [json.loads(line) for line in disklab(*words).stdout.splitlines()]
    assert len(results) == 18
    assert all(result["year"]["strip"] for result in results)
    assert processor_s() - before_s <= 60


YUGABYTE = """\
title: weather of YugabyteDB
cluster:
  nodes: 3
  vm: azure/Standard_D8s_v5
  volumes: {data: {disks: "azure/PremiumV2(250GiB, 3000 IOPS, 125 MB/s)", filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_D8s_v5}
database: {engine: yugabytedb, replication_factor: 3, tls: true}
workload:
  sysbench: {script: oltp_insert, tables: 4, rows_per_table: 1M, threads: 8}
  stop: {duration: 5s}
"""


def test_nodes_of_yugabytedb_are_alike_in_its_year(tmp_path: Path) -> None:
    path = tmp_path / "yugabytedb.yaml"
    path.write_text(YUGABYTE)
    options = Options(out=tmp_path, year=True, fidelity="quick")
    year = year_of(predict(spec.load(path), options, lambda _: None))
    kinds = {kind.what: kind for kind in year.kinds}
    assert len(kinds) == len(year.kinds)
    assert not kinds["a quiet hour"].above
    assert not kinds["one slow volume, above half of its IOPS"].above
    # A write is there with two of three logs.
    assert kinds["two slow volumes, in effect blocked"].above
    assert sum(kind.minutes_per_month for kind in year.kinds) == pytest.approx(MINUTES_PER_MONTH)
    assert "2 more copies" in {back.change for back in year.back}


def test_weather_as_events_draws_a_timetable_with_each_kind(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    text = TEXT.replace("duration: 5s", "duration: 620s").replace(
        "nodes: 3", "nodes: 3\n  zones: 3"
    )
    path.write_text(f"{text}events: {{weather: {{seed: 1, year_in: 10min}}}}\n")
    (trial,) = spec.load(path).trials("predict")
    kinds = [event.kind for event in trial.spec.events]
    assert kinds.count("mend") == len(kinds) / 2
    assert {"slow", "stall", "mend"} == set(kinds)
    times = [event.times for event in trial.spec.events if event.kind == "slow"]
    assert any(value is not None and value < 2 for value in times)
    assert any(value is not None and value > 10 for value in times)
    again = spec.load(path).trials("predict")[0]
    assert again.spec.events == trial.spec.events


@pytest.mark.parametrize(
    "given", ["{weather: {year_in: 5s}}", "{wether: {seed: 1}}", "{weather: 3}"]
)
def test_weather_that_cannot_be_drawn_is_refused(tmp_path: Path, given: str) -> None:
    path = tmp_path / "events.yaml"
    path.write_text(f"{TEXT}events: {given}\n")
    with pytest.raises(UserError, match=r"year_in|compressed year"):
        spec.load(path)


def test_times_are_those_of_a_slow_volume(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    for event, rule in (("stall: n1, times: 4", "only a slow"), ("slow: n1, times: 0", "greater")):
        path.write_text(f"{TEXT}events: [{{at: 1s, {event}}}]\n")
        with pytest.raises(UserError, match=rule):
            spec.load(path)


def test_another_volume_than_the_data_can_be_slow(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    logged = TEXT.replace('125 MiB/s)"}}', '125 MiB/s)"}, commitlog: {disks: "aws/gp3(10GiB)"}}')
    text = f"{logged}events: [{{at: 1s, slow: n1, volume: commitlog}}, {{at: 3s, VOLUME}}]\n"
    path.write_text(text.replace("VOLUME", "mend: n1, volume: commitlog"))
    (trial,) = spec.load(path).trials("predict")
    slow, _ = steps_of(trial.spec.events, only(ClusterTrial, trial.spec).cluster)
    assert slow.job()["volume"] == 1
    for wrong, rule in (
        ("mend: n1", "well"),
        ("mend: n1, volume: commitlogs", "no such volume"),
        ("kill: n1, volume: commitlog", "of one volume"),
    ):
        path.write_text(text.replace("VOLUME", wrong))
        with pytest.raises(UserError, match=rule):
            spec.load(path)


ETCD = """\
title: weather of etcd
cluster:
  nodes: 3
  vm: aws/m6i.large
  volumes: {data: {disks: "aws/gp3(64GiB)"}, wal: {disks: "aws/gp3(10GiB)"}}
client: {nodes: 1, vm: aws/m6i.large}
database: {engine: etcd, replication_factor: 3}
dataset: {rows: 20k, row: 1 x 1000B}
workload:
  operations: {write: 100%}
  keys: uniform
  load: {rate: 300/s}
  stop: {duration: 5s}
require: {all: {p99: 50ms, of_time: 99.9%}}
"""


def test_etcd_has_a_year_with_the_weather_of_its_log(tmp_path: Path) -> None:
    path = tmp_path / "etcd.yaml"
    path.write_text(ETCD)
    year = year_of(predicted(spec.load(path)))
    kinds = {kind.what: kind for kind in year.kinds}
    assert not kinds["a quiet hour"].above
    # The log of the first member that leads, of a follower, and both depths of the data's volume.
    assert kinds["one slow log volume (the leader), in effect blocked"].above
    assert {
        f"a log volume that serves nothing ({of})" for of in ("the leader", "another node")
    } <= (kinds.keys())
    assert len(kinds) == len(year.kinds)
    assert sum(kind.minutes_per_month for kind in year.kinds) == pytest.approx(MINUTES_PER_MONTH)
    changes = {back.change for back in year.back}
    assert {"another zone", "io2", "2 more copies"} <= changes
    assert year.turns


def test_the_first_line_compares_what_the_file_asks_about(tmp_path: Path) -> None:
    # Of gp3, with two slow volumes: an old leader's sync ends after others have answered.
    path = tmp_path / "etcd.yaml"
    levels = {"gp3": "aws/gp3(64GiB)", "io2": "aws/io2(64GiB, 3000 IOPS)"}
    factors = {name: {"cluster.volumes.data.disks": disks} for name, disks in levels.items()}
    text = ETCD.replace(', wal: {disks: "aws/gp3(10GiB)"}', "")
    path.write_text(f"{text}factors: {json.dumps({'disk': factors})}\n")
    run = predicted(spec.load(path))
    (subject,) = subjects_of([run])
    (line, _), *others = sentences(subject.matrix)
    missed = {str(one.factors["disk"]): one.year.above.mean for one in run.results() if one.year}
    assert line.startswith("minutes a month that miss the requirement: ")
    for disk, minutes in missed.items():
        assert f"{significant(minutes)} with {disk}" in line
    assert any("with io2, " in text and "fewer miss it" in text for text, _ in others)


def test_a_change_in_a_closed_loop_is_not_worse_because_its_quiet_hour_is_better(
    tmp_path: Path,
) -> None:
    # Nothing is required: half of the rate of a faster disk is as good as the slower one's whole.
    path = tmp_path / "closed.yaml"
    text = ETCD.rsplit("require", 1)[0].replace("rate: 300/s", "threads: 48")
    path.write_text(text)
    options = Options(out=tmp_path, year=True, fidelity="quick")
    year = year_of(predict(spec.load(path), options, lambda _: None))
    back = {one.change: one for one in year.back}
    # The log's own volume stays what it is.
    assert back["io2"].minutes_per_month <= 1.1 * year.above.mean


@pytest.mark.parametrize(
    ("engine", "first"), [("postgresql", "the primary"), ("mariadb", "the first server")]
)
def test_a_database_with_a_primary_has_a_year(tmp_path: Path, engine: str, first: str) -> None:
    path = tmp_path / "sql.yaml"
    path.write_text(ETCD.replace("engine: etcd", f"engine: {engine}"))
    year = year_of(predicted(spec.load(path)))
    whose = [
        f"one slow {volume} ({node}), below half of its IOPS"
        for volume in ("volume", "log volume")
        for node in (first, "another node")
    ]
    kinds = [kind.what for kind in year.kinds]
    assert {"a quiet hour", f"a lost node ({first})", *whose} <= set(kinds)
    assert len(set(kinds)) == len(kinds)
    minutes = {kind.what: kind.minutes_per_month for kind in year.kinds}
    others = minutes["a lost node (another node)"]
    assert others == pytest.approx(2 * minutes[f"a lost node ({first})"], rel=0.02), "one of three"
    # What is spared was missed.
    most = sum(kind.minutes_per_month for kind in year.kinds if kind.above)
    assert all(one.saved_min <= 1.2 * most + 1 for one in year.back)
    back = {one.change for one in year.back}
    # Galera is simulated with three nodes at most.
    assert ("one more copy" in back) is (engine == "postgresql")
