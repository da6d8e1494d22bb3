"""etcd's HTTPS address: its JSON gateway, its health and its metrics.

For what disklab asks now and then; the load goes by gRPC.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from disklab.databases.asking import Question, Tls
from disklab.databases.place import ServerHost
from disklab.errors import MachineError
from disklab.waiting import Wait

ANSWER_SECONDS = 5.0
# A defragmentation of 8 GB at 60 MB/s takes two minutes to write.
WORK_SECONDS = 600.0
# A few times the 5 s that members must have been connected, as a busy machine may part them again.
CHANGE_SECONDS = 60.0
ASK_AGAIN_SECONDS = 0.5
COMPACTED = 11
"""OUT_OF_RANGE: what is compacted already, or not yet written."""


@dataclass(frozen=True)
class Listed:
    """A member as the cluster lists it."""

    number: str
    """Its ID, decimal: it takes 64 bits, more than a number of JSON has."""
    peer_urls: tuple[str, ...]


class Gateway:
    """One member, asked with the client's certificate."""

    def __init__(self, host: ServerHost, address: str, port: int, folder: Path) -> None:
        """Take its host, and there the folder of `authority.pem`, `client.pem` and `client.key`."""
        self._host = host
        self._address = address
        self._port = port
        self._tls = Tls(*(folder / name for name in ("authority.pem", "client.pem", "client.key")))

    def is_healthy(self) -> bool:
        """Return whether the member answers and its cluster has a leader."""
        try:
            status, text = self._request("GET", "/health", None, ANSWER_SECONDS)
            return status == HTTPStatus.OK and json.loads(text).get("health") == "true"
        except (OSError, ValueError):
            return False

    def metrics(self) -> str:
        """Return the member's metrics in Prometheus's text form. Raises MachineError."""
        status, text = self._told("GET", "/metrics", None, ANSWER_SECONDS)
        if status != HTTPStatus.OK:
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

    def members(self) -> list[Listed]:
        """Return the members of the cluster."""
        found = self._post("/v3/cluster/member/list", {}, seconds=ANSWER_SECONDS)
        return [Listed(one["ID"], tuple(one["peerURLs"])) for one in found["members"]]

    def replace_member(self, peer_url: str) -> None:
        """Have the cluster forget the member there, and expect another one, which is to start.

        Asked again while the cluster has no leader, which drops such a change without an answer,
        and while its members have not been connected for the 5 s that it wants (`HealthInterval`
        of etcdserver/server.go). Raises MachineError.
        """
        old = self._numbers_at(peer_url)
        with Wait("the cluster takes another member", CHANGE_SECONDS) as wait:
            while (refusal := self._refusal_to_replace(old, peer_url)) is not None:
                if wait.is_over:
                    raise refusal
                wait.pause(ASK_AGAIN_SECONDS)

    def _refusal_to_replace(self, old: set[str], peer_url: str) -> MachineError | None:
        """Do what is still to be done for another member at the address; None: nothing is."""
        try:
            for number in self._numbers_at(peer_url) & old:
                self._change("remove", {"ID": number})
            if not self._numbers_at(peer_url):
                self._change("add", {"peerURLs": [peer_url]})
        except MachineError as error:
            return error
        return None

    def _numbers_at(self, peer_url: str) -> set[str]:
        return {one.number for one in self.members() if peer_url in one.peer_urls}

    def _change(self, what: str, asked: dict[str, Any]) -> None:
        self._post(f"/v3/cluster/member/{what}", asked, seconds=ANSWER_SECONDS)

    def _post(
        self, path: str, asked: dict[str, Any], harmless: int = 0, seconds: float = WORK_SECONDS
    ) -> dict[str, Any]:
        status, text = self._told("POST", path, json.dumps(asked), seconds)
        found: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
        if status == HTTPStatus.OK or (harmless and found.get("code") == harmless):
            return found
        raise MachineError(f"{self._address}: {path} answered {status}: {text.strip()}")

    def _told(self, method: str, path: str, body: str | None, seconds: float) -> tuple[int, str]:
        try:
            return self._request(method, path, body, seconds)
        except OSError as error:
            raise MachineError(f"{self._address}: {path} was not answered: {error}") from error

    def _request(self, method: str, path: str, body: str | None, seconds: float) -> tuple[int, str]:
        asked = (method, path, {"Content-Type": "application/json"}, body)
        question = Question(self._address, self._port, *asked, seconds, self._tls)
        status, text = self._host.ask(question)
        return status, text.decode("utf-8", "replace")


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode("ascii")
