"""What is not a plain file of a bounded size, depth and number of values is refused, and soon."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab import reading, spec
from disklab.catalog import load_catalog
from disklab.errors import UserError
from disklab.reading import digits

PACKAGE = Path(reading.__file__).parent
LETTERS = "abcdefghijklmnopqrstu"
SOON_S = 10.0
"""Of a processor, for what took half a minute or for ever."""


def doubled(first: str, again: str) -> str:
    """Return twenty lines of YAML, each of which repeats the line before twice."""
    pairs = itertools.pairwise(LETTERS)
    return first + "".join(f"{one}: &{one} {again.replace('?', two)}\n" for two, one in pairs)


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < SOON_S


def refused(path: Path | str) -> str:
    """Return how the two readers of users' YAML refuse a file; both must."""
    told = []
    for read in (spec.load, lambda file: load_catalog([Path(file)])):
        with pytest.raises(UserError) as caught:
            read(Path(path))
        for problem in caught.value.problems:
            assert problem.place
            assert problem.rule
            assert problem.way_out
        assert len(caught.value.problems) <= reading.MOST_TOLD + 1
        told.append(str(caught.value))
    return "\n".join(told)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_not_read(device: str) -> None:
    assert refused(device).count("is a regular file, not a device, pipe or socket") == 2


def test_a_pipe_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a device, pipe or socket" in refused(tmp_path / "pipe")


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(1 << 40)  # a hole: no reader gets through it
    told = refused(tmp_path / "large.yaml")
    assert "at most 1048576 bytes; this one has 1099511627776" in told


def test_a_file_of_the_kernel_that_shows_no_size_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "grown"
    file.write_bytes(b"x" * 2_000_000)
    small = os.stat_result((0o100644, *(0 for _ in range(9))))
    monkeypatch.setattr(os, "stat", lambda *_: small)
    monkeypatch.setattr(os, "fstat", lambda *_: small)
    with pytest.raises(UserError, match="at most 1048576 bytes"):
        reading.text(file, reading.EXPERIMENT)


@pytest.mark.parametrize("name", ["\0", "\ud800", "x" * 300])
def test_what_names_no_file(name: str) -> None:
    assert "cannot be read" in refused(name) or "is not a file name" in refused(name)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[" * 1_000, "levels"),
        ("[" * 200_000, "levels"),
        ("a: " + "{a: " * 100_000, "levels"),
        ("- " * 200_000, "levels"),
        ("a: &a [*a]", "outside of what it repeats"),
        (doubled("a: &a [x]\n", "[*?, *?]"), "values"),
        (doubled("a: &a {x: 1}\n", "{<<: [*?, *?]}"), "values"),
        ("\n".join(f"key{n}: {n}" for n in range(60_000)), "values"),
        ("\n".join(f"key{n}: {n}" for n in range(9_000)), "there is no such key"),
        ("\n".join(f"{'k' * 40}{n}: {n}" for n in range(9_000)), "there is no such key"),
        ("k" * 900_000 + ": 1", ""),
        ("a: " + "9" * 100_000, ""),
        ("a: 2026-13-45", ""),
        ("\xff\xfe".encode("latin-1"), "not UTF-8"),
        ('title: "\\ud800"', ""),
        ("? [a]\n: b", ""),
        ("a: b\n--- \nc: d", "YAML"),
    ],
    ids=range(17),
)  # fmt: skip
def test_a_hostile_text(tmp_path: Path, text: str | bytes, rule: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert rule in refused(file)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        (7, 7),
        ("\u00b2", None),
        ("\u0661", None),
        ("9" * 5000, None),
        ("-1", None),
        ("", None),
    ],
    ids=range(7),
)
def test_a_whole_number_from_outside(text: object, number: int | None) -> None:
    assert digits(text) == number


def test_a_whole_number_has_an_end() -> None:
    assert digits("65536", 65535) is None
    assert digits("65535", 65535) == 65535
