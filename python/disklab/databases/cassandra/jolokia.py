"""JMX over HTTP: what Jolokia, an agent inside the node's own process, answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from disklab.databases.asking import Question
from disklab.databases.place import ServerHost
from disklab.databases.this_machine import ThisMachine
from disklab.errors import MachineError

# A read of a handful of attributes takes milliseconds; a JVM in a long collection some seconds.
READ_SECONDS = 20.0
# A flush or drain writes every memtable at the speed of a slow emulated disk.
CALL_SECONDS = 900.0

# Who says to come from here is no web page: there is no such site (RFC 2606). Strict checking wants
# an origin of everybody.
ORIGIN = "http://disklab.invalid"

PATH = "/jolokia/"
STORAGE = "org.apache.cassandra.db:type=StorageService"
# Operations of it. Their signatures belong to their names, also in the policy.
DRAIN = "drain()"
FLUSH = "forceKeyspaceFlush(java.lang.String,[Ljava.lang.String;)"
DECOMMISSION = "decommission(boolean)"
REPAIR = "repairAsync(java.lang.String,java.util.Map)"
REPAIR_STATUS = "getParentRepairStatus(int)"
OPEN_CQL = "startNativeTransport()"
CLOSE_CQL = "stopNativeTransport()"
PENDING = "org.apache.cassandra.metrics:type=Compaction,name=PendingTasks"
COMPLETED = "org.apache.cassandra.metrics:type=Compaction,name=CompletedTasks"
COMPACTED = "org.apache.cassandra.metrics:type=Compaction,name=BytesCompacted"
COMPACTION_MANAGER = "org.apache.cassandra.db:type=CompactionManager"
STREAMED = "org.apache.cassandra.metrics:type=Streaming,name=TotalIncomingBytes"
# One map of all kinds. The metrics of type DroppedMessage say the same, but asking for all of them
# searches thousands of names (measured: 4.5 % of a core at once a second).
MESSAGING = "org.apache.cassandra.net:type=MessagingService"


@dataclass(frozen=True)
class Jolokia:
    """The agent of one node."""

    address: str
    port: int
    user: str
    password: str = field(repr=False)
    host: ServerHost = field(default_factory=ThisMachine)
    """The machine that the node is on, which asks it."""

    def read(self, *wanted: tuple[str, str]) -> list[Any]:
        """Return the values of (object name, attribute), in order. MachineError when one fails."""
        requests = [{"type": "read", "mbean": bean, "attribute": name} for bean, name in wanted]
        return self._ask(requests, READ_SECONDS)

    def write(self, bean: str, attribute: str, value: object) -> None:
        """Set an attribute."""
        request = {"type": "write", "mbean": bean, "attribute": attribute, "value": value}
        self._ask([request], READ_SECONDS)

    def call(self, bean: str, operation: str, *arguments: object) -> Any:
        """Call an operation and return what it returns."""
        request = {"type": "exec", "mbean": bean, "operation": operation}
        return self._ask([{**request, "arguments": list(arguments)}], CALL_SECONDS)[0]

    def _ask(self, requests: Sequence[Mapping[str, object]], seconds: float) -> list[Any]:
        try:
            answers = json.loads(self._exchange(json.dumps(requests).encode(), seconds))
        except (OSError, ValueError, RecursionError) as error:
            raise MachineError(
                f"{self.address}:{self.port}: JMX does not answer: {error}"
            ) from error
        if isinstance(answers, dict):
            # Refused as a whole, such as for a wrong password.
            raise MachineError(f"{self.address}:{self.port}: JMX: {answers.get('error')}")
        return self._values(requests, answers)

    def _exchange(self, body: bytes, seconds: float) -> bytes:
        """Return what the agent answers to a body. Raises OSError."""
        where, text = (self.address, self.port), body.decode()
        return self.host.ask(Question(*where, "POST", PATH, self._headers(), text, seconds))[1]

    def _headers(self) -> dict[str, str]:
        word = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {
            "Authorization": f"Basic {word}",
            "Content-Type": "application/json",
            "Origin": ORIGIN,
        }

    def _values(
        self, requests: Sequence[Mapping[str, object]], answers: list[dict[str, Any]]
    ) -> list[Any]:
        for request, answer in zip(requests, answers, strict=True):
            if answer.get("status") != 200:
                what = request.get("operation") or request.get("attribute")
                raise MachineError(
                    f"{self.address}: {request['mbean']} {what}: {answer.get('error')}"
                )
        return [answer["value"] for answer in answers]
