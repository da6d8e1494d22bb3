"""`disklab disk cache`: the host cache as a condition of an experiment, filled or emptied."""

from __future__ import annotations

from typing import Annotated

import typer

from disklab.catalog import parse_bytes
from disklab.catalog.quantity import about_bytes
from disklab.cli.amounts import progress
from disklab.cli.output import Json, console, print_json
from disklab.cli.root_part import root_part
from disklab.cli.volume_argument import HostOption, Volume
from disklab.errors import Problem, UserError
from disklab.privilege.volumes import Cache, Found, perform

app = typer.Typer(no_args_is_help=True, help="Fill or empty the host cache, between two runs.")


def _range(text: str) -> tuple[int, int]:
    offset, colon, length = text.partition(":")
    try:
        if not colon:
            raise ValueError("a range is an offset and a length")
        return parse_bytes(offset), parse_bytes(length)
    except ValueError as error:
        way_out = "write for example 0:1GiB"
        raise UserError(Problem("--range", repr(text), str(error), way_out)) from None


def _tell(found: Found, json: bool) -> None:
    cache = found.cache
    assert cache is not None, "it is what was asked for"
    if json:
        print_json({"volume": found.volume, "cache": cache.model_dump()})
        return
    dirty = f", {about_bytes(cache.dirty_bytes)} of it dirty" if cache.dirty_bytes else ""
    held = about_bytes(cache.cached_bytes)
    console().print(f"{found.volume}: {held} in the host cache{dirty}")


@app.command()
def warm(
    volume: Volume,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="OFFSET:LENGTH, such as 0:1GiB; may be given again."),
    ] = None,
    host: HostOption = None,
    json: Json = False,
) -> None:
    """Fill the host cache with all that was written to a volume, as if it had just been read.

    Where it does not all fit, the end of it stays.
    Example: [bold]disklab disk cache warm data[/bold]
    """
    wanted = [_range(text) for text in ranges] if ranges else None
    with progress() as told:
        found: Found = perform(root_part(), Cache(volume, host, "warm", wanted), told)
    _tell(found, json)


@app.command()
def drop(volume: Volume, host: HostOption = None, json: Json = False) -> None:
    """Empty a volume's part of the host cache. What a ReadWrite cache has not destaged stays.

    Example: [bold]disklab disk cache drop data[/bold]
    """
    _tell(perform(root_part(), Cache(volume, host, "drop")), json)
