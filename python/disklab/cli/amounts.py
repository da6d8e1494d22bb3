"""Option values in words: sizes, rates, read-ahead, scale. And the spinner of long work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from disklab.catalog import format_bytes, load_catalog, parse_bytes
from disklab.cli.output import notes
from disklab.errors import DisklabError, Problem, UserError
from disklab.events import Emit
from disklab.hosts.places import Places
from disklab.terminal import plain

if TYPE_CHECKING:
    from disklab.engine.process import Workers

# `--cluster`: who simulates the cells of a matrix.

Cluster = Annotated[
    str | None,
    typer.Option(
        help="Simulate on a Ray cluster (ray://HOST) or on hosts over SSH (HOST,USER@HOST).",
        metavar="WHERE",
    ),
]


@contextmanager
def workers_of(cluster: str | None, jobs: int | None, emit: Emit) -> Iterator[Workers]:
    """Yield who simulates: this machine's cores, or the machines that `--cluster` names."""
    if cluster is None:
        yield jobs
        return
    if jobs is not None:
        way_out = "leave --jobs out: each core of the cluster simulates a cell at a time"
        raise UserError(Problem("--jobs", str(jobs), "it is for this machine's cores", way_out))
    # Loaded here because it brings what speaks to other machines.
    from disklab.sweeps import cluster_of  # noqa: PLC0415

    with cluster_of(cluster, emit) as machines:
        yield machines


# Completion of disk, VM and volume names in the shell. Never fails, never prints.


def _completion(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        try:
            completions = names()
        except (DisklabError, OSError):
            return []
        # The shell takes only what continues the word as it was typed.
        return [name for name in completions if name.startswith(incomplete) and plain(name) == name]

    return complete


def one_of(names: Sequence[str]) -> dict[str, Any]:
    """Return what typer is told of an option or argument that is one of some names."""

    def name(text: str) -> str:
        if text not in names:
            rule = f"{text!r} is not one of {', '.join(map(repr, names))}."
            raise typer.BadParameter(rule)
        return text

    complete = _completion(lambda: [*names])
    return {"parser": name, "metavar": f"<{'|'.join(names)}>", "autocompletion": complete}


def utf8(text: str) -> str:
    """Return a name as it is. Records and messages of disks hold text alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{text!a} is not UTF-8 text.") from None
    return text


def _attached() -> list[str]:
    return [name for host in Places.usual().hosts() for name in host.volume_records()]


def _bundled() -> list[str]:
    # The models of the experiment file take a quarter of a second, which most commands do not need.
    from disklab.spec import bundled  # noqa: PLC0415

    return bundled.names()


bundled_names = _completion(_bundled)
disk_names = _completion(lambda: load_catalog().disk_names())
vm_names = _completion(lambda: list(load_catalog().vms))
all_names = _completion(lambda: [*load_catalog().disk_names(), *load_catalog().vms])
volume_names = _completion(_attached)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show what is being done: a spinner on a terminal, nothing elsewhere."""
    out = notes()
    if not out.is_terminal:
        yield lambda _: None
        return
    with out.status("looking") as status:
        yield status.update


def bytes_of(text: str | None, place: str) -> int | None:
    """Read `64GiB`. Raises UserError that names the option."""
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UserError(Problem(place, repr(text), str(error), "write for example 64GiB")) from None


def rate_of(text: str | None) -> int | None:
    """Read `200MB` or `200 MB/s`; a number alone would leave the unit open."""
    if text is None:
        return None
    amount = bytes_of(text.strip().removesuffix("/s"), "--throughput")
    if text.strip().isdigit():
        rule = "a throughput needs a unit"
        raise UserError(Problem("--throughput", text, rule, f"write {text}MB for {text} MB/s"))
    return amount


def read_ahead_kib(text: str | None) -> int | None:
    """Read `8KiB` or `0` as KiB."""
    amount = bytes_of(text, "--read-ahead")
    if amount is None:
        return None
    # The kernel keeps it in KiB; more than 64 MiB is a slip.
    if amount % 1024 or amount > 64 << 20:
        rule = "read-ahead is whole KiB up to 64MiB"
        value = format_bytes(amount)
        raise UserError(Problem("--read-ahead", value, rule, "write for example 8KiB, or 0"))
    return amount // 1024


def scale_of(text: str | None) -> Fraction | None:
    """Read `1/100`."""
    if text is None:
        return None
    with suppress(ValueError, ZeroDivisionError):
        if text.isascii() and 0 < (scale := Fraction(text)) <= 1:
            return scale
    rule = "a scale is a fraction above 0 and at most 1"
    raise UserError(Problem("--scale", repr(text), rule, "write for example 1/100"))


# Options of all commands that simulate.

MOST_SEED = 999_999_999
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=MOST_SEED)]
Jobs = Annotated[
    int | None, typer.Option(help="Cells simulated at a time; one per core by default.", min=1)
]
Out = Annotated[Path, typer.Option(help="Folder for the run.", metavar="DIR")]
FidelityOption = Annotated[
    str, typer.Option(help="full, or quick: fewer rows and operations.", metavar="F")
]
