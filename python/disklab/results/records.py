"""The JSON shape of a run and its trials: the one place where it is written down.

A run of any mode (predicted, rehearsed, measured, published) is stored and printed in this shape.
`format` counts changes that an old reader would misread; new keys may come at any time, so readers
keep keys that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from disklab.results.figures import LARGEST, Amount, Count, Level, Number, Record, Whole, not_tiny
from disklab.results.weather import WeatherYear

FORMAT = 1

Mode = Literal["predict", "rehearse", "measure", "published", "probe"]
Status = Literal["ok", "failed", "refused", "invalid"]

# Of a file system 255 bytes; names that are made from it are longer.
LONGEST_NAME = 240


def _is_a_name(value: str) -> str:
    if "/" in value or "\0" in value or value in ("", ".", "..") or len(value) > LONGEST_NAME:
        raise ValueError("is the name of a folder: without /, and not too long")
    return value


def _is_a_loop(loop: dict[str, Any]) -> dict[str, Any]:
    """Return it when what readers count with is a number, and what they compare a text."""
    for name in ("rate_per_s", "at_most_per_s"):
        rate = loop.get(name)
        if rate is None:
            continue
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise ValueError(f"{name} is a number")
        not_tiny(rate)
        if not 0 <= rate <= LARGEST:
            raise ValueError(f"{name} lies between 0 and {LARGEST:g}")
    for name in ("kind", "arrivals"):
        if not isinstance(loop.get(name, ""), str):
            raise ValueError(f"{name} is a text")
    return loop


class Reason(Record):
    """Why something was refused or failed, as data."""

    place: str = ""
    value: str = ""
    rule: str
    way_out: str = ""

    def __str__(self) -> str:
        """Return the reason on one line."""
        head = ": ".join(part for part in (self.place, self.value, self.rule) if part)
        return f"{head}; {self.way_out}" if self.way_out else head


class Figure(Record):
    """A number of the full system, and what this machine had instead."""

    full: Amount
    here: Amount


class Share(Record):
    """Which part of the described system ran; absent when all of it did.

    The JSON form of `spec.Share`: `Share.model_validate(trial.share.model_dump(mode="json"))`.
    """

    nodes: Figure
    nodes_ratio: Number = 1.0
    """Ratio of nodes that ran to nodes of the cluster."""
    scale: str = "1"
    """Of rows, operations, caches, volumes and credits: `1/100`."""
    rate_scale: str = "1"
    time_dilation: Count = 1
    """Seconds of the machine for each second of the described system, in which all figures are."""
    engine: str | None = None
    replication_factor: Figure | None = None
    rows: Figure | None = None
    warehouses: Figure | None = None
    operations: Figure | None = None
    threads: Figure | None = None
    rate_per_s: Figure | None = None
    at_most_per_s: Figure | None = None
    host_cache_bytes: Figure | None = None
    page_cache_bytes: Figure | None = None
    volume_bytes: dict[str, Figure] = Field(default_factory=dict)


class Bottleneck(Record):
    """The limit that bound."""

    resource: str
    """As the emulator and the simulator name limits: `vm cached 512 MB/s`, `client CPU`."""
    utilisation: Number | None = None
    """0 to 1; None if the source says that this limit was reached, but not how much of it was used.
    """


class LimitWait(Record):
    """How long one limit made I/Os wait during the measuring phase."""

    limit: str
    volume: str = ""
    delayed_ios: Count = 0
    delayed_ms: Number = 0.0
    """Summed over the I/Os that waited; every nanosecond is attributed to one limit."""
    utilisation: Number | None = None
    credits_left: Number | None = None
    credits_start: Number | None = None
    credits_capacity: Number | None = None


class Telemetry(Record):
    """What was seen beside the load, summed up over the measuring phase."""

    limits: list[LimitWait] = Field(default_factory=list)
    """Longest wait first."""
    late_ratio: Number | None = None
    """Share of the emulator's replies that were late."""
    client_late_p99_ms: Number | None = None
    """99th percentile of how late the client sent an operation."""
    cpu_ratio: dict[str, Number] = Field(default_factory=dict)
    """By process (`client`, `server`, `emulator`): share of the whole machine, 0 to 1."""
    page_cache_hit_ratio: Number | None = None
    gc_pause_ms: Number | None = None
    """How long collectors stopped the database, all its nodes together."""
    gc_pauses: Count | None = None
    """How often they did."""
    gc_allocated_bytes: Count | None = None
    """What the database allocated in the meantime, derived from its collections, so exact only to
    one collection."""
    late_heartbeats_per_hour: Number | None = None
    """From a leader to its followers, delayed by its log."""
    elections_per_hour: Number | None = None
    """Because of missing heartbeats."""
    pending_compactions_max: Count | None = None
    dropped_messages: Count | None = None


