"""Which Java is taken, and what is said when none will do."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.databases.cassandra.distribution import find_java
from disklab.errors import UserError


def java(folder: Path, name: str, version: str) -> Path:
    """Make what an installed Java looks like."""
    home = folder / name
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").touch(mode=0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_17_is_found_among_several(tmp_path: Path) -> None:
    java(tmp_path, "java-11", "11.0.20")
    java(tmp_path, "java-21", "21.0.4")
    wanted = java(tmp_path, "java-17", "17.0.15")
    newest = java(tmp_path, "java-25", "25")
    found = find_java({"PATH": str(newest / "bin")}, (tmp_path,))
    assert found.home == wanted
    assert found.options == []


def test_java_home_comes_first(tmp_path: Path) -> None:
    java(tmp_path / "jvm", "java-17", "17.0.15")
    own = java(tmp_path, "own", "17.0.1")
    environment = {"PATH": "", "JAVA_HOME": str(own)}
    assert find_java(environment, (tmp_path / "jvm",)).home == own


def test_a_newer_java_may_have_its_security_manager(tmp_path: Path) -> None:
    java(tmp_path, "java-21", "21.0.4")
    assert find_java({"PATH": ""}, (tmp_path,)).options == ["-Djava.security.manager=allow"]


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.20", "24", "25.0.1"])
def test_what_will_not_do_is_named(tmp_path: Path, version: str) -> None:
    java(tmp_path, "jdk", version)
    with pytest.raises(UserError) as refused:
        find_java({"PATH": ""}, (tmp_path,))
    (problem,) = refused.value.problems
    major = version.removeprefix("1.").split(".")[0]
    assert f"Java {major} in {tmp_path / 'jdk'}" in problem.value
    assert "security manager" in problem.rule
    assert "openjdk" in problem.way_out


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no Java"):
        find_java({"PATH": ""}, (tmp_path,))
