"""Budgets, comparisons, and what is written of a run, without a disk."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from disklab.command.counts import CommandRun, parse_budget
from disklab.command.written import changes, check_alike, junit, markdown, read_base
from disklab.errors import UserError

from .conftest import operations


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("fsyncs <= 41", True),
        ("fsyncs < 41", False),
        ("flushes < 60", False),
        ("writes >= 100, ios <= 162", True),
        ("bytes written <= 1MiB", True),
        ("bytes read < 8kB", False),
        ("p99 write <= 8ms", True),
        ("p99 write <= 7999us", False),
        ("p99 read <= 1us", True),  # reads without a latency: nothing to miss it
        ("wall <= 12.5s", True),
        ("wall<12s", False),
        ("disk <= 100ms", True),
        ("disk < 100ms", False),
    ],
)
def test_a_budget_is_kept_or_missed(run: CommandRun, text: str, met: bool) -> None:
    assert all(line.judge(run).met for line in parse_budget(text, "--budget")) is met


def test_all_that_is_wrong_with_a_budget_is_told() -> None:
    with pytest.raises(UserError) as raised:
        parse_budget("fsync <= 1, wall <= 3, writes <= 2ms, bytes read <= x, foo", "--budget")
    places = [problem.value for problem in raised.value.problems]
    assert places == ["'fsync'", "'3'", "'2ms'", "'x'", "'foo'"]
    with pytest.raises(UserError):
        parse_budget(" , ", "--budget")


def test_one_more_flush_is_told_and_noise_of_data_is_not(run: CommandRun) -> None:
    quiet = {**run.operations, "write": operations(104, (1 << 20) + 65536)}
    assert changes(run, run.model_copy(update={"operations": quiet})) == []
    more = {**run.operations, "flush": operations(61), "write": operations(140, 3 << 20)}
    told = changes(run, run.model_copy(update={"operations": more}))
    assert [change.name for change in told] == ["flushes", "writes", "bytes of writes"]
    assert told[0].sentence() == "flushes: 61, 1 more than before (60)"
    fewer = {**run.operations, "flush": operations(59)}
    (change,) = changes(run, run.model_copy(update={"operations": fewer}))
    assert not change.grew


def test_a_base_is_read_back_and_others_are_refused(run: CommandRun, tmp_path: Path) -> None:
    base = tmp_path / "base.json"
    base.write_text(run.model_dump_json())
    assert read_base(base, "--compare") == run
    base.write_text("what the command printed\n" + run.model_dump_json() + "\n")
    assert read_base(base, "--compare") == run
    with pytest.raises(UserError, match="this run has azure/P30"):
        check_alike(run, run.model_copy(update={"disks": "azure/P30"}), "--compare")
    for content in ("", "[]", "{}", '{"command": 1}', "x" * 100, "[" * 100_000):
        base.write_text(content)
        with pytest.raises(UserError, match="disklab run --json"):
            read_base(base, "--compare")


def test_markdown_and_junit_hold_hostile_commands(run: CommandRun) -> None:
    judged = [line.judge(run) for line in parse_budget("fsyncs <= 1, wall <= 30s", "--budget")]
    text = markdown(run, judged, [])
    assert text.splitlines()[0] == "### `make 'a\\|b' ''c''`"
    assert "fsyncs <= 1: 41, missed" in text
    assert "disk 0 IOPS (500 a second): 40 I/Os waited for it, 1.5 s in all" in text
    own = "The other 12.40 s went to its own work and to waiting for a processor"
    assert f"- It waited for the disk for at most 0.10 s. {own}" in text
    many = run.model_copy(update={"wall_s": 0.05})
    assert "add up to 0.10 s: on average 2.0 were under way at once" in markdown(many, judged, [])
    suite = ET.fromstring(junit(run, judged, []))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    failed = run.model_copy(update={"exit_code": 3, "command": ["\x1b[2J\x00"]})
    assert ET.fromstring(junit(failed, [], [])).get("failures") == "1"
    assert "\x1b" not in markdown(failed, [], [])
