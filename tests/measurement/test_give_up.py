"""Whose programs are ended in our folders, and what is given up by name on hosts that are gone."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import pytest
from disklab.errors import MachineError, UserError
from disklab.machines import own_folders as folders
from disklab.machines.local import LocalMachine
from disklab.measurement.journal import Journal, remembered
from disklab.measurement.preparation import HOSTS, give_up


def run_with_changes(folder: Path, address: str) -> Journal:
    folder.mkdir()
    text = f"hosts:\n  n1: {{address: {address}, volumes: {{data: /mnt/data}}}}\n"
    text += "  n2: {address: root@10.9.9.9, volumes: {data: /mnt/data}}\n"
    (folder / HOSTS).write_text(text, encoding="utf-8")
    journal = Journal(folder)
    journal.note("n1", "remove_file", "/mnt/data/.disklab-a")
    journal.note("n2", "remove_file", "/mnt/data/.disklab-b")
    return journal


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_what_was_left_on_it_is_told_and_forgotten_and_nothing_else(tmp_path: Path) -> None:
    run_with_changes(tmp_path / "run", "root@10.0.0.4")
    told = "give up the file /mnt/data/.disklab-a on host n1, of the run run: it stays as it is"
    assert list(give_up("n1", dry_run=True)) == [f"would {told}"]
    assert len(Journal.of(tmp_path / "run").left()) == 2
    assert list(give_up("root@10.0.0.4")) == [told.replace("give", "gave", 1)]
    assert [one.host for one in Journal.of(tmp_path / "run").left()] == ["n2"]
    assert list(remembered()) == [tmp_path / "run"]
    list(give_up("n2"))
    assert list(remembered()) == []


def test_a_name_of_two_hosts_is_asked_for_by_its_address(tmp_path: Path) -> None:
    run_with_changes(tmp_path / "first", "root@10.0.0.4")
    run_with_changes(tmp_path / "second", "root@10.0.0.5")
    with pytest.raises(UserError, match=r"root@10\.0\.0\.4, root@10\.0\.0\.5"):
        list(give_up("n1"))
    assert len(list(give_up("root@10.0.0.5"))) == 1
    assert len(Journal.of(tmp_path / "first").left()) == 2


def test_a_host_that_nothing_was_left_on_is_no_host_to_give_up(tmp_path: Path) -> None:
    run_with_changes(tmp_path / "run", "root@10.0.0.4")
    with pytest.raises(UserError, match=r"left: n1 \(root@10\.0\.0\.4\), n2 \(root@10\.9\.9\.9\)"):
        list(give_up("n3"))


LOCAL = LocalMachine()


@contextmanager
def at_a_terminal(folder: Path) -> Iterator[int]:
    """Run a program with a terminal in a folder, as somebody who looks around there has."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvp("sleep", ["sleep", "60"])
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_what_runs_there_is_ended_but_for_people(tmp_path: Path) -> None:
    name, token = folders.new_name("test")
    ours = PurePosixPath(tmp_path / name)
    folders.make(LOCAL, ours, token)
    (Path(ours) / "within").mkdir()
    with (
        at_a_terminal(Path(ours)) as person,
        subprocess.Popen(["sleep", "60"], cwd=Path(ours) / "within") as server,
        subprocess.Popen(["sleep", "60"], cwd=tmp_path) as other,
    ):
        try:
            folders.remove(LOCAL, ours, token)
            assert server.wait(10) == -signal.SIGKILL
            assert not Path(ours).exists()
            os.kill(person, 0)
            assert other.poll() is None
        finally:
            other.kill()
            server.kill()


def test_a_folder_with_another_marker_stays(tmp_path: Path) -> None:
    name, token = folders.new_name("test")
    ours = PurePosixPath(tmp_path / name)
    folders.make(LOCAL, ours, token)
    with pytest.raises(MachineError, match="another run's marker"):
        folders.remove(LOCAL, ours, "0" * 32)
    with pytest.raises(MachineError, match="not named like our folders"):
        folders.remove(LOCAL, PurePosixPath(tmp_path), token)
    assert Path(ours).exists()
