"""The command line."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def root() -> None:
    """Which disks should my distributed database live on?"""


def main() -> None:
    """Run the command line."""
    app()
