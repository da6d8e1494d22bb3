"""The command line as a whole."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from disklab.cli.output import report as tell
from disklab.cli.rooms import NEED_LINUX, REHEARSE, Commands
from disklab.cli.root_part import divide
from disklab.errors import DisklabError, MachineError

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings=HELP_OPTIONS,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def tell_version(wanted: bool) -> None:
    """Print the version and end, when asked to."""
    if wanted:
        typer.echo(f"disklab {metadata.version('disklab')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=tell_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Which disks should my distributed database live on?"""


def check_system(words: Sequence[str]) -> None:
    """Raise MachineError for a command that this system cannot carry out; its help is shown."""
    name = next((word for word in words if not word.startswith("-")), "")
    wanted = name in NEED_LINUX or not {*REHEARSE}.isdisjoint(words)
    if sys.platform == "linux" or not wanted or {"-h", "--help"} & {*words}:
        return
    raise MachineError(
        f"disklab {name}: it needs Linux, and this is {sys.platform}; run it on a Linux machine or "
        "VM. Here predict, advise, report, serve, catalog and experiment work"
    )


def main() -> None:
    """Run the command line. Exit code 0: done, 1: an operating fault, 2: the user's mistake."""
    try:
        check_system(sys.argv[1:])
        divide(sys.argv[1:])
        app()
    except DisklabError as error:
        tell(error, as_json="--json" in sys.argv)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as a shell reports it
