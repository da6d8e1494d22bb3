"""Workloads by the name that YCSB gives them, and tables of which only a part is asked for."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.errors import UserError

from tests.spec.test_messages import BASE

ROWS = "  operations: {read: 100%}\n"


def workload(lines: str) -> spec.TrialSpec:
    """Return the trial whose workload has these lines in the place of its mixture."""
    return spec.parse(BASE.replace(ROWS, lines)).cells[0].spec


@pytest.mark.parametrize(
    ("name", "read", "keys"),
    [("A", 0.5, "zipfian"), ("B", 0.95, "zipfian"), ("C", 1.0, "zipfian"), ("D", 0.95, "latest")],
)
def test_a_name_of_ycsb_is_its_mixture_and_its_keys(name: str, read: float, keys: str) -> None:
    work = workload(f"  ycsb: {name}\n").workload
    assert work.operations is not None
    assert work.operations.read == pytest.approx(read)
    assert work.operations.write == pytest.approx(1 - read)
    assert (work.keys, work.kind, work.ycsb) == (keys, "rows", name)


def test_the_names_are_levels_too() -> None:
    text = BASE.replace(ROWS, "  ycsb: A\n")
    text = text.replace("cluster.volumes.data.caching: [None, ReadOnly]", "workload.ycsb: [A, D]")
    found = [trial.spec.workload for trial in spec.parse(text).trials("predict")]
    assert [one.keys for one in found] == ["zipfian", "latest"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("  ycsb: E\n", "YCSB E reads ranges of rows, which no mode does; use A, B, C or D"),
        ("  ycsb: F\n", "YCSB F reads each row before it writes it, which no mode does"),
        ("  ycsb: G\n", "G"),
        ("  ycsb: A\n" + ROWS, "a mixture and keys of its own (here: operations)"),
        ("  ycsb: A\n  keys: uniform\n", "a mixture and keys of its own (here: keys)"),
        (ROWS + "  working_set: 0%\n", "more than none of the rows, and at most all"),
        (ROWS + "  working_set: 120%\n", "120%"),
        ("  ycsb: D\n  working_set: 20%\n", "the newest rows are asked for"),
        (ROWS + "  keys: gausian\n", "did you mean gaussian?"),
    ],
)
def test_what_cannot_be_is_told(lines: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        workload(lines)
    assert message in str(caught.value)


def test_a_share_of_the_rows_is_so_many_of_those_that_are_there() -> None:
    work = workload(ROWS + "  working_set: 20%\n").workload
    assert (work.asked_of(1_000_000), work.asked_of(2)) == (200_000, 1)
    assert workload(ROWS).workload.asked_of(1_000_000) is None
