"""The system user that databases and load clients run as when disklab was started by root.

A user of our own: what is rehearsed can neither reach root nor another server's files, and a
password of ours opens nothing but a rehearsal.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disklab.errors import MachineError, Problem, UserError
from disklab.machines import programs
from disklab.waiting import Wait

NAME = "disklab"
SHELL = "/usr/sbin/nologin"
# Where nobody logs in. Source: useradd(8); Debian's and Fedora's system users have one of these.
NO_SHELLS = (SHELL, "/sbin/nologin", "/bin/false", "/usr/bin/false")
MAKE = ("useradd", "--system", "--user-group", "--no-create-home", "--shell", SHELL, NAME)
# Numbers from here on are people's. Source: login.defs(5), UID_MIN of Debian, Ubuntu and Fedora.
FIRST_PERSON = 1000
# Another disklab may be making the user; useradd holds its lock for tenths of a second.
MAKE_SECONDS = 10.0
POLL_SECONDS = 0.1
SYSTEM_PATHS = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Account:
    """A user without privileges."""

    name: str
    uid: int
    gid: int

    def command(self, command: list[str]) -> list[str]:
        """Return the command that gives up root for good before it becomes `command`."""
        return ["setpriv", *self.rights(), "--", "env", "HOME=/nonexistent", *command]

    def rights(self) -> list[str]:
        """Return the options by which setpriv gives up root for good."""
        user = (f"--reuid={self.uid}", f"--regid={self.gid}")
        return [*user, "--clear-groups", "--no-new-privs"]

    def arguments(self) -> list[str]:
        """Return the options by which the engine becomes this user."""
        return ["--run-as", f"{self.uid}:{self.gid}"]


def server_account() -> Account | None:
    """Return who runs servers and their clients; None: the user himself, who is not root.

    Makes the user the first time. Raises UserError when it cannot be made, or when the one of this
    name is no system user: then it may be somebody's own.
    """
    if os.geteuid() != 0:
        return None
    found = _found()
    if found is None:
        _make()
        found = _found()
    if found is None:
        rule = f"servers run as the user {NAME}, and there is none"
        raise UserError(Problem("this machine", f"no user {NAME}", rule, _way_out()))
    if 0 in (found.pw_uid, found.pw_gid) or found.pw_uid >= FIRST_PERSON:
        rule = f"servers run as a system user of this name, with a number from 1 to {FIRST_PERSON}"
    elif found.pw_shell not in NO_SHELLS:
        rule = f"servers run as a system user of this name, who cannot log in ({found.pw_shell})"
    else:
        return Account(found.pw_name, found.pw_uid, found.pw_gid)
    way_out = f"rename that user, then: {' '.join(MAKE)}"
    raise UserError(Problem("this machine", f"user {NAME}, uid {found.pw_uid}", rule, way_out))


def client_arguments() -> list[str]:
    """Return the options with which the engine, as a database's client, gives up root."""
    account = server_account()
    return [] if account is None else account.arguments()


def unreachable(account: Account | None, paths: Iterable[Path]) -> Path | None:
    """Return the first file or folder, of these and those above them, that is closed to the user.

    Of what is not there yet, the folders that are. None: all are open, or servers run as the user
    who asks.
    """
    if account is None:
        return None
    words = [str(path) for one in paths for path in (*reversed(one.parents), one) if path.exists()]
    opens = 'if [ -d "$i" ]; then test -x "$i"; else test -r "$i"; fi'
    script = f'for i; do {opens} || {{ printf %s "$i"; exit; }}; done'
    ran = programs.run(account.command(["/bin/sh", "-c", script, "disklab", *words]), folder="/")
    if ran.code != 0:
        raise MachineError(f"nobody can look as the user {account.name}: {ran.said}")
    return Path(os.fsdecode(ran.stdout)) if ran.stdout else None


def _found() -> pwd.struct_passwd | None:
    with suppress(KeyError):
        return pwd.getpwnam(NAME)
    return None


def _make() -> None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), SYSTEM_PATHS])
    program = shutil.which(MAKE[0], path=path)
    if program is None:
        return
    with Wait(f"there is a user {NAME}", MAKE_SECONDS) as wait:
        while True:
            ran = programs.run([program, *MAKE[1:]])
            if ran.code == 0 or _found() is not None:
                return
            said = ran.said
            if wait.is_over:
                rule = f"servers run as a user of their own, who could not be made: {said}"
                raise UserError(Problem("this machine", f"no user {NAME}", rule, _way_out()))
            wait.pause(POLL_SECONDS, said)


def _way_out() -> str:
    return f"make it by hand: {' '.join(MAKE)}"
