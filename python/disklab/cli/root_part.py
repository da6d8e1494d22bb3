"""Under sudo: which commands give root up, and which leave it to a process that does little.

As root without sudo nobody's rights can be had instead, and everything stays as it is.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import MutableMapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING

UNPRIVILEGED = frozenset(
    {
        "advise",
        "catalog",
        "experiment",
        "import",
        "knob",
        "observe",
        "predict",
        "prices",
        "report",
        "serve",
    }
)
"""Commands that need no root at all."""
DIVIDED = frozenset({"calibrate", "disk", "probe", "rehearse", "reproduce", "run"})
"""Commands whose root's part is a process of its own."""
DIVIDED_WITH = {"observe": "--block-trace"}
"""Commands that need no root but for an option, which root's part then does."""
ONLY_WITH = {"reproduce": "--rehearse", "calibrate": "--here"}
"""Commands that need root only with an option."""

if TYPE_CHECKING:
    from disklab.privilege.talk import Link, Serving

_link: list[Link] = []


def root_part() -> Link | None:
    """Return the socket to root's part of this command; None: this process does everything."""
    return _link[0] if _link else None


def divide(words: Sequence[str]) -> None:
    """Give root up for good where a command needs none, or leave it to another process.

    Returns in the process that goes on with the command. Raises UserError when the caller may not
    read the program.
    """
    command = next((word for word in words if not word.startswith("-")), None)
    if "SUDO_UID" not in os.environ or command is None or command not in UNPRIVILEGED | DIVIDED:
        return
    # Loaded here: a command that nobody called through sudo is not to wait for it.
    from disklab.privilege.identity import Caller, open_way  # noqa: PLC0415
    from disklab.privilege.talk import Link  # noqa: PLC0415

    caller = Caller.of(os.environ)
    if caller is None:
        return
    needless = command in ONLY_WITH and ONLY_WITH[command] not in words
    divided = command in DIVIDED or _has(words, DIVIDED_WITH.get(command))
    if (command in UNPRIVILEGED and not divided) or needless:
        open_way(caller)
        caller.become()
        return
    if not divided:
        return
    if _has(words, "--kit") or _has(words, "--program"):
        # Loaded here: few commands have them. Root's part runs the same kits, and no others.
        from disklab.kits import name_kits, shipped  # noqa: PLC0415

        # Ours may be closed to the caller, and his are opened with his rights.
        shipped()
        with caller.looking():
            name_kits(_given(words, "--kit"), _given(words, "--program"))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    child = os.fork()
    if child == 0:
        ours.close()
        # Results of other commands may lie on a volume.
        open_way(caller, lets_go=command in {"disk", "run"})
        caller.become()
        _link[:] = [Link(theirs)]
        return
    theirs.close()
    _serve(command, Link(ours), child)


def _has(words: Sequence[str], option: str | None) -> bool:
    """Return whether an option is among the words: `--option VALUE`, or `--option=VALUE`."""
    return option is not None and bool(_given(words, option))


def _given(words: Sequence[str], option: str) -> list[str]:
    """Return the values of an option: `--option VALUE`, or `--option=VALUE`."""
    values = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            values.append(value if equals else following)
    return values


def _part_of(command: str, link: Link) -> Serving:
    # Loaded here, after the fork: the caller's part has no use for it before.
    if command == "run":
        from disklab.privilege.for_command import RunPart  # noqa: PLC0415

        return RunPart(link)
    if command == "disk":
        from disklab.privilege.volumes import VolumesPart  # noqa: PLC0415

        return VolumesPart(link)
    if command == "probe":
        from disklab.privilege.probing import ProbePart  # noqa: PLC0415

        return ProbePart(link)
    if command == "calibrate":
        from disklab.privilege.probing import CalibratePart  # noqa: PLC0415

        return CalibratePart(link)
    if command == "observe":
        from disklab.privilege.probing import TracePart  # noqa: PLC0415

        return TracePart(link)
    from disklab.privilege.root import RootPart  # noqa: PLC0415

    return RootPart(link)


def leave_working_directory(environment: MutableMapping[str, str]) -> None:
    """Go where the caller can put nothing that a program of root's would look for.

    sysbench's Lua, for one, looks for what a script requires in the working directory first.
    """
    for name in ("DISKLAB_RUN_DIR", "DISKLAB_DATA_DIR"):
        if environment.get(name):
            environment[name] = os.path.abspath(environment[name])
    os.chdir("/")


def _serve(command: str, link: Link, child: int) -> None:
    """Be root's part until the caller's has ended; end with its exit code."""

    def forward(number: int, _frame: FrameType | None) -> None:
        # It decides, as the one who knows what is under way.
        os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    leave_working_directory(os.environ)
    _part_of(command, link).serve()
    # Both ends of the terminal's Ctrl-C: the other part ends by it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(128 - code if code < 0 else code)
