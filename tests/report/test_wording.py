"""How sentences read: reasons only where they hold, rules of databases, figures that count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from disklab.report import tables
from disklab.report.cells import Cell
from disklab.report.history import apart, findings_between
from disklab.report.pair import Comparison, matters
from disklab.report.reasons import why
from disklab.report.report import Report
from disklab.report.verdict import Judgement, Outcome, Quantity
from disklab.report.wording import SPACE, basis, milliseconds, percent, span, with_spans
from disklab.results import Bottleneck, LimitWait, Run, Telemetry, TrialResult
from disklab.results.required import told_apart

from tests.report.synthetic import Made, make_run


def test_sentences_that_differ_in_a_percentage_become_one() -> None:
    told = with_spans(
        [
            f"None was bound by its latency: 98{SPACE}% of the time",
            f"99.6{SPACE}% of reads came from the cache",
            f"None was bound by its latency: 100{SPACE}% of the time",
            f"None was bound by its latency: 95{SPACE}% of the time",
            "credits ran out after 5 s",
            "credits ran out after 7 s",
            "credits ran out after 5 s",
        ]
    )
    assert told == [
        f"None was bound by its latency: 95{SPACE}% to 100{SPACE}% of the time",
        f"99.6{SPACE}% of reads came from the cache",
        "credits ran out after 5 s",
        "credits ran out after 7 s",
    ]


def test_what_has_two_percentages_is_left_alone() -> None:
    told = [f"{one}{SPACE}% against {other}{SPACE}%" for one, other in ((5, 6), (7, 8), (5, 6))]
    assert with_spans(told) == told[:2]


@pytest.mark.parametrize(
    ("ms", "text"), [(0.9123, "0.912"), (7.376, "7.38"), (999.4, "999"), (44_280.0, "44,300")]
)
def test_milliseconds_have_no_exponent(ms: float, text: str) -> None:
    assert milliseconds(ms) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (7.4e-7, "0"), (0.0001, "0.01"), (0.0042, "0.42"), (0.5, "50"), (0.999, "99.9")],
)
def test_a_share_that_is_next_to_nothing_is_none(share: float, text: str) -> None:
    assert percent(share) == f"{text}{SPACE}%"


AT_TARGET = "operations under way, not at the target"


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (["calibration row"] * 2, "(calibration row)"),
        (
            [f"published with 441 {AT_TARGET}", f"published with 1,193 {AT_TARGET}"],
            f"(published with other numbers of {AT_TARGET})",
        ),
        (["calibration row", f"published with 441 {AT_TARGET}"], "(the table says why)"),
    ],
)
def test_the_reason_is_that_of_the_cells_and_not_that_they_were_fitted(
    reasons: list[str], words: str
) -> None:
    named = [SimpleNamespace(label=label) for label in ("published", "predict")]
    comparison = SimpleNamespace(
        first=named[0],
        second=named[1],
        counted=(),
        is_history=False,
        matched=[SimpleNamespace(not_counted=reason) for reason in reasons],
    )
    (finding,) = findings_between(cast(Comparison, comparison))
    assert finding.text.startswith("predict compared with published: no cell counts as an error")
    assert finding.text.endswith(words)


def phrases(limit: LimitWait, bound_by: str | None) -> str:
    result = TrialResult(
        experiment="x",
        mode="rehearse",
        trial=0,
        factors={},
        ops_per_s=5.0,
        bottleneck=None if bound_by is None else Bottleneck(resource=bound_by),
        telemetry=Telemetry(limits=[limit]),
    )
    return " ".join(why(Cell({}, (result,))).phrases()).replace(SPACE, " ")


@pytest.mark.parametrize(
    ("start", "left", "bound_by", "is_reason"),
    [
        (0, 1, None, False),  # It fills again beside a load that asks for little.
        (0, 1, "data disk 0 3000 IOPS", False),  # Another limit held the load.
        (0, 1, "data vm uncached 6400 IOPS", True),  # It had none, and that limit held it.
        (0, 0, "data vm uncached 6400 IOPS", True),
        (1000, 10, None, True),  # The load spent them.
    ],
)
def test_credits_are_a_reason_where_the_load_had_need_of_them(
    start: int, left: int, bound_by: str | None, *, is_reason: bool
) -> None:
    limit = LimitWait(
        limit="vm uncached 6400 IOPS",
        volume="data",
        credits_start=start,
        credits_left=left,
        credits_capacity=1000,
    )
    assert ("the VM's burst credits" in phrases(limit, bound_by)) is is_reason


@pytest.mark.parametrize(
    ("value", "bound", "text"),
    [
        (4.5, 4.5, "4.5"),
        (4.5004, 4.5, "4.5004"),
        (4.4996, 4.5, "4.4996"),
        (4.3771, 4.5, "4.38"),
        (1200.2, 1200.0, "1,200.2"),
        (1187.7, 1200.0, "1,188"),
    ],
)
def test_a_figure_has_the_digits_that_its_verdict_needs(
    value: float, bound: float, text: str
) -> None:
    assert told_apart(value, bound) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.7, "0.7 s"),
        (4.0, "4 s"),
        (60.0, "60 s"),
        (7200.0, "2.0 h"),
        (86_400.0 * 12, "12 days"),
        (2.295e8, "7.3 years"),
    ],
)
def test_a_long_time_is_told_in_days_and_years(seconds: float, text: str) -> None:
    assert span(seconds).replace(SPACE, " ") == text


def test_several_repeats_are_not_called_one() -> None:
    judgement = Judgement(Quantity.OPS, Outcome.CANNOT_TELL, 1.1, None, (2, 2), measured=True)
    assert basis(judgement) == "two valid repeats, too short for an interval"


def test_a_sentence_has_the_number_of_the_table_beside_it() -> None:
    assert [apart(ratio).replace(SPACE, " ") for ratio in (0.71, 1.41, 2.34)] == [
        "29 %",
        "41 %",
        "2.3 times",
    ]


def test_settings_that_nobody_uses_do_not_differ() -> None:
    caching = "cluster.volumes.data.caching"
    old, new = {caching: "None"}, {caching: "None"}
    assert not matters("before.host_cache", old, new)
    assert matters("before.host_cache", old, {caching: "ReadOnly"})
    # A measured run has no share of credits: nobody set it.
    assert not matters("before.credits_ratio", {"before.credits_ratio": 0.0}, {})
    assert matters("cluster.nodes", {"cluster.nodes": 3}, {})


def rule(found_ms: float, within: tuple[float, float] | None = None) -> dict[str, Any]:
    return {
        "rules": [
            {
                "subject": "etcd",
                "what": "99th percentile of WAL fsync",
                "found_ms": found_ms,
                "below_ms": 10.0,
                "within_ms": within,
                "kept": found_ms < 10,
                "source": "its FAQ",
            }
        ]
    }


def run_with_rules(out: Path) -> Run:
    cells = [
        Made({"disk": "P10"}, 400.0, more=rule(3.4, (2, 4))),
        Made({"disk": "HDD"}, 90.0, more=rule(24.0, (16, 32))),
        Made({"disk": "SSD"}, 200.0, more=rule(12.0, (8, 16))),
    ]
    return make_run(out, cells, title="Which disk for etcd?", seconds=5)


def test_the_rule_is_the_first_answer(tmp_path: Path) -> None:
    report = Report.of([run_with_rules(tmp_path)])
    ((_, first),) = report.headline
    assert first.text.replace("\N{NO-BREAK SPACE}", " ") == (
        "Good enough for etcd? Yes: P10 (3.4 ms); probably not: SSD (12 ms; from 8 to 16 ms); "
        "no: HDD (24 ms)"
    )
    said = first.reason.replace("\N{NO-BREAK SPACE}", " ")
    assert said == "etcd asks for a 99th percentile of WAL fsync below 10 ms (its FAQ)"


def test_a_full_machine_is_no_slow_disk(tmp_path: Path) -> None:
    slow, fast = rule(24.0, (16, 32)), rule(3.4, (2, 4))
    for one in (slow, fast):
        one["rules"][0]["doubt"] = "this machine had no CPU left"
    cells = [Made({"disk": "P10"}, more=slow), Made({"disk": "P30"}, more=fast)]
    report = Report.of([make_run(tmp_path, cells, title="Which disk?", seconds=3)])
    ((_, first),) = report.headline
    assert first.text.endswith(
        "Yes: P30 (3.4 ms); cannot tell: P10 (24 ms; this machine had no CPU left)"
    )


def test_the_table_has_it_by_cell(tmp_path: Path) -> None:
    (subject,) = Report.of([run_with_rules(tmp_path)]).subjects
    figures = tables.summary(subject)
    column = figures.headings.index("good enough")
    assert [line[column].split(":")[0] for line in figures.rows] == ["yes", "no", "probably not"]


def test_a_database_without_rules_has_no_such_column(tmp_path: Path) -> None:
    made = make_run(tmp_path, [Made({"disk": "P10"}), Made({"disk": "P30"})], title="x", seconds=3)
    (subject,) = Report.of([made]).subjects
    assert "good enough" not in tables.without_empty_columns(tables.summary(subject)).headings


TAIL = {"tail": "one wait in a hundred for replies of volume data that this machine made late"}


def run_of(out: Path, spoiled: dict[str, str]) -> Run:
    cells = [
        Made({"disk": "P10"}, 400.0, p50_ms=8.0, more={"spoiled": spoiled}),
        Made({"disk": "P30"}, 900.0, p50_ms=4.0),
    ]
    return make_run(out, cells, title="Which disk?", seconds=5)


def first_lines(report: Report) -> list[str]:
    return [finding.text.replace(SPACE, " ") for _, finding in report.said]


def test_the_first_line_says_which_figure_does_not_count(tmp_path: Path) -> None:
    report = Report.of([run_of(tmp_path, TAIL)])
    first, *rest = first_lines(report)
    assert first == (
        "No answer on the 99th percentile of P10: other work on this machine disturbed it"
    )
    ((_, finding),) = report.headline
    assert finding.reason == TAIL["tail"]
    # The rate was not spoiled, and the answer on it stands.
    assert any("P30" in text for text in rest)
    (cell, _) = report.subjects[0].matrix.cells.values()
    assert cell.median("p99_ms") is None
    assert cell.median("ops_per_s") is not None


def test_the_table_shows_what_it_was(tmp_path: Path) -> None:
    (subject,) = Report.of([run_of(tmp_path, TAIL)]).subjects
    figures = tables.summary(subject)
    column = figures.headings.index("p99")
    assert all(line[column] for line in figures.rows)


def test_a_rate_that_was_spoiled_makes_no_answer(tmp_path: Path) -> None:
    (subject,) = Report.of([run_of(tmp_path, {"rate": "x", "median": "x"})]).subjects
    first, *_ = first_lines(Report.of([subject.run]))
    assert first.startswith("No answer on the rate and the median of P10")
