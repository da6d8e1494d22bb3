"""etcd's HTTPS address: its JSON gateway, its health and its metrics.

For what disklab asks now and then; the load goes by gRPC.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from disklab.databases.asking import Question, Tls
from disklab.databases.place import ServerHost
from disklab.databases.record import Growth
from disklab.errors import MachineError
from disklab.results import RuleFinding
from disklab.waiting import Wait

# What a member says of itself: Prometheus's text, as far as disklab uses it.
#
# **Source:** etcd's documentation, "Metrics" (3.4).

BUCKETS = {
    "etcd_disk_wal_fsync_duration_seconds": "wal_fsync",
    "etcd_disk_backend_commit_duration_seconds": "backend_commit",
}
"""Histograms, and what their counters are called: `wal_fsyncs_within_8_ms`, `wal_fsyncs`,
`wal_fsync_s`."""
COUNTERS = {
    "etcd_server_leader_changes_seen_total": "leader_changes",
    "etcd_server_proposals_failed_total": "failed_proposals",
    "etcd_server_heartbeat_send_failures_total": "late_heartbeats",
}
GAUGES = {
    "etcd_server_proposals_pending": "pending_proposals",
    "etcd_mvcc_db_total_size_in_bytes": "database_bytes",
}
EDGES_MS = tuple(1 << power for power in range(14))
"""Upper edges of both histograms. **Source:** wal/metrics.go and mvcc/backend/metrics.go:
exponential buckets from 1 ms, each twice the one before."""


def within(histogram: str, edge_ms: int) -> str:
    """Return the counter of what took at most so long, in the machine's own time."""
    return f"{histogram}s_within_{edge_ms}_ms"


def read(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return gauges and counters of a member."""
    gauges: dict[str, float] = {}
    counters: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("etcd_"):
            continue
        told, _, number = line.rpartition(" ")
        name, _, label = told.partition("{")
        if name in GAUGES:
            gauges[GAUGES[name]] = float(number)
        elif name in COUNTERS:
            counters[COUNTERS[name]] = float(number)
        else:
            _histogram(name, label, float(number), counters)
    return gauges, counters


def _histogram(name: str, label: str, value: float, counters: dict[str, float]) -> None:
    base, _, part = name.rpartition("_")
    called = BUCKETS.get(base)
    if called is None:
        return
    if part == "count":
        counters[f"{called}s"] = value
    elif part == "sum":
        counters[f"{called}_s"] = value
    elif part == "bucket" and "+Inf" not in label:
        edge_s = float(label.removeprefix('le="').removesuffix('"}'))
        counters[within(called, round(edge_s * 1000))] = value


def added(members: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the sums over all members."""
    found: dict[str, float] = {}
    for counters in members.values():
        for name, value in counters.items():
            found[name] = found.get(name, 0.0) + value
    return found


# Is this disk good enough for etcd? What its documentation asks of one.

FAQ = "etcd's documentation, FAQ, https://etcd.io/docs/v3.4/faq/"
"""**Source:** "What does the etcd warning 'failed to send out heartbeat on time' mean?":
wal_fsync_duration_seconds, "p99 duration should be less than 10ms"; and "... 'apply entries took
too long' mean?": backend_commit_duration_seconds, "p99 duration should be less than 25ms"."""
BELOW_MS = {"wal_fsync": 10.0, "backend_commit": 25.0}
WHAT = {"wal_fsync": "99th percentile of WAL fsync", "backend_commit": "99th percentile of commit"}
QUANTILE = 0.99
LEAST_COUNT = 100
"""Fewer have no 99th percentile that is not simply the slowest of them."""


@dataclass(frozen=True)
class Quantile:
    """A quantile of a histogram with wide buckets, in milliseconds."""

    value: float
    """Between the bucket's edges as if its values lay evenly in it, as Prometheus has it."""
    low: float
    high: float


def rules(growth: Growth, slow: int) -> Iterator[RuleFinding]:
    """Yield both rules, as far as a trial has made enough fsyncs or commits for them."""
    for name, below_ms in BELOW_MS.items():
        total = growth(f"{name}s") or 0.0
        if total < LEAST_COUNT:
            continue
        found = quantile(QUANTILE, total, [growth(within(name, edge)) or 0.0 for edge in EDGES_MS])
        yield RuleFinding(
            subject="etcd",
            what=WHAT[name],
            found_ms=found.value / slow,
            below_ms=below_ms,
            within_ms=(found.low / slow, found.high / slow),
            kept=found.value / slow < below_ms,
            source=FAQ,
        )


def quantile(share: float, total: float, counts: list[float]) -> Quantile:
    """Return a quantile of a histogram; `counts`: of what took at most each of `EDGES_MS`.

    **Source:** Prometheus, `histogram_quantile`. Beyond the last edge nothing is known but that.
    """
    rank = share * total
    low, before = 0.0, 0.0
    for edge, count in zip(EDGES_MS, counts, strict=True):
        if count >= rank and count > before:
            value = low + (edge - low) * (rank - before) / (count - before)
            return Quantile(value, low, float(edge))
        low, before = float(edge), count
    return Quantile(low, low, low)


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
