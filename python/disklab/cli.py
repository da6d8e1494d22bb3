"""The command line."""

from __future__ import annotations

import sys

import typer

from disklab.errors import DisklabError
from disklab.probe.cli import probe

app = typer.Typer(no_args_is_help=True)
app.command()(probe)


@app.callback()
def root() -> None:
    """Which disks should my distributed database live on?"""


def main() -> None:
    """Run the command line; an error on purpose is its message and its exit code, no traceback."""
    try:
        app()
    except DisklabError as error:
        print(f"disklab: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
