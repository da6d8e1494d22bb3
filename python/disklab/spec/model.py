"""What an experiment file says, section by section; a trial is one such file without factors.

A field's alias is its key in the file; its name carries the unit of the number it becomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    computed_field,
    field_validator,
    model_serializer,
    model_validator,
)

from disklab.catalog import Caching, parse_disks
from disklab.catalog.resolve import DEFAULT_CHUNK_BYTES
from disklab.database_facts import named_by, names
from disklab.database_settings import settings_of, spelled
from disklab.kits import KIT, as_written, engine_of, is_kit, problem_of
from disklab.names import NAME_RULE, is_name
from disklab.reading import RESOLVED
from disklab.spec.amounts import (
    RATIO_SLACK,
    Bytes,
    Count,
    Kept,
    Milliseconds,
    Nodes,
    Part,
    Ratio,
    Scale,
    Seconds,
    TimeDilation,
    Unreadable,
    given,
    only,
)
from disklab.spec.benchmarks import Sysbench, Tool, Tpcc, of_other_tool
from disklab.spec.fio import Fio, FioSection, sections
from disklab.spec.payloads import RowShape, RowText, row_shape
from disklab.spec.procedures import Load, Procedure, Variable
from disklab.spec.replay import TraceReplay
from disklab.spec.require import Require
from disklab.spec.timetable import Events, Failures

Consistency = Literal[
    "ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE"
]
Filesystem = Literal["xfs", "ext4"]
if TYPE_CHECKING:
    Engine = str
    EngineOrKit = str
else:
    # Those of the registry: the schema and the messages list them.
    Engine = Literal[names()]
    EngineOrKit = Literal[(*names(), KIT)]


def _setting(value: Any) -> str | int | float | bool:
    if isinstance(value, str | int | float | bool):
        return value
    raise Unreadable("a setting is one word or number", "write for example concurrent_reads: 64")


Setting = Annotated[
    str | int | float | bool,
    PlainValidator(_setting),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]


def _named(name: str) -> str:
    if not is_name(name):
        raise Unreadable(NAME_RULE, "choose another name")
    return name


class Volume(Part):
    """A disk, or a stripe of equal disks, with a file system."""

    disks: str = Field(examples=["4 x azure/P30", "local"])
    """Disks from the catalogue, or those of the VM: local, nvme, ephemeral-os."""
    caching: Caching = Field(default="None", examples=["ReadOnly"])
    """Host caching of the disks."""
    stripe_bytes: Bytes | None = Field(default=None, alias="stripe", examples=["64KiB"])
    """Chunk of the stripe; has no meaning for a single disk. Without it: 64KiB."""
    filesystem: Filesystem = Field(default="xfs", examples=["ext4"])
    """File system."""
    read_ahead_bytes: Bytes | None = Field(default=None, alias="read_ahead", examples=["8KiB"])
    """Read-ahead of the device. Without it: what the kernel chooses."""
    size_bytes: Bytes | None = Field(default=None, alias="size", examples=["500GiB"])
    """Cuts the volume to this size; limits stay those of the disks."""
    latency: Annotated[str, BeforeValidator(str)] | None = Field(default=None, examples=["2022"])
    """One of the dated latency profiles of the disk's family."""
    barriers: bool = Field(default=True, examples=[False])
    """A sync makes the disk FLUSH. false: mounted without barriers; on hosts, do that yourself."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        """How many disks the stripe has."""
        return parse_disks(self.disks).count

    @computed_field  # type: ignore[prop-decorator]
    @property
    def chunk_bytes(self) -> int | None:
        """The stripe's chunk; None: a single disk has none."""
        if self.count == 1:
            return None
        return DEFAULT_CHUNK_BYTES if self.stripe_bytes is None else self.stripe_bytes


