"""SQL statements through one long-lived client program: no driver, no new process each time.

The usual one is psql; a database with another has a `Login` of its own.
"""

from __future__ import annotations

import re
import resource
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from disklab.engine import Account
from disklab.errors import MachineError
from disklab.hosts.addresses import is_ours
from disklab.machines import programs
from disklab.machines.child import LocalChild
from disklab.waiting import Wait

# Behind each answer; no row of ours is such a line.
END = "-- disklab: end of answer --"
CONNECT_SECONDS = 5
# A CHECKPOINT writes all buffers at the speed of a slow emulated disk.
ANSWER_SECONDS = 900.0
# A server that is only looked at ends our statements after 10 s by itself.
LOOK_SECONDS = 12.0
# Some ten thousand tables with all that is asked of them; other answers have a few rows.
MOST_ROWS = 200_000
MOST_ANSWER_BYTES = 64 << 20
# Of a client's memory: psql keeps an answer until it is whole.
MOST_CLIENT_BYTES = 1 << 30
# PostgreSQL's client of this version and newer can refuse to send a password as it is.
REQUIRES_AUTH = 16
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
    is_guarded: bool = False
    """Whether the server is somebody else's, who gets no password in clear without TLS."""

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
        if self.is_guarded and not self.tls:
            found["PGREQUIREAUTH"] = "scram-sha-256,md5,none"
        return found

    def refusal(self, program: str) -> str | None:
        """Return why the server is not asked: a client before 16 sends what it is asked for."""
        if not self.is_guarded or self.tls or self.password is None or is_ours(self.host):
            return None
        told = programs.run([program, "--version"], seconds=END_SECONDS).stdout.decode(
            errors="replace"
        )
        version = re.search(r"(\d{1,3})\.", told)
        if version is not None and int(version[1]) >= REQUIRES_AUTH:
            return None
        return (
            f"{told.strip() or program} would send the password unencrypted to a server that "
            f"asks for it that "
            f"way, and nothing encrypts the connection to {self.host}; encrypt it, or use psql "
            f"{REQUIRES_AUTH} or newer"
        )

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

    def __init__(
        self,
        program: str,
        login: Login,
        account: Account | None = None,
        answer_s: float = ANSWER_SECONDS,
    ) -> None:
        """Start psql (`program`); that the server answers is known with the first answer.

        `account`: who it runs as; None: the user of this process. `answer_s`: what an answer takes
        at most. Raises MachineError when the server would get a password in clear.
        """
        if refusal := login.refusal(program):
            raise MachineError(f"{login.host}:{login.port}: {refusal}")
        self._answer_s = answer_s
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
        if sys.platform == "linux":
            ends = (MOST_CLIENT_BYTES, MOST_CLIENT_BYTES)
            with suppress(OSError):
                resource.prlimit(self._child.pid, resource.RLIMIT_AS, ends)
        self._connected = False

    def ask(self, statement: str) -> list[list[str]]:
        """Return the rows of a statement, as texts. Raises MachineError with the server's words."""
        rows: list[list[str]] = []
        with self._lock:
            # libpq before 17 measures its own limit by the clock of day, which may jump.
            nothing = f"no connection within {CONNECT_SECONDS} s"
            if self._connected or self._until_end("", CONNECT_SECONDS, []):
                self._connected = True
                # A server that hangs on its disk answers nothing.
                nothing = f"no whole answer within {self._answer_s:g} s"
                if self._until_end(f"{statement};\n", self._answer_s, rows):
                    return rows
        ended = self._child.wait(END_SECONDS)
        words = b"" if ended is None else ended.stderr
        said = "; ".join(words.decode(errors="replace").splitlines()[-MOST_LINES:]) or nothing
        # The first line is what results show: the server's words, and not ours.
        raise MachineError(f"{self._address}: {said}\nasked: {statement}")

    def _until_end(self, words: str, seconds: float, rows: list[list[str]]) -> bool:
        """Say something and take what comes until it has been answered; False: psql has ended."""
        # One that has ended says why on standard error.
        with suppress(MachineError):
            self._child.say(f"{words}{self._echo}".encode())
        size = 0
        with Wait(f"{self._address} answers", seconds) as wait:
            while True:
                try:
                    line = self._child.line(wait.left_s, MOST_ANSWER_BYTES)
                except MachineError:
                    self._child.signal(signal.SIGKILL)
                    return False
                text = None if line is None else line.decode(errors="replace")
                if text is None or text == END:
                    return text is not None
                size += len(text)
                if len(rows) >= MOST_ROWS or size > MOST_ANSWER_BYTES:
                    self._child.end()
                    raise MachineError(
                        f"{self._address}: its answer has more than {MOST_ROWS:,} rows, or "
                        f"{MOST_ANSWER_BYTES >> 20} MiB, which none of our questions has"
                    )
                rows.append(text.split("\t"))

    def __enter__(self) -> Sql:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End psql, and the connection with it."""
        self.close()

    def close(self) -> None:
        """End psql."""
        self._child.end()
