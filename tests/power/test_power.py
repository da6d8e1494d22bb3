"""A few power cuts under file systems and PostgreSQL, and controls that must find losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.power.cuts import Cut, Images, cuts_of, last_flush, promised
from campaigns.power.recorder import FLUSH, MARK, WRITE, Record
from campaigns.power.trial import SETUPS, trials
from tests.apart import apart

TORN = "MariaDB without doublewrite"
BEGIN = Record(MARK, 0, 5, b"begin")
FLUSHED = Record(FLUSH, 0, 0, b"")


def written(letter: str, offset: int = 0, length: int = 8192) -> Record:
    return Record(WRITE, offset, length, letter.encode() * length)


def said(text: str) -> Record:
    return Record(MARK, 0, len(text), text.encode())


LOG = [
    *(written("a"), BEGIN, said("sent r 1"), written("b"), FLUSHED, said("acknowledged r 1")),
    *(said("sent r 2"), written("c"), written("d", 8192)),
]


def image_of(tmp_path: Path, cut: Cut) -> bytes:
    Images(LOG, tmp_path / "durable", 16384).make(cut, tmp_path / "image")
    return (tmp_path / "image").read_bytes()


def test_what_a_flush_covered_is_there_and_later_writes_are_lost_torn_and_reordered(
    tmp_path: Path,
) -> None:
    seen = {image_of(tmp_path, Cut(len(LOG), seed)) for seed in range(200)}
    assert b"a" not in b"".join(seen)
    assert b"b" * 8192 + bytes(8192) in seen
    assert b"b" * 8192 + b"d" * 8192 in seen
    assert b"c" * 4096 + b"b" * 4096 + bytes(8192) in seen
    assert any(one[:512] != one[512:1024] for one in seen)


def test_a_lying_disk_loses_what_a_flush_had_covered(tmp_path: Path) -> None:
    seen = {image_of(tmp_path, Cut(len(LOG), seed, lying=True))[:1] for seed in range(50)}
    assert b"a" in seen


def test_a_promise_counts_once_it_was_acknowledged() -> None:
    assert promised(LOG, 5) == ({}, {"r": 1})
    assert promised(LOG, 7) == ({"r": 1}, {"r": 2})
    assert [last_flush(LOG, Cut(at, 1)) for at in (4, 5, 9)] == [1, 4, 4]
    assert len(cuts_of(LOG, 10, 1)) == 10


@pytest.mark.machine
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("files on ext4", 10),
        ("files on xfs", 5),
        ("PostgreSQL on ext4", 2),
        ("etcd on ext4", 4),
        pytest.param("etcd on xfs", 10, marks=pytest.mark.long),
        pytest.param("PostgreSQL on xfs", 10, marks=pytest.mark.long),
        pytest.param("Cassandra on ext4", 3, marks=pytest.mark.long),
        pytest.param("MariaDB on ext4", 10, marks=pytest.mark.long),
        pytest.param(f"{TORN} on a disk that writes 16 KiB whole", 10, marks=pytest.mark.long),
    ],
)
@apart
def test_nothing_promised_is_lost_by_a_power_cut(name: str, count: int) -> None:
    setup = next(one for one in SETUPS if one.name == name)
    outcomes = list(trials(setup, count, seed=1))
    assert [one for one in outcomes if one.found] == []
    assert any(one.unflushed for one in outcomes)


@pytest.mark.machine
@pytest.mark.parametrize(
    "name", ["files on ext4", "files on xfs", "PostgreSQL on ext4", "etcd on ext4"]
)
@apart
def test_the_same_checks_find_what_a_disk_that_ignores_flushes_loses(name: str) -> None:
    setup = next(one for one in SETUPS if one.name == name)
    assert any(one.found for one in trials(setup, 5, seed=1, lying=True))


def test_an_aligned_write_of_a_disk_that_writes_it_whole_is_there_or_not(tmp_path: Path) -> None:
    def image(seed: int) -> bytes:
        cut = Cut(len(LOG), seed)
        Images(LOG, tmp_path / "durable", 16384, 8192).make(cut, tmp_path / "image")
        return (tmp_path / "image").read_bytes()

    seen = {image(seed) for seed in range(50)}
    first, second = {one[:8192] for one in seen}, {one[8192:] for one in seen}
    assert first == {b"b" * 8192, b"c" * 8192}
    assert second == {bytes(8192), b"d" * 8192}


@pytest.mark.machine
@pytest.mark.long
@apart
def test_a_page_that_a_power_cut_tears_is_found() -> None:
    setup = next(one for one in SETUPS if one.name == TORN)
    assert any(one.found for one in trials(setup, 20, seed=1))
