"""The tests' own machinery: hanging ones, copied commands, which a change reaches."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hanging import SECONDS
from tests.programs import ended
from tests.touched import Reach, built_of, changed_files, distances
from tests.warm import DISKLAB, Popen

ROOT = Path(__file__).parents[1]
SUITE = """
import threading, time
import pytest

def waits():
    threading.Event().wait()

@pytest.fixture
def stuck():
    threading.Event().wait()

def test_one_hangs():
    thread = threading.Thread(target=waits, name="beside", daemon=True)
    thread.start()
    try:
        time.sleep(1000)
    except Exception:
        pass

def test_its_fixture_hangs(stuck):
    pass

@pytest.mark.most(30)
def test_another_has_more_time():
    time.sleep(2.5)

def test_the_last_one_is_fine():
    pass
"""


@pytest.mark.parametrize("processes", [(), ("--numprocesses", "2")])
def test_a_hung_test_fails_with_its_name_and_stacks_and_the_others_go_on(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "tests.hanging", "-p", "no:cacheprovider"]
    ran = ended(
        [*command, "-q", "-c", os.devnull, "--rootdir", str(tmp_path), *processes, str(tmp_path)],
        env={**os.environ, SECONDS: "2", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        code=1,
    )
    for count in ("1 failed", "2 passed", "1 error"):
        assert count in ran.stdout.splitlines()[-1], ran.stdout
    for name in ("test_one_hangs", "test_its_fixture_hangs"):
        assert f"test_suite.py::{name} hung: not done after 2 s" in ran.stdout
    # Of the test and of the thread beside it.
    assert "in waits" in ran.stdout
    assert "in test_one_hangs" in ran.stdout


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


# Reading all imports takes three seconds of processor time.


SERVERS = "tests/measurement/test_built_servers.py::test_it_is_built_filled_loaded_and_removed"
NOBODY = "tests/privilege/test_nobody.py::test_nobody_and_an_etcd"


def reached(changed: str) -> Reach:
    return Reach(ROOT, [Path(changed)])


@pytest.mark.xdist_group("imports")
def test_a_database_reaches_its_own_tests_and_those_of_no_other() -> None:
    reach = reached("python/disklab/databases/redis/server.py")
    assert reach.steps_to(f"{SERVERS}[redis]") == 0
    for other in ("mariadb", "etcd"):
        assert reach.steps_to(f"{SERVERS}[{other}]") is None
    assert reach.steps_to("tests/databases/test_postgresql.py::test_a_crash") is None
    assert reach.steps_to(NOBODY) is None


@pytest.mark.xdist_group("imports")
def test_what_databases_share_reaches_them_all() -> None:
    reach = reached("python/disklab/databases/log.py")
    assert reach.steps_to(f"{SERVERS}[redis]") == 0 or reach.steps_to(f"{SERVERS}[redis]")
    assert reach.steps_to("tests/databases/test_postgresql.py::test_a_crash") == 0


@pytest.mark.xdist_group("imports")
@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("crates/disklab-disk/src/lib.rs", "tests/hosts/test_delays.py::test_a"),
        ("crates/disklab-sim/src/device.rs", "tests/prediction/test_page_cache.py::test_a"),
        ("python/disklab/data/facts.yaml", "tests/data/test_a.py::test_a"),
        ("python/disklab/advice/search.py", "tests/advise/test_pruning.py::test_a"),
        ("tests/power/test_power.py", "tests/power/test_power.py::test_a"),
        ("benches/sql.py", "tests/test_benches.py::test_a"),
    ],
)
def test_a_change_reaches_its_room(changed: str, test: str) -> None:
    assert reached(changed).steps_to(test) == 0


@pytest.mark.xdist_group("imports")
def test_a_page_reaches_nothing() -> None:
    reach = reached("docs/index.md")
    assert {reach.steps_to(f"{SERVERS}[redis]"), reach.steps_to(NOBODY)} == {None}


@pytest.mark.xdist_group("imports")
def test_crates_reach_what_is_built_of_them() -> None:
    assert {"disklab-sim", "disklab-wasm", "disklab-engine"} <= built_of(ROOT, {"disklab-sim"})
    assert "disklab-load" not in built_of(ROOT, {"disklab-sim"})


@pytest.mark.xdist_group("imports")
def test_steps_are_counted_along_imports() -> None:
    users = {"a": {"b", "c"}, "b": {"d"}, "d": {"a"}}
    assert distances(users, ["a"]) == {"a": 0, "b": 1, "c": 1, "d": 2}


@pytest.mark.xdist_group("imports")
def test_without_a_merge_base_nothing_is_known(tmp_path: Path) -> None:
    assert changed_files(tmp_path, "main") is None
    assert changed_files(ROOT, "HEAD") is not None


@pytest.mark.xdist_group("imports")
def test_a_clone_of_another_branch_knows_its_origin_s(tmp_path: Path) -> None:
    script = """
        set -e
        export GIT_AUTHOR_NAME=me GIT_AUTHOR_EMAIL=me@here
        export GIT_COMMITTER_NAME=me GIT_COMMITTER_EMAIL=me@here
        git init -q -b main first && cd first && touch old && git add . && git commit -qm old
        git checkout -q -b mine && touch new && git add . && git commit -qm new && cd ..
        git clone -q -b mine first second
    """
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True)
    assert changed_files(tmp_path / "second", "main") == [Path("new")]
