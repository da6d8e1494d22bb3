"""A client of OpenSearch for the load: bulks of documents, with the host's Python alone."""

from __future__ import annotations

import http.client
import json
from typing import Any

ANSWER_SECONDS = 60.0
INDEX, DOCUMENTS = "b", 50
"""An operation is a bulk of so many documents, each with the whole content."""


class Connection:
    """One connection to one of the nodes; another one after a failure."""

    def __init__(self, addresses: list[str], number: int) -> None:
        self.addresses, self.turn = addresses, number
        self.wire: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self.wire = None

    def ask(self, method: str, path: str, lines: list[Any]) -> Any:
        """Return the JSON answer. Raises OSError: there is none, or no good one."""
        if self.wire is None:
            address = self.addresses[self.turn % len(self.addresses)]
            self.turn += 1
            self.wire = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
        body = "".join(f"{json.dumps(line)}\n" for line in lines)
        kind = {"Content-Type": "application/x-ndjson" if len(lines) > 1 else "application/json"}
        try:
            self.wire.request(method, path, body, kind)
            answer = self.wire.getresponse()
            told = json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise OSError(f"{method} {path}: {error}") from error
        if answer.status >= 300 or told.get("errors"):
            raise OSError(f"{method} {path} answered {answer.status}: {str(told)[:300]}")
        return told

    def write(self, key: str, body: bytes) -> str:
        text, lines = body.decode(), []
        for number in range(DOCUMENTS):
            lines += [{"index": {"_index": INDEX, "_id": f"{key}-{number}"}}, {"content": text}]
        self.ask("POST", "/_bulk", lines)
        return "-"

    def read(self, note: str, key: str) -> bytes | None:
        ids = [f"{key}-{number}" for number in range(DOCUMENTS)]
        found = self.ask("POST", f"/{INDEX}/_mget", [{"ids": ids}])["docs"]
        texts = {each.get("_source", {}).get("content") for each in found}
        text = texts.pop() if len(texts) == 1 else None
        return None if text is None else str(text).encode()
