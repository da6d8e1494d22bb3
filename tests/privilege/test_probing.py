"""`disklab probe` under sudo: root's part has the disk, and the results are the caller's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from disklab.errors import MachineError
from disklab.privilege.probing import FORMS

from tests.hosts.conftest import Lab
from tests.programs import ended

from .conftest import CALLER
from .test_caller import DISKLAB, SUDO, owners

ONE_CELL = ("--rw", "randread", "--bs", "4k", "--profile", "sync", "--duration", "1s")


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root")
def test_results_of_an_emulated_disk_are_the_callers(lab: Lab, mine: Path) -> None:
    ran = ended(
        [
            *(str(DISKLAB), "probe", "--disk", "azure/P30", *ONE_CELL, "--size", "16MiB"),
            *("--json", "--out", str(mine / "results")),
        ],
        env={**lab.environment(), **SUDO},
        cwd=mine,
        code=0,
    )
    (told,) = [json.loads(line) for line in ran.stdout.splitlines()]
    assert told["valid"] in (True, False)
    (run,) = (mine / "results").iterdir()
    (kept,) = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    assert kept == {**told, "run": run.name}
    assert set(owners(mine).values()) == {CALLER}
    assert lab.devices() == {}


UNKNOWN = (
    {"ask": "emulated", "with": {"wanted": {"disk": "azure/P30", "command": "id"}}},
    {"ask": "at", "with": {"wanted": {"path": "/dev/sda"}}},
    {"ask": "attach", "with": {}},
)
"""What nobody but a hostile caller's part asks of the root's part that probes."""


@pytest.mark.parametrize("message", UNKNOWN)
def test_what_is_not_in_the_list_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match=r"^refused: "):
        FORMS.request_of(message)
