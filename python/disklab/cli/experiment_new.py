"""`disklab experiment new`: from a few questions, or options, to a commented experiment file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from disklab import spec
from disklab.catalog import Caching, find_vm, load_catalog, parse_bytes, parse_disks
from disklab.catalog.resolve import Places
from disklab.cli.completion import disk_names, vm_names
from disklab.cli.output import Json, console, print_json
from disklab.errors import Problem, UserError
from disklab.spec.draft import Draft, Stored, draft

DEFAULT_VM = {
    "cassandra": "azure/Standard_L8s_v3",
    "postgresql": "azure/Standard_D8ds_v5",
    "none": "azure/Standard_D8ds_v5",
}
DEFAULT_DISKS = "azure/P30"

Disks = Annotated[
    list[str] | None,
    typer.Option(
        "--disks",
        help="Disks of the data volume, such as 'azure/P30', '4 x azure/P30' or local. "
        "Given several times they are compared.",
        autocompletion=disk_names,
        show_default=False,
    ),
]


DatabaseOption = Annotated[
    Literal["cassandra", "postgresql", "none"] | None,
    typer.Option(help="none: fio on the disk itself.", show_default="cassandra"),
]
CachingOption = Annotated[
    list[str] | None,
    typer.Option(
        help="None, ReadOnly or ReadWrite. Given several times they are compared.",
        show_default="None",
    ),
]
Vm = Annotated[
    str | None,
    typer.Option(help="VM size of the nodes.", autocompletion=vm_names, show_default="by database"),
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
    int | None, typer.Option(help="Operations under way at a time.", min=1, show_default="128")
]
Rate = Annotated[
    float | None,
    typer.Option(help="Instead of threads: operations a second.", min=1, show_default="none"),
]
P99 = Annotated[
    float | None,
    typer.Option(help="Required: 99 of 100 answers within this many ms.", show_default="none"),
]


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
    writes over a file.

    Examples: [bold]disklab experiment new mine.yaml[/bold],
    [bold]disklab experiment new mine.yaml --disks local --disks '4 x azure/P30' --data 2TB[/bold]
    """
    if os.path.exists(file):
        rule = "is there already, and nothing is written over"
        raise UserError(Problem("FILE", str(file), rule, "choose another name"))
    ask = Answers(asks=sys.stdin.isatty() and sys.stdout.isatty() and not json)
    stored = database or ask.choose("Database", get_args(Stored), "cassandra")
    many = stored == "cassandra"
    chosen = disks or ask.several("Disks to compare, with ;", DEFAULT_DISKS)
    cached = caching or ask.several("Host caching to compare, with ;", "None")
    wish = Draft(
        database=stored,  # type: ignore[arg-type]
        vm=vm or ask.text("VM size", DEFAULT_VM[stored]),
        disks=chosen,
        caching=[caching_of(one) for one in cached],
        title=title,
        p99_ms=p99,
        threads=threads or (128 if rate is None else None),
        rate_per_s=rate,
    )
    if stored != "none":
        count = nodes or (ask.number("Nodes", 3) if many else 1)
        row_bytes = amount("--row", row or ask.text("Bytes of a row", "1000B"))
        all_bytes = amount("--data", data or ask.text("Data without copies", "50GB"))
        wish = replace(
            wish,
            nodes=count,
            copies=copies or (ask.number("Copies", min(3, count)) if many else 1),
            row_bytes=row_bytes,
            rows=max(1, all_bytes // row_bytes),
            read_ratio=(ask.number("Reads, percent", 80) if reads is None else reads) / 100,
        )
    check_names(wish)
    text = draft(wish)
    cells = spec.parse(text, file).trials("predict")
    write_new(file, text)
    tell(file, cells, as_json=json)


def tell(file: Path, cells: Sequence[spec.Trial], *, as_json: bool) -> None:
    """Print what was written, which cells cannot be, and the next command."""
    following = f"disklab predict {file} --fidelity quick"
    if as_json:
        print_json({"ok": True, "file": str(file), "trials": len(cells), "next": following})
        return
    out = console()
    out.print(f"{file}: {len(cells)} cell{'s' if len(cells) != 1 else ''}", markup=False)
    for trial in cells:
        if trial.refused is not None:
            out.print(f"refused: {trial.refused}", markup=False, highlight=False)
    if all(trial.refused is not None for trial in cells):
        following = f"change the file, then: disklab experiment check {file}"
    out.print(f"next: {following}", markup=False, highlight=False)


class Answers:
    """What the user says when asked; the defaults where nobody can be."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks

    def text(self, question: str, default: str) -> str:
        """Return a line."""
        if not self._asks:
            return default
        return str(typer.prompt(question, default=default)).strip()

    def several(self, question: str, default: str) -> list[str]:
        """Return the parts of a line between semicolons."""
        return [part.strip() for part in self.text(question, default).split(";") if part.strip()]

    def number(self, question: str, default: int) -> int:
        """Return a whole number."""
        return int(typer.prompt(question, default=default, type=int)) if self._asks else default

    def choose(self, question: str, choices: tuple[str, ...], default: str) -> str:
        """Return one of the choices."""
        if not self._asks:
            return default
        import click  # noqa: PLC0415 - only where somebody is asked

        return str(typer.prompt(question, default=default, type=click.Choice(choices)))


def caching_of(text: str) -> Caching:
    """Read a host caching."""
    for known in get_args(Caching):
        if text.lower() == known.lower():
            return known  # type: ignore[no-any-return]
    rule = "is not a host caching"
    raise UserError(Problem("--caching", text, rule, f"choose {', '.join(get_args(Caching))}"))


def amount(place: str, text: str) -> int:
    """Read a size in bytes of at least one."""
    try:
        found = parse_bytes(text)
    except ValueError as error:
        raise UserError(Problem(place, text, str(error), "write for example 50GB")) from None
    if found < 1:
        raise UserError(Problem(place, text, "is at least one byte", "write for example 50GB"))
    return found


def check_names(wish: Draft) -> None:
    """Raise UserError for a VM size that the catalogue lacks, or disks that nobody can read."""
    for one in wish.disks:
        parse_disks(one, "--disks")
    find_vm(load_catalog(), wish.vm, Places(vm="--vm"))


def write_new(file: Path, text: str) -> None:
    """Write a file that was not there; a link is not followed."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        reason = (error.strerror or "cannot be written").lower()
        raise UserError(Problem("FILE", str(file), reason, "choose another place")) from None
    with open(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
