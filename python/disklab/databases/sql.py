"""SQL statements through one long-lived psql: no driver, and no new process for each question."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO

from disklab.errors import MachineError

# Behind each answer; no row of ours is such a line.
END = "-- disklab: end of answer --"
CONNECT_SECONDS = 5
# A CHECKPOINT writes all buffers at the speed of a slow emulated disk.
ANSWER_SECONDS = 900.0
# An error, its detail, its hint.
MOST_LINES = 5


@dataclass(frozen=True)
class Login:
    """Where a server is, and who comes to it."""

    host: str
    port: int
    user: str
    database: str
    tls: bool
    password: str | None = field(default=None, repr=False)
    options: str = ""
    """Settings of the session, as libpq takes them: `-c name=value`."""

    def variables(self) -> dict[str, str]:
        """Return what libpq reads from the environment."""
        found = {
            # libpq would choose by itself otherwise, and TLS halves the rate.
            "PGSSLMODE": "require" if self.tls else "disable",
            "PGCONNECT_TIMEOUT": str(CONNECT_SECONDS),
        }
        if self.options:
            found["PGOPTIONS"] = self.options
        if self.password is not None:
            found["PGPASSWORD"] = self.password
        return found


class Sql:
    """A connection of one psql to one server. A context manager."""

    def __init__(self, program: str, login: Login) -> None:
        """Start psql (`program`); that the server answers is known with the first answer."""
        self._address = f"{login.host}:{login.port}"
        self._lock = threading.Lock()
        command = [program, "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", login.host, "-p", str(login.port), "-U", login.user]
        # Apart from the answers: what a server says on its own may come between their lines.
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with psql
        self._process = subprocess.Popen(
            # Nobody is there to type a password.
            [*command, "-w", "-d", login.database],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            env={**os.environ, **login.variables(), "LC_ALL": "C.UTF-8"},
        )

    def ask(self, statement: str) -> list[list[str]]:
        """Return the rows of a statement, as texts. Raises MachineError with the server's words."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        rows: list[list[str]] = []
        with self._lock:
            # A server that hangs on its disk answers nothing.
            limit = threading.Timer(ANSWER_SECONDS, self._process.kill)
            limit.start()
            try:
                with suppress(BrokenPipeError):
                    self._process.stdin.write(f"{statement};\n\\echo '{END}'\n")
                    self._process.stdin.flush()
                for line in self._process.stdout:
                    if line.rstrip("\n") == END:
                        return rows
                    rows.append(line.rstrip("\n").split("\t"))
            finally:
                limit.cancel()
        self._errors.seek(0)
        said = "; ".join(self._errors.read().splitlines()[-MOST_LINES:]) or "nothing"
        raise MachineError(f"{self._address}: {statement}: {said}")

    def __enter__(self) -> Sql:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End psql, and the connection with it."""
        self.close()

    def close(self) -> None:
        """End psql."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()