class Cluster(Part):
    """The database's nodes."""

    nodes: Nodes = Field(examples=[6])
    """Database nodes, all alike."""
    vm: str = Field(examples=["azure/Standard_DS14_v2"])
    """VM size of each node."""
    host_cache_bytes: Bytes | None = Field(default=None, alias="host_cache", examples=["100GiB"])
    """What you assume the size of the VM's host cache to be, if none is published."""
    zones: Nodes = Field(default=1, examples=[3])
    """Availability zones over which the nodes are spread in turn; the client is in the first."""
    network: str | None = Field(default=None, examples=["azure/accelerated"])
    """The network between the nodes, and to the client: a key of the catalogue's `networks`. A
    rehearsal then gives each node a host of its own, with the VM's bandwidth and these round trips.
    Without it: the nodes share this machine's loopback, and a prediction uses the calibration's
    times."""
    volumes: dict[Annotated[str, AfterValidator(_named)], Volume] = Field(min_length=1)
    """Volumes of each node by name. `data` holds the tables; `commitlog`, if there is one, the log.
    Volumes with `disks: local` share the VM's one temp disk."""

    @field_validator("volumes")
    @classmethod
    def _has_data(cls, volumes: dict[str, Volume]) -> dict[str, Volume]:
        if "data" not in volumes:
            raise Unreadable("one volume is called data", "name the tables' volume data")
        return volumes

    def device_of(self, name: str) -> str:
        """Return the volume whose device holds this one.

        A VM has one temp disk: volumes on `local` share that of the first of them.
        """
        if self.volumes[name].disks.strip() != "local":
            return name
        return next(other for other, v in self.volumes.items() if v.disks.strip() == "local")


class Client(Part):
    """The machines that generate the load."""

    nodes: Nodes = Field(default=1, examples=[1])
    """Load generators."""
    vm: str | None = Field(default=None, examples=["azure/Standard_DS14_v2"])
    """VM size of each. Without it: that of the cluster."""
    on_server: bool = Field(default=False, examples=[True])
    """Whether the load comes from the one server's own VM, and takes processor time from it."""


class Table(Part):
    """How the table is stored."""

    compression: Literal["none", "lz4", "snappy", "deflate", "zstd"] = Field(
        default="none", examples=["lz4"]
    )
    """Compression of the table's chunks."""
    chunk_length_bytes: Bytes | None = Field(default=None, alias="chunk_length", examples=["16KiB"])
    """Uncompressed bytes of a chunk, which is always read as a whole (Cassandra). Without it:
    16KiB, before Cassandra 4.0 64KiB."""
    compaction: Literal["size-tiered", "leveled", "unified"] = Field(
        default="size-tiered", examples=["leveled"]
    )
    """Compaction strategy; it determines how much of the disk must stay free."""


class Jvm(Part):
    """The virtual machine that Cassandra runs in."""

    collector: Literal["g1", "zgc", "shenandoah", "parnew", "cms"] | None = Field(
        default=None, examples=["zgc"]
    )
    """The garbage collector; parnew and cms: ParNew with CMS, as in Cassandra 3.11. Without
    it: what the version's own options choose (3.11: parnew; later and in rehearsals: g1)."""
    heap_bytes: Bytes | None = Field(default=None, alias="heap", examples=["16GiB"])
    """Size of each node's heap in the described system. Without it: a quarter of memory, at most 8
    GiB, as in cassandra-env.sh."""


