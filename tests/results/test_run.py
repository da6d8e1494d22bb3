"""A run folder keeps what was finished, whatever happens; the time left while it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.events import PlannedTrial
from disklab.folders import Inside
from disklab.results import Run, Share, TelemetryWriter, find_run
from disklab.results.event_log import TimeLeft
from disklab.results.telemetry import PART_ROWS, parts_of

from tests.results import made


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    with run.writing():
        for trial in range(3):
            run.append(made.result(trial))
    run.end(["all went well"])

    again = Run.open(run.folder)

    assert again.results() == run.results()
    assert again.finished() == {(0, 0), (1, 0), (2, 0)}
    assert again.info.ended is not None
    assert again.info.notes == ["all went well"]
    assert [trial.trial for trial in again.planned()] == [0, 1, 2, 3]
    assert {one.run for one in again.results()} == {run.info.id}


def test_the_name_of_a_run_is_as_long_as_a_folders_at_most() -> None:
    assert made.info("r" * 240).id
    with pytest.raises(ValueError, match="not too long"):
        made.info("r" * 241)


def test_a_torn_last_line_is_told_kept_aside_and_does_no_harm(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    with run.writing():
        run.append(made.result(0))
        run.append(made.result(1))
    trials = run.folder / "trials.jsonl"
    whole = trials.read_bytes()
    torn = whole.splitlines()[1][:-40]
    trials.write_bytes(whole.splitlines(keepends=True)[0] + torn)

    reader = Run.open(run.folder)
    assert reader.finished() == {(0, 0)}
    assert "left out" in reader.torn[0]

    with reader.writing():
        reader.append(made.result(1, ops_per_s=7.0))
    assert [one.ops_per_s for one in Run.open(run.folder).results()] == [1000.0, 7.0]
    assert Run.open(run.folder).torn == ()
    assert (run.folder / "trials.jsonl.torn").read_bytes().rstrip() == torn


APPEND = """
import sys
from pathlib import Path
from disklab.results import Run
from tests.results import made
run = Run.open(Path(sys.argv[1]))
with run.writing():
    for number in range(10_000):
        run.append(made.result(number))
        print(number, flush=True)
"""


def test_kill_9_loses_nothing_that_append_returned_from(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    command = [sys.executable, "-c", APPEND, str(run.folder)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        acknowledged = [int(process.stdout.readline()) for _ in range(50)]
        os.kill(process.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]

    kept = {trial for trial, _ in Run.open(run.folder).finished()}
    assert set(acknowledged) <= kept


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    with (
        run.writing(),
        pytest.raises(UserError, match="another process is writing"),
        Run.open(run.folder).writing(),
    ):
        pass


def test_a_run_is_never_made_over_another(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    with run.writing():
        run.append(made.result(0))
    with pytest.raises(UserError, match="File exists"):
        made.run(tmp_path)
    assert Run.open(run.folder).finished() == {(0, 0)}


def test_a_run_is_found_by_folder_id_and_beginning(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    assert find_run(run.folder) == run.folder
    assert find_run(run.info.id, tmp_path) == run.folder
    assert find_run("synthetic-re", tmp_path) == run.folder
    made.run(tmp_path, run_id="synthetic-rehearse-20261121T130000-ffff")
    with pytest.raises(UserError, match="beginning of several runs"):
        find_run("synthetic-re", tmp_path)
    with pytest.raises(UserError, match="the nearest: synthetic-rehearse"):
        find_run("nothing-like-it", tmp_path)
    with pytest.raises(UserError, match="holds no runs"):
        find_run("x", tmp_path / "empty")


def test_a_second_result_of_a_repeat_counts_and_the_first_stays_in_the_file(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    with run.writing():
        run.append(made.result(0, status="failed"))
        run.append(made.result(0, ops_per_s=5.0))
    assert [one.ops_per_s for one in Run.open(run.folder).results()] == [5.0]
    assert len((run.folder / "trials.jsonl").read_text().splitlines()) == 2


def test_keys_of_later_versions_are_kept(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    with run.writing():
        run.append(made.result(0, of_later="kept"))
    (again,) = Run.open(run.folder).results()
    assert json.loads(again.model_dump_json())["of_later"] == "kept"


def test_a_newer_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    run = made.run(tmp_path, format=99)
    with pytest.raises(UserError, match=r"format 99.*newer disklab"):
        Run.open(run.folder)


def test_an_interrupted_repeat_is_set_aside(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    first = run.record_seconds(0, 0)
    first.second({"event": "progress", "t_s": 1.0, "operations": 9, "ops_per_s": 9.0})
    first.close()
    with run.record_telemetry(0, 0) as telemetry:
        telemetry.add("measure", 1.0, "emulator data", "hit_ratio", 0.9)

    with run.record_seconds(0, 0) as second, run.record_telemetry(0, 0):
        second.second({"t_s": 1.0, "operations": 5, "ops_per_s": 5.0})

    assert [one.operations for one in run.course(0, 0).seconds] == [5]
    assert (run.folder / "histograms" / "0-0.interrupted-1.jsonl").exists()
    assert (run.folder / "telemetry" / "0-0.interrupted-1.parquet").exists()
    assert run.telemetry(0, 0).collect().is_empty()


def test_telemetry_is_written_in_parts_and_survives_a_crash(tmp_path: Path) -> None:
    path = Inside(tmp_path, "0-0.parquet")
    writer = TelemetryWriter(path)
    rows = 2 * PART_ROWS + 10
    for number in range(rows):
        writer.add("measure", number / 10, "machine", "cpu_ratio", number)
    # Not closed: what a crash leaves. Only the part that was still in memory is missing.
    crashed = pl.scan_parquet(sorted(parts_of(path).path.glob("*.parquet"))).collect()
    assert crashed.height == 2 * PART_ROWS

    writer.close()
    assert pl.read_parquet(path.path)["value"].to_list() == [float(n) for n in range(rows)]
    assert not parts_of(path).exists()


def test_the_documented_two_lines_read_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of docs/results.md, as it stands there, on a run with every kind of result."""
    run = made.run(tmp_path / "disklab-runs", run_id="RUN")
    with run.writing():
        run.append(made.result(0, status="refused", ops_per_s=None, latency_ms={}))
        for trial in range(1, 4):
            run.append(made.result(trial, factors={"read-ahead": [0, "8KiB", "64KiB"][trial - 1]}))
        run.append(made.result(4))
    page = (Path(__file__).resolve().parents[2] / "docs" / "results.md").read_text("utf-8")
    example = page.split("```python\n", 1)[1].split("```", 1)[0]
    assert len(example.split("\n\n")) == 2

    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(example, names)  # the documentation itself

    trials = names["trials"]
    assert isinstance(trials, pl.DataFrame)
    assert trials["read-ahead"].to_list() == [None, "0", "8KiB", "64KiB", None]
    assert trials["ops_per_s"].to_list() == [None, 1001.0, 1002.0, 1003.0, 1004.0]


