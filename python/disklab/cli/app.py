"""The command line as a whole."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from disklab.cli import streams
from disklab.cli.output import report as tell
from disklab.cli.rooms import NEED_LINUX, REHEARSE, Commands
from disklab.cli.root_part import divide
from disklab.errors import DisklabError, MachineError
from disklab.interrupts import disregard

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


SHORT = frozenset(
    {
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        errno.EAGAIN,
        errno.ESTALE,
    }
)
"""What a machine says that has no more of something; other errors of a system call are bugs."""
WAYS_OUT = {
    errno.EMFILE: "allow this process more open files (ulimit -n)",
    errno.ENOMEM: "allow this process more memory (ulimit -v), or end others",
    errno.EAGAIN: "allow this user more processes (ulimit -u), or end others",
    errno.EROFS: "mount it writable again, or write elsewhere",
}


def main() -> None:
    """Run the command line. Exit code 0: done, 1: an operating fault, 2: the user's mistake."""
    try:
        with streams.guarded():
            _run()
    except MachineError as error:
        tell(error, as_json=False)
        sys.exit(error.exit_code)


def _run() -> None:
    try:
        try:
            check_system(sys.argv[1:])
            divide(sys.argv[1:])
            app()
        except (OSError, MemoryError, ImportError, RuntimeError) as error:
            short = shortage(error)
            if short is None:
                raise
            raise short from error
    except DisklabError as error:
        tell(error, as_json="--json" in sys.argv)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        disregard()
        sys.exit(130)  # 128 + SIGINT, as a shell reports it


def shortage(error: BaseException) -> MachineError | None:
    """Return what to tell of a machine that has no more of something; None: it is a bug."""
    if isinstance(error, OSError) and error.errno in SHORT:
        what = f"{error.filename}: " if error.filename else ""
        name = errno.errorcode[error.errno]
        way_out = WAYS_OUT.get(error.errno, "make room there, or write elsewhere")
        return MachineError(f"{what}{error.strerror} ({name}); {way_out}")
    words = str(error)
    if (
        isinstance(error, MemoryError)
        or "can't start new thread" in words
        or "map segment" in words
    ):
        way_out = WAYS_OUT[errno.ENOMEM]
        return MachineError(f"this process may not have more memory or threads; {way_out}")
    return None
