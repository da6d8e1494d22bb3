"""How the command line prints: tables for people, JSON for programs, errors on standard error."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from disklab.errors import DisklabError, UserError
from disklab.terminal import SafeConsole, json_line

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output.", show_default=False),
]

# Wide enough for the tables when the output is a pipe and has no width of its own.
PIPE_WIDTH = 160


def console() -> Console:
    """Return the console of standard output: plain and wide when it is no terminal."""
    return SafeConsole(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def notes() -> Console:
    """Return the console of standard error, for progress, warnings and errors."""
    width = None if sys.stderr.isatty() else PIPE_WIDTH
    return SafeConsole(stderr=True, width=width, soft_wrap=True)


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    sys.stdout.write(json_line(content))


def warn(message: str) -> None:
    """Print a warning on standard error."""
    notes().print(Text.assemble(("warning: ", "yellow"), message))


def report(error: DisklabError, *, as_json: bool) -> None:
    """Print an error: all its problems, and no traceback."""
    if as_json:
        content: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
        if isinstance(error, UserError):
            content["problems"] = [vars(problem) for problem in error.problems]
        print_json({"ok": False, "error": content})
        return
    for line in str(error).splitlines():
        notes().print(Text.assemble(("error: ", "bold red"), line))
