"""`disklab run --simulate`: what strace records, beside what an emulated disk counts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from disklab.command.recording import Recorder

from tests.hosts.conftest import Lab
from tests.privilege.test_caller import DISKLAB
from tests.programs import ended

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
