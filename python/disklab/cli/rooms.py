"""The commands of the program, each imported when it is asked for.

All of them together take most of a second to import (pydantic's models, polars, numpy, scipy);
completion in a shell would take it at each press of the key.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

AnyCommand = TyperCommand | TyperGroup

ROOMS = {
    "catalog": "catalog",
    "predict": "predict",
    "observe": "observe",
    "advise": "advise",
    "prices": "prices",
    "calibrate": "calibrate",
    "probe": "probe",
    "rehearse": "rehearse",
    "measure": "measure",
    "cloud": "cloud",
    "kubernetes": "kubernetes",
    "reproduce": "reproduce",
    "report": "report",
    "serve": "serve",
    "knob": "knob",
    "import": "import_results",
    "doctor": "doctor",
    "clean": "clean",
    "disk": "disk",
    "run": "run",
    "experiment": "experiment",
}
"""The module of each command, in the order of the help.

It has a function of its own name, or an `app` with commands below it.
"""


NEED_LINUX = ("observe", "probe", "rehearse", "measure", "doctor", "clean", "disk", "run")
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
            self.commands[cmd_name] = imported(cmd_name, ROOMS[cmd_name])
        return super().get_command(ctx, cmd_name)


def imported(name: str, module_name: str) -> AnyCommand:
    """Return the command of a module of this package."""
    module = import_module(f"disklab.cli.{module_name}")
    below = getattr(module, "app", None)
    if below is not None:
        group = typer.main.get_group(below)
        group.name = name
        tell_exit_codes(group, name)
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name)(getattr(module, module_name))
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
            "Exit codes: the command's own; 3 it did more than its budget or base; 1 disklab "
            "failed; 2 a mistake in what was given."
        )
    failed = f"it failed, or {NOT_DONE[name]}" if name in NOT_DONE else "it failed"
    judged = "with --check 3 a promise is missed, 4 nobody can tell; " if name in JUDGED else ""
    return (
        f"Exit codes: 0 done; 1 {failed}; 2 a mistake in what was given; {judged}130 interrupted."
    )


def tell_exit_codes(command: Any, name: str) -> None:
    """Put the exit codes under the help of a command, or of those below a group."""
    below = getattr(command, "commands", None)
    if below is None:
        command.epilog = exit_codes(name)
        return
    for word, one in below.items():
        tell_exit_codes(one, f"{name} {word}")