class NextSize(Record):
    """The next larger disk of the same kind."""

    disks: str
    """The whole volume's: `4 x azure/P40`."""
    iops: Count
    """What it sustains without credits."""
    more_usd_per_month: Number | None = None
    """Than now, for all nodes of the full cluster; None: a price is not known."""


class CreditsGone(Record):
    """Burst credits that ran out during the run."""

    volume: str
    limit: str
    """`disk 0 ios`."""
    at_s: Number
    """Counted from the start of the load; with several passes, the median. For a prediction it may
    be after the end of the run, as if the load continued."""
    full_at_s: Number
    """The same on the full system, which has more credits and the same rates."""
    passes: Count = 1
    """In how many passes they ran out."""
    ops_per_s_before: Amount
    ops_per_s_after: Amount
    next_size: NextSize | None = None


class SteadyState(Record):
    """What a load does when its burst credits are gone: all day long, and not for half an hour."""

    ops_per_s: Amount
    latency_ms: dict[str, Amount] = Field(default_factory=dict)
    bottleneck: Bottleneck | None = None


CEILING = "load ceiling"
"""The bottleneck of a closed loop that keeps to its ceiling."""
STRETCHES = {
    "unsent": "not sent in time",
    "client": "client",
    "network": "network",
    "cpu": "CPU of the nodes",
    "pause": "garbage collection",
    "slots": "read and write slots",
    "limits": "queue at disk limits",
    "disk": "disk",
    "held": "log and write buffers",
    "retry": "slow replica",
    "overhead": "unexplained",
}
"""Where an operation spends its time, in the order of its way: key and words."""

OF_ANOTHER_NODE = "retry"
"""The stretch in which an operation waits for another node's copy."""

Stretches = dict[str, dict[str, Number]]
"""Percentile -> stretch -> milliseconds; those of a percentile add up to it."""


class Operation(Record):
    """One kind of operation of a trial."""

    operations: Count | None = None
    ops_per_s: Amount | None = None
    latency_ms: dict[str, Amount] = Field(default_factory=dict)
    """Completion minus intended start: `mean`, `p50`, `p95`, `p99`, `p99.9`, `max`."""
    service_ms: dict[str, Number] = Field(default_factory=dict)
    """Service time: completion minus send; equal to the response time in a closed loop."""
    tail_ms: Stretches = Field(default_factory=dict)
    """Only of mode `predict`: what `p50`, `p95` and `p99` consist of; see `STRETCHES`."""
    errors: Count = 0


class Band(Record):
    """Where a predicted figure lies in eight cases of ten, over the prediction itself."""

    low: float
    """At most 1."""
    high: float
    """At least 1."""


class Mover(Record):
    """A value that is not known exactly, and by how much it moves a prediction."""

    name: str
    """`overhead_ns`, `service time: premium-ssd-2020 reads`, `limit: vm cached`."""
    within: float
    """In eight cases out of ten its true value lies within this factor of the one used."""
    because: str = ""
    ratios: dict[str, float] = Field(default_factory=dict)
    """By figure: what the prediction is multiplied by when the value is `within` times as large;
    it is divided by that when the value is so much smaller."""


