"""What is advised is the cheapest of everything that was left, each simulated at full fidelity.

`DISKLAB_EXHAUSTIVE_CASES=20` makes it as many random cases, `DISKLAB_SEED` other ones; each takes
minutes of two cores. What its limits rule out before is held by `test_pruning.py`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from disklab import spec
from disklab.advice.advise import How, advise, finals
from disklab.advice.candidates import field_of
from disklab.advice.levers import tuned
from disklab.advice.options import Option
from disklab.advice.question import Question, question_of
from disklab.advice.search import Simulator
from disklab.catalog import load_catalog
from disklab.prediction.calibration import calibration_for
from disklab.results.required import Outcome

CASES = int(os.environ.get("DISKLAB_EXHAUSTIVE_CASES", "1"))
FIRST = int(os.environ.get("DISKLAB_SEED", "1"))
DEARER = 1.03
"""The choice may cost so much more than the cheapest: a quick cell is not a full one."""
LEAST, MOST = 4, 24
"""Candidates of a case: fewer are no search, more take long."""

FILE = """
title: t
cluster:
  nodes: 3
  vm: azure/Standard_E16s_v3
  volumes: {{data: {{disks: 4 x azure/P30}}}}
client: {{nodes: 2, vm: azure/Standard_E32s_v3}}
database:
  engine: cassandra
  version: "4.1"
  replication_factor: 3
  table: {{compaction: leveled}}
dataset: {{rows: {rows}, row: 1 x {row}B}}
workload:
  operations: {{read: {read}, write: {write}}}
  load: {{rate: {rate}/s}}
  stop: {{duration: 10s}}
require: {{read: {{p99: {p99}ms}}, rate: {rate}/s, head_room: {room}%}}
"""

WANTED = (
    ("P30", "nvme", "E8s_v3", "L8s_v3"),
    ("P20", "P30", "E8s_v3", "E16s_v3"),
    ("PremiumV2", "P30", "E8s_v3", "E8s_v5"),
    ("E30", "P30", "D16s_v3"),
    ("nvme", "L8s_v3", "L16s_v3", "L8s_v2"),
)


def case(seed: int) -> Question | None:
    """Return a random question with a handful of candidates; None: it has too few or too many."""
    chance = random.Random(seed)
    read = chance.choice((0.5, 0.8, 0.95))
    text = FILE.format(
        rows=chance.choice((200_000_000, 500_000_000)),
        row=chance.choice((500, 1000, 2000)),
        read=read,
        write=round(1 - read, 2),
        rate=chance.choice((2_000, 4_000, 8_000)),
        p99=chance.choice((10, 20, 40)),
        room=chance.choice((0, 20)),
    )
    question = question_of(spec.parse(text, Path("case.yaml")), chance.choice(WANTED))
    calibration = calibration_for("cassandra")
    assert calibration is not None
    found = len(field_of(question, load_catalog(), calibration).candidates)
    return question if LEAST <= found <= MOST else None


def everything(question: Question, out: Path) -> list[Option]:
    """Return each candidate, as it is and with its levers turned, at full fidelity."""
    catalog, calibration = load_catalog(), calibration_for("cassandra")
    assert calibration is not None
    all_ = [
        variant
        for one in field_of(question, catalog, calibration).candidates
        for variant in (one, *tuned(one, question.spec))
    ]
    tried = Simulator(question, catalog, calibration, None).quick(all_)
    how = How(bands=False, out=out)
    _, found = finals(question, list(tried.values()), how, lambda _: None)
    return list(found.values())


@pytest.mark.long
def test_the_choice_is_the_cheapest_of_everything(tmp_path: Path) -> None:
    tried, seed = 0, FIRST
    while tried < CASES:
        question = case(seed)
        seed += 1
        if question is None:
            continue
        advice = advise(question, How(bands=False, out=tmp_path), lambda _: None, lambda *_: None)
        able = [one for one in everything(question, tmp_path) if one.kept.outcome is Outcome.MET]
        least = min((one.candidate.usd_per_month for one in able), default=None)
        chosen = advice.chosen.candidate.usd_per_month if advice.chosen else None
        names = [advice.chosen.name if advice.chosen else "nothing", *(one.name for one in able)]
        told = f"seed {seed - 1}: {chosen} against {least}: {names}"
        assert (chosen is None) == (least is None), told
        if chosen is not None and least is not None:
            assert chosen <= least * DEARER, told
        tried += 1