class Database(Part):
    """The database and its settings."""

    engine: EngineOrKit = Field(examples=["cassandra"])
    """Database. kit: the one that `kit` names."""
    kit: str | None = Field(default=None, examples=["mine"])
    """With `engine: kit`: a kit that comes with disklab (docs/kits.md), or one given on the command
    line with --kit FILE."""
    version: Annotated[str, BeforeValidator(str)] | None = Field(default=None, examples=["5.0"])
    """Version of the database, a release line or a full version: 5.0, 4.1, 4.0 (Cassandra), 3.5,
    3.6 (etcd), 18 (PostgreSQL), or what is installed. Without it: Cassandra 5.0 or what
    CASSANDRA_HOME holds, else the newest that is installed."""
    replication_factor: Nodes = Field(default=1, examples=[3])
    """Copies of each row."""
    consistency: Consistency = Field(default="LOCAL_QUORUM", examples=["QUORUM"])
    """How many copies answer before an operation is done (Cassandra)."""
    settings: dict[str, Setting] = Field(default={}, examples=[{"concurrent_reads": 64}])
    """Settings of the database, under its own names; docs/databases.md lists them."""
    table: Table = Field(default=Table())
    """How the table is stored."""
    jvm: Jvm = Field(default=Jvm())
    """Collector and heap of Cassandra."""
    tls: bool = Field(default=False, examples=[True])
    """Whether client and nodes communicate over TLS."""

    @model_validator(mode="before")
    @classmethod
    def _as_it_writes_amounts(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        value = as_written(value)
        engine = named_by(value.get("engine"), value.get("kit"))
        settings = value.get("settings")
        if engine is None or not isinstance(settings, dict):
            return value
        units = settings_of(engine).units
        own = {name: spelled(each, units) for name, each in settings.items()}
        return {**value, "settings": own}

    @field_validator("kit")
    @classmethod
    def _there(cls, kit: str | None, info: ValidationInfo) -> str | None:
        # A run that somebody sends is read without its kit.
        problem = problem_of(kit) if kit is not None and info.context != RESOLVED else None
        if problem is not None:
            raise Unreadable(problem.rule, problem.way_out)
        return kit

    @model_validator(mode="after")
    def _named_kit(self) -> Database:
        """Call the engine of a kit kit:NAME, by which all that asks for a database finds it."""
        if (self.engine == KIT or is_kit(self.engine)) != (self.kit is not None):
            raise Unreadable("engine: kit and the kit's name belong together", "write both")
        if self.kit is not None:
            self.__dict__["engine"] = engine_of(self.kit)
        return self


class Dataset(Part):
    """The rows that are there before the measurement."""

    rows: Count | None = Field(default=None, examples=["10M"])
    """Rows in the table, copies not counted."""
    fill_ratio: Ratio | None = Field(default=None, alias="fill", examples=["30%"])
    """Instead of rows: the share of each node's data volume that is filled."""
    row: RowText = Field(examples=["5 x 818B", "small"])
    """Columns and bytes of each, or a payload of the workload catalogue: small, medium. Rows of
    several sizes: `1 x 60% 200B + 40% 4KiB`, `1 x lognormal median 1KiB p95 8KiB`."""

    @model_validator(mode="after")
    def _rows_or_fill(self, info: ValidationInfo) -> Dataset:
        # By and by the rows that fill it are known.
        if info.context == RESOLVED and self.rows is not None:
            return self
        if (self.rows is None) == (self.fill_ratio is None):
            raise Unreadable("a data set has either rows or fill", "write one of them")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def columns(self) -> int:
        """Blob columns of a row, beside the key."""
        return self.shape.columns

    @computed_field  # type: ignore[prop-decorator]
    @property
    def column_bytes(self) -> int:
        """Bytes of each column; where rows have several sizes, the mean."""
        return self.shape.column_bytes

    @property
    def shape(self) -> RowShape:
        """Columns of a row, and all sizes that rows have."""
        return row_shape(self.row)


OPERATIONS = ("read", "write", "insert", "update", "delete", "scan", "read_modify_write")
"""Kinds of operations on rows, by the names that results have."""
READING = ("read", "scan")


class Operations(Part):
    """Which share of the operations is of which kind."""

    read: Ratio = Field(default=0.0, examples=["100%"])
    """Reads of one row by its key."""
    write: Ratio = Field(default=0.0, examples=["50%"])
    """Writes of one whole row."""
    insert: Ratio = Field(default=0.0, examples=["5%"])
    """Writes of one new row, after all others."""
    update: Ratio = Field(default=0.0, examples=["20%"])
    """Writes of one column of a row."""
    delete: Ratio = Field(default=0.0, examples=["5%"])
    """Deletes of one row. The table is filled again for the next trial."""
    scan: Ratio = Field(default=0.0, examples=["95%"])
    """Reads of 1 to `scan_rows` consecutive rows, in the table's order (Cassandra: the ring's)."""
    read_modify_write: Ratio = Field(default=0.0, examples=["50%"])
    """Reads of one row, each followed by a write of the whole row; its time is that of both."""

    @model_serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, float]:
        """Leave out kinds beside reads and writes that do not occur: old results have none."""
        found: dict[str, float] = dump(self)
        return {kind: share for kind, share in found.items() if share or kind in OPERATIONS[:2]}

    @property
    def shares(self) -> dict[str, float]:
        """Each kind that occurs, with its share."""
        found = {name: getattr(self, name) for name in OPERATIONS}
        return {name: share for name, share in found.items() if share > 0}

    @property
    def changes(self) -> float:
        """The share of those that change rows."""
        return sum(share for name, share in self.shares.items() if name not in READING)

    @property
    def reads(self) -> bool:
        """Whether any of them reads rows."""
        return not self.shares.keys().isdisjoint({*READING, "read_modify_write"})

    @model_validator(mode="after")
    def _sum(self) -> Operations:
        total = sum(self.shares.values())
        if abs(total - 1) > RATIO_SLACK:
            rule = f"the shares make 100 %, and these make {total * 100:g} %"
            raise Unreadable(rule, "write for example {read: 50%, write: 50%}")
        return self


