"""JMX over HTTP: what Jolokia, an agent inside the node's own process, answers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disklab.databases.cassandra.configuration import JOLOKIA_PORT
from disklab.errors import MachineError

# A read of a handful of attributes takes milliseconds; a JVM in a long collection some seconds.
READ_SECONDS = 20.0
# A flush or drain writes every memtable at the speed of a slow emulated disk.
CALL_SECONDS = 900.0

STORAGE = "org.apache.cassandra.db:type=StorageService"
PENDING = "org.apache.cassandra.metrics:type=Compaction,name=PendingTasks"
# One map of all kinds. The metrics of type DroppedMessage say the same, but asking for all of them
# searches thousands of names (measured: 4.5 % of a core at once a second).
MESSAGING = "org.apache.cassandra.net:type=MessagingService"


@dataclass(frozen=True)
class Jolokia:
    """The agent of one node."""

    address: str
    port: int = JOLOKIA_PORT

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
        connection = http.client.HTTPConnection(self.address, self.port, timeout=seconds)
        try:
            connection.request("POST", "/jolokia/", json.dumps(requests))
            answers = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MachineError(
                f"{self.address}:{self.port}: JMX does not answer: {error}"
            ) from error
        finally:
            connection.close()
        for request, answer in zip(requests, answers, strict=True):
            if answer.get("status") != 200:
                what = request.get("operation") or request.get("attribute")
                raise MachineError(
                    f"{self.address}: {request['mbean']} {what}: {answer.get('error')}"
                )
        return [answer["value"] for answer in answers]