class Bands(Record):
    """How far the figures of a predicted cell may be off, from everything that is not known."""

    confidence: float = 0.8
    figures: dict[str, Band] = Field(default_factory=dict)
    """By name: `ops_per_s`, `p99_ms`, `read_ios_per_operation`, `disk_iops`, ..."""
    design: str = ""
    """Shows which values were moved in which draw; runs with the same design can be compared draw
    by draw."""
    draws: dict[str, list[float]] = Field(default_factory=dict)
    """Logarithm of each draw's figure over the prediction's. In each draw the same values are moved
    in every cell of a run, so ratios of two cells have bands of their own."""
    pair_residuals: dict[str, float] = Field(default_factory=dict)
    """The error that remains in the ratio of two cells even if every value is right, as a factor.
    """
    movers: list[Mover] = Field(default_factory=list)
    """The most important first."""


class RuleFinding(Record):
    """A rule that a database's makers publish, and whether a repeat kept it."""

    subject: str
    """The name of the database that the rule is for."""
    what: str
    """`99th percentile of WAL fsync`."""
    found_ms: Amount
    below_ms: Amount
    """What the rule requires."""
    within_ms: tuple[Number, Number] | None = None
    """The range in which the figure certainly lies, if it was read from a histogram with wide
    buckets."""
    kept: bool
    doubt: str = ""
    """What else made everything slower: if the rule was kept, it was kept in spite of this; if it
    was missed, that says nothing."""
    source: str = ""
    """Where the rule is published."""

    @property
    def sure(self) -> bool:
        """Whether any figure that it may be gives the same answer."""
        if self.within_ms is None:
            return True
        low, high = self.within_ms
        return high <= self.below_ms or low >= self.below_ms


class StepTaken(Record):
    """A step of a timetable; times in seconds of the described system, from the load's start."""

    kind: str
    """What happened: `kill`, `migrate`, `mend`, ...; see docs/experiment-file.md."""
    node: str
    at_s: Number
    """When it was requested."""
    begun_s: Number
    ended_s: Number
    """When the database's procedure ended: a started node answers queries, a replaced one has
    its data."""
    streamed_bytes: Count | None = None
    """What nodes received from others in the meantime; None: the event moves no data, or it is not
    counted."""
    parts_s: dict[str, Amount] = Field(default_factory=dict)
    """How its time was spent, according to the database's own log: `process` (until it contacts the
    others), `join`, `stream`, `finish` (until it answers), and for a node that leaves `announce`,
    `stream back`, `leave`. Empty: unknown."""
    cpu_ratio: Amount | None = None
    """How busy this machine's processors were in the meantime, if the nodes are emulated here;
    None: they are not, or the step repairs nothing."""


class Rebuild(Record):
    """Data that come back to a node. Only of mode `predict`: a rehearsal's are in its steps."""

    kind: str
    """`stream` from other nodes (for PostgreSQL a copy of the primary), `replay` of its own log,
    `validation` of all copies (repair)."""
    node: str
    size_bytes: Count
    seen_bytes: Count
    """How much of this was restored before the load ended; the rest continues at the same rate."""
    bytes_per_s: Amount
    seconds: Amount
    """For all of them, without the start of the node."""
    sources: Count
    """Nodes that sent them."""
    bound: Bottleneck
    """The limit that was reached: a disk's, a VM's, the throttle of streams, ..."""
    lever: str = ""
    """What would make it faster."""


class Yearly(Record):
    """What failures cost in a year, at the rates that the experiment states."""

    lost_s: Amount | None = None
    """From the loss of a VM until its node serves again; None: no VM is lost."""
    disk_lost_s: Amount | None = None
    """The same for the loss of an attached disk."""
    restarted_s: Amount | None = None
    """How long a restart takes a node away; None: there are none."""
    comes_back: bool = True
    """Whether data lost with a node are restored from other copies."""
    bound: str = ""
    """What limits the rebuild of a lost node: a limit, or `latency`; empty: nothing is restored."""
    lever: str = ""
    unavailable_min: Number
    """Minutes a year in which some row cannot be served at its consistency level."""
    row_unavailable_min: Number
    """The same for a given row, and thus also the share of operations that fail."""
    loss_probability: Number
    """The probability that within a year some row loses all its copies."""


