"""The question of `disklab advise` from options, where there is no file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from disklab import spec
from disklab.cli.amounts import bundled_names, one_of
from disklab.cli.experiment_new import amount, in_ms
from disklab.database_facts import USUAL, facts_of, names
from disklab.errors import Problem, UserError, refuse
from disklab.results.required import MAY_BE_LOST, SURVIVES_DEALLOCATION
from disklab.spec import bundled
from disklab.spec.amounts import Unreadable, rate
from disklab.spec.draft import GIB, START, Draft, draft, held

NAME = Path("advice.yaml")
"""What errors call the file that the options stand for."""


def _named(file: Path | None) -> Path | None:
    return None if file is None else bundled.found(file)


ADVISED = [name for name in names() if facts_of(name).advised]
FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="EXPERIMENT",
        help="Experiment file with `require:`, or the name of one that comes with disklab. "
        "Without a file, give --data, --reads, --writes and --p99.",
        show_default=False,
        callback=_named,
        autocompletion=bundled_names,
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        help="MariaDB, MySQL, PostgreSQL: one server; --copies asks for more.",
        show_default=USUAL,
        **one_of(ADVISED),
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Data without copies, such as 2TB.", show_default="none"),
]


def read_rate(text: str) -> float:
    """Read `20000`, `20k` or `20k/s` as operations a second."""
    wish = text.strip().removesuffix("/s")
    try:
        return 0.0 if wish == "0" else rate(f"{wish}/s")
    except Unreadable as error:
        raise typer.BadParameter(f"{text}: {error}") from None


def a_second(what: str) -> Any:
    """Return an option that is a rate."""
    return typer.Option(help=what, parser=read_rate, metavar="RATE", show_default="none")


Reads = Annotated[float | None, a_second("Reads a second of the whole cluster, such as 20k.")]
Writes = Annotated[float | None, a_second("Writes a second of the whole cluster.")]
Version = Annotated[
    str | None,
    typer.Option(
        "--version",
        "--database-version",
        help="Version of the database.",
        metavar="VERSION",
        show_default="Cassandra: 5.0",
    ),
]
Commits = Annotated[
    float | None,
    a_second("Commits a second, if each contains several of the writes; for SQL databases."),
]
Warehouses = Annotated[
    int | None,
    typer.Option(
        "--tpcc",
        help="TPC-C with so many warehouses and their terminals, instead of --data, --reads and "
        "--writes; for SQL databases.",
        metavar="WAREHOUSES",
        min=1,
        max=1_000_000,
        show_default="none",
    ),
]
ServerCopies = Annotated[
    int | None,
    typer.Option(
        "--copies",
        help="Copies of each row; for a SQL database, servers that each have all rows.",
        min=1,
        max=9,
        show_default="3, at most one a node; SQL: 1",
    ),
]


def number_of(what: str, unit: str, least: float, most: float, usual: str) -> Any:
    """Return an option that is a number, with its unit or without."""

    def read(text: str) -> float:
        wish = text.strip().casefold().removesuffix(unit.casefold()).strip()
        with suppress(ValueError):
            if wish.isascii() and least <= (number := float(wish)) <= most:
                return number
        rule = f"a number from {least:g} to {most:,.0f}, such as 30 or 30 {unit}"
        raise typer.BadParameter(f"{text}: {rule}")

    return typer.Option(help=what, parser=read, metavar="NUMBER", show_default=usual)


HeadRoom = Annotated[
    float | None, number_of("How many percent more load must be possible.", "%", 0, 10_000, "30")
]
GROWS = (
    "By how many percent the data grow; they then fill at most 70 % of the disks. 0: the disks "
    "just hold today's data."
)
Growth = Annotated[float | None, number_of(GROWS, "%", 0, 1000, "30")]


def read_nodes(text: str) -> str:
    """Read `6`, which is six nodes, or `6+`, six or more."""
    number = text.strip().removesuffix("+")
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= MOST_NODES):
        rule = f"{text}: a number of nodes from 1 to {MOST_NODES}; 6+ is six or more"
        raise typer.BadParameter(rule)
    return text.strip()


MOST_NODES = 1000
AdvisedNodes = Annotated[
    str | None,
    typer.Option(
        "--nodes",
        help="Nodes of the cluster: 6, or 6+ for six or more.",
        parser=read_nodes,
        metavar="NODES",
        show_default="3+",
    ),
]
Durable = Annotated[
    bool | None,
    typer.Option(
        "--durable/--may-be-lost",
        help="Data must survive even if all VMs are stopped at once; or may be lost with one VM.",
        show_default="no data are lost with one VM",
    ),
]
Budget = Annotated[float | None, number_of("USD a month at most.", "USD", 0.01, 1e9, "none")]
Cloud = Annotated[
    Literal["azure", "aws", "gcp"] | None,
    typer.Option(help="The cloud whose disks are considered.", show_default="azure"),
]

P95 = Annotated[float | None, in_ms("Required: 95 of 100 answers within")]
P999 = Annotated[float | None, in_ms("Required: 999 of 1000 answers within")]
StorageP99 = Annotated[float | None, in_ms("Required: storage's share of p99 is at most")]
State = Annotated[
    Literal["steady", "cold", "rested"] | None,
    typer.Option(
        help="steady: caches warm and burst credits spent, as in continuous use; cold: caches "
        "empty, as after a restart; rested: burst credits full.",
        show_default="steady",
    ),
]


OPTIONS = {
    "cluster.nodes": "--nodes",
    "database.replication_factor": "--copies",
    "database.version": "--version",
}
"""By what they stand for in a file."""


@dataclass(frozen=True)
class Asked:
    """What the options say; each is None where it was not given."""

    database: str | None = None
    cloud: str | None = None
    nodes: int | None = None
    copies: int | None = None
    data: str | None = None
    row: str | None = None
    reads: float | None = None
    writes: float | None = None
    p99: float | None = None
    head_room: float | None = None
    durable: bool | None = None
    budget: float | None = None
    version: str | None = None
    state: Literal["steady", "cold", "rested"] | None = None
    p95: float | None = None
    p999: float | None = None
    storage_p99: float | None = None
    commits: float | None = None
    tpcc: int | None = None

    def given(self) -> list[str]:
        """Return the options that were given."""
        return [
            "--may-be-lost" if value is False else f"--{name.replace('_', '-')}"
            for name, value in vars(self).items()
            if value is not None
        ]

    def experiment(self) -> spec.Experiment:
        """Return the experiment that the options stand for. Raises UserError."""
        latencies = self.p99, self.p95, self.p999, self.storage_p99
        needed: dict[str, object] = {
            "--p99": next((ms for ms in latencies if ms is not None), None)
        }
        if self.tpcc is None:
            reads = self.reads if self.reads is not None else self.writes
            needed = {"--data": self.data, **needed, "--reads": reads}
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            rule = "advice needs a file, or how much data, how many operations a second, and a p99"
            load = "--data 2TB --reads 20000 --writes 5000" if self.tpcc is None else "--tpcc 1000"
            way_out = f"for example {load} --p99 10"
            raise UserError(*(Problem(name, "(missing)", rule, way_out) for name in missing))
        data_bytes = amount("--data", self.data or "") if self.tpcc is None else self._tables()
        together, changes = self._transactions()
        rate = (self.reads or 0) + changes
        if rate <= 0 and self.tpcc is None:
            rule = "something must be read or written"
            raise UserError(Problem("--reads", f"{rate:g}", rule, "write for example 20000"))
        database = self.database or USUAL
        facts = facts_of(database)
        if facts.primary:
            self._refuse_more_servers(facts.title)
        vm, disks = START[self.cloud or "azure"]
        nodes = self.nodes or facts.usual_nodes
        row_bytes = amount("--row", self.row or "1000B")
        rows = max(1, data_bytes // row_bytes)
        copies = self.copies or (nodes if facts.whole_nodes else min(3, nodes))
        each_gib = -(-rows * row_bytes * copies // (nodes * GIB))
        durability = {True: SURVIVES_DEALLOCATION, False: MAY_BE_LOST, None: None}[self.durable]
        text = draft(
            Draft(
                database=database,
                version=self.version or facts.usual_version,
                vm=vm,
                disks=[held(disks, each_gib)],
                nodes=nodes,
                copies=copies,
                rows=rows,
                row_bytes=row_bytes,
                read_ratio=(self.reads or 0) / (rate or 1),
                servers=self.copies or 1,
                writes_per_commit=together,
                warehouses=self.tpcc,
                threads=None,
                rate_per_s=rate or None,
                p99_ms=self.p99,
                p95_ms=self.p95,
                p999_ms=self.p999,
                storage_p99_ms=self.storage_p99,
                head_room=None if self.head_room is None else self.head_room / 100,
                durability=durability,
                budget_usd=self.budget,
                state=self.state or "steady",
                title=f"What should this {facts.title} stand on?",
            )
        )
        return spec.parse(text, NAME)

    @contextmanager
    def in_options(self) -> Iterator[None]:
        """Name options where a UserError names a place in the file that they stand for."""
        try:
            yield
        except UserError as error:
            raise UserError(*map(self._in_options, error.problems)) from None

    def _in_options(self, problem: Problem) -> Problem:
        path = problem.place.rpartition(" ")[2]
        servers = self.copies is not None and path == "cluster.nodes"
        option = "--copies" if servers else OPTIONS.get(path)
        if option is None or not problem.place.startswith(f"{NAME}:"):
            return problem
        leaf = path.rpartition(".")[2]
        way_out = re.sub(rf"^write ({leaf}: )?", f"write {option} ", problem.way_out)
        return replace(problem, place=option, way_out=way_out)

    def _transactions(self) -> tuple[int | None, float]:
        """Return how many writes are committed together, None: one; and changes a second."""
        writes = self.writes or 0.0
        if self.commits is None:
            return None, writes
        database = self.database or USUAL
        if not facts_of(database).primary:
            rule = f"{facts_of(database).title} has no transactions of several writes"
            raise UserError(
                Problem("--commits", f"{self.commits:g}", rule, "leave it out, or name --database")
            )
        if not 0 < self.commits <= writes:
            rule = "each commit has one write at least"
            way_out = f"write at most --commits {writes:g}, or more --writes"
            raise UserError(Problem("--commits", f"{self.commits:g}", rule, way_out))
        return max(1, round(writes / self.commits)), self.commits

    def _tables(self) -> int:
        """Return the bytes of TPC-C's tables; raises UserError where it is not the whole load."""
        database = self.database or USUAL
        warehouses, room = self.tpcc or 0, facts_of(database).tpcc
        loads = ("data", "row", "reads", "writes", "commits")
        problems = [
            Problem(f"--{name}", f"{value}", "TPC-C brings its own data and load", "leave it out")
            for name in loads
            if (value := getattr(self, name)) is not None
        ]
        if room is None:
            rule = f"{facts_of(database).title} runs no TPC-C here"
            way_out = "name --database postgresql, mariadb or mysql"
            problems.append(Problem("--tpcc", f"{warehouses}", rule, way_out))
        refuse(problems)
        assert room is not None, "what else was refused"
        return room.loaded(warehouses)

    def _refuse_more_servers(self, title: str) -> None:
        """Raise UserError when options ask for nodes: each server has all rows."""
        if (self.nodes or 1) > 1:
            rule = f"{title} has all rows on each server"
            way_out = f"leave it out; `--copies {self.nodes}` asks for as many servers"
            raise UserError(Problem("--nodes", str(self.nodes), rule, way_out))
