"""Which long tests a change reaches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.touched import Reach, built_of, changed_files, distances

# Reading all imports takes three seconds of processor time.
pytestmark = pytest.mark.xdist_group("imports")

ROOT = Path(__file__).parents[1]
SERVERS = "tests/measurement/test_built_servers.py::test_it_is_built_filled_loaded_and_removed"
NOBODY = "tests/privilege/test_nobody.py::test_nobody_and_an_etcd"


def reached(changed: str) -> Reach:
    return Reach(ROOT, [Path(changed)])


def test_a_database_reaches_its_own_tests_and_those_of_no_other() -> None:
    reach = reached("python/disklab/databases/redis/server.py")
    assert reach.steps_to(f"{SERVERS}[redis]") == 0
    for other in ("mariadb", "etcd"):
        assert reach.steps_to(f"{SERVERS}[{other}]") is None
    assert reach.steps_to("tests/databases/test_postgresql.py::test_a_crash") is None
    assert reach.steps_to(NOBODY) is None


def test_what_databases_share_reaches_them_all() -> None:
    reach = reached("python/disklab/databases/log.py")
    assert reach.steps_to(f"{SERVERS}[redis]") == 0 or reach.steps_to(f"{SERVERS}[redis]")
    assert reach.steps_to("tests/databases/test_postgresql.py::test_a_crash") == 0


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


def test_a_page_reaches_nothing() -> None:
    reach = reached("docs/index.md")
    assert {reach.steps_to(f"{SERVERS}[redis]"), reach.steps_to(NOBODY)} == {None}


def test_crates_reach_what_is_built_of_them() -> None:
    assert {"disklab-sim", "disklab-wasm", "disklab-engine"} <= built_of(ROOT, {"disklab-sim"})
    assert "disklab-load" not in built_of(ROOT, {"disklab-sim"})


def test_steps_are_counted_along_imports() -> None:
    users = {"a": {"b", "c"}, "b": {"d"}, "d": {"a"}}
    assert distances(users, ["a"]) == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_without_a_merge_base_nothing_is_known(tmp_path: Path) -> None:
    assert changed_files(tmp_path, "main") is None
    assert changed_files(ROOT, "HEAD") is not None


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
