"""From a bed's state to a trial's condition: the steps that lead there, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from disklab import spec
from disklab.procedures.conditions import PHASES, WORDS, BedState, Step, steps
from disklab.spec import ClusterTrial
from disklab.spec.amounts import only

FILE = """
title: t
cluster:
  nodes: 1
  vm: azure/Standard_DS14_v2
  volumes: {{data: {{disks: azure/P30, caching: {caching}, read_ahead: 8KiB}}}}
database: {{engine: cassandra}}
dataset: {{rows: 1000, row: 5 x 818B}}
workload: {{operations: {{{operation}: 100%}}, load: {{threads: 8}}, stop: {{operations: 1000}},
  warm_up: {warm_up}}}
before: {{dataset: {dataset}, page_cache: {page_cache}, host_cache: {host_cache},
  compactions: {compactions}, credits: {credits}}}
"""


def trial(**given: str) -> ClusterTrial:
    words: dict[str, Any] = {
        **{"caching": "ReadOnly", "operation": "read", "dataset": "filled"},
        **{
            "warm_up": "0s",
            "page_cache": "cold",
            "host_cache": "written",
            "compactions": "finished",
            "credits": "100%",
        },
        **given,
    }
    return only(ClusterTrial, spec.parse(FILE.format(**words)).trials("rehearse")[0].here)


NEW = BedState("empty", settled=True, caching="ReadOnly", read_ahead_bytes=8192, host_cache="empty")
FILLED = replace(NEW, data="filled", host_cache="written")
CASES: list[tuple[str, BedState, ClusterTrial, list[Step]]] = [
    (
        "a new bed is filled, and no block of a table that is gone stays in the host cache",
        NEW,
        trial(),
        ["fill", "settle", "drop host cache", "warm host cache", "drop page cache"],
    ),
    ("a filled one is not filled again", FILLED, trial(), ["drop page cache"]),
    (
        "reads have changed what the host cache holds: it is brought back",
        replace(FILLED, host_cache="used"),
        trial(),
        ["drop host cache", "warm host cache", "drop page cache"],
    ),
    (
        "what was written to is filled anew, as a new bed is",
        replace(FILLED, data="changed", settled=False, host_cache="used"),
        trial(),
        ["empty", "fill", "settle", "drop host cache", "warm host cache", "drop page cache"],
    ),
    (
        "rows that were filled without the cache: the emulator brings them into it",
        replace(FILLED, caching="None", host_cache="none"),
        trial(),
        ["set caching", "drop host cache", "warm host cache", "drop page cache"],
    ),
    (
        "without host caching nothing is done to it",
        FILLED,
        trial(caching="None"),
        ["set caching", "drop page cache"],
    ),
    (
        "an empty host cache stays as the new caching left it",
        replace(FILLED, caching="None", host_cache="none"),
        trial(host_cache="empty"),
        ["set caching", "drop page cache"],
    ),
    (
        "a used one is dropped",
        replace(FILLED, host_cache="used"),
        trial(host_cache="empty"),
        ["drop host cache", "drop page cache"],
    ),
    (
        "as left is as left",
        replace(FILLED, host_cache="used", settled=False),
        trial(host_cache="as-left", page_cache="as-left", compactions="as-left"),
        [],
    ),
    ("a warm page cache comes from the load", FILLED, trial(page_cache="warm"), ["run the load"]),
    (
        "writes into an empty table",
        replace(FILLED, data="changed", settled=False, host_cache="used"),
        trial(operation="write", dataset="empty", host_cache="as-left"),
        ["empty", "drop page cache"],
    ),
    (
        "an empty table needs no emptying",
        NEW,
        trial(operation="write", dataset="empty", host_cache="as-left"),
        ["drop page cache"],
    ),
    (
        "credits that a load has used are set last, and a warm-up spends of them",
        replace(FILLED, credits="used"),
        trial(warm_up="300s"),
        ["drop page cache", "set credits", "warm up"],
    ),
    (
        "so are those that a restart of the database may have used",
        replace(FILLED, credits=1.0),
        trial(),
        ["drop page cache", "set credits"],
    ),
    (
        "but not when nothing was done to the disks",
        replace(FILLED, credits=0.5),
        trial(page_cache="as-left", credits="50%"),
        [],
    ),
    (
        "another share is another condition",
        replace(FILLED, credits=1.0),
        trial(page_cache="as-left", credits="50%"),
        ["set credits"],
    ),
    (
        "read-ahead is set while the volume is mounted",
        replace(FILLED, read_ahead_bytes=None),
        trial(),
        ["set read-ahead", "drop page cache"],
    ),
    (
        "other settings come with the restart for a cold page cache",
        replace(FILLED, settings={"concurrent_reads": 64}),
        trial(),
        ["change settings", "drop page cache"],
    ),
    (
        "a warm one is warmed behind it",
        replace(FILLED, settings={"concurrent_reads": 64}),
        trial(page_cache="warm"),
        ["change settings", "drop page cache", "run the load"],
    ),
    ("the same ones need none", replace(FILLED, settings={}), trial(), ["drop page cache"]),
]


@pytest.mark.parametrize(
    ("state", "wanted", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_steps(state: BedState, wanted: ClusterTrial, expected: list[Step]) -> None:
    assert steps(state, wanted) == expected


def test_every_step_belongs_to_a_phase() -> None:
    assert set(PHASES) == set(get_args(Step))


def test_no_phase_is_told_by_its_own_name_twice() -> None:
    """`settle: settle`, `fill: fill`: users.md, Reading."""
    for step, phase in PHASES.items():
        assert WORDS.get(step, step) != phase
