"""Asking a database on a host: CQL and JMX by programs of that host, through its agent.

So it needs no port that is open to this machine, and a link that is lost for a while only makes an
answer later.
"""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

from disklab.databases.cassandra.jolokia import PATH, Jolokia
from disklab.databases.cql import READY_MS, Cql
from disklab.databases.remote_host import BASH
from disklab.engine import Account, CqlLogin, CqlQuery
from disklab.engine.binary import SENT_ENGINE, find_engine
from disklab.errors import EngineError, MachineError
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command, Machine

# What the engine needs beside its time-out: to connect, and a busy host.
BESIDE_SECONDS = 30.0
# $1, $2: address and port. What comes on standard input is said there, and what is answered told.
_EXCHANGE = 'exec 3<>"/dev/tcp/$1/$2" && cat >&3 && cat <&3'


def engine_of(machine: Machine) -> Sequence[str]:
    """Return the words that start our engine on a machine: the one that was sent as its agent."""
    return (str(find_engine()),) if isinstance(machine, LocalMachine) else SENT_ENGINE


class FarQuery(CqlQuery):
    """Statements to one node, each by a run of the engine on its host."""

    def __init__(
        self,
        machine: Machine,
        account: Account | None,
        point: str,
        timeout_ms: int,
        login: CqlLogin | None,
    ) -> None:
        """Take the host, who the engine runs as there, the node, and who asks."""
        self._machine = machine
        self._seconds = timeout_ms / 1000 + BESIDE_SECONDS
        rights = [] if account is None else account.arguments()
        asked = ["query", "--timeout-ms", str(timeout_ms), "--consistency", "LOCAL_ONE"]
        self._words = [*engine_of(machine), *asked, "--contact-point", point, *rights]
        self._login: dict[str, str] | None = None
        if login is not None:
            self.log_in(login)

    def _say(self, line: str | dict[str, str]) -> dict[str, Any]:
        if isinstance(line, dict) and "user" in line:
            self._login = line
            return {}
        lines = [*([] if self._login is None else [self._login]), line]
        said = "".join(f"{json.dumps(one)}\n" for one in lines).encode()
        ended = self._machine.run(Command(self._words, stdin=said), self._seconds)
        try:
            answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        except (ValueError, IndexError) as error:
            told = ended.stderr.decode(errors="replace").strip()
            raise EngineError(
                f"{self._machine.name}: disklab-engine query ended with {ended.code}: {told}"
            ) from error
        return answer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing: no process stands behind it."""


@dataclass(frozen=True)
class FarCql(Cql):
    """The CQL port of a node on a host."""

    machine: Machine | None = None
    account: Account | None = None

    def connection(self, timeout_ms: int = READY_MS) -> CqlQuery:
        """Return what asks from the node's own host."""
        assert self.machine is not None, "a node on a host has a machine"
        point = f"{self.host}:{self.port}"
        return FarQuery(self.machine, self.account, point, timeout_ms, self.login)


@dataclass(frozen=True)
class FarJolokia(Jolokia):
    """The agent of a node on a host."""

    machine: Machine | None = None

    def _exchange(self, body: bytes, seconds: float) -> bytes:
        assert self.machine is not None, "a node on a host has a machine"
        told = {"Host": f"{self.address}:{self.port}", "Content-Length": str(len(body))}
        headers = "".join(f"{key}: {text}\r\n" for key, text in {**told, **self._headers()}.items())
        request = f"POST {PATH} HTTP/1.0\r\n{headers}\r\n".encode() + body
        words = [*BASH, _EXCHANGE, "disklab", self.address, str(self.port)]
        ended = self.machine.run(Command(words, stdin=request), seconds + BESIDE_SECONDS)
        if ended.code != 0:
            said = ended.stderr.decode(errors="replace").strip()
            raise MachineError(f"{self.machine.name}: JMX does not answer: {said}")
        response = http.client.HTTPResponse(cast("Any", _Said(ended.stdout)))
        response.begin()
        return response.read()


class _Said:
    """An answer that is there as a whole, where `HTTPResponse` wants a socket."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, mode: str) -> io.BytesIO:
        """Return it as a file."""
        assert mode == "rb"
        return io.BytesIO(self._content)
