"""SQL statements through one long-lived client program: no driver, no new process each time.

The usual one is psql; a database with another has a `Login` of its own.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from disklab.engine import Account
from disklab.errors import MachineError
from disklab.machines.child import LocalChild

# Behind each answer; no row of ours is such a line.
END = "-- disklab: end of answer --"
CONNECT_SECONDS = 5
# A CHECKPOINT writes all buffers at the speed of a slow emulated disk.
ANSWER_SECONDS = 900.0
# What psql takes to go after its last words.
END_SECONDS = 5.0
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
    ca_file: str | None = None
    """Certificates that the server's must come from, for its name; None: whoever answers is
    believed."""

    def variables(self) -> dict[str, str]:
        """Return what libpq reads from the environment."""
        found = {
            # libpq would choose by itself otherwise, and TLS halves the rate.
            "PGSSLMODE": "require" if self.tls else "disable",
        }
        if self.tls and self.ca_file is not None:
            found |= {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": self.ca_file}
        if self.options:
            found["PGOPTIONS"] = self.options
        if self.password is not None:
            found["PGPASSWORD"] = self.password
        return found

    def words(self, program: str) -> list[str]:
        """Return the command of a psql that answers statements with plain rows."""
        command = [program, "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", self.host, "-p", str(self.port), "-U", self.user]
        # Nobody is there to type a password.
        return [*command, "-w", "-d", self.database]

    def echo(self, text: str) -> str:
        """Return what has it say something."""
        return f"\\echo '{text}'\n"


class Sql:
    """A connection of one psql to one server. A context manager."""

    def __init__(self, program: str, login: Login, account: Account | None = None) -> None:
        """Start psql (`program`); that the server answers is known with the first answer.

        `account`: who it runs as; None: the user of this process.
        """
        self._address = f"{login.host}:{login.port}"
        self._echo = login.echo(END)
        self._lock = threading.Lock()
        self._child = LocalChild.start(
            login.words(program),
            stdin=None,
            variables={**login.variables(), "LC_ALL": "C.UTF-8"}
            | ({} if account is None else {"HOME": "/nonexistent"}),
            rights=() if account is None else account.rights(),
        )
        self._lines = self._child.lines()
        self._connected = False

    def ask(self, statement: str) -> list[list[str]]:
        """Return the rows of a statement, as texts. Raises MachineError with the server's words."""
        rows: list[list[str]] = []
        with self._lock:
            # libpq before 17 measures its own limit by the clock of day, which may jump.
            nothing = f"no connection within {CONNECT_SECONDS} s"
            if self._connected or self._until_end("", CONNECT_SECONDS, []):
                self._connected, nothing = True, "nothing"
                # A server that hangs on its disk answers nothing.
                if self._until_end(f"{statement};\n", ANSWER_SECONDS, rows):
                    return rows
        ended = self._child.wait(END_SECONDS)
        words = b"" if ended is None else ended.stderr
        said = "; ".join(words.decode(errors="replace").splitlines()[-MOST_LINES:]) or nothing
        # The first line is what results show: the server's words, and not ours.
        raise MachineError(f"{self._address}: {said}\nasked: {statement}")

    def _until_end(self, words: str, seconds: float, rows: list[list[str]]) -> bool:
        """Say something and take what comes until it has been answered; False: psql has ended."""
        limit = threading.Timer(seconds, self._child.signal, [signal.SIGKILL])
        limit.start()
        try:
            # One that has ended says why on standard error.
            with suppress(MachineError):
                self._child.say(f"{words}{self._echo}".encode())
            for line in self._lines:
                text = line.decode(errors="replace")
                if text == END:
                    return True
                rows.append(text.split("\t"))
        finally:
            limit.cancel()
        return False

    def __enter__(self) -> Sql:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End psql, and the connection with it."""
        self.close()

    def close(self) -> None:
        """End psql."""
        self._child.end()
