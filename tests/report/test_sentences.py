"""Each kind of answer on a run whose truth is known: what a manager would be told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from disklab.databases.calibration import calibration_for
from disklab.report import tables, wording
from disklab.report.answer import in_words
from disklab.report.pair import Kind
from disklab.report.report import Report
from disklab.report.wording import SPACE
from disklab.results import Bottleneck, Run
from disklab.results.records import Band, Bands, Mover, Operation

from tests.report.synthetic import Made, make_run

READS = {"per_operation": {"read": Operation(operations=1)}}
WRITES = {"per_operation": {"write": Operation(operations=1)}}
MACHINE = {"bottleneck": Bottleneck(resource="this machine's CPU", utilisation=0.99)}


def report_of(out: Path, *trials: Made, **options: Any) -> Report:
    run = make_run(out, trials, title="T", seconds=options.pop("seconds", 5), **options)
    return Report.of([run])


def told(report: Report) -> tuple[str, str]:
    """The headline and its reason, with plain spaces."""
    ((_, finding),) = report.headline
    return finding.text.replace(SPACE, " "), finding.reason.replace(SPACE, " ")


def of(disks: str, rate: float, more: dict[str, Any] | None = None, **made: Any) -> Made:
    given = {"spread": 0.0, "more": {**READS, **(more or {})}, **made}
    return Made({"disks": disks}, rate, **given)


def test_a_clear_difference_names_the_better_one_the_figures_and_the_reason(tmp_path: Path) -> None:
    text, reason = told(report_of(tmp_path, of("None", 4860), of("ReadOnly", 43200, hit_ratio=1)))
    assert text == (
        "ReadOnly does 8.9 times the reads of None (43,200 against 4,860 a second; "
        "90 % sure: 8.9 times)"
    )
    assert reason == "100 % of the reads of ReadOnly came from the host's own SSD"


def test_less_than_a_doubling_is_told_in_percent(tmp_path: Path) -> None:
    text, _ = told(report_of(tmp_path, of("a", 1360), of("b", 1000)))
    assert text.startswith("A does 36 % more reads than b (1,360 against 1,000 a second")


def test_no_difference_says_within_what(tmp_path: Path) -> None:
    text, _ = told(report_of(tmp_path, of("attached", 1000), of("local", 1020)))
    assert text == "Local and attached are equally fast for reads (within 2 %, 3 repeats)"


def test_a_reason_fits_its_operation(tmp_path: Path) -> None:
    trials = [
        of("None", 1000, WRITES),
        of("ReadOnly", 1500, WRITES, hit_ratio=1.0),
    ]
    report = report_of(tmp_path, *trials)
    text, reason = told(report)
    assert "more writes than" in text
    assert "reads" not in reason
    assert all(
        "reads" not in cell for row in tables.summary(report.subjects[0]).rows for cell in row
    )


def sweep(*rates: tuple[float, float], tail: float = 0.5) -> list[Made]:
    trials = []
    for caching, side in (("None", 0), ("ReadOnly", 1)):
        for threads, pair in zip((64, 128, 256), rates, strict=True):
            spread = tail if side else 0.5
            factors = {"caching": caching, "threads": threads}
            trials.append(Made(factors, pair[side], tail=spread, spread=0.0, more=READS))
    return trials


def test_a_crossing_is_advice(tmp_path: Path) -> None:
    text, _ = told(report_of(tmp_path, *sweep((1000, 3200), (2000, 3200), (3500, 3200))))
    assert text == (
        "Choose ReadOnly up to 128 threads, None at 256 threads (ReadOnly: 1.6 to 3.2 times the "
        "reads up to 128 threads, 9 % fewer reads at 256 threads)"
    )


def test_a_tail_that_disagrees_is_in_the_sentence(tmp_path: Path) -> None:
    pairs = ((1000, 1800), (1000, 2000), (1000, 2200))
    text, _ = told(report_of(tmp_path, *sweep(*pairs, tail=1.2)))
    assert "; the 99th percentile of ReadOnly is the worse one (" in text
    agreeing, _ = told(report_of(tmp_path / "agreeing", *sweep(*pairs)))
    assert "99th percentile" not in agreeing


def open_loop(rate: float) -> dict[str, Any]:
    return {"loop": {"kind": "open", "rate_per_s": rate}}


def test_what_cannot_carry_the_offered_rate_says_what_it_does(tmp_path: Path) -> None:
    failing = {
        **open_loop(25_000),
        "bottleneck": Bottleneck(resource="read slots", utilisation=1.0),
    }
    trials = [
        of("P30 x 4", 18_250, failing, price=1000.0),
        of("NVMe", 24_990, open_loop(25_000), price=1200.0),
    ]
    report = report_of(tmp_path, *trials)
    text, reason = told(report)
    assert text.startswith(
        "P30 x 4 cannot carry 25,000 operations a second: it does 18,200 (73 %). NVMe carries "
        "them, 99th percentile "
    )
    assert reason == "P30 x 4 was limited by read slots (100 % used)"
    # It is not ranked by a price per operation either.
    prices = tables.prices(report.subjects[0])
    assert [row[-1].replace(SPACE, " ") for row in prices.rows] == [
        "does 73 % of the load",
        "$8.00",
    ]


def test_three_candidates_are_put_in_order(tmp_path: Path) -> None:
    load = open_loop(10_000)
    trials = [
        of("P30", 10_000, load, price=3830.0),
        of("E30", 3300, load, price=4180.0),
        of("v2", 10_000, load, price=3035.0),
        of("Ultra", 10_000, load, price=7279.0),
    ]
    text = report_of(tmp_path / "open", *trials).headline[0][1].text
    order = [text.index(name) for name in ("cheapest", "v2 (", "P30 (", "Ultra (", "not by E30")]
    assert order == sorted(order)
    assert "$3,035 a month" in text
    closed = [of(name, rate) for name, rate in (("a", 1000), ("b", 3000), ("c", 2000))]
    text = report_of(tmp_path / "closed", *closed).headline[0][1].text
    assert text == "By reads a second: b (3,000), c (2,000), a (1,000)"


def paced(rate: float) -> dict[str, Any]:
    return {"loop": {"kind": "closed", "threads": 64, "at_most_per_s": rate}}


def test_candidates_that_keep_to_a_ceiling_differ_by_their_latency(tmp_path: Path) -> None:
    held = [of("a", 5000, paced(5000)), of("b", 5000, paced(5000), tail=2.0)]
    text, _ = told(report_of(tmp_path / "held", *held))
    assert "99th percentile" in text
    below = [of("a", 5000, paced(5000)), of("b", 2500, paced(5000))]
    text, _ = told(report_of(tmp_path / "below", *below))
    assert text.startswith("A does at least 2.0 times the reads of b (5,000 against 2,500")
    more = [of("c", 5000, paced(5000), tail=1.0)]
    text = report_of(tmp_path / "three", *held, *more, below[1]).headline[0][1].text
    assert text.startswith("5,000 operations a second can be carried by these, the fastest first:")


def test_neither_carries_the_offered_rate(tmp_path: Path) -> None:
    load = open_loop(25_000)
    text, _ = told(report_of(tmp_path, of("a", 18_250, load), of("b", 15_000, load)))
    assert text == (
        "Neither a nor b can carry 25,000 operations a second: they do 18,200 (73 %) and "
        "15,000 (60 %)"
    )


def test_cannot_tell_says_how_many_more_repeats_and_the_command(tmp_path: Path) -> None:
    trials = [of("a", 1000, spread=0.08), of("b", 1010, spread=0.08)]
    text, reason = told(report_of(tmp_path, *trials, seed=3))
    assert text.startswith("Cannot tell yet for reads: b is between ")
    assert text.endswith(" faster after 3 repeats")
    assert "more repeats would tell (" in reason
    assert f": disklab rehearse --resume {tmp_path}/synthetic-rehearse-" in reason


@pytest.mark.parametrize("repeats", [1, 2])
def test_one_or_two_repeats_say_what_they_saw_and_do_not_decide(
    tmp_path: Path, repeats: int
) -> None:
    report = report_of(tmp_path, of("a", 1000), of("b", 2000), repeats=repeats, seconds=60)
    text, reason = told(report)
    count = "a single repeat" if repeats == 1 else "only two repeats"
    assert text == (
        f"Cannot tell yet from {count}, in which b does 2.0 times the reads of a "
        "(2,000 against 1,000 a second)"
    )
    assert re.match(r"About \d more repeats would tell \(", reason)


def test_this_machine_was_the_limit_is_no_answer(tmp_path: Path) -> None:
    trials = [of("a", 1000, {**WRITES, **MACHINE}), of("b", 1400, {**WRITES, **MACHINE})]
    report = report_of(tmp_path, *trials)
    text, reason = told(report)
    assert text == (
        "No answer for writes: this machine's processor was the limit, not the disks (99 % busy)"
    )
    assert reason.endswith("or a prediction: disklab predict synthetic.yaml")


def test_a_machine_that_held_back_the_better_one_leaves_a_lower_bound(tmp_path: Path) -> None:
    text, _ = told(report_of(tmp_path, of("a", 1000), of("b", 4000, MACHINE)))
    assert text.startswith("B does at least 4.0 times the reads of a (")


def predicted(logs: list[float]) -> dict[str, Any]:
    names = ("ops_per_s", "p50_ms", "p95_ms", "p99_ms")
    bands = Bands(
        figures={name: Band(low=0.9, high=1.1) for name in names},
        design="one",
        draws=dict.fromkeys(names, logs),
        movers=[Mover(name="limit: vm cached", within=1.1, ratios={"ops_per_s": 1.1})],
    )
    return {"bands": bands}


def test_a_prediction_tells_its_doubt(tmp_path: Path) -> None:
    trials = [of("a", 1000, predicted([0.0, 0.0])), of("b", 890, predicted([0.03, -0.03]))]
    text, _ = told(report_of(tmp_path, *trials, mode="predict", repeats=1))
    assert text.startswith(
        "A does about 12 % more reads than b (1,000 against 890 a second; 80 % sure: "
    )
    assert "repeats" not in text


def test_a_prediction_that_cannot_tell_asks_for_no_repeats(tmp_path: Path) -> None:
    trials = [of("a", 1000, predicted([0.0, 0.0])), of("b", 980, predicted([0.2, -0.2]))]
    report = report_of(tmp_path, *trials, mode="predict", repeats=1)
    text, reason = told(report)
    assert text.startswith("Cannot tell for reads: b is between ")
    assert text.endswith("(80 % sure)")
    assert "repeat" not in text + reason


def test_outside_the_calibrated_range_is_a_sketch(tmp_path: Path) -> None:
    more = {"warnings": ["outside the calibrated range: rows of 170 bytes (fitted on 4090)"]}
    report = report_of(tmp_path, of("a", 1, more), of("b", 2, more), mode="predict", repeats=1)
    (_, sketch), *_ = report.below
    assert sketch.text == (
        "Take this as a sketch: nothing like it was measured: rows of 170 bytes (measured: 4090)"
    )


def test_one_answer_at_most_three_sentences_below_it_and_a_matrix(tmp_path: Path) -> None:
    trials = [
        Made({"disks": disks, "workload": work}, rate, spread=0.0)
        for work, rates in {"a": (1, 9), "b": (1, 2), "c": (1, 3), "d": (1, 4), "e": (1, 5)}.items()
        for disks, rate in zip(("x", "y"), (1000.0 * r for r in rates), strict=True)
    ]
    report = report_of(tmp_path, *trials)
    assert [len(report.headline), len(report.below), len(report.rest)] == [1, 3, 1]
    assert "9.0 times" in told(report)[0], "the largest difference first"
    answer = report.answer_of(report.subjects[0])
    assert len(tables.comparisons(answer).rows) == 5
    assert {pair.kind for pair in answer.pairs} == {Kind.BETTER}


def test_many_comparisons_begin_with_one_sentence_and_a_matrix(tmp_path: Path) -> None:
    """Three disks under four loads: two loads differ, two do not."""
    loads = {"a": (1, 3, 4), "b": (1, 1.5, 1.5), "c": (1, 1, 1), "d": (2, 2, 2)}
    trials = [
        Made({"disks": disks, "workload": work}, 1000.0 * rate, spread=0.0)
        for work, rates in loads.items()
        for disks, rate in zip(("P30", "v2", "Ultra"), rates, strict=True)
    ]
    report = report_of(tmp_path, *trials)
    text, _ = told(report)
    assert wording.capital(text) == (
        "V2 does more operations than P30 in 2 of 4 comparisons (up to 3.0 times as many), "
        "Ultra in 2 (up to 4.0 times as many); otherwise they are equal"
    )
    assert len(report.below) == 3
    matrix = tables.by_level(report.answer_of(report.subjects[0]))
    assert matrix.headings == ("where", "P30, ops/s", "v2", "Ultra")
    found = {row[0]: [cell.replace(SPACE, " ") for cell in row[1:]] for row in matrix.rows}
    assert found["a"] == ["1,000", "3 times", "4 times"]
    assert found["d"] == ["2,000", "0.0 %", "0.0 %"]


def run(out: Path, rate: float, **options: Any) -> Run:
    return make_run(out, [of("a", rate), of("b", rate)], title="T", seconds=5, **options)


def test_quick_beside_full_and_other_settings_are_said(tmp_path: Path) -> None:
    runs = []
    for name, fidelity, iops in (("old", "full", 20_000), ("new", "quick", 40_000)):
        made = run(tmp_path, 1000, run_id=name, mode="predict", repeats=1)
        info = json.loads((made.folder / "run.json").read_text())
        info["environment"]["fidelity"] = fidelity
        (made.folder / "run.json").write_text(json.dumps(info))
        plan = json.loads((made.folder / "resolved.json").read_text())
        for trial in plan:
            trial["spec"] = {"cluster": {"volumes": {"data": {"iops": iops}}}}
        (made.folder / "resolved.json").write_text(json.dumps(plan))
        runs.append(Run.open(made.folder))
    _, reason = told(Report.of(runs))
    assert "The first was simulated at full fidelity, the second at quick" in reason
    assert "different settings: cluster.volumes.data.iops 20,000 against 40,000" in reason


def test_no_name_of_a_parameter_is_in_a_sentence() -> None:
    """`Most of the doubt is the calibrated read_pause_ns`: users.md, Reading."""
    for engine in ("cassandra", "postgresql", "mariadb", "yugabytedb"):
        calibration = calibration_for(engine)
        for name in (*calibration.parameters, *calibration.physical):
            assert "_" not in in_words(name), name
    assert in_words("read_pause_ns") == "how long garbage collection stops a node"
    assert in_words("limit: vm cached") == "the exact limit (vm cached)"
