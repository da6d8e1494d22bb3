"""Copied commands are commands: children with their own codes, streams, surroundings."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path

from tests.warm import DISKLAB, Popen


def told(*words: str, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DISKLAB, *words], capture_output=True, text=True, check=False, **how)  # type: ignore[call-overload,no-any-return]


def test_a_command_has_its_own_code_streams_folder_and_variables(tmp_path: Path) -> None:
    assert subprocess.Popen is Popen
    assert told("--version").stdout.startswith("disklab ")
    refused = told("predict", "nothere.yaml")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "nothere.yaml: neither a file here" in refused.stderr
    (tmp_path / "nothere.yaml").write_text("title: x\n", encoding="utf-8")
    assert "nothere.yaml:1: " in told("predict", "nothere.yaml", cwd=tmp_path).stderr
    lost = told("disk", "list", env={**os.environ, "DISKLAB_RUN_DIR": str(tmp_path / "none")})
    assert lost.returncode == 0, lost.stderr


def test_it_is_listed_under_its_words_and_ends_by_signals(tmp_path: Path) -> None:
    words = [DISKLAB, "serve", str(tmp_path), "--port", "0"]
    waiting = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert b"http://" in waiting.stdout.readline()
    shown = Path(f"/proc/{waiting.pid}/cmdline").read_text(encoding="utf-8")
    assert " ".join(words) in shown
    waiting.kill()
    assert waiting.wait() == -signal.SIGKILL


def test_what_a_thread_gives_on_is_given_on() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = told("--version")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        process = subprocess.Popen([DISKLAB, "--version"], stdout=subprocess.DEVNULL)
        limits = Path(f"/proc/{process.pid}/limits").read_text(encoding="ascii")
        assert process.wait() == before.returncode == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert f" {soft - 1} " in limits


def test_a_process_that_is_forked_waits_for_its_own() -> None:
    assert told("nope").returncode == 2
    child = os.fork()
    if child == 0:
        os._exit(told("nope").returncode)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
