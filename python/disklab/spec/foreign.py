"""Files of other tools where an experiment is expected: what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from disklab.errors import Problem

STRESS_KEYS = frozenset({"keyspace_definition", "table_definition", "columnspec"})
"""Keys of cassandra-stress's user profiles, which are YAML too."""


def is_stress_profile(keys: Iterable[str]) -> bool:
    """Return whether a file with such keys is a user profile of cassandra-stress."""
    return not STRESS_KEYS.isdisjoint(keys)


def stress_problem(path: Path) -> Problem:
    """Return what to say of a user profile of cassandra-stress."""
    rule = "is a user profile of cassandra-stress, and no experiment"
    way_out = (
        "write its rows as `dataset` and its load as `workload`, see docs/experiment-file.md; "
        "partitions of many rows and queries of one's own cannot be predicted"
    )
    return Problem(f"{path}:1", path.name, rule, way_out)


YCSB_NAMES = frozenset({"recordcount", "readproportion", "updateproportion", "requestdistribution"})
"""Properties that a workload of YCSB has, and nothing else. **Source:** YCSB 0.17.0."""
PROPERTY = re.compile(r"^\s*([A-Za-z][\w.]*)\s*=\s*([\w.%-]{1,40})\s*$", re.ASCII | re.MULTILINE)

FIELDS, FIELD_BYTES = "10", "100"
"""YCSB's defaults: a row has ten fields of 100 bytes."""

OPERATIONS = {
    "readproportion": ("read", "0.95"),
    "updateproportion": ("write", "0.05"),
    "insertproportion": ("insert", "0"),
    "scanproportion": ("scan", "0"),
    "readmodifywriteproportion": ("read_modify_write", "0"),
}
"""A share's property, our operation, and YCSB's default."""
KEYS = ("uniform", "zipfian", "latest", "sequential")


def properties(text: str) -> dict[str, str]:
    """Return the properties of a text of `name=value` lines."""
    return {match[1]: match[2] for match in PROPERTY.finditer(text)}


def is_ycsb_workload(text: str) -> bool:
    """Return whether a text is a workload file of YCSB."""
    return len(YCSB_NAMES & properties(text).keys()) > 1


def ycsb_problem(path: Path, text: str) -> Problem:
    """Return what to say of a workload file of YCSB: the same load as an experiment has it."""
    given = properties(text)
    shares = {
        operation: f"{float(share) * 100:g}%"
        for name, (operation, usual) in OPERATIONS.items()
        if is_share(share := given.get(name, usual)) and float(share)
    }
    keys = given.get("requestdistribution", "uniform")
    work = {"operations": mapping(shares)} | ({"keys": keys} if keys in KEYS else {})
    row = f"{given.get('fieldcount', FIELDS)} x {given.get('fieldlength', FIELD_BYTES)}B"
    rows = {"rows": given.get("recordcount", "10M"), "row": row}
    rule = "is a workload file of YCSB, and no experiment"
    way_out = (
        f"write `dataset: {mapping(rows)}` and `workload: {mapping(work)}` with cluster, database "
        "and load; `disklab experiment new FILE` makes such a file"
    )
    return Problem(f"{path}:1", path.name, rule, way_out)


def is_share(text: str) -> bool:
    """Return whether a property is a share."""
    return re.fullmatch(r"[01]?(\.\d+)?", text, re.ASCII) is not None and bool(text)


def mapping(entries: dict[str, str]) -> str:
    """Return entries as YAML on one line."""
    return "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"