class ReadBack(Record):
    """Rows that were read after a load, each once."""

    rows_checked: Count
    rows_lost: Count
    """Acknowledged rows that were not there."""
    rows_wrong: Count
    rows_unread: Count
    """Rows that could not be read: nothing is known about them."""
    updates_lost: Count | None = None
    """Rows in an older version than was acknowledged last; None: rows had no versions."""


class Recovery(Record):
    """What a load saw of the faults of a timetable."""

    steps: list[StepTaken] = Field(default_factory=list)
    ops_per_s_before: Amount | None = None
    """Before the first step; the first second, in which connections are made, is left out."""
    lowest_ops_per_s: Number | None = None
    """Of any three intervals after it."""
    held_s: Number = 0.0
    """How long a repairing step waited for disklab itself, which removes hosts by an unmount and a
    mount: this is not the database's time and is in none of the times below."""
    unavailable_s: Number = 0.0
    """Seconds after the first step in which no operation succeeded."""
    back_s: Number | None = None
    """From the first step until the rate stayed at 95 % of the one before, to the end; None: it
    did not."""
    whole_s: Number | None = None
    """From the first step until the last node was started, replaced, added, moved or repaired, or
    had left; None: none was."""
    failed_operations: Count = 0
    rows_checked: Count | None = None
    """All rows, each read once after the load; every one of them was acknowledged."""
    rows_lost: Count | None = None
    """Acknowledged rows that were not there."""
    rows_wrong: Count | None = None
    """Rows that differ from what was acknowledged last."""
    rows_unread: Count | None = None
    """Rows that could not be read: nothing is known about them."""
    at_all: ReadBack | None = None
    """All rows once more, each from all of its copies, when the cluster was whole again; None: it
    was not, or the database has no consistency levels."""
    updates_lost: Count | None = None
    """Rows that were read back in an older version than was acknowledged last. A write that failed
    may be there or not, and does not count. None: rows had no versions."""
    reads_judged: Count | None = None
    """Reads during the load of rows that had an acknowledged version before the read began."""
    reads_stale: Count | None = None
    """How many of these returned an older version."""
    consistency: str | None = None
    """The level at which they were read; None: the database has none."""
    yearly: Yearly | None = None
    """Only for mode `predict`, and for experiments that state `failures`."""
    rebuilds: list[Rebuild] = Field(default_factory=list)
    """Only for mode `predict`."""
    degraded_ms: dict[str, Amount] = Field(default_factory=dict)
    """Only for mode `predict`: latencies of successful operations while a node was away."""
    extrapolated: bool = False
    """Whether the load ended before the last node was back, so that `whole_s` continues at the rate
    seen until then."""


class TraceRecord(Record):
    """A block trace that was replayed, as it was offered to the volume."""

    file: str
    form: str
    """`blkparse`, `fio` or `msr`."""
    device: str = ""
    """As the trace names it."""
    ios: Count
    reads: Count
    writes: Count
    read_bytes: Count
    written_bytes: Count
    block_sizes: dict[str, Number] = Field(default_factory=dict)
    """Share of the I/Os by their bytes: the most frequent sizes."""
    sequential_ratio: Number
    """Share of I/Os that begin where one of the last 16 in the same direction ended."""
    touched_bytes: Count
    """From the first byte to the last."""
    duration_s: Number
    """From the first I/O to the last, at the speed of the replay."""
    offered_per_s: Amount | None = None
    """None: a closed loop, or all came at once."""
    busiest_per_s: Count = 0
    """I/Os in the busiest second."""
    widened: Count = 0
    """I/Os that were widened to whole sectors of 4 KiB."""
    wrapped: Count = 0
    """I/Os beyond the volume, wrapped modulo its size."""
    left_out: dict[str, Count] = Field(default_factory=dict)
    """What is not replayed: flushes, discards."""


class Phase(Record):
    """A phase of a trial."""

    name: str
    """`build`, `fill`, `settle`, `warm-up`, `measure`, ..."""
    duration_s: Number
    detail: str = ""
    operations: Count | None = None
    """The number of operations of a load that is not measured, such as a warm-up; all passes
    together."""


