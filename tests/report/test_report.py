"""What the report says of runs whose truth is known because they are made."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from disklab.cli.app import app
from disklab.report import tables
from disklab.report.axes import Figures
from disklab.report.files import references, write_pictures
from disklab.report.page import page
from disklab.report.reasons import Why
from disklab.report.report import Report
from disklab.report.terminal import grid
from disklab.report.verdict import Outcome, Quantity
from disklab.results import Figure, Reason, Run, Share, records, reference_runs
from typer.testing import CliRunner

from tests.report import synthetic


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return synthetic.local_or_attached(tmp_path_factory.mktemp("runs"), seconds=20)


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return synthetic.caching_threads(tmp_path_factory.mktemp("runs"), seconds=5)


def test_the_reason_names_the_binding_limit_and_the_cache(demo: Run) -> None:
    findings = [finding for _, finding in Report.of([demo]).said]
    (slower,) = (one for one in findings if "2.0 times the reads" in one.text)
    assert "“attached, None” was limited by the VM's uncached 768 MB/s" in slower.reason
    cached = (
        "98\N{NO-BREAK SPACE}% of the reads of “attached, ReadOnly” came from the host's own SSD"
    )
    assert cached in slower.reason


def test_published_crossings_are_those_of_the_publishers() -> None:
    (study,) = (run for run in reference_runs() if "read-ahead" in run.info.id)
    said = [finding for _, finding in Report.of([study]).said]
    crossed = {finding.text.split(":")[0]: finding.crossings[0].first for finding in said}
    assert crossed == {"128 threads": "read ahead 128KiB", "256 threads": "read ahead 64KiB"}
    assert all(finding.basis == "as published, without repeats" for finding in said)


def test_against_the_reference_cells_match_and_rates_are_by_node(threads: Run) -> None:
    (study,) = (run for run in reference_runs() if "caching-threads" in run.info.id)
    report = Report.of([threads, study])
    (comparison,) = report.comparisons
    assert comparison.per_node
    # The invalid cell has no figures; the seven others were made from the published ones.
    assert (len(comparison.matched), comparison.unmatched) == (7, 1)
    assert all(abs(one.judgement.ratio - 1) < 0.1 for one in comparison.matched)
    assert [label for label, _ in report.headline + report.below] == ["rehearse", "", "published"]
    assert "same order in 20 of 20 comparisons; rates differ by " in report.below[0][1].text


@pytest.mark.parametrize(
    ("nodes", "warehouses", "unit"),
    [(3, 4, "ops/s of the full cluster"), (1, 2, "ops/s per node")],
)
def test_tpcc_stands_beside_the_published_by_its_warehouses(
    tmp_path: Path, nodes: int, warehouses: int, unit: str
) -> None:
    (study,) = (run for run in reference_runs() if "yugabytedb" in run.info.id)
    figures = {
        (str(one.factors["disk"]), str(one.factors["workload"])): one.ops_per_s or 0.0
        for one in study.results()
    }
    share = Share(
        nodes=Figure(full=3, here=nodes),
        scale="1/500",
        warehouses=Figure(full=2000, here=warehouses),
    )
    trials = []
    for (disk, workload), rate in figures.items():
        scaled = workload == "TPC-C"
        here = rate * warehouses / 2000 if scaled else rate * nodes / 3
        more = {"nodes": nodes, "share": share if scaled else Share(nodes=share.nodes)}
        factors = {"disk": disk, "workload": workload}
        trials.append(synthetic.Made(factors, here, spread=0, more=more))
    title = study.info.experiment.title
    report = Report.of([synthetic.make_run(tmp_path, trials, title=title, seconds=3), study])
    (comparison,) = report.comparisons
    assert {(one.cells[1].factors["workload"]) for one in comparison.matched} >= {"TPC-C"}
    assert all(abs(one.judgements[Quantity.OPS].ratio - 1) < 1e-9 for one in comparison.matched)
    shown = page(report)
    assert f"{unit} published" in shown
    assert f"{warehouses} here for 2,000" in shown
    study_table = tables.study(comparison)
    records = [line[3] for line in study_table.rows if "TPC-C" in line[0]]
    assert records == ["419", "419", "427", "427", "427", "427"]


def test_tpcc_without_think_times_is_not_multiplied_by_its_warehouses(tmp_path: Path) -> None:
    share = Share(nodes=Figure(full=3, here=3), warehouses=Figure(full=2000, here=4))
    more = {"nodes": 3, "share": share, "tpcc": {"keying_and_thinking": False}}
    made = synthetic.Made({"disks": "a"}, 1000, spread=0, more=more)
    (result, *_) = synthetic.make_run(tmp_path, [made], title="T", seconds=3).results()
    assert records.of_cluster(result) == 1000
    assert records.of_node(result) == pytest.approx(1000 / 3)


def test_seconds_in_which_nothing_ends_have_no_latency(tmp_path: Path) -> None:
    trials = [
        synthetic.Made({"disks": "slow"}, 3, p50_ms=200, tail=0.01, idle_every=2),
        synthetic.Made({"disks": "still"}, 3, p50_ms=200, tail=0.01, idle_every=1),
    ]
    report = Report.of([synthetic.make_run(tmp_path, trials, title="T", repeats=1, seconds=8)])
    (section,) = [one for one in report.sections if one.name == "course"]
    (panel,) = section.panels
    (line,) = panel.figures.rows
    assert line[0] == "slow"
    assert all(text.endswith("ms") for text in line[1:3]), line


def test_old_and_new_run_say_what_changed(tmp_path: Path) -> None:
    def run(name: str, write: float) -> Run:
        trials = [
            synthetic.Made({"disks": "a", "workload": "read"}, 1000, spread=0.004),
            synthetic.Made({"disks": "a", "workload": "write"}, write, spread=0.004),
        ]
        return synthetic.make_run(tmp_path, trials, title="T", run_id=name, seconds=5, repeats=5)

    old = run("old", 1000)
    ((_, changed), *_) = Report.of([old, run("new", 1300)]).said
    assert re.search(r"write: \d+ to \d+.% faster", changed.text)
    assert "equally fast in 1 of 2 cells" in changed.text
    ((_, same), *_) = Report.of([old, run("again", 1000)]).said
    assert (changed.outcome, same.outcome) == (None, Outcome.NO_DIFFERENCE)


def test_refused_failed_and_missing_cells_are_told(tmp_path: Path) -> None:
    report = Report.of([synthetic.with_refusals(tmp_path, seconds=5)])
    assert any("1 failed, 1 refused of 4 cells" in line for line in report.status)


def test_an_invalid_run_says_why_there_is_no_verdict(tmp_path: Path) -> None:
    late = {"status": "invalid", "valid": False, "invalid_reasons": ["the emulator was late"]}
    trials = [synthetic.Made({"disks": name}, 1040, spread=0, more=late) for name in ("a", "b")]
    report = Report.of([synthetic.make_run(tmp_path, trials, title="T", seconds=3)])
    assert ">1,040<" in page(report), "an invalid cell's figures are shown, with the reason"
    ((_, finding),) = report.headline
    assert finding.text == "No answer on b against a"
    assert finding.reason == "b invalid: the emulator was late; a invalid: the emulator was late"


def test_one_cell_is_told_without_a_verdict(tmp_path: Path) -> None:
    made = synthetic.Made({"disks": "a"}, 1000, spread=0, bound_by="disk 0 5000 IOPS")
    report = Report.of([synthetic.make_run(tmp_path, [made], title="T", seconds=3)])
    ((_, finding),) = report.headline
    assert "1,000 operations a second" in finding.text
    assert "the disk's 5,000 IOPS" in finding.reason
    assert "<h3>rehearse</h3>" not in page(report), "one run needs no name"
    assert "percentiles" in {one.name for one in report.sections if one.panels}


def test_numbers_stand_right_but_for_those_that_name_a_row() -> None:
    table = grid(Figures(("threads", "ops/s", "disks"), (("64", "1,000", "local"),)))
    assert [column.justify for column in table.columns] == ["left", "right", "left"]


def test_the_command_writes_page_table_json_and_pictures(demo: Run, tmp_path: Path) -> None:
    page, pictures = tmp_path / "page.html", tmp_path / "pictures"
    options = ["--html", str(page), "--svg", str(pictures), "--png", str(pictures)]
    shown = CliRunner().invoke(app, ["report", str(demo.folder), *options])
    assert shown.exit_code == 0, shown.output
    assert "are equally fast for reads" in shown.output
    assert {"rate-read.svg", "rate-read.png", "percentiles-write.svg"} <= {
        path.name for path in pictures.iterdir()
    }
    assert "var(--" not in (pictures / "rate-read.svg").read_text()

    told = CliRunner().invoke(app, ["report", str(demo.folder), "--html", str(page), "--json"])
    content = json.loads(told.stdout.splitlines()[0])
    outcomes = {pair["judgements"]["ops_per_s"]["outcome"]
                for said in content["verdict"] for pair in said["pairs"]}  # fmt: skip
    assert outcomes == {"lower", "no difference", "cannot tell"}
    assert len(content["runs"][0]["cells"]) == 6


def test_a_picture_says_which_run_is_dashed(threads: Run, tmp_path: Path) -> None:
    report = Report.of([threads, *references([threads], wanted=True)])
    pictures = write_pictures(report, png=None, svg=tmp_path)
    (rate,) = (path for path in pictures if path.name.startswith("rate"))
    words = re.findall(r">([^<>]+)</text>", rate.read_text())
    assert {"rehearse", "published"} <= set(words)


def test_a_run_without_anything_is_still_a_report(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path, [], title="Nothing yet")
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(app, ["report", str(run.folder), "--html", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "Nothing yet" in page.read_text("utf-8")


def test_what_a_run_says_cannot_inject_markup(tmp_path: Path) -> None:
    evil = "</script><script>document.title='owned'</script><b>"
    trials = [
        synthetic.Made({"disks": evil, "w": 1}, 1000),
        synthetic.Made({"disks": "b", "w": 1}, 1000),
    ]
    run = synthetic.make_run(tmp_path, trials, title=evil, seconds=3)
    page = tmp_path / "page.html"
    CliRunner().invoke(app, ["report", str(run.folder), "--html", str(page)])
    text = page.read_text("utf-8")
    assert "<script>document.title" not in text
    assert "<b>" not in text


def test_a_wrong_against_and_an_unknown_experiment_have_a_way_out(
    demo: Run, tmp_path: Path
) -> None:
    wrong = CliRunner().invoke(app, ["report", str(demo.folder), "--against", "x"])
    assert "reference" in str(wrong.exception)
    other = synthetic.make_run(tmp_path, [], title="Unheard of")
    unknown = CliRunner().invoke(app, ["report", str(other.folder), "--against", "reference"])
    assert "known are: Local or attached" in str(unknown.exception)


def test_a_disk_without_a_limit_in_the_way_binds_by_its_latency() -> None:
    found = Why("data latency", 0.92, None, None, None, None, None)
    assert found.phrases() == [
        "limited by the latency of data: 92\N{NO-BREAK SPACE}% of an operation's time"
    ]


@pytest.mark.parametrize(
    ("utilisation", "told"),
    [
        (None, "limited by disk IOPS"),
        (0.87, "limited by disk IOPS (87 % used)"),
        (1.02, "limited by disk IOPS (100 % used)"),
        (3.1, "limited by disk IOPS (burst to 3.1 times its baseline)"),
    ],
)
def test_more_than_a_baseline_is_called_a_burst(utilisation: float | None, told: str) -> None:
    found = Why("disk IOPS", utilisation, None, None, None, None, None)
    # Figures and their units stand together by a narrow or a no-break space.
    assert found.bound().replace("\u202f", " ").replace("\xa0", " ") == told


def test_levels_that_were_refused_do_not_stand_on_the_one_that_was_tried(tmp_path: Path) -> None:
    copies = "database.replication_factor"

    def cell(place: str, factor: int, **more: object) -> synthetic.Made:
        return synthetic.Made({"data disks": place, copies: factor}, 1000, spread=0, more=more)

    places = ("attached", "local")
    tried = [cell(place, 1) for place in places]
    refused = [cell(place, 3, status="refused", reason=Reason(rule="3 nodes")) for place in places]
    here = synthetic.make_run(tmp_path / "here", [*tried, *refused], title="T", seconds=3)
    everything = [cell(place, factor) for place in places for factor in (1, 3)]
    there = synthetic.make_run(tmp_path / "there", everything, title="T", seconds=3)
    rate = next(one for one in Report.of([here, there]).sections if one.name == "rate")
    (panel,) = rate.panels
    assert len(panel.figures.rows) == 4, "two places, once here and once there"


@pytest.mark.parametrize("dilation", [1, 4])
def test_p99_in_slow_motion_is_shown_and_not_judged(tmp_path: Path, dilation: int) -> None:
    share = Share(nodes=Figure(full=6, here=1), time_dilation=dilation)
    trials = [
        synthetic.Made({"disks": name}, 1000, p50_ms=ms, more={"share": share})
        for name, ms in (("a", 2.0), ("b", 9.0))
    ]
    report = Report.of([synthetic.make_run(tmp_path, trials, title="T", seconds=3)])
    (pair,) = (pair for _, finding in report.said for pair in finding.pairs)
    assert Quantity.P50 in pair.judgements
    assert (Quantity.P99 in pair.judgements) == (dilation == 1)
    (subject,) = report.subjects
    assert (tables.SLOW_MOTION in tables.warnings(subject)) == (dilation > 1)
    assert all(cell.median("p99_ms") for cell in subject.matrix.cells.values())