class Stop(Part):
    """When a measurement ends; of both, what comes first."""

    operations: Count | None = Field(default=None, examples=["3M"])
    """After this many operations."""
    duration_s: Seconds | None = Field(default=None, alias="duration", examples=["1800s"])
    """After this time."""

    @model_validator(mode="after")
    def _some(self) -> Stop:
        if self.operations is None and self.duration_s is None:
            rule = "a measurement ends after operations, a duration, or the first of both"
            raise Unreadable(rule, "write for example {duration: 300s}")
        return self


Kind = Literal["rows", "sysbench", "tpcc", "tool", "fio", "trace"]
KINDS: dict[Kind, str] = {
    "rows": "operations",
    "sysbench": "sysbench",
    "tpcc": "tpcc",
    "tool": "tool",
    "fio": "fio",
    "trace": "trace",
}
"""A workload's kind and the key that stands for it."""


YCSB = {
    "A": ({"read": "50%", "write": "50%"}, "zipfian"),
    "B": ({"read": "95%", "write": "5%"}, "zipfian"),
    "C": ({"read": "100%", "write": "0%"}, "zipfian"),
    "D": ({"read": "95%", "write": "5%"}, "latest"),
    "E": ({"scan": "95%", "insert": "5%"}, "zipfian"),
    "F": ({"read": "50%", "read_modify_write": "50%"}, "zipfian"),
}
"""Mixture and keys. **Source:** workloads/workloada to workloadf of YCSB 0.17.0."""


