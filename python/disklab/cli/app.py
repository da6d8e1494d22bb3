"""The command line as a whole."""

from __future__ import annotations

import errno
import io
import os
import resource
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module, metadata
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from disklab.cli.output import OVER_BUDGET
from disklab.cli.output import report as tell
from disklab.cli.root_part import divide
from disklab.errors import DisklabError, MachineError
from disklab.interrupts import disregard, raised_again, remember_ctrl_c, was_interrupted

# The commands of the program, each imported when it is asked for.
#
# All of them together take most of a second to import (pydantic's models, polars, numpy, scipy);
# completion in a shell would take it at each press of the key.

AnyCommand = TyperCommand | TyperGroup

GROUPS = {
    "Answer a question": {
        "advise": "advise",
        "predict": "predict",
        "knob": "report:knob",
        "report": "report",
    },
    "Run it for real": {
        "rehearse": "rehearse",
        "measure": "measure",
        "serve": "report:serve",
        "reproduce": "reproduce",
        "calibrate": "calibrate",
    },
    "Disks": {
        "run": "run",
        "disk": "disk:app",
        "probe": "probe",
        "catalog": "catalog",
        "prices": "catalog:prices",
    },
    "Files": {
        "experiment": "experiment:app",
        "kit": "kit:app",
        "observe": "observe",
        "import": "fio_files:import_results",
        "cloud": "cloud:clouds",
        "kubernetes": "cloud:kubernetes",
    },
    "This machine": {"doctor": "doctor", "clean": "clean"},
}
"""The module of each command, by the heading of the help that it stands under, in that order.

It has a function of the module's name, or one behind the colon, or a group of commands there.
"""

ROOMS = {name: place for commands in GROUPS.values() for name, place in commands.items()}
HEADINGS = {name: heading for heading, commands in GROUPS.items() for name in commands}


NEED_LINUX = ("observe", "probe", "rehearse", "measure", "doctor", "clean", "disk", "run", "kit")
"""Commands that emulate disks, or reach databases and hosts."""
REHEARSE = ("--here", "--rehearse")
"""Options of calibrate and reproduce that do it too."""


