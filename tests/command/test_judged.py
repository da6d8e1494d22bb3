"""Runs without a disk: budgets, comparisons, and `disklab run --simulate`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from disklab.command.counts import CommandRun, parse_budget
from disklab.command.recording import Recorder
from disklab.command.written import changes, check_alike, junit, markdown, read_base
from disklab.errors import UserError

from tests.hosts.conftest import Lab
from tests.privilege.test_caller import DISKLAB
from tests.programs import ended

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


# Appends, rewrites, renews and reads back; one file is written out by the end alone.
WRITER = """
import os, sqlite3
rows = sqlite3.connect("rows.db")
rows.execute("create table rows(value)")
for value in range(6):
    rows.execute("insert into rows values(?)", (value,))
    rows.commit()
log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for _ in range(20):
    os.write(log, b"x" * 5000)
    os.fsync(log)
direct = os.open("sync", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
for _ in range(5):
    os.pwrite(direct, b"y" * 4096, 0)
open("late", "wb").write(bytes(10 << 20))
"""


def recorder(lines: list[str]) -> Recorder:
    made = Recorder(Path("/data"))
    for number, line in enumerate(lines):
        made.take(f"7  {1000 + number}.5 {line} <0.001000>\n".encode())
    return made


def test_an_fsync_of_a_new_file_writes_its_data_and_the_log() -> None:
    recording = recorder(
        [
            'openat(AT_FDCWD</data>, "x", O_WRONLY|O_CREAT, 0644) = 3</data/x>',
            'write(3</data/x>, ""..., 8192) = 8192',
            'write(3</data/x>, ""..., 8192) = 8192',
            "fsync(3</data/x>) = 0",
            'pwrite64(3</data/x>, ""..., 10, 4096) = 10',
            "fdatasync(3</data/x>) = 0",
            "fdatasync(3</data/x>) = 0",
            'write(9</elsewhere/y>, ""..., 10) = 10',
            "fsync(9</elsewhere/y>) = 0",
            "fsync(8<socket:[1]>) = -1 EINVAL (Invalid argument)",
            "no call at all",
        ]
    ).ended()
    assert [length for _, _, length, _ in recording.trace.ios()] == [16384, 4096, 4096, 4096]
    # A log's, the data's; the rewritten page's; the time of change at the end: its log's and one.
    assert recording.flushes == 5
    assert recording.waited_s == pytest.approx(0.003)


def test_calls_that_others_interrupt_are_put_together() -> None:
    made = Recorder(Path("/data"))
    for line in (
        b'1 1.0 openat(3</data>, "x", O_RDWR|O_CREAT|O_DIRECT) = 4</data/x> <0.1>',
        b'1 1.1 pwrite64(4</data/x>, ""..., 4096, 0 <unfinished ...>',
        b'2 1.2 pread64(4</data/x>, ""..., 4096, 0) = 4096 <0.1>',
        b"1 1.3 <... pwrite64 resumed>) = 4096 <0.2>",
        b"3 1.4 <... fsync resumed>) = 0 <0.2>",
    ):
        made.take(line + b"\n")
    assert [writes for *_, writes in made.ended().trace.ios()] == [False, True, True]


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_it_counts_what_an_emulated_disk_counts(lab: Lab, tmp_path: Path) -> None:
    script = tmp_path / "w.py"
    script.write_text(WRITER, encoding="utf-8")
    command = ["python3", str(script)]
    results = {}
    for name, more in (("emulated", ["--no-calibrate"]), ("simulated", ["--simulate"])):
        ran = ended(
            [str(DISKLAB), "run", "--disk", "azure/P10", "--json", *more, "--", *command],
            env=lab.environment(),
            cwd=tmp_path,
            code=0,
        )
        results[name] = json.loads(ran.stdout.splitlines()[-1])["operations"]
    emulated, simulated = results["emulated"], results["simulated"]
    # xfs splits records of its log, and has writes of its own.
    assert simulated["flush"]["ios"] == pytest.approx(emulated["flush"]["ios"], rel=0.15), results
    assert simulated["write"]["ios"] == pytest.approx(emulated["write"]["ios"], rel=0.3)
    assert simulated["write"]["bytes"] == pytest.approx(emulated["write"]["bytes"], rel=0.05)
    assert simulated["write"]["latency"]["p50_ms"] > 1


def test_a_summary_that_cannot_be_written_is_told_before_the_command_runs(tmp_path: Path) -> None:
    words = ["--simulate", "--markdown", str(tmp_path / "absent/x.md"), "--junit", "/absent/y.xml"]
    command = ["touch", str(tmp_path / "ran")]
    ran = ended([str(DISKLAB), "run", "--disk", "azure/P10", *words, "--", *command])
    assert (ran.returncode, ran.stderr.count("you may not write there")) == (2, 2), ran.stderr
    assert not (tmp_path / "ran").exists()


def test_a_machine_without_strace_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "true").symlink_to("/bin/true")
    ran = ended(
        [str(DISKLAB), "run", "--disk", "azure/P10", "--simulate", "--", "true"],
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert (ran.returncode, "strace: is not installed" in ran.stderr) == (2, True), ran.stderr
