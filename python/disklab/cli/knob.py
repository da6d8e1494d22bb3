"""`disklab knob`: the simulator as a page of one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disklab.cli.output import console


def knob(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="Where the page is written.")
    ] = Path("knob.html"),
) -> None:
    """Write the simulator as a page: pick disks, turn knobs, see rate, tail, limit and price.

    One file that works without a server and asks no other host; what is picked is in its address.

    Example: [bold]disklab knob knob.html[/bold]
    """
    from disklab.knob import made_page  # noqa: PLC0415 - other commands should not wait for it
    from disklab.results.durable import write_file  # noqa: PLC0415

    write_file(file, made_page().text.encode("utf-8"), "FILE")
    console().print(str(file), soft_wrap=True, markup=False, highlight=False)
