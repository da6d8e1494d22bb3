"""fio's files with what no file of fio has, and with its options at their defaults.

The first are refused in words, never by an error of Python's; the second are as good as no lines.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from disklab.errors import UserError
from disklab.probe.fio_results import read
from disklab.spec.fio_file import DEFAULTS, READ, SAME, WITHOUT_EFFECT, On, experiment_text
from hypothesis import given
from hypothesis import strategies as st

ON = On(("azure/P30",), "azure/Standard_E16s_v5")
NUMBERS = ("numjobs", "direct", "iodepth", "rate_iops", "rwmixread", "fsync", "size", "runtime")
STRANGE = ("²", "٣", "9" * 400, "9" * 5000, "-1", "1e9", "0x10", "", "NaN", "4²", "9999999p")


def job(*lines: str) -> str:
    return "\n".join(["[job]", "rw=randrw", "bs=4k", "size=1g", *lines])


@pytest.mark.parametrize("line", ["=5", "=", " = 5", "bssplit=4k/²:8k/50", "rate_iops=²,³"])
def test_lines_that_fio_has_not_are_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "job.fio"
    file.write_text(job(line))
    with pytest.raises(UserError) as refused:
        experiment_text(file, ON)
    assert f"{file}:5" in str(refused.value)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", STRANGE)
def test_a_strange_number_is_refused_in_words_or_read(
    tmp_path: Path, name: str, value: str
) -> None:
    lines = words_of(tmp_path, f"{name}={value}").splitlines()
    assert max(map(len, lines)) < 400


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_line_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: str
) -> None:
    assert words_of(tmp_path_factory.mktemp("fio"), f"{name}={value}")


def words_of(tmp_path: Path, line: str) -> str:
    """Return what a job file becomes with a line, or why it is refused."""
    file = tmp_path / "job.fio"
    file.write_bytes(job(line).encode(errors="replace"))
    try:
        return experiment_text(file, ON)
    except UserError as refused:
        return str(refused)


SIDE: dict[str, Any] = {
    "total_ios": 1000,
    "io_bytes": 4096000,
    "runtime": 1000,
    "clat_ns": {
        "N": 1000,
        "min": 10,
        "max": 900,
        "mean": 100.0,
        "stddev": 5.0,
        "percentile": {"50.000000": 100, "99.000000": 800},
        "bins": {"100": 1000},
    },
}
NOTHING = {"total_ios": 0, "io_bytes": 0, "runtime": 0}


def report(*jobs: object) -> str:
    return json.dumps({"fio version": "fio-3.33", "global options": {}, "jobs": [*jobs]})


def ran(**changed: object) -> dict[str, Any]:
    options = {"rw": "randread", "bs": "4k", "direct": "1", "ioengine": "libaio", "size": "1g"}
    whole = {"jobname": "job", "groupid": 0, "job options": options}
    return {**whole, "read": SIDE, "write": NOTHING, "sync": {}, **changed}


def side(**changed: object) -> dict[str, Any]:
    return {**SIDE, **changed}


def clat(**changed: object) -> dict[str, Any]:
    return side(clat_ns={**SIDE["clat_ns"], **changed})


STRANGE_JOBS: list[object] = [
    5,
    None,
    [],
    ran(read=5),
    ran(read=side(total_ios="abc")),
    ran(read=side(total_ios=float("nan"))),
    ran(read=side(total_ios=float("inf"))),
    ran(read=side(total_ios=-5)),
    ran(read=side(runtime=float("nan"))),
    ran(read=side(io_bytes=[])),
    ran(read=side(clat_ns=7)),
    ran(read=clat(percentile={"50.000000": -5, "99.000000": -9})),
    ran(read=clat(percentile={"x": 5})),
    ran(read=clat(percentile=[])),
    ran(read=clat(mean=float("nan"))),
    ran(sync=[1]),
    ran(**{"job options": {"rw": "randread", "numjobs": "²", "size": "9" * 5000}}),
]


@pytest.mark.parametrize("strange", STRANGE_JOBS, ids=range(len(STRANGE_JOBS)))
def test_what_fio_never_writes_is_refused_in_words(tmp_path: Path, strange: object) -> None:
    file = tmp_path / "out.json"
    file.write_text(report(strange))
    with pytest.raises(UserError) as refused:
        read(file, ON)
    assert max(map(len, str(refused.value).splitlines())) < 500


def test_what_fio_writes_is_read(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text(report(ran()))
    (result,) = read(file, ON).results
    assert result.ops_per_s == pytest.approx(1000)


def text_of(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "job.fio"
    file.write_text(job(*lines))
    return experiment_text(file, ON)


@pytest.mark.parametrize(
    "line", ["verify=0", "rate_iops=0", "loops=1", "offset=0k", "zonemode=none"]
)
def test_an_option_at_its_default_is_as_good_as_no_line(tmp_path: Path, line: str) -> None:
    assert text_of(tmp_path, line) == text_of(tmp_path)


def test_a_section_takes_back_what_global_has_set(tmp_path: Path) -> None:
    file = tmp_path / "job.fio"
    file.write_text("[global]\nverify=md5\n" + job("verify=0"))
    assert experiment_text(file, ON) == text_of(tmp_path)


@pytest.mark.parametrize("line", ["verify=md5", "rate=1m", "offset=1g", "thinktime=100"])
def test_an_option_that_changes_the_load_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match="disklab has no such load"):
        text_of(tmp_path, line)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_every_default_that_fio_tells_is_taken(tmp_path: Path) -> None:
    told = asked("all")
    names = {line.partition(":")[0].strip() for line in told.splitlines() if ":" in line}
    refused = []
    for name in sorted(names - READ - WITHOUT_EFFECT - {"write_barrier"}):
        value = re.search(r"default: (.+)", asked(name))
        if value is None or value[1] == "no default" or SAME.get(name, name) in WITHOUT_EFFECT:
            continue
        try:
            text_of(tmp_path, f"{name}={value[1]}")
        except UserError:
            refused.append(f"{name}={value[1]}")
    assert refused == []
    assert names >= {*DEFAULTS} - {"hugepage-size"} - READ


def asked(name: str) -> str:
    return subprocess.run(
        ["fio", f"--cmdhelp={name}"], capture_output=True, text=True, check=True, timeout=20
    ).stdout
