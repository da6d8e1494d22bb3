"""Every kit that comes along, tried in a folder; and Kafka's answer. CI leaves these out."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from disklab.kits import kit_named, shipped

from tests.hosts.conftest import DISKLAB, Lab
from tests.programs import ended

pytestmark = [pytest.mark.machine, pytest.mark.long]
KAFKA = Path(__file__).parents[2] / "experiments" / "kafka-disks-and-copies.yaml"
MOST_MINUTES = 15


@pytest.mark.parametrize("name", shipped())
def test_a_kit_starts_takes_its_load_and_stops(lab: Lab, name: str) -> None:
    tried = ended(
        [str(DISKLAB), "kit", "try", name, "--json", "--seconds", "3"],
        most_s=600,
        env=lab.environment(),
        code=0,
    )
    figures = json.loads(tried.stdout)
    kit = kit_named(name).kit
    assert set(figures["counters"]) == {counter.name for counter in kit.counters}
    # What does not answer is none.
    assert None not in figures["counters"].values()
    if kit.loads:
        assert figures["operations"] > 0
        assert figures["loop"] == kit.loads[figures["load"]].loop
    assert lab.processes() == []


def test_kafka_says_which_disk_it_needs_and_what_is_lost(lab: Lab, tmp_path: Path) -> None:
    begun = time.monotonic()
    ran = ended(
        [str(DISKLAB), "rehearse", str(KAFKA), "--quick", "--json", "--out", str(tmp_path)],
        most_s=3600,
        env=lab.environment(),
    )
    minutes = (time.monotonic() - begun) / 60
    assert ran.returncode in {0, 1}, ran.stderr
    trials = list(map(json.loads, ran.stdout.splitlines()))
    cells = {(one["factors"]["case"], one["factors"]["flushes"]): one for one in trials}
    assert len(cells) == 8, ran.stderr
    for flushes in ("never (default)", "each record"):
        for disk in ("P10", "P30"):
            assert cells[disk, flushes]["ops_per_s"] > 0
        lost = {
            copies: cells[f"VM lost ({copies} local cop{'y' if copies == 1 else 'ies'})", flushes]
            for copies in (1, 3)
        }
        assert lost[3]["recovery"]["rows_lost"] == 0, lost[3]
        # No flush helps where the disk went with the VM.
        assert lost[1]["recovery"]["rows_lost"] > 0, lost[1]
    if all(one["valid"] for one in trials):
        # Beside other work it takes longer, and its figures do not count.
        assert minutes < MOST_MINUTES
