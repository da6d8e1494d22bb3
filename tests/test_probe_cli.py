"""What `disklab probe` refuses: value, rule, place and way out, exit code 2, nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.in_process import disklab


def refusal(*arguments: str) -> str:
    ran = disklab("probe", *arguments, code=2)
    assert ran.stdout == ""
    return ran.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--bs", "5k", "--bs: 5k: a block is a multiple of 4 KiB and at most 4 MiB; use 4k, 8k"),
        ("--bs", "many", "--bs: many: is not a size; write a number with k, M or G"),
        ("--duration", "0s", "--duration: 0s: a cell is measured for one second to one day"),
        ("--duration", "soon", "--duration: soon: "),
        ("--size", "12", "--size: 12: the region has at least 1 MiB; give 1GiB"),
        ("--rw", "trim", "--rw: trim: the probe does not know it; choose randread, randwrite"),
        (
            "--rwmixread",
            "70",
            "--rwmixread: 70: it is the share of reads in a mix, and --rw has none",
        ),
        ("--profile", "fast", "--profile: fast: the probe does not know it; choose sync, async"),
        ("--engine", "mmap", "--engine: mmap: the probe does not know it; choose libaio"),
        ("--chart", "x.pdf", "--chart: x.pdf: a chart is .html, .svg or .png; name the file so"),
        ("--chart", "no/x.svg", "--chart: no/x.svg: its folder does not exist; make no first"),
    ],
)
def test_a_wrong_option(tmp_path: Path, option: str, value: str, message: str) -> None:
    assert message in refusal(str(tmp_path), option, value)
    assert list(tmp_path.iterdir()) == []


def test_every_wrong_option_is_named_at_once(tmp_path: Path) -> None:
    said = refusal(str(tmp_path), "--bs", "5k", "--rw", "trim", "--size", "x")
    assert "--bs: 5k" in said
    assert "--rw: trim" in said
    assert "--size: x" in said


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert "does not exist; name a directory, a file" in refusal(str(tmp_path / "no"))


def test_a_target_that_is_no_disk() -> None:
    assert "/dev/null: is neither a directory, nor a file" in refusal("/dev/null")


def test_no_space_is_an_error_before_anything_happens(tmp_path: Path) -> None:
    said = refusal(str(tmp_path), "--size", "8191T")
    assert "MiB are free, the probe needs" in said
    assert "give a smaller --size" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_smaller_than_a_block(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x" * 4096)
    assert "are less than one block of 1M; choose a smaller --bs" in refusal(str(small))
