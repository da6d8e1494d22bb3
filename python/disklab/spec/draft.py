"""A first experiment file from a few answers: commented, checked, ready to be edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import yaml

from disklab.catalog import Caching
from disklab.catalog.quantity import plain_number
from disklab.database_facts import facts_of
from disklab.errors import Problem, refuse
from disklab.reading import digits

# A rehearsal's share of each node's data: filled in less than a minute, larger than its caches.
REHEARSED_BYTES = 350_000_000
# Enough for a 99th percentile to be steady, and seconds of a fast disk.
OPERATIONS = "3M"
DEVICE_SECONDS = "60s"

NO_DATABASE = "none"
"""fio on the disk itself."""

START = {
    "azure": ("azure/Standard_E16s_v3", "azure/PremiumV2"),
    "aws": ("aws/r5.4xlarge", "aws/gp3"),
    "gcp": ("gcp/n2-highmem-16", "gcp/pd-ssd"),
}
"""VM size and disks to begin with where nobody says what there is; advice varies both."""

GIB = 1 << 30
LEAST_GIB, MOST_GIB = 100, 16384
"""The largest volume of gp3 is the smaller one of the two."""
ROOM = 3
"""Size-tiered compaction wants as much again; a row of 1 kB is stored in 1.17 kB."""


def held(disks: str, each_gib: int) -> str:
    """Return disks that hold a node's data, with room for compaction and what rows have around."""
    need = max(LEAST_GIB, ROOM * each_gib)
    many = -(-need // MOST_GIB)
    one = f"{disks}({-(-need // many)}GiB)"
    return one if many == 1 else f"{many} x {one}"


@dataclass(frozen=True)
class Draft:
    """What somebody wants to know."""

    database: str
    """Or `NO_DATABASE`."""
    vm: str
    disks: Sequence[str]
    """One or more; more than one make a factor."""
    version: str | None = None
    caching: Sequence[Caching] = ("None",)
    nodes: int = 3
    copies: int = 3
    servers: int = 1
    """Of a database with one primary, each with all rows."""
    writes_per_commit: int | None = None
    warehouses: int | None = None
    """Of TPC-C, instead of operations on rows."""
    rows: int = 50_000_000
    """Rows of the whole table, copies not counted."""
    row_bytes: int = 1000
    read_ratio: float = 0.8
    threads: int | None = 128
    rate_per_s: float | None = None
    """Instead of threads: operations a second of the whole cluster."""
    p99_ms: float | None = None
    """What is required; None: nothing is."""
    p95_ms: float | None = None
    p999_ms: float | None = None
    storage_p99_ms: float | None = None
    head_room: float | None = None
    """So much more than the rate must be possible, as a ratio; None: nothing is said."""
    durability: str | None = None
    """Whether the data must survive a VM that is stopped or lost."""
    budget_usd: float | None = None
    """A month, for all nodes."""
    title: str | None = None
    state: Literal["steady", "cold", "rested"] = "cold"
    """steady: caches warm and burst credits spent, as all day; cold: caches empty, as after a
    restart; rested: caches warm and credits full."""

    @property
    def has_nodes(self) -> bool:
        """Whether the database is a cluster, and not one server."""
        return self.database != NO_DATABASE and facts_of(self.database).usual_nodes > 1

    @property
    def laid_out(self) -> tuple[int, int]:
        """Return the nodes, and how many have each row."""
        return (self.nodes, self.copies) if self.has_nodes else (self.servers, self.servers)


def draft(wish: Draft) -> str:
    """Return an experiment file as text; raises UserError when an answer cannot be."""
    refuse([*_problems(wish)])
    title = wish.title or _title(wish)
    parts = [f"title: {word(title)}", ""]
    parts += _device(wish) if wish.database == NO_DATABASE else _cluster(wish)
    factors = _factors(wish)
    if factors:
        parts += ["", "# Every combination of these levels is one cell of the matrix.", "factors:"]
        parts += factors
    if wish.database != NO_DATABASE:
        parts += [
            "",
            "# How a rehearsal on this machine shrinks it: rows, caches, memory and credits alike.",
            f"rehearse: {{nodes: 1, scale: 1/{_shrink(wish)}}}",
        ]
    return "\n".join(parts) + "\n"


def _problems(wish: Draft) -> list[Problem]:
    found = []
    if wish.copies > wish.nodes and wish.has_nodes:
        rule = f"{wish.nodes} nodes hold at most {wish.nodes} copies of a row"
        found.append(Problem("--copies", str(wish.copies), rule, "ask for more --nodes"))
    if not 0 <= wish.read_ratio <= 1:
        rule = "is the share of the operations that read, 0 to 100"
        found.append(Problem("--reads", f"{wish.read_ratio:.0%}", rule, "write for example 80"))
    if len(set(wish.disks)) < len(wish.disks):
        rule = "the same disks twice are not a comparison"
        found.append(Problem("--disks", ", ".join(wish.disks), rule, "name each once"))
    return found


def _title(wish: Draft) -> str:
    of = "fio" if wish.database == NO_DATABASE else facts_of(wish.database).title
    if len(wish.disks) > 1:
        return f"{_listed(wish.disks)} for {of}?"
    if len(wish.caching) > 1:
        return f"Which host caching for {of} on {wish.disks[0]}?"
    return f"{of} on {wish.disks[0]}"


def _cluster(wish: Draft) -> list[str]:
    vm = word(wish.vm)
    timed = wish.rate_per_s is not None or wish.warehouses is not None
    stop = "duration: 60s" if timed else f"operations: {OPERATIONS}"
    nodes, copies = wish.laid_out
    required = []
    if bounds := [*_required(wish)]:
        required = [
            "# What the system must do: every cell is judged by it, and `disklab advise` looks for",
            "# the cheapest that does it.",
            f"require: {{{', '.join(bounds)}}}",
            "",
        ]
    has_levels = facts_of(wish.database).consistency_levels
    consistency = ", consistency: LOCAL_QUORUM" if has_levels else ""
    version = "" if wish.version is None else f', version: "{wish.version}"'
    volume = f"disks: {quoted(wish.disks[0])}, caching: {wish.caching[0]}, filesystem: xfs"
    return [
        *required,
        "# The system to begin with; `factors` below vary it.",
        "cluster:",
        f"  nodes: {nodes}",
        f"  vm: {vm}    # `disklab catalog` lists the others",
        "  volumes:",
        f"    data: {{{volume}}}",
        f"client: {{nodes: 1, vm: {vm}}}",
        "",
        f"database: {{engine: {wish.database}{version}, "
        f"replication_factor: {copies}{consistency}}}",
        "",
        *(_tpcc(wish.warehouses) if wish.warehouses is not None else _rows(wish)),
        f"  stop: {{{stop}}}",
        "",
        "# The condition that each measurement begins in.",
        f"before: {{{STATES[wish.state]}}}",
    ]


def _rows(wish: Draft) -> list[str]:
    rate = wish.rate_per_s
    load = f"rate: {plain_number(rate)}/s" if rate is not None else f"threads: {wish.threads}"
    reads = shares_of(wish)
    return [
        f"dataset: {{rows: {count(wish.rows)}, row: 1 x {wish.row_bytes}B}}",
        "",
        "workload:",
        f"  operations: {{read: {plain_number(reads)}%, write: {plain_number(100 - reads)}%}}",
        *([] if wish.writes_per_commit is None else [together(wish.writes_per_commit)]),
        "  keys: uniform    # or zipfian, latest, sequential",
        f"  load: {{{load}}}",
    ]


def _tpcc(warehouses: int) -> list[str]:
    pool = min(MOST_CONNECTIONS, max(LEAST_CONNECTIONS, warehouses))
    return ["workload:", f"  tpcc: {{warehouses: {warehouses}, connections: {pool}}}"]


LEAST_CONNECTIONS, MOST_CONNECTIONS = 10, 600
"""Of TPC-C: one a warehouse between these. **Source:** YugabyteDB's study has 600 for 2,000."""


def together(writes: int) -> str:
    """Return the line of a workload whose writes are committed together."""
    return f"  writes_per_commit: {writes}    # one write is the whole transaction"


STATES = {
    "steady": "page_cache: warm, host_cache: warm, credits: 0%",
    "cold": "page_cache: cold, host_cache: written, credits: 0%",
    "rested": "page_cache: warm, host_cache: warm, credits: 100%",
}
"""`before` of a file by the state of its system."""


def shares_of(wish: Draft) -> float:
    """Return the percentage of reads, with a decimal where transactions are few."""
    return round(wish.read_ratio * 100, 0 if wish.writes_per_commit is None else 2)


def _required(wish: Draft) -> Iterator[str]:
    names = {"p95": wish.p95_ms, "p99": wish.p99_ms, "p99.9": wish.p999_ms}
    latencies = ", ".join(
        f"{name}: {plain_number(ms)}ms" for name, ms in names.items() if ms is not None
    )
    if not latencies and wish.storage_p99_ms is None:
        return
    if wish.storage_p99_ms is not None:
        yield f"storage_p99: {plain_number(wish.storage_p99_ms)}ms"
    reads = shares_of(wish)
    sides = [("all", 100.0)] if wish.warehouses else [("read", reads), ("write", 100 - reads)]
    for side, share in sides:
        if share and latencies:
            yield f"{side}: {{{latencies}}}"
    if wish.rate_per_s is not None:
        yield f"rate: {plain_number(wish.rate_per_s)}/s"
    if wish.head_room is not None:
        yield f"head_room: {plain_number(wish.head_room * 100)}%"
    if wish.durability is not None:
        yield f"durability: {wish.durability}"
    if wish.budget_usd is not None:
        yield f"budget: {plain_number(wish.budget_usd)} USD/month"


def _device(wish: Draft) -> list[str]:
    return [
        "# One volume on a VM, measured by fio past the page cache.",
        "device:",
        f"  vm: {word(wish.vm)}",
        f"  volume: {{disks: {quoted(wish.disks[0])}, caching: {wish.caching[0]}}}",
        "",
        "workload:",
        "  fio: {profile: async, rw: randread, bs: 8k}    # sync: one I/O at a time",
        f"  stop: {{duration: {DEVICE_SECONDS}}}",
    ]


def _factors(wish: Draft) -> list[str]:
    volume = "device.volume" if wish.database == NO_DATABASE else "cluster.volumes.data"
    found = []
    if len(wish.disks) > 1:
        found.append(f"  {volume}.disks: [{', '.join(quoted(one) for one in wish.disks)}]")
    if len(wish.caching) > 1:
        found.append(f"  {volume}.caching: [{', '.join(wish.caching)}]")
    return found


def _shrink(wish: Draft) -> int:
    """Return by how much a rehearsal is smaller, a round number."""
    nodes, copies = wish.laid_out
    node_bytes = wish.rows * wish.row_bytes * copies / nodes
    exact = max(1.0, node_bytes / REHEARSED_BYTES)
    step = 10 ** max(0, len(str(int(exact))) - 2)
    return int(-(-exact // step) * step)


def count(amount: int) -> str:
    """Return a count as people write it: `50M`."""
    for unit, factor in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if amount >= factor and amount % (factor // 10) == 0:
            return f"{plain_number(amount / factor)}{unit}"
    return str(amount)


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


def word(text: str) -> str:
    """Return a text as YAML writes it on one line, quoted only where it must be."""
    line: str = yaml.safe_dump(text, default_flow_style=True, width=10**6, allow_unicode=True)
    return line.removesuffix("\n").removesuffix("\n...").strip()


def flow(values: Mapping[str, object]) -> str:
    """Return settings as YAML writes them on one line; what a server says stays a value."""
    return "{" + ", ".join(f"{word(name)}: {inside(value)}" for name, value in values.items()) + "}"


def inside(value: object) -> str:
    """Return a value as it stands within braces, quoted where it must be."""
    number = digits(value)
    plain = value if number is None else number
    line: str = yaml.safe_dump([plain], default_flow_style=True, width=10**9)
    return line.strip()[1:-1]


def quoted(text: str) -> str:
    """Return a name of disks as YAML writes it."""
    # Inside of a list a comma or bracket of PremiumV2(...) would part it.
    return f'"{text}"' if any(sign in text for sign in ",()[]{}") else word(text)