class Citation(Record):
    """Where a figure was published, and how it was read."""

    source: str
    read: Literal["table", "chart", "text", "derived"] = "table"
    """`chart`: read off a chart without labels, exact to about 2 % of the axis."""
    chart_keys: list[str] = Field(default_factory=list)
    """The keys that were read off a chart although the others were not: `p99`."""


RATE, MEDIAN, TAIL = "rate", "median", "tail"
SPOILABLE = {RATE: "rate", MEDIAN: "median", TAIL: "99th percentile"}
"""Figures that other work on this machine may spoil, each alone: key and words."""


class TrialResult(Record):
    """One repeat of one trial: a line of `trials.jsonl`, and what `--json` prints.

    Rates are of the whole cluster that ran; divide by `nodes` to compare with another size.
    """

    format: int = FORMAT
    run: str = ""
    """The run's id."""
    experiment: str
    """The experiment's title."""
    mode: Mode
    trial: Count
    """Index in matrix order."""
    repeat: Count = 0
    factors: dict[str, Level]
    """Factor -> level, as the experiment file names them, in its order."""
    status: Status = "ok"
    valid: bool = True
    """Whether the figures may be used: only of status `ok`."""
    warnings: list[str] = Field(default_factory=list)
    invalid_reasons: list[str] = Field(default_factory=list)
    """Why status is `invalid`: the client, the emulator or this machine was the limit, ..."""
    spoiled: dict[str, str] = Field(default_factory=dict)
    """Which of `rate`, `median` and `tail` were spoiled by other work on this machine, and how:
    these count in no answer, the others do."""
    reason: Reason | None = None
    """Why status is `refused` or `failed`."""
    log_excerpt: str = ""
    """The last lines of what failed."""

    ops_per_s: Amount | None = None
    nodes: Count | None = None
    """Database nodes that ran."""
    loop: Annotated[dict[str, Any], AfterValidator(_is_a_loop)] = Field(default_factory=dict)
    """`{"kind": "closed", "threads": 128}` or `{"kind": "open", "rate_per_s": 20000}`.

    A closed loop with a ceiling has `at_most_per_s` too.
    """
    latency_ms: dict[str, Amount] = Field(default_factory=dict)
    """Of all operations together; keys as in `Operation`."""
    tail_ms: Stretches = Field(default_factory=dict)
    """Only for mode `predict`: what its percentiles consist of; see `STRETCHES`."""
    storage_p99_ms: Amount | None = None
    """Only for mode `predict`, if required: the part of p99 that is due to storage, without JVM
    pauses."""
    per_operation: dict[str, Operation] = Field(default_factory=dict)
    bottleneck: Bottleneck | None = None
    host_cache_hit_ratio: Number | None = None
    """Share of disk reads that the host cache served."""
    telemetry: Telemetry = Field(default_factory=Telemetry)
    rules: list[RuleFinding] = Field(default_factory=list)
    """Published rules of the database, if it has any."""
    credits_gone: list[CreditsGone] = Field(default_factory=list)
    """Limits whose burst credits ran out while the load went on, the earliest first; for a
    prediction also those that would run out under its load after the end of the run."""
    steady: SteadyState | None = None
    """Only for mode `predict`: what it does without credits, if that differs."""
    errors: dict[str, Count] = Field(default_factory=dict)
    """Failed operations by kind; `wrong_rows` are rows that differ from what was written."""
    disk_iops: Number | None = None
    """Reads and writes a second on the disks of one node; if nodes differ, of the busiest."""
    disk_mb_per_s: Number | None = None
    """What the same node's disks read and wrote."""
    recovery: Recovery | None = None
    """What the faults in a timetable did; None: there was no timetable."""
    year: WeatherYear | None = None
    """Only for mode `predict`: what a year of disk weather costs, if requested."""
    trace: TraceRecord | None = None
    """The block trace that was replayed; None: the workload was none."""
    price_usd_per_month: Amount | None = None
    """For disks and VMs of the full cluster that the trial describes."""

    started: str | None = None
    """UTC, ISO 8601."""
    duration_s: Amount | None = None
    """Of the measuring phase."""
    phases: list[Phase] = Field(default_factory=list)
    share: Share | None = None
    citation: Citation | None = None
    """Only for mode `published`."""
    bands: Bands | None = None
    """Only for mode `predict`; None: none were requested."""
    not_counted: str = ""
    """For mode `predict`: why its difference from the published figure proves nothing (parameters
    were fitted to that cell, or it was published with another load). Shown, but counted in no error
    figure."""

    @property
    def key(self) -> tuple[int, int]:
        """What a run knows it by."""
        return self.trial, self.repeat

    @property
    def usable(self) -> bool:
        """Whether its figures may be compared."""
        told = self.ops_per_s is not None or bool(self.latency_ms)
        return self.status == "ok" and self.valid and told


