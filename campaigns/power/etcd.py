"""Versions in etcd's keys: one member as it is by default, which syncs before it answers."""

from __future__ import annotations

import base64
import http.client
import json
import random
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from campaigns.power.disk import LostError
from campaigns.power.marks import Marks

KEYS = 50
READY_SECONDS = 60.0
FILLER = "x" * 300


@contextmanager
def member(volume: Path) -> Iterator[http.client.HTTPConnection]:
    """Run a member on a volume; yield a connection. LostError: it does not come up."""
    client, peer = (f"http://127.0.0.1:{port}" for port in _free_ports())
    log = volume.parent / "etcd.log"
    command = ["etcd", "--name", "one", "--data-dir", str(volume / "etcd")]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"one={peer}", "--snapshot-count", "100"]
    with (
        log.open("wb") as said,
        subprocess.Popen(command, stdout=said, stderr=said) as process,
    ):
        connection = http.client.HTTPConnection(client.removeprefix("http://"), timeout=30)
        try:
            _await_ready(connection, process, log)
            yield connection
        finally:
            connection.close()
            # As the power goes: nothing is written in an orderly way.
            process.kill()


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, other)]


def _await_ready(
    connection: http.client.HTTPConnection, process: subprocess.Popen[bytes], log: Path
) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            # A linearizable read: the member has its log and leads.
            ask(connection, "range", key=b"0")
        except (OSError, http.client.HTTPException, LostError) as error:  # noqa: PERF203 - it waits
            connection.close()
            if process.poll() is not None or time.monotonic() > deadline:
                told = log.read_text(errors="replace")[-1000:]
                raise LostError(f"etcd does not start: {error}: {told}") from None
            time.sleep(0.05)
        else:
            return


def ask(connection: http.client.HTTPConnection, what: str, **words: Any) -> dict[str, Any]:
    """Ask the JSON gateway. LostError: it refuses."""
    told = {
        k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in words.items()
    }
    connection.request("POST", f"/v3/kv/{what}", json.dumps(told))
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != http.client.OK:
        raise LostError(f"etcd says {answer.status}: {text[:200]!r}")
    found: dict[str, Any] = json.loads(text)
    return found


def work(volume: Path, marks: Marks, rounds: int, seed: int) -> None:
    """Put versions of keys until `rounds` were acknowledged; snapshots and compactions between."""
    chance = random.Random(seed)
    with member(volume) as connection:
        for number in range(KEYS):
            ask(connection, "put", key=str(number).encode(), value=b"0 " + FILLER.encode())
        subprocess.run(["sync", "-f", str(volume)], check=True)
        marks.begin()
        for version in range(1, rounds + 1):
            key = str(chance.randrange(KEYS))
            with marks.promise(key, version):
                value = f"{version} {FILLER}".encode()
                said = ask(connection, "put", key=key.encode(), value=value)
            if version % 60 == 0:
                ask(connection, "compaction", revision=said["header"]["revision"])


def check(volume: Path, acknowledged: Mapping[str, int], sent: Mapping[str, int]) -> None:
    """LostError: it does not start, or a key is older than promised."""
    with member(volume) as connection:
        found = ask(connection, "range", key=b"0", range_end=b"~").get("kvs", [])
    values = {
        base64.b64decode(one["key"]).decode(): base64.b64decode(one["value"]).decode()
        for one in found
    }
    if len(values) != KEYS:
        raise LostError(f"{len(values)} keys of {KEYS}")
    for key, value in values.items():
        version, _, filler = value.partition(" ")
        least, most = acknowledged.get(key, 0), sent.get(key, 0)
        if filler != FILLER or not least <= int(version) <= most:
            raise LostError(f"key {key}: {value[:20]!r}; {least} was promised and {most} sent")