class Commands(TyperGroup):
    """The program's own group: those of `ROOMS`."""

    def __init__(self, **settings: Any) -> None:
        """Know all names, as the error about a mistyped one must, and import nothing."""
        super().__init__(**settings)
        self.commands = dict.fromkeys(ROOMS)  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, None when there is none of that name."""
        if cmd_name in ROOMS and self.commands[cmd_name] is None:
            command = imported(cmd_name, ROOMS[cmd_name])
            command.rich_help_panel = HEADINGS[cmd_name]
            self.commands[cmd_name] = command
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what is wrong with an option is told without pydantic's heading."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


def imported(name: str, place: str) -> AnyCommand:
    """Return the command of a module of this package, `module` or `module:name`."""
    module, _, own_name = place.partition(":")
    made = getattr(import_module(f"disklab.cli.{module}"), own_name or module)
    if isinstance(made, typer.Typer):
        group = typer.main.get_group(made)
        group.name = name
        tell_exit_codes(group, name)
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name)(made)
    command = typer.main.get_command(single)
    assert isinstance(command, TyperCommand)
    tell_exit_codes(command, name)
    return command


NOT_DONE = {
    "predict": "no cell has usable figures, or --check-register found a difference",
    "rehearse": "no trial has usable figures",
    "measure": "no trial has usable figures",
    "reproduce": "a run has no usable figures",
    "doctor": "no disk can be attached here",
    "clean": "something is left",
}
"""What exit code 1 of a command says, beside that something failed."""

JUDGED = ("predict", "rehearse", "measure", "probe", "advise")
"""Commands that judge promises."""


def exit_codes(name: str) -> str:
    """Return what the exit codes of a command say."""
    if name == "run":
        return (
            f"Exit codes: the command's own; {OVER_BUDGET} it did more than its budget or base; 1 "
            "disklab failed; 2 a mistake in the command or a file."
        )
    failed = f"it failed, or {NOT_DONE[name]}" if name in NOT_DONE else "it failed"
    judged = "with --check 3 a requirement is missed, 4 cannot tell; " if name in JUDGED else ""
    mistake = "2 a mistake in the command or a file"
    return f"Exit codes: 0 done; 1 {failed}; {mistake}; {judged}130 interrupted."


def tell_exit_codes(command: Any, name: str) -> None:
    """Put the exit codes under the help of a command, or of those below a group."""
    below = getattr(command, "commands", None)
    if below is None:
        command.epilog = exit_codes(name)
        return
    for word, one in below.items():
        tell_exit_codes(one, f"{name} {word}")


# The three standard streams, which may be closed, full, or read by nobody.
#
# What is written to one that fails is lost, and the command goes on: a rehearsal of an hour does
# not end because somebody closed the terminal's pager. How it failed is told once, at the end.

STANDARD = (0, 1, 2)


class Lenient(io.RawIOBase):
    """A descriptor that takes everything; its first failure is remembered."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.failure: OSError | None = None

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Return that it is."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Write what there is a reader for; return that all was written."""
        left = memoryview(data).cast("B")
        while left and self.failure is None:
            left = left[self._written(left) :]
        return len(data)

    def _written(self, data: memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # another program shares the terminal, and reads do not wait
            select.select([], [self._descriptor], [])
        except OSError as error:
            self.failure = error
        return 0


def open_missing() -> None:
    """Open the standard streams that are closed, so that no file of ours gets their number.

    Each is opened the other way round: to write to standard output fails as it should.
    """
    for descriptor in STANDARD:
        if not _is_open(descriptor):
            # The lowest free number is given, which is this one.
            opened = os.open(os.devnull, os.O_WRONLY if descriptor == 0 else os.O_RDONLY)
            os.set_inheritable(opened, True)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextmanager
def guarded() -> Iterator[None]:
    """Let no failure of the standard streams end what runs inside.

    At the end it raises MachineError where standard output could not be written. A reader that
    closes the pipe early, as `head` does, is not a failure. Streams that a caller replaced stay.
    """
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        yield
        return
    open_missing()
    out, notes = Lenient(1), Lenient(2)
    before = sys.stdout, sys.stderr
    for stream in before:
        if stream is not None:
            with suppress(OSError):
                stream.flush()
    sys.stdout = _text(out, before[0], "surrogateescape" if before[0] is None else None)
    sys.stderr = _text(notes, before[1], "backslashreplace")
    try:
        try:
            yield
        except SystemExit as ended:
            if ended.code:
                raise
            _check(out)
            raise
        _check(out)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if None not in before:
            sys.stdout, sys.stderr = before


def _check(out: Lenient) -> None:
    sys.stdout.flush()
    if out.failure is not None and out.failure.errno != errno.EPIPE:
        raise MachineError(
            f"standard output: {out.failure.strerror}: what was to be printed is lost; write it "
            "to a file that has room"
        )


def _text(raw: Lenient, before: io.TextIOBase | None, errors: str | None) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None) or "utf-8"
    handling = errors or getattr(before, "errors", None) or "strict"
    buffered = io.BufferedWriter(raw)  # type: ignore[type-var]
    interactive = raw.isatty() or raw.fileno() == 2
    return io.TextIOWrapper(buffered, encoding, handling, line_buffering=interactive)


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
    """Which disks should my database live on?"""


def command_of(words: Sequence[str]) -> str:
    """Return the command among the words of a command line; empty: there is none."""
    return next((word for word in words if not word.startswith("-")), "")


def check_system(words: Sequence[str]) -> None:
    """Raise MachineError for a command that this system cannot carry out; its help is shown."""
    name = command_of(words)
    wanted = name in NEED_LINUX or not {*REHEARSE}.isdisjoint(words)
    if sys.platform == "linux" or not wanted or {"-h", "--help"} & {*words}:
        return
    raise MachineError(
        f"disklab {name}: it needs Linux, and this is {sys.platform}; run it on a Linux machine or "
        "VM. Here predict, advise, report, serve, catalog and experiment work"
    )


NEED_TABLES = ("report", "serve")
LEAST_ADDRESS_SPACE = 1_500 << 20
"""Of the libraries of tables and charts: 1.3 GB do not do for `report`, 1.6 GB do (2026-11-27)."""


def check_memory(words: Sequence[str]) -> None:
    """Raise MachineError where a limit leaves no room for tables: some libraries abort instead."""
    name = command_of(words)
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if name in NEED_TABLES and most != resource.RLIM_INFINITY and most < LEAST_ADDRESS_SPACE:
        raise MachineError(
            f"this process may have {most >> 20} MiB of address space, and disklab {name} needs "
            f"{LEAST_ADDRESS_SPACE >> 20}; allow this process more memory (ulimit -v)"
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
        with guarded():
            _run()
    except MachineError as error:
        tell(error, as_json=False)
        sys.exit(error.exit_code)


def _run() -> None:
    remember_ctrl_c()
    try:
        try:
            with raised_again():
                check_system(sys.argv[1:])
                check_memory(sys.argv[1:])
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
    except (KeyboardInterrupt, Exception) as error:
        if not isinstance(error, KeyboardInterrupt) and not was_interrupted():
            raise
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