class PlannedTrial(Record):
    """A trial as it was resolved before anything ran: an entry of `resolved.json`."""

    trial: Count
    factors: dict[str, Level]
    spec: dict[str, Any] = Field(default_factory=dict)
    """Every unit resolved to a number."""
    share: Share | None = None
    refused: Reason | None = None


class ExperimentNote(Record):
    """Which experiment a run answers."""

    title: str
    source: str = ""
    file: str = ""
    """As given on the command line; empty for published results."""


class Price(Record):
    """A price that a run counted with."""

    item: str
    """`azure/P30`."""
    amount: Number
    currency: str = "USD"
    per: str = "month"
    region: str = ""
    date: str = ""
    source: str = ""
    terms: str = "pay-as-you-go"


class RunInfo(Record):
    """What is known of a run as a whole: `run.json`."""

    format: int = FORMAT
    id: Annotated[str, AfterValidator(_is_a_name)]
    """Also the name of its folder, and the beginning of names that are made from it."""
    mode: Mode
    experiment: ExperimentNote
    seed: Whole | None = None
    repeats: Count | None = None
    """Planned repeats of each trial."""
    command: list[str] = Field(default_factory=list)
    """The one command that redoes it."""
    started: str = ""
    ended: str | None = None
    """None: still running, or it was ended from outside."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """Machine, kernel, CPUs, memory, emulator's envelope."""
    versions: dict[str, str] = Field(default_factory=dict)
    share: Share | None = None
    prices: list[Price] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    """What holds for all trials and a reader must know."""


# A result's rate as that of the described cluster, or of one of its nodes.
#
# Most loads do as much as the disks let them: a node does here what it does there, so rates are not
# scaled down. TPC-C's terminals rest between their transactions: its rate is that of its
# warehouses, which shrink with the data.


def of_cluster(result: TrialResult) -> float | None:
    """Return the rate of the whole cluster that the trial describes; None: it has no rate."""
    rate = result.ops_per_s
    if rate is None:
        return None
    by_load = load_ratio(result)
    if by_load is not None:
        return rate * by_load
    full = result.share.nodes.full if result.share else result.nodes
    here = result.nodes or (result.share.nodes.here if result.share else None)
    return rate * full / here if full and here else rate


def of_node(result: TrialResult) -> float | None:
    """Return the rate of one node; None: there is no rate, or nobody knows how many nodes."""
    rate, by_load = result.ops_per_s, load_ratio(result)
    if rate is None:
        return None
    if by_load is not None and result.share is not None and result.share.nodes.full:
        return rate * by_load / result.share.nodes.full
    return rate / result.nodes if result.nodes else None


def load_ratio(result: TrialResult) -> float | None:
    """Return the cluster's load over the load here, where the rate follows it: TPC-C's warehouses.

    None: the rate does not, as without keying and think times.
    """
    warehouses = result.share.warehouses if result.share else None
    told = (result.model_extra or {}).get("tpcc")
    said = told if isinstance(told, Mapping) else {}
    if warehouses is None or not warehouses.here or said.get("keying_and_thinking") is False:
        return None
    return warehouses.full / warehouses.here
