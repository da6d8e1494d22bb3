"""Whether disks are good enough by a database's own rule, said before anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from disklab.report import tables
from disklab.report.report import Report
from disklab.results import Run

from tests.report.synthetic import Made, make_run


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


def run_of(out: Path) -> Run:
    cells = [
        Made({"disk": "P10"}, 400.0, more=rule(3.4, (2, 4))),
        Made({"disk": "HDD"}, 90.0, more=rule(24.0, (16, 32))),
        Made({"disk": "SSD"}, 200.0, more=rule(12.0, (8, 16))),
    ]
    return make_run(out, cells, title="Which disk for etcd?", seconds=5)


def test_the_rule_is_the_first_answer(tmp_path: Path) -> None:
    report = Report.of([run_of(tmp_path)])
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
    (subject,) = Report.of([run_of(tmp_path)]).subjects
    figures = tables.summary(subject)
    column = figures.headings.index("good enough")
    assert [line[column].split(":")[0] for line in figures.rows] == ["yes", "no", "probably not"]


def test_a_database_without_rules_has_no_such_column(tmp_path: Path) -> None:
    made = make_run(tmp_path, [Made({"disk": "P10"}), Made({"disk": "P30"})], title="x", seconds=3)
    (subject,) = Report.of([made]).subjects
    assert "good enough" not in tables.without_empty_columns(tables.summary(subject)).headings
