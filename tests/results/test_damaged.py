"""A damaged or hostile run folder gives a report, or an error with its four parts: no traceback."""

from __future__ import annotations

import json
import random
import re
import shutil
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from disklab.errors import UserError
from disklab.report.page import page
from disklab.report.report import Report, content
from disklab.report.terminal import show
from disklab.results import Run
from rich.console import Console

from tests.report import synthetic

FILES = (
    "run.json",
    "resolved.json",
    "trials.jsonl",
    "histograms/0-0.jsonl",
    "telemetry/0-0.parquet",
)
VALUES = (
    "null", "true", "[]", "{}", '""', '"x"', "-1", "0", "1e-320", "-1e308", "1e308", "1e999", "NaN",
    "-Infinity", "9" * 30, "9" * 5000, '"\\ud800"', '"\\u0000"', '"9e999"', "[[[[]]]]",
    '{"a": {"b": 1}}', '"' + "9" * 400 + '"', "[" * 300,
)  # fmt: skip
TRIED_EACH = 15
"""Damages of each file and seed."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    trials = [
        synthetic.Made({"disk": disk, "threads": threads}, 100.0, hit_ratio=0.5, bound_by="vm",
                       price=9.0, credits_left=0.1)
        for disk, threads in (("a", 1), ("b", 1), ("b", 8))
    ]  # fmt: skip
    return synthetic.make_run(out, trials, title="Damaged?", repeats=1, seconds=10).folder


def bits(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data))
    return data[:start] + data[chance.randint(start, len(data)) :]


def value(data: bytes, chance: random.Random) -> bytes:
    """Replace one value of the JSON by another."""
    text = data.decode("utf-8", "replace")
    found = list(re.finditer(r'(?<=: )("[^"]*"|[-\d.e]+|\[[^\]]*\]|null)|(?<=":)("[^"]*"|[-\d.e]+|null)', text))  # fmt: skip  # noqa: E501
    if not found:
        return bits(data, chance)
    at = chance.choice(found)
    return (text[: at.start()] + chance.choice(VALUES) + text[at.end() :]).encode()


def key(data: bytes, chance: random.Random) -> bytes:
    """Rename a key, so that the one that is expected is missing."""
    text = data.decode("utf-8", "replace")
    found = list(re.finditer(r'"([a-z_0-9]+)"(?=:)', text))
    if not found:
        return cut(data, chance)
    at = chance.choice(found)
    return (text[: at.start()] + '"other"' + text[at.end() :]).encode()


def lines(data: bytes, chance: random.Random) -> bytes:
    kept = data.splitlines(keepends=True)
    chance.shuffle(kept)
    return b"".join(kept[: chance.randint(0, len(kept))] + kept[:1])


Damage = Callable[[bytes, random.Random], bytes]
DAMAGES: tuple[Damage, ...] = (bits, cut, value, value, value, key, lines)


def read_all(folder: Path) -> None:
    """Read a run in every way that a command does."""
    run = Run.open(folder)
    run.frame()
    for result in run.results():
        run.course(*result.key).response()
    report = Report.of([run])
    json.dumps(content(report), allow_nan=False).encode()
    page(report).encode()
    show(report, Console(file=StringIO(), width=120))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 9))]
)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_told_or_does_no_harm(
    tmp_path: Path, whole: Path, name: str, seed: int
) -> None:
    chance = random.Random(f"{name} {seed}")
    good = (whole / name).read_bytes()
    folder = tmp_path / whole.name
    shutil.copytree(whole, folder)
    for number in range(TRIED_EACH):
        damaged = chance.choice(DAMAGES)(good, chance)
        (folder / name).write_bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                read_all(folder)
        except UserError as error:
            for problem in error.problems:
                assert all((problem.place, problem.value, problem.rule, problem.way_out)), problem
                str(problem).encode()
        except BaseException as error:
            raise AssertionError(f"{name}, seed {seed}, damage {number}: {error!r}") from error