def test_the_frame_has_a_column_for_each_factor(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    with run.writing():
        run.append(made.result(0, nodes=2))
        run.append(made.result(3, factors={"caching": "None", "threads": 128, "mode": "x"}))
    frame = run.frame()
    assert frame["threads"].to_list() == [64, 128]
    assert frame["factor mode"].to_list() == [None, "x"]
    assert frame["ops_per_s_per_node"].to_list() == [500.0, 1003.0]


def test_a_share_of_the_specification_is_a_share_of_the_results() -> None:
    """Two rooms, one JSON form: what `spec` says of a trial is stored as it is."""
    root = Path(__file__).resolve().parents[2]
    (first, *_) = spec.load(root / "experiments/cassandra-local-or-attached.yaml").trials(
        "rehearse"
    )
    told = first.share.model_dump(mode="json")
    kept = Share.model_validate(told)
    assert kept.model_dump(mode="json") == told
    assert kept.model_extra == {}


def test_a_run_that_was_killed_before_it_began_says_so(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    (run.folder / "run.json").unlink()
    with pytest.raises(UserError, match=r"was killed before it began: it has no run\.json"):
        find_run(run.info.id, tmp_path)


PLANNED = [PlannedTrial(trial, 0, {}, 100.0) for trial in range(3)]


def test_the_trial_that_goes_on_is_counted_down() -> None:
    left = TimeLeft(PLANNED)
    assert left.left_s() == 300.0
    assert left.left_s((0, 0), 40.0) == 260.0


def test_a_trial_that_takes_longer_corrects_what_is_left_while_it_runs() -> None:
    left = TimeLeft(PLANNED)
    # It has taken four times as long as was planned, and what comes is expected to take longer.
    later = left.left_s((0, 0), 400.0)
    assert later > 300.0
    assert left.left_s((0, 0), 800.0) > later
    # Once over, it weighs as what it took.
    left.finished((0, 0), 800.0)
    assert left.left_s((1, 0), 0.0) == pytest.approx(200.0 * (800 + 200) / (100 + 200))


def test_a_fill_that_has_just_begun_is_not_about_to_end() -> None:
    left = TimeLeft(PLANNED[:1])
    # The disks were attached for so long, and then a hundredth of the fill took 10 s.
    assert left.left_s((0, 0), 100.0) == 0.0
    left.phase_began()
    left.progressed(1_000, 100_000, 10.0)
    assert left.left_s((0, 0), 110.0) == pytest.approx(990.0)
    assert left.left_s() == 100.0, "what is not under way is what was planned"
    left.progressed(99_000, 100_000, 990.0)
    assert left.left_s((0, 0), 1_090.0) == pytest.approx(10.0)
    left.progressed(None, None, 995.0)
    left.phase_began()
    assert left.left_s((0, 0), 1_100.0) == 0.0