class Workload(Part):
    """What is done: operations on rows, sysbench, TPC-C, a kit's tool, fio, or a block trace."""

    operations: Operations | None = Field(default=None, examples=[{"read": "100%"}])
    """Rows: the mixture of operations."""
    ycsb: Literal["A", "B", "C", "D", "E", "F"] | None = Field(default=None, examples=["B"])
    """Rows: mixture and keys of a workload of YCSB, instead of `operations` and `keys`. Writes are
    of whole rows; E has scans of 1 to 100 rows and inserts, F reads rows before it writes them."""
    scan_rows: Annotated[int, Field(ge=1, le=10_000)] = Field(default=100, examples=[100])
    """Maximum number of rows in a scan; every number from 1 on is equally likely."""
    writes_per_commit: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, examples=[4])
    """Writes in a transaction, which counts as one write. For SQL databases, in predictions only.
    """
    keys: Literal["uniform", "gaussian", "sequential", "zipfian", "latest"] = Field(
        default="uniform", examples=["zipfian"]
    )
    """Rows: how keys are chosen. gaussian: those in the middle often, the ends three standard
    deviations away, as in cassandra-stress."""
    working_set_ratio: Ratio = Field(
        default="100%", validate_default=True, alias="working_set", examples=["20%"]
    )
    """Rows: the share of them that is ever requested, scattered over the table."""
    load: Load | None = Field(default=None, examples=[{"threads": 128}])
    """Rows: how operations are offered. sysbench and tools: a rate, if there is one."""
    sysbench: Sysbench | None = None
    """sysbench's OLTP scripts."""
    tpcc: Tpcc | None = None
    """TPC-C."""
    tool: Tool | None = None
    """A load tool of the database's kit."""
    fio: Annotated[
        Fio | None,
        BeforeValidator(sections, json_schema_input_type=Fio | list[FioSection] | None),
    ] = None
    """fio on a device; a list: sections that run at the same time, each with a name."""
    trace: TraceReplay | None = None
    """A block trace on a device."""
    stop: Stop | None = Field(default=None, examples=[{"operations": "3M"}])
    """When a measurement ends. Without it: after 60s; a trace is replayed to its end."""
    warm_up_s: Seconds = Field(
        default="0s", validate_default=True, alias="warm_up", examples=["300s"]
    )
    """Load before the measurement that is not counted."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any, info: ValidationInfo) -> Any:
        """Put mixture and keys in the place of the name of a YCSB workload."""
        done = not isinstance(given, Mapping) or of_other_tool(given).get("ycsb") is None
        if done or info.context == RESOLVED:
            return given
        name = str(given["ycsb"])
        if name not in YCSB:
            return given
        beside = [key for key in ("operations", "keys") if key in given]
        if beside:
            rule = f"YCSB {name} has a mixture and keys of its own (here: {', '.join(beside)})"
            raise Unreadable(rule, "leave out either ycsb or the others")
        operations, keys = YCSB[name]
        return {**given, "operations": operations, "keys": keys}

    @model_validator(mode="after")
    def _some_asked(self) -> Workload:
        if not 0 < self.working_set_ratio <= 1:
            rule = "a working set is more than none of the rows, and at most all"
            raise Unreadable(rule, "write for example working_set: 20%")
        if self.working_set_ratio < 1 and self.keys == "latest":
            rule = "with keys: latest the newest rows are asked for, whatever their share"
            raise Unreadable(rule, "leave out working_set, or use keys: zipfian")
        return self

    @property
    def the_operations(self) -> Operations:
        """The operations on rows of a workload that is known to be of rows."""
        return self.the(Operations)

    @property
    def the_stop(self) -> Stop:
        """When the load ends, which the spec has decided on."""
        return given(self.stop, "stop")

    @property
    def chosen(self) -> Operations | Sysbench | Tpcc | Tool | Fio | TraceReplay:
        """The one that it is: exactly one is given."""
        chosen: Operations | Sysbench | Tpcc | Tool | Fio | TraceReplay = getattr(
            self, KINDS[self.kind]
        )
        return chosen

    def the(self, part: type[Kept]) -> Kept:
        """Return the operations, Fio ... that a workload is known to be. Raises WrongKindError."""
        return only(part, self.chosen)

    def asked_of(self, rows: int) -> int | None:
        """Return how many of so many rows are asked for; None: all."""
        if self.working_set_ratio >= 1:
            return None
        return max(1, round(rows * self.working_set_ratio))

    @model_validator(mode="after")
    def _one_kind(self) -> Workload:
        given = [key for key in KINDS.values() if getattr(self, key) is not None]
        if len(given) != 1:
            rule = f"a workload has exactly one of {', '.join(KINDS.values())}"
            found = f" (here: {', '.join(given)})" if given else ""
            raise Unreadable(rule + found, "write for example operations: {read: 100%}")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kind(self) -> Kind:
        """Which of them it is."""
        return next(kind for kind, key in KINDS.items() if getattr(self, key) is not None)


class Before(Part):
    """The condition in which the measurement begins."""

    dataset: Literal["filled", "empty"] = Field(default="filled", examples=["empty"])
    """filled: as `dataset` says; empty: the table is created and contains nothing."""
    page_cache: Literal["cold", "warm", "as-left"] = Field(default="cold", examples=["warm"])
    """cold: dropped; warm: the trial's own load runs first, for as long as it measures; as-left."""
    host_cache: Literal["empty", "warm", "written", "as-left"] = Field(
        default="written", examples=["empty"]
    )
    """empty: as after a redeploy; warm: all data were read through it; written: it holds what the
    fill wrote through it; as-left: by the trial before."""
    compactions: Literal["finished", "as-left"] = Field(default="finished", examples=["finished"])
    """finished: none is pending."""
    credits_ratio: Ratio = Field(
        default="100%", validate_default=True, alias="credits", examples=["50%"]
    )
    """Burst credits of disks and VM, as a share of full buckets. Hours of rest leave them full."""


class Device(Part):
    """A device experiment: one volume on a VM, no database."""

    vm: str = Field(examples=["azure/Standard_E8ds_v4"])
    """VM size."""
    host_cache_bytes: Bytes | None = Field(default=None, alias="host_cache", examples=["100GiB"])
    """What you assume the size of the VM's host cache to be, if none is published."""
    volume: Volume
    """The volume that is measured."""


class Rehearse(Part):
    """What changes when this machine stands in for the cluster."""

    nodes: Nodes | None = Field(default=None, examples=[1])
    """How many of the cluster's nodes this machine stands in for. Without it: as many as the
    replication factor needs."""
    scale: Scale = Field(default="1", validate_default=True, examples=["1/100"])
    """Shrinks rows, operations, caches, memory, volumes and burst credits together."""
    rate_scale: Scale = Field(default="1", validate_default=True, examples=["1/2"])
    """Additionally shrinks offered rates that are too high for this machine."""
    time_dilation: TimeDilation | None = Field(default=None, examples=[8])
    """How many seconds of this machine a second of the described system takes. Without it: as many
    as let this machine's CPUs do what those of the rehearsed nodes do. 1: no slow motion."""
    engine: Engine | None = Field(default=None, examples=["postgresql"])
    """A database that stands in for the cluster's, if that one is not available."""


