"""etcd's HTTPS address: its JSON gateway, its health and its metrics.

For what disklab asks now and then; the load goes by gRPC.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from disklab.errors import MachineError

ANSWER_SECONDS = 5.0
# A defragmentation of 8 GB at 60 MB/s takes two minutes to write.
WORK_SECONDS = 600.0
COMPACTED = 11
"""OUT_OF_RANGE: what is compacted already, or not yet written."""


class Gateway:
    """One member, asked with the client's certificate."""

    def __init__(self, address: str, port: int, folder: Path) -> None:
        """Take the folder of `authority.pem`, `client.pem` and `client.key`."""
        self._address = address
        self._port = port
        self._folder = folder
        self._tls: ssl.SSLContext | None = None

    def is_healthy(self) -> bool:
        """Return whether the member answers and its cluster has a leader."""
        try:
            status, text = self._request("GET", "/health", None, ANSWER_SECONDS)
            return status == http.client.OK and json.loads(text).get("health") == "true"
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def metrics(self) -> str:
        """Return the member's metrics in Prometheus's text form. Raises MachineError."""
        status, text = self._told("GET", "/metrics", None, ANSWER_SECONDS)
        if status != http.client.OK:
            raise MachineError(f"{self._address}: /metrics answered {status}")
        return text

    def delete(self, prefix: str) -> None:
        """Delete every key that begins so."""
        first = prefix.encode()
        # The end of a range of one prefix: its last byte, one up.
        last = first[:-1] + bytes([first[-1] + 1])
        self._post("/v3/kv/deleterange", {"key": _base64(first), "range_end": _base64(last)})

    def compact(self) -> None:
        """Drop every revision but the last of each key; returns when they are gone."""
        found = self._post("/v3/kv/range", {"key": _base64(b"\0"), "count_only": True})
        revision = found["header"]["revision"]
        self._post("/v3/kv/compaction", {"revision": revision, "physical": True}, COMPACTED)

    def defragment(self) -> None:
        """Write the database anew, without the room of what was dropped."""
        self._post("/v3/maintenance/defragment", {})

    def _post(self, path: str, asked: dict[str, Any], harmless: int = 0) -> dict[str, Any]:
        status, text = self._told("POST", path, json.dumps(asked), WORK_SECONDS)
        found: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
        if status == http.client.OK or (harmless and found.get("code") == harmless):
            return found
        raise MachineError(f"{self._address}: {path} answered {status}: {text.strip()}")

    def _told(self, method: str, path: str, body: str | None, seconds: float) -> tuple[int, str]:
        try:
            return self._request(method, path, body, seconds)
        except (OSError, http.client.HTTPException) as error:
            raise MachineError(f"{self._address}: {path} was not answered: {error}") from error

    def _request(self, method: str, path: str, body: str | None, seconds: float) -> tuple[int, str]:
        if self._tls is None:
            tls = ssl.create_default_context(cafile=str(self._folder / "authority.pem"))
            tls.load_cert_chain(self._folder / "client.pem", self._folder / "client.key")
            self._tls = tls
        connection = http.client.HTTPSConnection(
            self._address, self._port, timeout=seconds, context=self._tls
        )
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode("ascii")
