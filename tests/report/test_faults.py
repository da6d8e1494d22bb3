"""What a report says of a timetable: a sentence for each cell, and the course with its events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from disklab.report.faults import _apart, fault_section, sentences, together
from disklab.report.subject import subjects_of
from disklab.results import Recovery, StepTaken

from tests.report.synthetic import Made, make_run

STEPS = [
    StepTaken(kind="lose", node="n2", at_s=3, begun_s=3.0, ended_s=4.0),
    StepTaken(kind="replace", node="n2", at_s=5, begun_s=5.0, ended_s=14.0),
]
SEEN = Recovery(
    steps=STEPS,
    ops_per_s_before=5_000,
    lowest_ops_per_s=2_500,
    unavailable_s=2,
    back_s=8,
    whole_s=11,
    failed_operations=17,
    rows_checked=20_000,
    updates_lost=4,
    reads_judged=900,
    reads_stale=2,
    consistency="ONE",
    rows_lost=3,
    rows_wrong=0,
    rows_unread=1,
)


def test_a_sentence_for_each_cell_and_a_chart_with_the_events(tmp_path: Path) -> None:
    trials = [
        Made({"data disks": "attached"}),
        Made({"data disks": "local"}, more={"recovery": SEEN}),
    ]
    (subject,) = subjects_of([make_run(tmp_path, trials, title="Lost?")])
    ((text, done),) = sentences(subject.matrix)
    assert text == (
        "local: 2 s without any success; at worst 50% of 5000 operations a second; back at 95 % "
        "after 8 s; whole again after 11 s; 17 operations failed; 3 of 20000 acknowledged rows "
        "lost; 4 acknowledged updates lost; 2 of 900 reads stale at ONE; 1 rows could not be read "
        "back"
    )
    assert done == "lose n2 at 3 s, replace n2 at 5 s"
    (panel,) = fault_section(subject).panels
    assert panel.figures.rows == (
        ("local", "5,000", "2500", "2 s", "8 s", "11 s", "17", "3 of 20000", "4", "2 of 900"),
    )
    drawn = json.dumps(panel.spec(width=300))
    assert "replace n2" in drawn
    assert "attached" not in json.dumps(panel.spec(width=300)["layer"][0]["data"])


@pytest.mark.parametrize(("at_s", "side"), [(1.9, "none"), (2.0, "left"), (60.0, "right")])
def test_an_event_of_two_cells_at_about_the_same_time_is_named_once(at_s: float, side: str) -> None:
    marks = [{"what": "lose n2", "t": t} for t in (at_s, 0.0)]
    assert [mark["side"] for mark in _apart(marks, 100.0)] == ["left", side]


def test_without_a_timetable_there_is_no_section(tmp_path: Path) -> None:
    (subject,) = subjects_of([make_run(tmp_path, [Made({"work": "read"})], title="Lost?")])
    assert fault_section(subject) is None
    assert sentences(subject.matrix) == []


def test_of_several_repeats_the_worst_loss_and_the_middle_time_count() -> None:
    worse = SEEN.model_copy(update={"rows_lost": 9, "back_s": 20.0})
    both = together([SEEN, worse, SEEN])
    assert both.rows_lost == 9
    assert both.back_s == 8
    assert together([SEEN, SEEN.model_copy(update={"back_s": None})]).back_s is None


def test_which_disks_made_a_lost_node_whole_sooner(tmp_path: Path) -> None:
    def seen(kind: str, whole_s: float, streamed: int, lost: int) -> Recovery:
        mended = StepTaken(
            kind=kind, node="n2", at_s=5, begun_s=5.0, ended_s=9.0, streamed_bytes=streamed
        )
        update = {"steps": [STEPS[0], mended], "whole_s": whole_s, "rows_lost": lost}
        return SEEN.model_copy(update=update)

    trials = [
        Made({"data disks": disks, "copies": copies}, more={"recovery": one})
        for copies, disks, one in (
            (1, "attached", seen("start", 20.0, 0, 0)),
            (1, "local", seen("replace", 18.0, 0, 6_667)),
            (3, "attached", seen("start", 21.0, 0, 0)),
            (3, "local", seen("replace", 740.0, 82_000_000, 0)),
        )
    ]
    (subject,) = subjects_of([make_run(tmp_path, trials, title="Lost?")])
    told = [text for text, _ in sentences(subject.matrix)]
    why = (
        ", because disks that are kept only have to wait for their next VM; an empty disk receives "
        "everything from the other copies"
    )
    assert told[:2] == [
        "copies 1: with attached n2 was whole again after 20 s (nothing streamed), with local n2 "
        f"never has all its data again: 6667 of 20000 acknowledged rows are lost{why}",
        "copies 3: with attached n2 was whole again after 21 s (nothing streamed), with local n2 "
        f"was whole again after 12 min (0.082 GB streamed){why}",
    ]


def test_ways_to_move_a_node_that_took_as_long_are_told_together(tmp_path: Path) -> None:
    def seen(kind: str, whole_s: float) -> Recovery:
        step = StepTaken(kind=kind, node="n2", at_s=5, begun_s=5.0, ended_s=9.0)
        return SEEN.model_copy(update={"steps": [step], "whole_s": whole_s, "rows_lost": 0})

    trials = [
        Made({"to": to}, more={"recovery": one})
        for to, one in (
            ("L8s", seen("migrate", 446.1)),
            ("D15_v2", seen("migrate", 446.4)),
            ("L8s by replacing", seen("replace", 232.0)),
            ("DS14_v2", seen("move", 12.0)),
        )
    ]
    (subject,) = subjects_of([make_run(tmp_path, trials, title="Moved?")])
    assert sentences(subject.matrix)[0] == (
        "with DS14_v2 n2 was whole again after 12 s, with the others after 232 s to 446 s, because "
        "the attached disks move to the next VM unchanged",
        "with L8s by replacing n2 was whole again after 232 s; with L8s and D15_v2 n2 was whole "
        "again after 446 s; from the first event on; at a scale of 1/100",
    )


def test_an_invalid_trial_says_which_rows_were_lost_and_no_time(tmp_path: Path) -> None:
    late = {
        "status": "invalid",
        "valid": False,
        "invalid_reasons": ["the emulator was late on volume data"],
        "recovery": SEEN,
    }
    trials = [Made({"data disks": "attached"}), Made({"data disks": "local"}, more=late)]
    (subject,) = subjects_of([make_run(tmp_path, trials, title="Lost?")])
    ((text, done),) = sentences(subject.matrix)
    assert text == (
        "local: 17 operations failed; 3 of 20000 acknowledged rows lost; 4 acknowledged updates "
        "lost; 2 of 900 reads stale at ONE; 1 rows could not be read back"
    )
    assert done == (
        "lose n2 at 3 s, replace n2 at 5 s; its times do not count, because the emulator was "
        "late on "
        "volume data"
    )


def test_bars_show_how_long_a_node_was_away_and_what_never_comes_back(tmp_path: Path) -> None:
    late = SEEN.model_copy(update={"rows_lost": 0, "whole_s": 740.0, "extrapolated": True})
    soon = SEEN.model_copy(update={"rows_lost": 0, "whole_s": 20.0, "back_s": None})
    trials = [
        Made({"data disks": "attached"}, more={"recovery": soon}),
        Made({"data disks": "local"}, more={"recovery": late}),
        Made({"data disks": "ephemeral"}, more={"recovery": SEEN}),
    ]
    (subject,) = subjects_of([make_run(tmp_path, trials, title="Lost?")])
    bars = fault_section(subject).panels[0]
    assert bars.title == "until whole again"
    assert bars.figures.rows == (
        ("attached", "20 s", "never"),
        ("local", "12 min, beyond the load", "8 s"),
        ("ephemeral", "never: 3 rows lost", "8 s"),
    )
    layers = bars.spec(width=300)["layer"]
    assert [one["mark"]["type"] for one in layers] == ["bar", "tick", "text"]
    assert "attached,20.0," in bars.csv()
