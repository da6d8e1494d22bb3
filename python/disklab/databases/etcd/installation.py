"""Finding etcd, its version, the settings that it knows, and who runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab.engine import Account, server_account, unreachable
from disklab.errors import Problem, UserError
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import find_program, how_to_get
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command

PROGRAM = "etcd"
LEAST = (3, 4)
"""The first version whose JSON gateway answers below `/v3/`."""
TOO_OLD = "etcd 3.4 is the first whose gateway disklab speaks to"
SECONDS = 30.0
_VERSION = re.compile(r"etcd Version: ((\d+)\.(\d+)\S*)")
_FLAG = re.compile(r"^ {2,4}--([a-z0-9-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Installation:
    """The program, and who runs it."""

    program: str
    version: str
    account: Account | None
    """None: the user who runs disklab, who is not root."""

    def command(self, arguments: list[str]) -> list[str]:
        """Return the command of a member, which gives up root first."""
        command = [self.program, *arguments]
        return command if self.account is None else self.account.command(command)

    def known_settings(self) -> frozenset[str]:
        """Return the flags of this version, without their dashes."""
        return flags_of(_said(self.program, "--help"))


def flags_of(text: str) -> frozenset[str]:
    """Return the flags that `etcd --help` tells of, without their dashes."""
    return frozenset(_FLAG.findall(text))


def version_of(text: str) -> str | None:
    """Return the version that `etcd --version` tells; None: one that disklab cannot ask."""
    found = _VERSION.search(text)
    return None if found is None or (int(found[2]), int(found[3])) < LEAST else found[1]


def find_etcd() -> Installation:
    """Return the etcd of this machine. Raises UserError when there is none that can be used."""
    program = find_program(PROGRAM)
    if program is None:
        way_out = f"install it: {how_to_get(PROGRAM)}"
        raise UserError(
            Problem("database.engine", PROGRAM, "the program is not installed", way_out)
        )
    said = _said(program, "--version")
    version = version_of(said)
    if version is None:
        value = (said.splitlines() or [program])[0]
        raise UserError(Problem("database.engine", value, TOO_OLD, "install a newer one"))
    account = server_account()
    closed = unreachable(account, [Path(program)])
    if account is not None and closed is not None:
        rule = f"etcd runs as the user {account.name}, who may not read it"
        raise UserError(Problem("etcd", str(closed), rule, f"open it (chmod o+rx {closed})"))
    return Installation(program, version, account)


def checks() -> Iterator[Check]:
    """Look for etcd: for `disklab doctor`."""
    try:
        found = find_etcd()
        yield Check("etcd", f"{found.version}, {found.program}", True, False)
    except UserError as error:
        (problem,) = error.problems
        yield Check("etcd", problem.rule, False, False, problem.way_out)


def _said(program: str, option: str) -> str:
    ran = LocalMachine().run(Command([program, option]), SECONDS)
    return (ran.stdout + ran.stderr).decode(errors="replace")
