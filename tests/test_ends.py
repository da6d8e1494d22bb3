"""Commands whose streams fail, whose folder has no room, or who may not have more of something."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from disklab.cli.run_progress import ending_text
from disklab.errors import MachineError, UserError
from disklab.events import RunFinished, Warned
from disklab.results import Run, RunInfo
from disklab.results.event_log import EventLog
from disklab.results.records import ExperimentNote

from tests.programs import ended
from tests.report import synthetic
from tests.results import made

DISKLAB = Path(sys.executable).with_name("disklab")
NEEDS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="only root mounts"
)


def shell(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", script, str(DISKLAB), *words]
    return ended(command)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    trials = [synthetic.Made({"disk": disk}, 100.0) for disk in "ab"]
    return synthetic.make_run(out, trials, title="Which?", repeats=1, seconds=3, run_id="r").folder


@pytest.mark.parametrize(
    ("script", "code", "told"),
    [
        ('"$0" catalog | head -1; exit ${PIPESTATUS[0]}', 0, ""),
        ('"$0" catalog --json | true; exit ${PIPESTATUS[0]}', 0, ""),
        ('"$0" catalog --json >&-', 1, "error: standard output: Bad file descriptor"),
        ('"$0" catalog >/dev/full', 1, "error: standard output: No space left on device"),
        ('"$0" catalog --json >/dev/full', 1, "error: standard output: No space left on device"),
        ('"$0" catalog nothing-has-this-name 2>&-', 2, ""),
        ('"$0" catalog nothing-has-this-name 2>/dev/full', 2, ""),
        ('"$0" catalog P30 <&- 2>&-', 0, ""),
    ],
)
def test_a_stream_that_fails_is_told_in_one_line(script: str, code: int, told: str) -> None:
    ran = shell(script)
    assert ran.returncode == code, ran.stderr
    assert ran.stderr.startswith(told)
    assert ran.stderr.count("\n") <= 1


def test_the_hint_after_a_stop_is_a_command_that_finds_the_run(run: Path) -> None:
    """Also where `--out` was given: a name alone is looked for in the usual folder."""
    stopped = RunFinished(run.name, run, finished=2, left=1, interrupted=True, mode="rehearse")
    program, mode, option, named = shlex.split(ending_text(stopped).rpartition("go on with: ")[2])
    assert (program, mode, option) == ("disklab", "rehearse", "--resume")
    assert Run.open(Path(named)).info.id == "r"


def test_no_file_gets_the_number_of_a_closed_stream(run: Path, tmp_path: Path) -> None:
    """Else what is printed lands in the next file that is opened."""
    page = tmp_path / "page.html"
    shell('"$0" report "$1" --html "$2" >&- 2>&- <&-', str(run), str(page))
    assert page.read_text().startswith("<!doctype html>")


def test_a_reader_of_the_notes_that_dies_ends_nothing(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    script = '"$0" report "$1" --html "$2" 2> >(exec true); exit $?'
    ran = shell(f"sleep 0; {script}", str(run), str(page))
    assert ran.returncode == 0
    assert page.exists()
    assert "Which?" in ran.stdout


@pytest.mark.parametrize("limit", ["-n 6", "-v 200000", "-v 450000"])
def test_a_limit_of_the_shell_is_told_and_no_traceback(
    run: Path, tmp_path: Path, limit: str
) -> None:
    page = tmp_path / "page.html"
    ran = shell(f'ulimit {limit}; "$0" report "$1" --html "$2"', str(run), str(page))
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "(ulimit -" in ran.stderr.splitlines()[-1]


@contextmanager
def small(folder: Path, *options: str) -> Iterator[Path]:
    """A file system of its own, which is soon full."""
    folder.mkdir()
    told = ",".join(["size=256k", *options])
    subprocess.run(["mount", "-t", "tmpfs", "-o", told, "disklab-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def info() -> RunInfo:
    return RunInfo(id="run", mode="rehearse", experiment=ExperimentNote(title="Which?"))


def fill(run: Run) -> None:
    with run.writing(), EventLog(run.folder) as log:
        for trial in range(10_000):
            log(Warned("x" * 200))
            run.append(made.result(trial, factors={"disk": "a"}))


@NEEDS_ROOT
def test_results_fill_a_disk_and_none_is_lost(tmp_path: Path) -> None:
    with small(tmp_path / "disk") as disk:
        run = Run.create(disk, info())
        with pytest.raises(MachineError, match=rf"{run.folder}: cannot be written: .*\(ENOSPC\)"):
            fill(run)
        stored = len(run.results())
        assert stored > 10
        again = Run.open(run.folder)
        assert len(again.results()) == stored
        assert again.torn == ()


@NEEDS_ROOT
def test_seconds_and_telemetry_on_a_full_disk_are_told(tmp_path: Path) -> None:
    with small(tmp_path / "disk") as disk:
        run = Run.create(disk, info())
        seconds, telemetry = run.record_seconds(0, 0), run.record_telemetry(0, 0)
        (run.folder / "logs/n1-output.log").write_bytes(b"x" * 4096)
        with pytest.raises(OSError, match="No space"):
            (disk / "rest").write_bytes(b"x" * (1 << 20))
        told = "cannot be written: No space left on device"
        second = {"t_s": 1.0, "ops_per_s": 1.0, "histograms": {"a": "x" * 100_000}}
        with pytest.raises(MachineError, match=told):
            seconds.second(second)
        with suppress(MachineError):
            seconds.close()
        for number in range(1000):
            telemetry.add("measure", number, f"s{number * 7919}", f"m{number * 104729}", number)
        with pytest.raises(MachineError, match=f"{run.folder}: cannot be written"):
            telemetry.close()


@NEEDS_ROOT
def test_a_folder_without_inodes_is_told_and_no_half_run_stays(tmp_path: Path) -> None:
    with small(tmp_path / "disk", "nr_inodes=5") as disk:
        with pytest.raises(UserError, match="No space left on device"):
            Run.create(disk, info())
        assert list(disk.iterdir()) == []


@NEEDS_ROOT
def test_a_disk_that_becomes_read_only_is_told(tmp_path: Path) -> None:
    with small(tmp_path / "disk") as disk:
        run = Run.create(disk, info())
        run.append(made.result(0))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(MachineError, match=r"Read-only file system \(EROFS\)"):
            run.append(made.result(1))
        with pytest.raises(MachineError, match=r"Read-only file system \(EROFS\)"):
            run.end()
        assert len(Run.open(run.folder).results()) == 1
