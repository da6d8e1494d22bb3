"""`disklab experiment new`: from a few questions, or options, to a commented experiment file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from disklab import spec
from disklab.catalog import Caching, find_vm, load_catalog, parse_bytes, parse_disks
from disklab.catalog.resolve import Places
from disklab.catalog.suggest import did_you_mean
from disklab.cli.amounts import disk_names, one_of, vm_names
from disklab.cli.output import Json, console, print_json
from disklab.database_facts import USUAL, facts_of, names
from disklab.durable import write_new
from disklab.errors import Problem, UserError
from disklab.spec.amounts import Unreadable, milliseconds
from disklab.spec.draft import NO_DATABASE, Draft, draft

STORED = (*(name for name in names() if facts_of(name).usual_vm), NO_DATABASE)
"""What can be stored: a database, or nothing that disklab knows of."""
DEFAULT_VM = "azure/Standard_D8ds_v5"
"""Of fio on the disk itself."""
DEFAULT_DISKS = "azure/P30"
VENDORS_VM = {"aws": "aws/r8g.2xlarge", "gcp": "gcp/c4-highmem-16"}
"""Where the disks are of another vendor than the usual ones."""

Read = TypeVar("Read")

Disks = Annotated[
    list[str] | None,
    typer.Option(
        "--disks",
        help="Disks of the data volume, such as 'azure/P30', '4 x azure/P30' or local. "
        "If given several times, they are compared.",
        autocompletion=disk_names,
        show_default=False,
    ),
]


DatabaseOption = Annotated[
    str | None,
    typer.Option(
        help="none: fio on the disk itself.",
        show_default=USUAL,
        **one_of(STORED),
    ),
]
CachingOption = Annotated[
    list[str] | None,
    typer.Option(
        help="None, ReadOnly or ReadWrite. If given several times, they are compared.",
        show_default="None",
    ),
]
Vm = Annotated[
    str | None,
    typer.Option(
        help="VM size of the nodes.",
        autocompletion=vm_names,
        show_default="by database and caching",
    ),
]
Nodes = Annotated[int | None, typer.Option(help="Database nodes.", min=1, show_default="3")]
Copies = Annotated[int | None, typer.Option(help="Copies of each row.", min=1, show_default="3")]
Data = Annotated[
    str | None, typer.Option(help="Data without copies, such as 2TB.", show_default="50GB")
]
Row = Annotated[str | None, typer.Option(help="Bytes of a row.", show_default="1000B")]
Reads = Annotated[
    float | None, typer.Option(help="Reads among the operations, in percent.", show_default="80")
]
Threads = Annotated[
    int | None, typer.Option(help="Operations in flight at a time.", min=1, show_default="128")
]
Rate = Annotated[
    float | None,
    typer.Option(help="Instead of threads: operations a second.", min=1, show_default="none"),
]


def read_ms(text: str) -> float:
    """Read `10` as milliseconds, or a time with its unit as files have it."""
    try:
        return float(text) if BARE.fullmatch(text.strip()) else milliseconds(text)
    except Unreadable as error:
        raise typer.BadParameter(f"{text}: {error}") from None


BARE = re.compile(r"\d{1,15}(\.\d{1,9})?", re.ASCII)


def in_ms(what: str, *names: str) -> Any:
    """Return an option that is a time, in milliseconds unless it has a unit."""
    return typer.Option(
        *names, help=f"{what} this many ms.", parser=read_ms, metavar="MS", show_default="none"
    )


P99 = Annotated[float | None, in_ms("Required: 99 of 100 answers within")]


def new(  # noqa: PLR0913, PLR0917 - each option is a parameter
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    database: DatabaseOption = None,
    disks: Disks = None,
    caching: CachingOption = None,
    vm: Vm = None,
    nodes: Nodes = None,
    copies: Copies = None,
    data: Data = None,
    row: Row = None,
    reads: Reads = None,
    threads: Threads = None,
    rate: Rate = None,
    p99: P99 = None,
    title: Annotated[str | None, typer.Option(help="The question.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Write a commented experiment file from a few answers, and check it.

    On a terminal it asks for what no option says; elsewhere it uses the defaults. It never
    overwrites a file.

    Examples: [bold]disklab experiment new mine.yaml[/bold], [bold]disklab experiment new mine.yaml
    --disks nvme --disks '4 x azure/P30' --data 500GB[/bold]
    """
    if os.path.exists(file):
        rule = "exists already and is not overwritten"
        raise UserError(Problem("FILE", str(file), rule, "choose another name"))
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not json
    stored = database
    if stored is None:
        stored = Answers.read("Database", USUAL, stored_of, STORED, asks=asks)
    assert stored is not None
    wish = Draft(
        database=stored,
        vm=vm or "",
        disks=disks or [DEFAULT_DISKS],
        title=title,
        p99_ms=p99,
        threads=threads or (128 if rate is None else None),
        rate_per_s=rate,
    )
    ask = Answers(replace(wish, rows=1, copies=1), file, asks=asks)
    ask.part("disks", disks, "Disks; to compare several: A; B", DEFAULT_DISKS, disks_of)
    cached = [caching_of(text) for text in caching] if caching else None
    ask.part("caching", cached, "Host caching; to compare several: A; B", "None", cachings_of)
    ask.part("vm", vm, "VM size", default_vm(ask.wish), vm_of)
    if stored != "none":
        ask_for_rows(ask, (nodes, copies), (data, row), reads)
    check_names(ask.wish)
    text = draft(ask.wish)
    cells = cells_of(text, file)
    write_new(file, text)
    tell(file, cells, as_json=json)


