"""Whose programs are ended in a folder of ours, and whose are not."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import pytest
from disklab.errors import MachineError
from disklab.machines import own_folders as folders
from disklab.machines.local import LocalMachine

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
