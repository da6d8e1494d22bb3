"""What a member is started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from disklab.database_settings import Setting
from disklab.databases.installed import WAL_VOLUMES, Installed
from disklab.databases.protocol import NodePlace, Sizes

# How much memory a member gets, and why.

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# The Go runtime, the index of some hundred thousand keys, buffers of connections (an idle member
# of 3.4 has 25 MiB, 2026-11).
SERVER_BYTES = 128 * MIB
# Source: etcd's documentation, "Tuning": snapshots come each 100,000 entries, which stay in memory
# until then.
FULL_ENTRIES = 100_000
# With fewer a snapshot would be made every second of a busy load; etcd keeps as many anyway for
# members that are behind (DefaultSnapshotCatchUpEntries).
LEAST_ENTRIES = 5_000
# An object of Kubernetes with its key and revision takes 1 to 2 KiB; double for what Go has not
# collected yet.
ENTRY_BYTES = 4 * KIB
LEAST_PAGE_CACHE = 64 * MIB
# Source: etcd's documentation, "System limits": 8 GiB is the suggested maximum.
QUOTA_BYTES = 8 * GIB


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one member, in bytes."""

    entries: int
    """Of the log between two snapshots."""
    page_cache: int
    reasons: tuple[str, ...]

    @property
    def limit(self) -> int:
        """Return the limit of the member's memory group. The database is mapped: page cache."""
        return SERVER_BYTES + self.entries * ENTRY_BYTES + self.page_cache


def plan_memory(sizes: Sizes) -> MemoryPlan:
    """Plan one member: the page cache and the log between snapshots follow the scale."""
    own = SERVER_BYTES + FULL_ENTRIES * ENTRY_BYTES
    page_cache = int(max(sizes.memory_bytes - own, 0) * sizes.scale)
    return MemoryPlan(
        entries=max(int(FULL_ENTRIES * sizes.scale), LEAST_ENTRIES),
        page_cache=max(page_cache, LEAST_PAGE_CACHE),
        reasons=tuple(sizes.too_small([("page cache", page_cache, LEAST_PAGE_CACHE)])),
    )


CLIENT_PORT, PEER_PORT = 2379, 2380
PORTS = (CLIENT_PORT, PEER_PORT)

# What etcd does without a setting, in ms of the described system. Source: `etcd --help`, 3.4.
USUAL_MS = {"heartbeat-interval": 100, "election-timeout": 1_000}
MOST_ELECTION_MS = 50_000
"""The longest that etcd takes."""
BATCH_MS = 100
"""Source: mvcc/backend/backend.go of 3.4, defaultBatchInterval."""
ETCD = Installed(
    engine="etcd",
    title="etcd",
    node="each member of etcd holds all keys",
    data="database",
    option="option",
    setting="flag",
    listing="etcd --help",
)


@dataclass(frozen=True)
class MemberFiles:
    """Where a member has what."""

    place: NodePlace

    @property
    def data(self) -> Path:
        """The data directory, on the data volume."""
        return self.place.volumes["data"] / "etcd"

    @property
    def wal(self) -> Path | None:
        """The folder of the log on its own volume; None: it is below the data directory."""
        for name in WAL_VOLUMES:
            if name in self.place.volumes:
                return self.place.volumes[name] / "etcd-wal"
        return None

    @property
    def own(self) -> list[Path]:
        """The folders that are the member's alone."""
        return [self.data, *([] if self.wal is None else [self.wal])]

    @property
    def database(self) -> Path:
        """The folder of the database file and the snapshots."""
        return self.data / "member" / "snap"

    @property
    def configuration(self) -> Path:
        """The folder of the certificates."""
        return self.place.run_dir / "conf"


def arguments(
    files: MemberFiles,
    places: Sequence[NodePlace],
    plan: MemoryPlan,
    settings: Mapping[str, Setting],
    slow: int,
) -> list[str]:
    """Return the command line of a member. `slow`: seconds of this machine for each of its own."""
    place, folder = files.place, files.configuration
    client, peer = url(place, CLIENT_PORT), url(place, PEER_PORT)
    cluster = ",".join(f"{one.name}={url(one, PEER_PORT)}" for one in places)
    told: dict[str, Setting] = {
        "name": place.name,
        "data-dir": str(files.data),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": cluster,
        "cert-file": str(folder / "member.pem"),
        "key-file": str(folder / "member.key"),
        "client-cert-auth": "true",
        "trusted-ca-file": str(folder / "authority.pem"),
        "peer-cert-file": str(folder / "member.pem"),
        "peer-key-file": str(folder / "member.key"),
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": str(folder / "authority.pem"),
        "logger": "zap",
        "log-outputs": "stderr",
        "quota-backend-bytes": QUOTA_BYTES,
        "snapshot-count": plan.entries,
    }
    if files.wal is not None:
        # etcd makes it beside its place and moves it there: the folder above must be its own.
        told["wal-dir"] = str(files.wal / "log")
    if slow > 1:
        for name, milliseconds in USUAL_MS.items():
            told[name] = min(milliseconds * slow, MOST_ELECTION_MS)
        told["backend-batch-interval"] = f"{BATCH_MS * slow}ms"
    told |= settings
    return [f"--{name}={_text(value)}" for name, value in told.items()]


def url(place: NodePlace, port: int) -> str:
    """Return where a member listens."""
    return f"https://{place.address}:{port}"


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
