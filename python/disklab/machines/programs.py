"""Programs of this machine beside `Machine`: those that outlive disklab, and what the system has.

A server that has a record by which it is found again, mkfs, the user's kubectl: nothing binds these
to the life of this process, as `LocalChild` is bound. Environment and signals are set here alone.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE, STDOUT
from typing import IO

from disklab.machines.child import Started, minimal, piped, unignored
from disklab.machines.protocol import Finished

__all__ = ["DEVNULL", "PIPE", "STDOUT", "Process", "children_cpu_ns", "piped", "run", "start"]


class Process(Started):
    """A program that was started here and leads a session of its own; who started it ends it."""

    def ended(self, seconds: float) -> int | None:
        """Wait for its end; return its exit code, or None: it still runs after so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(seconds)
        return None

    def outputs(self, seconds: float) -> tuple[bytes, bytes] | None:
        """Return all that it wrote, once it has ended; None: it still runs. Ask again then."""
        with suppress(subprocess.TimeoutExpired):
            return self.communicate(timeout=seconds)
        return None


def children_cpu_ns() -> int:
    """Return the processor time in ns of all programs that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


def start(  # noqa: PLR0913 - each is a part of how a program starts
    words: Sequence[str],
    *,
    stdin: int = DEVNULL,
    stdout: int | IO[bytes] = DEVNULL,
    stderr: int | IO[bytes] = DEVNULL,
    handles: Sequence[int] = (),
    variables: Mapping[str, str] | None = None,
    folder: str | None = "/",
    inherits: bool = False,
) -> Process:
    """Start a program with these open files; Ctrl-C in a terminal is not for it. Raises OSError.

    `variables`: beside the few that every program has. `inherits`: it has all of this process's,
    as the user's own programs need them. `folder` None: where this process is.
    """
    return Process(
        words,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=handles,
        start_new_session=True,
        preexec_fn=unignored(),
        cwd=folder,
        env=_environment(variables, inherits=inherits),
    )


def run(  # noqa: PLR0913 - each is a part of how a program runs
    words: Sequence[str],
    seconds: float | None = None,
    *,
    stdin: bytes = b"",
    handles: Sequence[int] = (),
    variables: Mapping[str, str] | None = None,
    folder: str | None = None,
    inherits: bool = False,
    shown: bool = False,
) -> Finished:
    """Run a program to its end, as `start` starts it; Ctrl-C ends it too.

    `shown`: it has this process's input and output, and nothing is returned of it. Raises OSError
    when it cannot be started, and TimeoutError when it was killed after so many seconds.
    """
    files = {} if shown else {"input": stdin, "stdout": PIPE, "stderr": PIPE}
    try:
        ended = subprocess.run(
            words,
            check=False,
            timeout=seconds,
            pass_fds=handles,
            preexec_fn=unignored(),
            cwd=folder,
            env=_environment(variables, inherits=inherits),
            **files,  # type: ignore[call-overload]
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{words[0]} still ran after {seconds:g} s") from None
    return Finished(ended.returncode, ended.stdout or b"", ended.stderr or b"")


def _environment(variables: Mapping[str, str] | None, *, inherits: bool) -> dict[str, str]:
    return {**os.environ, **(variables or {})} if inherits else minimal(variables)
