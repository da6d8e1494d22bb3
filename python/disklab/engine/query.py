"""Asks a database statement by statement, through `disklab-engine query`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from disklab.engine.account import client_arguments
from disklab.errors import DisklabError, EngineError, MachineError
from disklab.machines.binary import find_engine
from disklab.machines.child import LocalChild

END_SECONDS = 5.0
POLL_SECONDS = 0.2


class QueryError(DisklabError):
    """The database refused a statement, or could not be reached."""


@dataclass(frozen=True)
class CqlLogin:
    """Who asks."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class CqlTls:
    """What encrypts every connection of CQL."""

    ca_file: str | None = None
    """Certificates (PEM) that a node's must come from, for its address; none: any is believed."""


class CqlQuery:
    """Statements to one cluster. It connects at the first one, again whenever that failed.

    Use it as a context manager: a process stands behind it.
    """

    def __init__(  # noqa: PLR0913 - whom to ask, and how
        self,
        contact_points: Sequence[str],
        *,
        timeout_ms: int = 12_000,
        consistency: str = "LOCAL_ONE",
        login: CqlLogin | None = None,
        tls: CqlTls | None = None,
        only: bool = False,
    ) -> None:
        """Start asking; `only`: these nodes alone, and none of those that they know."""
        command = [str(find_engine()), "query", "--timeout-ms", str(timeout_ms)]
        command += ["--consistency", consistency]
        for point in contact_points:
            command += ["--contact-point", point]
        command += ["--only"] * only
        if tls is not None:
            command += ["--tls", *([] if tls.ca_file is None else ["--ca-file", tls.ca_file])]
        command += client_arguments()
        self._child = LocalChild.start(command, stdin=None)
        self._answers = self._child.lines()
        if login is not None:
            self.log_in(login)

    def log_in(self, login: CqlLogin) -> None:
        """Ask as this user from now on, on a new connection."""
        # Not on the command line, which everybody may read.
        self._say({"user": login.user, "password": login.password})

    def ask(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement, one dictionary each; raises QueryError."""
        answer = self._say(statement)
        if "error" in answer:
            raise QueryError(f"{statement}: {answer['error']}")
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def measure(self, statement: str) -> list[dict[str, Any]]:
        """Return of each row the first column's value, and how many bytes each other one has.

        None: it has no value. The values themselves stay in the engine. Raises QueryError.
        """
        answer = self._say({"measure": statement})
        if "error" in answer:
            raise QueryError(f"{statement}: {answer['error']}")
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def _say(self, line: str | dict[str, str]) -> dict[str, Any]:
        try:
            self._child.say(json.dumps(line).encode() + b"\n")
            answer: dict[str, Any] = json.loads(next(self._answers))
        except (MachineError, StopIteration, ValueError) as error:
            ended = self._child.wait(END_SECONDS)
            said = "it still runs" if ended is None else f"exit code {ended.code}"
            if ended is not None and ended.stderr:
                said += f"; {ended.stderr.decode(errors='replace').strip()}"
            raise EngineError(f"disklab-engine query died ({said})") from error
        return answer

    def __enter__(self) -> CqlQuery:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        self._child.end()
