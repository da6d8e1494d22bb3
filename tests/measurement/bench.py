"""A folder with an experiment, a hosts file and a directory to measure in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from disklab.results import Run

from tests.in_process import disklab
from tests.programs import wait_until

DISKLAB = Path(sys.executable).with_name("disklab")
EXPERIMENT = """
title: How fast is this disk?
device: {vm: azure/Standard_E8ds_v4, volume: {disks: azure/P30}}
workload: {fio: {profile: sync, rw: randread, bs: 4k}, stop: {duration: 1s}}
factors:
  workload.fio.rw: [randread, randwrite]
"""
ROWS = """
title: How much do the clients get?
cluster:
  nodes: 1
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P30}}
database: DATABASE
dataset: {rows: 2k, row: 5 x 100B}
workload:
  operations: OPERATIONS
  load: {threads: 4}
  stop: {duration: 2s}
"""
# Its median and tail are named beside it, or with reasons of their own.
SPOILED = "other programs disturbed the rate"


def rows_in(database: str, operations: str = "{read: 100%}", more: str = "") -> str:
    """Return an experiment on few rows of a database. `more`: sections of its own."""
    return ROWS.replace("DATABASE", database).replace("OPERATIONS", operations) + more


MEASURE = ("measure", "e.yaml", "--hosts", "h.yaml")
THREADS = "factors:\n  workload.load.threads: [2, 4]\n"


class Bench:
    """A folder with a directory to measure in, and a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        trial = self.data / "trial"
        trial.write_bytes(b"x" * 4096)
        try:
            os.close(os.open(trial, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            pytest.skip(
                f"{folder}: its file system does not support O_DIRECT; set TMPDIR elsewhere"
            )
        trial.unlink()
        self.write("e.yaml", EXPERIMENT)
        self.write("h.yaml", f"hosts: {{here: {{local: true, volumes: {{data: {self.data}}}}}}}")
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "200"}

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(DISKLAB), *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Return the exit code and what was said.

        Beside other tests no figure of a trial may count, which ends a run with 1: it did its work.
        """
        with self.start(*words) as process:
            out, err = process.communicate(timeout=240)
        code = process.returncode
        return 0 if code == 1 and SPOILED in err else code, out, err

    def told(self, *words: str) -> tuple[int, str, str]:
        """Return what a command says that begins nothing: a plan, a refusal, a clean-up.

        It runs in this process: starting Python takes longer than most of them.
        """
        ran = disklab(*words, environment=self.environment, folder=self.folder)
        return ran.returncode, ran.stdout, ran.stderr

    def measured(self, *words: str) -> Run:
        """Return a run that went to its end."""
        code, _, err = self.run(*(words or (*MEASURE, "--yes", "--quick")))
        assert code == 0, err
        return self.whole_run()

    def whole_run(self) -> Run:
        """Return the run, which has left nothing, and whose trials have figures."""
        self.nothing_is_left()
        (run,) = self.runs()
        results = run.results()
        assert {one.status for one in results} <= {"ok", "invalid"}, results
        return run

    def plan(self) -> str:
        """Return what a measurement would do."""
        code, out, err = self.told(*MEASURE, "--plan")
        assert code == 0, err
        return out

    def refused(self, *words: str) -> str:
        """Return why a measurement is refused."""
        code, _, err = self.told(*MEASURE, *words)
        assert code == 2, err
        return err

    def runs(self) -> list[Run]:
        return [Run.open(path.parent) for path in self.folder.glob("disklab-runs/*/run.json")]

    def nothing_is_left(self) -> None:
        assert list(self.data.iterdir()) == []
        notes = self.folder / "state/disklab/measurements"
        assert not notes.exists() or list(notes.iterdir()) == []

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        wait_until(is_so, most_s=120)

    def wait_for_change(self, process: subprocess.Popen[str]) -> None:
        """Wait until a run has written down a change."""

        def changed() -> bool:
            assert process.poll() is None
            return any(self.folder.glob("disklab-runs/*/changes.jsonl"))

        self.wait_until(changed)
