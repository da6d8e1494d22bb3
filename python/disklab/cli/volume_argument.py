"""How commands name an attached volume."""

from __future__ import annotations

from typing import Annotated

import typer

from disklab.cli.completion import volume_names

Volume = Annotated[
    str,
    typer.Argument(
        metavar="VOLUME",
        help="Its name, or its device.",
        autocompletion=volume_names,
        show_default=False,
    ),
]
HostOption = Annotated[str | None, typer.Option("--host", help="The emulated host.")]