class WrittenTrial(Part):
    """What a file says of one trial, every amount a number: a part of it may be missing."""

    cluster: Cluster | None = None
    """The database's nodes. A device experiment has none."""
    device: Device | None = None
    """A device experiment: a volume without a database."""
    client: Client = Field(default=Client())
    """The machines that generate the load."""
    database: Database | None = None
    """The database; required with `cluster`."""
    dataset: Dataset | None = None
    """The rows that exist beforehand; sysbench, TPC-C and fio bring their own."""
    workload: Workload
    """What the clients do."""
    procedure: Procedure | None = None
    """How a trial is measured. Without it: closed_loop for threads, fixed for a rate."""
    before: Before = Field(default=Before())
    """The condition in which the measurement begins."""
    events: Events = Field(default=[], examples=[[{"at": "60s", "kill": "n2"}]])
    """What happens to which node during the load, or `{weather: {seed: 1, year_in: 10min}}`."""
    failures: Failures | None = None
    """How often VMs and disks fail; predictions of Cassandra show what that costs in a year."""
    require: Require | None = None
    """What the system must do. Every cell is judged by it, and `disklab advise` looks for the
    cheapest hardware that does it."""


class _Decided(WrittenTrial):
    """One trial: everything decided. The figures are the full system's."""

    procedure: Procedure

    @property
    def variable(self) -> Variable | None:
        """The search that its procedure is; None: it is none."""
        return self.procedure.variable


class ClusterTrial(_Decided):
    """A trial of a database on a cluster."""

    cluster: Cluster
    device: None = None
    database: Database

    @property
    def machine(self) -> Cluster:
        """What has the VM and its host cache."""
        return self.cluster

    @property
    def nodes(self) -> int:
        """How many database nodes there are."""
        return self.cluster.nodes

    @property
    def copies(self) -> int:
        """How many copies of a row there are."""
        return self.database.replication_factor

    @property
    def engine(self) -> str:
        """Which database it is."""
        return self.database.engine

    @property
    def the_dataset(self) -> Dataset:
        """The rows of a trial that is known to have some."""
        return given(self.dataset, "dataset")


class DeviceTrial(_Decided):
    """A trial of a volume without a database."""

    cluster: None = None
    device: Device
    database: None = None
    nodes: ClassVar[int] = 1
    copies: ClassVar[int] = 1
    engine: ClassVar[None] = None

    @property
    def machine(self) -> Device:
        """What has the VM and its host cache."""
        return self.device


TrialSpec = ClusterTrial | DeviceTrial


class Observed(Part):
    """What `disklab observe` saw of the database that runs on `cluster`."""

    at: str = Field(examples=["2026-11-24 21:05 UTC"])
    """When the observation began."""
    for_s: Seconds = Field(alias="for", examples=["300s"])
    """For how long."""
    hardware: Literal["stated", "assumed"] = Field(default="stated", examples=["stated"])
    """stated: the database runs on the VM and disks of `cluster`, so advice compares with them;
    assumed: not stated."""
    p99_ms: Milliseconds | None = Field(default=None, alias="p99", examples=["7ms"])
    """The 99th percentile of its response times, as reported by its own server."""


class ExperimentFile(WrittenTrial):
    """An experiment file: a baseline, and the factors that vary it."""

    title: str = Field(examples=["Local or attached data disks for Cassandra?"])
    """The question."""
    source: str = ""
    """Who asked it before, and published results."""
    observed: Observed | None = None
    """Where the file comes from, if `disklab observe` wrote it."""
    rehearse: Rehearse = Field(default=Rehearse())
    """What changes when this machine stands in for the cluster."""
    factors: dict[
        str, Annotated[list[Any], Field(min_length=1)] | dict[str, dict[str, Any] | None]
    ] = Field(default={}, examples=[{"workload.load.threads": [64, 128]}])
    """What varies: a dotted path with a list of values, or a name with levels that patch paths."""
