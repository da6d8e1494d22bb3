"""`python -m campaigns.promises --cases 200`: recommendations simulated again at full fidelity.

Each case is a random question on Azure or AWS, three of four of Cassandra or PostgreSQL and the
rest of MariaDB or MySQL, among a handful of disks and VM sizes of which some burst on credits. What
advice would buy is then simulated by other random streams at full fidelity, with credits spent. A
case fails where that misses the promise or falls behind its rate.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from disklab import spec
from disklab.advice.advise import How, advise, finals
from disklab.advice.candidates import field_of
from disklab.advice.question import Question, question_of
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.errors import UserError
from disklab.results.required import Outcome

STATE = Path(__file__).with_name("cases.jsonl")
SEEDS = (101, 102)
"""Of the second look: advice itself begins with 1."""
SERVERS = 1000
"""The first seed of MariaDB's and MySQL's questions."""
LEAST, MOST = 2, 30
"""Candidates of a case: fewer are no choice, more take long."""

FILE = """
title: t
cluster:
  nodes: {nodes}
  vm: {vm}
  volumes: {{data: {{disks: "{disks}"}}}}
client: {{nodes: 2, vm: {client}}}
database: {{engine: {engine}, replication_factor: {nodes}}}
dataset: {{rows: {rows}, row: 1 x {row}B}}
workload:
  operations: {{read: {read}, write: {write}}}
  load: {{rate: {rate}/s}}
  stop: {{duration: 10s}}
