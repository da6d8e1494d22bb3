"""Emulated disks for the benchmarks: one engine, one volume, any promise."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disklab.machines.binary import find_engine

from benches.peers import Asked, stop

Json = dict[str, Any]

MEMORY: Json = {"kind": "memory", "preallocate": True}
"""Memory that is there from the start, so that no run pays for its first touch."""


@dataclass(frozen=True)
class Emulated:
    """A running emulated volume."""

    device: str
    """The loop device."""
    file: str
    """The FUSE file beneath it."""
    control: Path
    transport: str

    def request(self, **fields: Any) -> Json:
        """Send one request to the engine; raise when it refuses."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self.control))
            connection.sendall(json.dumps(fields).encode() + b"\n")
            answer: Json = json.loads(connection.makefile().readline())
        if not answer["ok"]:
            raise RuntimeError(f"{fields}: {answer['error']}")
        return answer


def constant(ns: int) -> Json:
    """Return a distribution with one value."""
    return {"quantiles_ppm_ns": [[1_000_000, ns]], "per_kib_ns": 0}


def latency_of(asked: Asked, quantiles: list[tuple[int, int]] | None = None) -> Json:
    """Return the service times asked for: a constant, or the given quantiles."""
    times = constant(asked.latency_ns or 0)
    if quantiles:
        times = {"quantiles_ppm_ns": [list(pair) for pair in quantiles], "per_kib_ns": 0}
    return {"read": times, "write": times, "flush": constant(0)}


def limits_of(asked: Asked, burst: Json | None = None) -> list[Json]:
    """Return the limits asked for; `burst` goes to the IOPS limit."""
    limits: list[Json] = []
    if asked.iops:
        limits.append(limit("ios", asked.iops, burst))
    if asked.bytes_per_s:
        limits.append(limit("bytes", asked.bytes_per_s, None))
    return limits


def limit(unit: str, per_s: int, burst: Json | None) -> Json:
    """Return one limit of the host profile, refilled continuously."""
    return {"scope": "all", "unit": unit, "per_s": per_s, "window_ns": 0, "burst": burst}


def volume(size_bytes: int, latency: Json, limits: list[Json]) -> Json:
    """Return the profile of a volume of one remote disk."""
    disk = {"name": "bench", "medium": "remote", "limits": limits, "latency": latency}
    return {
        "name": "bench", "size_bytes": size_bytes, "caching": "None", "chunk_bytes": None,
        "disks": [disk],
    }  # fmt: skip


@contextmanager
def emulated(profile: Json, transport: str = "auto") -> Iterator[Emulated]:
    """Run an engine with one volume in memory, fully written, until the block ends."""
    engine = find_engine()
    host = {
        "version": 1, "name": "bench", "seed": 1, "cached": [], "uncached": [], "cache": None,
        "volumes": [],
    }  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="disklab-bench-"))
    command = [
        str(engine), "emulate", "--host", "bench", "--run-dir", str(folder / "run"),
        "--data-dir", str(folder / "data"), "--transport", transport,
    ]  # fmt: skip
    daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        daemon.stdin.write(json.dumps(host).encode())
        daemon.stdin.close()
        ready = next_event(daemon, "ready")
        control = folder / "run" / "hosts" / "bench" / "control.sock"
        engine_client = Emulated("", "", control, str(ready["transport"]))
        made = engine_client.request(op="attach", volume=profile, backing=MEMORY)
        yield Emulated(made["device"], made["file"], control, str(ready["transport"]))
        engine_client.request(op="detach", volume=profile["name"], delete_data=True)
        engine_client.request(op="shutdown")
    finally:
        stop(daemon)
        shutil.rmtree(folder, ignore_errors=True)


def next_event(daemon: subprocess.Popen[bytes], wanted: str) -> Json:
    """Return the engine's next event of that name; raise when it fails or ends."""
    assert daemon.stdout is not None
    for line in daemon.stdout:
        event: Json = json.loads(line)
        if event["event"] == wanted:
            return event
        if event["event"] == "failed":
            raise RuntimeError(f"disklab-engine: {event['error']}")
    raise RuntimeError(f"disklab-engine ended with code {daemon.wait()} before it was {wanted}")
