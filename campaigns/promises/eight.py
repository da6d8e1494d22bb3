"""`python -m campaigns.promises.eight`: the questions that people ask, each answered and checked.

Each is asked as on a command line. What is recommended is simulated again by other random streams,
for as long as the question says and with the load grown, and its page is read beside its terminal.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory

from disklab.advice import page
from disklab.advice.advise import How, advise, finals
from disklab.advice.answer import Advice
from disklab.advice.question import Question, question_of
from disklab.catalog.price import REGIONS
from disklab.cli import advise as command
from disklab.cli.advise_asked import Asked
from disklab.results.required import Outcome

from campaigns.promises.__main__ import SEEDS

STATE = Path(__file__).with_name("eight.jsonl")
SRE = Asked(data="2TB", reads=20_000, writes=5_000, p99=10)
POSTGRESQL = Asked(database="postgresql", data="500GB", reads=5_000, writes=800, p99=10)
MARIADB = Asked(database="mariadb", data="300GB", reads=5_000, writes=2_000, p99=20, copies=2)
MYSQL = Asked(database="mysql", data="300GB", reads=5_000, writes=2_000, p99=20)
ASKED = {
    f"{name}, {cloud}": replace(asked, cloud=cloud)
    for name, asked in {
        "Cassandra 2 TB": SRE,
        "PostgreSQL 500 GB": POSTGRESQL,
        "MariaDB 300 GB, a replica": MARIADB,
        "MySQL 300 GB": MYSQL,
    }.items()
    for cloud in ("azure", "aws")
}


@dataclass(frozen=True)
class Answered:
    """What became of a question."""

    question: str
    answer: list[str]
    choice: str | None
    usd: float | None
    outcome: str
    again: str
    """How the choice was judged when it was simulated again; empty: there is none."""
    page_differs: list[str]
    """What the terminal says and the page does not."""
    cpu_s: float
    mib: int
    """Resident at most: of this process and of the largest that it started."""
    wall_s: float


def question_with(asked: Asked, wanted: tuple[str, ...] = ()) -> Question:
    """Return the question that a command line asks; `wanted`: among which disks and VM sizes."""
    nodes = command.room_of(None, None if asked.nodes is None else str(asked.nodes), None)
    region = REGIONS[asked.cloud or "azure"]
    return question_of(asked.experiment(), wanted, region, **nodes)


def answered(name: str) -> Answered:
    """Return what becomes of a question."""
    question = question_with(ASKED[name])
    with TemporaryDirectory(prefix="disklab-eight-") as folder:
        out = Path(folder)
        began, used = time.monotonic(), _cpu_s()
        advice = advise(question, How(out=out), lambda _: None, lambda *_: None)
        wall_s, cpu_s = time.monotonic() - began, _cpu_s() - used
        mib = sum(resource.getrusage(one).ru_maxrss for one in WHOSE) // 1024
        best = advice.chosen
        again = []
        for seed in SEEDS if best is not None else ():
            assert best is not None
            how = How(seed=seed, bands=False, out=out)
            _, found = finals(question.whole, [best.candidate], how, lambda _: None)
            again += [str(one.kept) for one in found.values() if one.kept.outcome != Outcome.MET]
        return Answered(
            question=name,
            answer=advice.sentences(),
            choice=None if best is None else best.name,
            usd=None if best is None else best.candidate.usd_per_month,
            outcome=advice.options[0].kept.outcome.value if advice.options else "none",
            again="; ".join(again) or ("met" if best is not None else ""),
            page_differs=[*beside_the_page(advice)],
            cpu_s=round(cpu_s, 1),
            mib=mib,
            wall_s=round(wall_s, 1),
        )


def beside_the_page(advice: Advice) -> Iterator[str]:
    """Yield what the terminal says and the page does not: sentences, rows and their judgements."""
    written = page.page(advice, 1)
    plain = " ".join(unescape(written).split())
    for line in [*advice.sentences(), *advice.changes]:
        if " ".join(line.split()) not in plain:
            yield line
    columns = command.table_of(advice).columns
    told = page.content(advice)["options"]
    for cells, row in zip(zip(*(one.cells for one in columns), strict=True), told, strict=False):
        name, *_, promise = map(str, cells)
        if name != row["name"] or not promise.startswith(row["outcome"]):
            yield f"{name}, {promise}: on the page {row['name']}, {row['outcome']}"


WHOSE = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def _cpu_s() -> float:
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, WHOSE))


def recorded(state: Path = STATE) -> dict[str, Answered]:
    """Return what became of each question that was asked; the last time counts."""
    lines = state.read_text(encoding="utf-8").splitlines() if state.exists() else []
    return {one.question: one for one in (Answered(**json.loads(line)) for line in lines)}


def main() -> int:
    """Ask one question, or print the record; a question a process, so that memory is its own."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.promises.eight", description=__doc__)
    parser.add_argument("question", nargs="?", choices=ASKED, help="without it: the record")
    given = parser.parse_args()
    if given.question:
        one = answered(given.question)
        kept = [other for other in recorded().values() if other.question != one.question]
        lines = [json.dumps(asdict(each)) for each in (*kept, one)]
        STATE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for one in recorded().values():
        print(
            f"{one.question}: {one.cpu_s} s of processor, {one.mib} MiB, again {one.again}, "
            f"the page differs in {len(one.page_differs)}: {one.answer[0]}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