before: {{page_cache: warm, host_cache: warm, credits: 0%}}
require: {{read: {{p99: {p99}ms}}, rate: {rate}/s, head_room: {room}%, durability: {durability}}}
"""

CLOUDS: dict[str, dict[str, Any]] = {
    "azure": {
        "vm": "azure/Standard_E16s_v3",
        "disks": "4 x azure/P30",
        "client": "azure/Standard_E32s_v3",
        "wanted": (
            ("P10", "P20", "P30", "D4s_v5", "D8s_v5"),
            ("PremiumV2", "P30", "E8s_v5", "D8s_v5"),
            ("E30", "P30", "D16s_v5", "nvme", "L8as_v3"),
            ("P20", "E20", "D4as_v5", "E4s_v5", "L8s_v3", "nvme"),
        ),
    },
    "aws": {
        "vm": "aws/r5.4xlarge",
        "disks": "2 x aws/gp3(2000GiB)",
        "client": "aws/m5.4xlarge",
        "wanted": (
            ("gp2", "gp3", "m5.xlarge", "m6i.2xlarge"),
            ("gp3", "m5.xlarge", "r5.2xlarge", "r6i.2xlarge"),
            ("nvme", "i4i.2xlarge", "gp3", "m6i.4xlarge"),
        ),
    },
}


@dataclass(frozen=True)
class Case:
    """What became of one random question."""

    seed: int
    question: str
    choice: str | None
    usd: float | None
    kept: bool | None
    """Whether it kept the promise each time; None: nothing was recommended."""
    why: str
    """What it missed."""
    seconds: float


def question_with(seed: int) -> tuple[Question, str] | None:
    """Return a random question in words too; None: it has too few candidates or too many."""
    chance = random.Random(seed)
    cloud = CLOUDS[chance.choice(["azure", "azure", "aws"])]
    most = ["cassandra", "cassandra", "postgresql"]
    engine = chance.choice(most if seed < SERVERS else ["mariadb", "mysql"])
    read = chance.choice((0.5, 0.8, 0.95))
    asked = {
        "engine": engine,
        "nodes": 3 if engine == "cassandra" else 1,
        "read": read,
        "write": round(1 - read, 2),
        "rows": chance.choice((50_000_000, 200_000_000, 500_000_000)),
        "row": chance.choice((200, 500, 1000)),
        "rate": chance.choice((1_000, 2_000, 4_000, 8_000)),
        "p99": chance.choice((5, 10, 20, 40)),
        "room": chance.choice((0, 20)),
        "durability": chance.choice(("survives a lost VM", "survives deallocation")),
    }
    wanted = chance.choice(cloud["wanted"])
    file = FILE.format(**asked, **{name: cloud[name] for name in ("vm", "disks", "client")})
    calibration = calibration_for(engine)
    assert calibration is not None
    try:
        question = question_of(spec.parse(file, Path("case.yaml")), wanted)
    except UserError:
        return None
    possible = len(field_of(question, load_catalog(), calibration).candidates)
    if not LEAST <= possible <= MOST:
        return None
    words = (
        f"{engine}, {asked['rows']:,} rows of {asked['row']} B, {asked['rate']}/s, {read:.0%} "
        f"reads, p99 {asked['p99']} ms, {asked['room']} % to spare, {asked['durability']}; "
        f"{', '.join(wanted)}"
    )
    return question, words


def case_of(seed: int, question: Question, words: str) -> Case:
    """Return what becomes of a question."""
    began = time.monotonic()
    missed: list[str] = []
    with TemporaryDirectory(prefix="disklab-promises-") as folder:
        out = Path(folder)
        advice = advise(question, How(out=out), lambda _: None, lambda *_: None)
        chosen = advice.chosen
        for other in SEEDS if chosen is not None else ():
            assert chosen is not None
            how = How(seed=other, bands=False, out=out)
            _, again = finals(question, [chosen.candidate], how, lambda _: None)
            (option,) = again.values()
            if option.kept.outcome is not Outcome.MET:
                missed.append(f"seed {other}: {option.kept}")
    return Case(
        seed=seed,
        question=words,
        choice=None if chosen is None else chosen.name,
        usd=None if chosen is None else chosen.candidate.usd_per_month,
        kept=None if chosen is None else not missed,
        why="; ".join(missed),
        seconds=round(time.monotonic() - began, 1),
    )


def recorded(state: Path) -> list[Case]:
    """Return the cases of a file by their seeds; the last of a seed counts."""
    lines = state.read_text(encoding="utf-8").splitlines() if state.exists() else []
    cases = {case.seed: case for case in (Case(**json.loads(line)) for line in lines)}
    return [case for _, case in sorted(cases.items())]


def go_on(state: Path, cases: int, first: int = 1) -> Iterator[Case]:
    """Ask until a file has so many cases of seeds from `first` on; yield the new ones.

    Those of servers, and those of the rest, are counted by themselves.
    """
    done = {case.seed for case in recorded(state) if case.seed >= first}
    done -= {seed for seed in done if first < SERVERS <= seed}
    seed = first
    while len(done) < cases:
        question = None if seed in done else question_with(seed)
        if question is not None:
            case = case_of(seed, *question)
            with state.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(case)) + "\n")
            done.add(seed)
            yield case
        seed += 1


def summary(cases: list[Case]) -> str:
    """Return how many recommendations kept their promise."""
    bought = [case for case in cases if case.kept is not None]
    failed = [case for case in bought if not case.kept]
    return (
        f"{len(cases)} questions, {len(bought)} with something to buy, of which {len(failed)} "
        f"missed the promise when simulated again"
    )


def main() -> int:
    """Ask, and say how many failed; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.promises", description=__doc__)
    parser.add_argument("--cases", type=int, default=200, help="how many the record has then")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--state", type=Path, default=STATE, help=f"the record; {STATE.name}")
    given = parser.parse_args()
    servers = given.cases // 4
    asked = [(given.cases - servers, given.seed), (servers, SERVERS + given.seed)]
    for case in chain.from_iterable(go_on(given.state, *each) for each in asked):
        verdict = {None: "nothing to buy", True: "kept", False: f"FAILED {case.why}"}[case.kept]
        print(f"seed {case.seed}: {case.choice}: {verdict} ({case.seconds} s)", flush=True)
    cases = recorded(given.state)
    print(summary(cases))
    return 0 if all(case.kept is not False for case in cases) else 1


if __name__ == "__main__":
    raise SystemExit(main())