def ask_for_rows(
    ask: Answers,
    servers: tuple[int | None, int | None],
    amounts: tuple[str | None, str | None],
    reads: float | None,
) -> None:
    """Ask for what a database holds and does. `servers`: and copies; `amounts`: data and row."""
    (nodes, copies), (data, row) = servers, amounts
    stored = ask.wish.database
    if stored != "none" and facts_of(stored).usual_nodes == 1:
        nodes, copies = nodes or 1, copies or 1
    row_of = partial(amount, "--row", example="1000B or 4KiB")
    ask.part("nodes", nodes, "Nodes", "3", partial(count, "--nodes"))
    ask.part("row_bytes", row_of(row) if row else None, "Bytes of a row", "1000B", row_of)

    def rows_of(text: str) -> int:
        return max(1, amount("--data", text) // ask.wish.row_bytes)

    ask.part("rows", rows_of(data) if data else None, "Data without copies", "50GB", rows_of)
    usual = str(min(3, ask.wish.nodes))
    ask.part("copies", copies, "Copies", usual, partial(count, "--copies"))
    ask.part("read_ratio", None if reads is None else reads / 100, "Reads, percent", "80", ratio_of)


def cells_of(text: str, file: Path) -> Sequence[spec.Trial]:
    """Return the cells of a draft, one of which can be. Raises UserError that names options."""
    try:
        cells = spec.parse(text, file).trials("predict")
    except UserError as error:
        # The draft was not written, so name the options instead of its lines.
        raise UserError(*map(by_option, error.problems)) from None
    refused = [trial.refused for trial in cells if trial.refused is not None]
    if len(refused) == len(cells):
        raise UserError(*(by_option(problem) for cell in refused for problem in cell.problems))
    return cells


OPTION_OF = {
    "dataset.rows": "--data",
    "dataset.row": "--row",
    "cluster.nodes": "--nodes",
    "cluster.vm": "--vm",
    "cluster.volumes.data.disks": "--disks",
    "cluster.volumes.data.caching": "--caching",
    "device.vm": "--vm",
    "device.volume.disks": "--disks",
    "device.volume.caching": "--caching",
    "database.replication_factor": "--copies",
}
"""The option that a key of the draft comes from."""


def by_option(problem: Problem) -> Problem:
    """Return what is wrong with a draft as wrong with the option that decided it."""
    key = problem.place.rpartition(": ")[2]
    return replace(problem, place=OPTION_OF.get(key, key))


def tell(file: Path, cells: Sequence[spec.Trial], *, as_json: bool) -> None:
    """Print what was written, which cells cannot be, and the next command."""
    following = f"disklab predict {file} --fidelity quick"
    if as_json:
        refused = [str(trial.refused) for trial in cells if trial.refused is not None]
        summary = {"trials": len(cells), "refused": refused, "next": following}
        print_json({"ok": True, "file": str(file), **summary})
        return
    out = console()
    out.print(f"{file}: {len(cells)} cell{'s' if len(cells) != 1 else ''}", markup=False)
    for trial in cells:
        if trial.refused is not None:
            out.print(f"refused: {trial.refused}", markup=False, highlight=False)
    out.print(f"next: {following}", markup=False, highlight=False)


class Answers:
    """What the user says when asked; the defaults where nobody can be."""

    def __init__(self, wish: Draft, file: Path, *, asks: bool) -> None:
        self.wish, self._file, self._asks = wish, file, asks

    def part(
        self,
        name: str,
        given: Read | None,
        question: str,
        default: str,
        read: Callable[[str], Read],
    ) -> None:
        """Put an answer into the draft; what cannot be with the answers before is asked again."""

        def fitting(text: str) -> Read:
            value = read(text)
            if self._asks:
                changed = self._with(name, value)
                usable = replace(changed, vm=changed.vm or default_vm(changed))
                cells_of(draft(usable), self._file)
            return value

        value = self.read(question, default, fitting, asks=self._asks) if given is None else given
        self.wish = self._with(name, value)

    def _with(self, name: str, value: object) -> Draft:
        changed: dict[str, Any] = {name: value}
        return replace(self.wish, **changed)

    @staticmethod
    def read(
        question: str,
        default: str,
        read: Callable[[str], Read],
        choices: Sequence[str] = (),
        *,
        asks: bool,
    ) -> Read:
        """Return what `read` makes of the answer; a mistake is told and asked about again."""
        if not asks:
            return read(default)
        shown = f"{question} ({', '.join(choices)})" if choices else question
        while True:
            try:
                return read(str(typer.prompt(shown, default=default)).strip())
            except UserError as error:  # noqa: PERF203 - waiting for a person takes longer
                console().print(f"  {error}", markup=False, highlight=False)


def default_vm(wish: Draft) -> str:
    """Return the VM size that is meant where none is named: one that can do what is asked."""
    vendor = next((name.split("/")[0] for name in wish.disks if "/" in name), "").split()[-1:]
    if usual := VENDORS_VM.get("".join(vendor)):
        return usual
    facts = None if wish.database == NO_DATABASE else facts_of(wish.database)
    caches = set(wish.caching) != {"None"}
    return (facts and ((caches and facts.caching_vm) or facts.usual_vm)) or DEFAULT_VM


def count(place: str, text: str) -> int:
    """Read a whole number of at least one."""
    if not text.isdecimal() or len(text) > 6 or int(text) < 1:
        raise UserError(Problem(place, text, "is not a whole number from 1", "write for example 3"))
    return int(text)


def ratio_of(text: str) -> float:
    """Read percent as a ratio."""
    if not BARE.fullmatch(text) or float(text) > 100:
        rule = "is not a percentage from 0 to 100"
        raise UserError(Problem("--reads", text, rule, "write for example 80"))
    return float(text) / 100


def stored_of(text: str) -> str:
    """Read what is stored: the name of a database, or none."""
    if text.lower() in STORED:
        return text.lower()
    way_out = did_you_mean(text, STORED, f"choose {', '.join(STORED)}")
    raise UserError(Problem("--database", text, "is not known", way_out))


def several(text: str) -> list[str]:
    """Return the parts of a line between semicolons."""
    return [part.strip() for part in text.split(";") if part.strip()]


def disks_of(text: str) -> list[str]:
    """Read disks to compare."""
    known = load_catalog().disk_names()
    for one in several(text):
        name = parse_disks(one, "--disks").name
        if name not in known:
            way_out = did_you_mean(name, known, "`disklab catalog` lists all disks")
            raise UserError(Problem("--disks", one, "no such disk in the catalogue", way_out))
    return several(text)


def cachings_of(text: str) -> list[Caching]:
    """Read host cachings to compare."""
    return [caching_of(one) for one in several(text)]


def vm_of(text: str) -> str:
    """Read a VM size of the catalogue."""
    find_vm(load_catalog(), text, Places(vm="--vm"))
    return text


def caching_of(text: str) -> Caching:
    """Read a host caching."""
    for known in get_args(Caching):
        if text.lower() == known.lower():
            return known  # type: ignore[no-any-return]
    rule = "is not a host caching"
    raise UserError(Problem("--caching", text, rule, f"choose {', '.join(get_args(Caching))}"))


def amount(place: str, text: str, *, example: str = "50GB") -> int:
    """Read a size in bytes of at least one; of all data with its unit."""
    way_out = f"write for example {example}"
    if place == "--data" and text.strip().isdecimal():
        raise UserError(
            Problem(place, text, "has no unit", f"write {text}GB, or {text}B for bytes")
        )
    try:
        found = parse_bytes(text)
    except ValueError as error:
        raise UserError(Problem(place, text, str(error), way_out)) from None
    if found < 1:
        raise UserError(Problem(place, text, "is at least one byte", way_out))
    return found


def check_names(wish: Draft) -> None:
    """Raise UserError for a VM size that the catalogue lacks, or disks that nobody can read."""
    for one in wish.disks:
        parse_disks(one, "--disks")
    find_vm(load_catalog(), wish.vm, Places(vm="--vm"))
