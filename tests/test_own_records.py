"""Records of our own that are damaged, or pipes, links and folders in their place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from disklab import durable, reading
from disklab.databases.cassandra.distribution import _major
from disklab.engine.locks import Life
from disklab.engine.process import EngineProcess
from disklab.folders import Inside
from disklab.hosts.left_networks import OWNER, owner_life
from disklab.hosts.places import HostPlace, Places
from disklab.results.event_log import EVENTS, WISH, Wish, read_events, wish_of


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def linked(path: Path) -> None:
    path.with_name("target").write_text("1 2")
    path.symlink_to(path.with_name("target"))


KINDS: list[Callable[[Path], object]] = [
    os.mkfifo,
    Path.mkdir,
    lambda path: path.symlink_to(path),
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.write_bytes(b"\xff\x00"),
    lambda path: path.write_bytes(b"[" * 500_000),
    lambda path: path.write_text("9" * 5000 + " 1"),
    large,
]


@pytest.mark.parametrize("make", KINDS)
def test_a_record_that_is_none_says_nothing_and_holds_up_nobody(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    for name in ("pid", OWNER, EVENTS, WISH, "release", "host.json"):
        make(tmp_path / name)
    assert EngineProcess.recorded(tmp_path / "pid") is None
    assert owner_life(tmp_path) is Life.GONE
    assert read_events(tmp_path).events == ()
    assert wish_of(tmp_path) is Wish.GO_ON
    assert _major(tmp_path) is None
    made: HostPlace = Places(tmp_path, tmp_path).host("default")
    made.run.mkdir(parents=True)
    make(made.run / "host.json")
    assert made.host_record() is None


def test_a_record_behind_a_link_is_not_ours(tmp_path: Path) -> None:
    linked(tmp_path / "pid")
    assert reading.text(tmp_path / "pid", reading.RECORD) == "1 2"
    assert reading.record_text(tmp_path / "pid", reading.RECORD) is None


@pytest.mark.parametrize("torn", [b"", b"x", b"x" * 3_000_000])
@pytest.mark.parametrize("whole", [b"", b"one\n", b"one\n" + b"y" * 2_000_000 + b"\n"])
def test_a_torn_end_is_found_in_files_of_any_size(
    tmp_path: Path, whole: bytes, torn: bytes
) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_bytes(whole + torn)
    assert durable.set_torn_end_aside(Inside(tmp_path, path.name)) == (torn.decode() or None)
    assert path.read_bytes() == whole
    aside = path.with_name("trials.jsonl.torn")
    assert (aside.read_bytes() if torn else b"\n") == torn + b"\n"
