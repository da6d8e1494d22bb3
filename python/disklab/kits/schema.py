"""What a kit file says: how a database is had, started, filled, loaded, read and checked.

docs/kits.md explains every key. Text in a kit is a template (`kits/plan.py`); commands are lists of
words that no shell reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from disklab.catalog.quantity import parse_bytes
from disklab.names import NAME
from disklab.setting_kinds import SettingKind

MOST = 64
"""Entries of any list or mapping of a kit, at most."""


class Part(BaseModel):
    """A part of a kit; a key that is not known is an error, and a number may be a word."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, coerce_numbers_to_str=True
    )

    def one_of(self, what: str, *ways: str) -> str:
        """Return which of these keys is given. Raises ValueError unless it is exactly one."""
        given = [way for way in ways if getattr(self, way) not in (None, False)]
        if len(given) != 1:
            raise ValueError(f"{what} in exactly one way: {', '.join(ways)}")
        return given[0]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return text


def _amount(what: str, units: Mapping[str, float]) -> Callable[[object], float]:
    """Return what reads an amount in one of these units."""
    pattern = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(units)})")

    def read(given: object) -> float:
        match = pattern.fullmatch(str(given))
        if match is None:
            raise ValueError(f"is {what}")
        return float(match[1]) * units[match[2]]

    return read


def _like(pattern: str) -> Any:
    """Return the field of a key that may be missing and has a form."""
    return Field(default=None, pattern=pattern)


_TIME = _amount("a time, such as 30 s", {"ms": 0.001, "s": 1, "min": 60})
_SHARE = _amount("a share, such as 25 %", {"%": 0.01})
_AS_TEXT = WithJsonSchema({"type": "string", "examples": ["30 s", "64 MiB", "25 %"]})
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
Text = Annotated[str, Field(max_length=64 << 10), WithJsonSchema({"type": ["string", "number"]})]
Words = Annotated[tuple[Text, ...], Field(max_length=MOST)]
Command = Annotated[Words, Field(min_length=1)]
Pattern = Annotated[str, BeforeValidator(_pattern), Field(max_length=1024)]
Seconds = Annotated[float, BeforeValidator(_TIME), Field(gt=0, le=3600), _AS_TEXT]
Share = Annotated[float, BeforeValidator(_SHARE), Field(le=1), _AS_TEXT]
Bytes = Annotated[int, BeforeValidator(lambda given: parse_bytes(str(given))), _AS_TEXT]
Event = Literal["kill", "start", "restart", "lose", "replace"]


class Program(Part):
    """A program, and the one way in which it is had."""

    name: Name
    wheel: str | None = _like(r"^[\w.-]+==[\w.]+$")
    maven: str | None = _like(r"^[\w.-]+(:[\w.-]+){2,3}( [\w.-]+(:[\w.-]+){2,3})*$")
    """`group:artifact:version[:type]`; with a lock, with all that they need at run time."""
    go: str | None = _like(r"^[\w./-]+@v[\w.+-]+$")
    deb: str | None = _like(r"^[a-z0-9.+-]+=[\w.+:~-]+$")
    """Unpacked and not installed; `debian` has to be installed, as `fedora` there."""
    debian: str | None = _like(r"^[a-z0-9.+-]+$")
    fedora: str | None = _like(r"^[\w.+-]+$")
    folder: bool = False
    """Of the user's, by `--program NAME=FOLDER`."""
    script: str | None = _like(r"^[\w-]+\.py$")
    """Beside the kit file, with the standard library alone."""
    sha256: str | None = _like(r"^[0-9a-f]{64}$")
    lock: str | None = _like(r"^[\w-]+\.lock$")
    """A file beside the kit: a line `sha256  name` for each file that is fetched."""
    unpack: tuple[Annotated[str, Field(pattern=r"^[\w.*-]+$")], ...] = Field((), max_length=4)
    """Archives within the fetched file, outermost first; a wheel or deb is unpacked anyhow."""
    path: str = Field("", pattern=r"^[\w.*/-]*$")
    """In the folder, with stars; of an installed program, its name. Empty: the folder itself."""

    @model_validator(mode="after")
    def _one_way(self) -> Program:
        ways = ("wheel", "maven", "go", "deb", "debian", "folder", "script")
        way = self.one_of("a program is had", *ways)
        if ".." in self.path.split("/") or (self.path.startswith("/") and not self.debian):
            raise ValueError("a path stays in the program's folder")
        if way in ("wheel", "deb", "maven") and not (self.sha256 or self.lock):
            raise ValueError(f"a {way} has its sha256, or a lock with those of all files")
        return self


class Memory(Part):
    """A part of a node's memory, scaled; below `least` it does not work."""

    share: Share
    least: Bytes


class KitSetting(SettingKind):
    """What an experiment may set, of the server or of a load: a type, a range, its promises."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    default: Text
    """What the program has when nothing is said."""
    restart: bool = False
    """Whether a restart changes it, without new data."""
    period: bool = False
    """A time of the database's own clock, which slow motion stretches."""
    promises: Mapping[Text, str] = Field({}, max_length=MOST)
    """What an acknowledged write has, by value; `else`: by every other one."""


class Lines(Part):
    """All nodes in one text, each in a form with words of its own, joined."""

    nodes: Text
    join: str = Field(",", max_length=16)


class ConfigFile(Part):
    """A file of configuration, written at each start; behind it `one` or `several` nodes'."""

    name: Name
    text: Text
    one: Text = ""
    several: Text = ""


class Act(Part):
    """What is asked of a node, and what has to come of it.

    A command, a question over HTTP, a line of its log since its start, or a port that listens.
    """

    run: Command | None = None
    http: str | None = _like("^((GET|PUT|POST|DELETE) )?/")
    port: Name | None = None
    body: Text = ""
    log: Pattern | None = None
    path: str | None = None
    """Of a JSON answer; a star takes every key. A sign is there when no value is empty or false."""
    matches: Pattern | None = None
    """Something of the answer; of a counter, its group 1."""
    when: Literal["one node", "several nodes"] | None = None
    nodes: Literal["each", "first"] = "first"
    retry: Seconds | None = None
    """For so long a step is tried again; None: its first failure counts."""

    @model_validator(mode="after")
    def _one(self) -> Act:
        self.one_of("it is asked", "run", "http", "log", *(() if self.http else ("port",)))
        if self.http is not None and self.port is None:
            raise ValueError("http has a port")
        return self


Acts = Annotated[tuple[Act, ...], Field(max_length=16)]


class Counter(Act):
    """A number that the database tells while it runs."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    kind: Literal["counter", "gauge"] = "counter"

    @model_validator(mode="after")
    def _read(self) -> Counter:
        if self.log or (self.path is None) == (self.matches is None):
            raise ValueError("a counter is at a path of JSON, or matches a pattern")
        return self


class Stop(Part):
    """How a process is ended in order."""

    signal: Literal["TERM", "INT", "QUIT"] = "TERM"
    within: Seconds = 60.0


class Process(Part):
    """A process of a node, or of the first nodes. All its signs come in time, or it has failed."""

    name: Name = "server"
    run: Command
    environment: Mapping[str, Text] = Field({}, max_length=MOST)
    nodes: str = Field("all", pattern=r"^(all|first [1-9])$")
    ready: Acts = Field(min_length=1)
    within: Seconds = 60.0
    stop: Stop = Stop()


class Phases(Part):
    """What is done when: on a node's empty volumes, before each start, once when all are ready ...

    `create` follows `empty`, which leaves no rows. After `settle` everything is written that was in
    memory alone. `whole` are signs that every node has what the others have.
    """

    format: Acts = ()
    start: Acts = ()
    create: Acts = ()
    empty: Acts = ()
    settle: Acts = ()
    whole: Acts = ()
    whole_within: Seconds = 120.0


UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
"""Of latencies, in ms."""
LATENCIES = ("mean", "p50", "p95", "p99", "p99.9", "max")
FIGURES = (
    *("count", "failed", "seconds", "rate", *LATENCIES),
    # Of a check: acknowledged operations that were looked for, are gone, have another content; or
    # operations that are there.
    *("checked", "lost", "wrong", "there"),
    # Of a histogram: a latency and how often it was; or an HdrHistogram in base64. And no figure.
    *("latency", "times", "hdr", "_"),
)


class Result(Part):
    """How figures are read from what a tool writes. The last line that matches counts."""

    line: Pattern | None = None
    json_paths: tuple[str, ...] | None = Field(default=None, alias="json", max_length=16)
    figures: Command
    """One for each group or path. `latency` and `times` are of every line."""
    sum: bool = False
    """Whether the figures of all lines that match are added up."""
    unit: Literal["ns", "us", "ms", "s"] = "ms"
    thousands: str = Field("", max_length=1)
    """What parts groups of digits."""
    optional: bool = False

    @model_validator(mode="after")
    def _one(self) -> Result:
        self.one_of("a result is read", "line", "json_paths")
        unknown = [name for name in self.figures if name not in FIGURES]
        if unknown:
            raise ValueError(f"{unknown[0]} is no figure; they are {', '.join(FIGURES)}")
        number = re.compile(self.line).groups if self.line else len(self.json_paths or ())
        if number != len(self.figures):
            what = f"{self.line or 'json'} has {number} groups"
            raise ValueError(f"{what}, and {len(self.figures)} figures are named")
        return self


class Tool(Part):
    """A program that fills, loads or checks, and how what it writes is read."""

    run: Command
    """The word `{pace}` stands for the words of `at_rate` or `unlimited`."""
    at_rate: Words = ()
    unlimited: Words = ()
    per_second: int = Field(1000, ge=1, le=10_000_000)
    """Operations a second by which `{count}` is reckoned where no rate is given."""
    operation: Name = "operation"
    loop: Literal["closed", "half open", "open"] = "closed"
    parameters: Mapping[Name, KitSetting] = Field({}, max_length=MOST)
    progress: Pattern | None = None
    """A line of each second, whose group 1 is the operations of it."""
    writes: bool = True
    """Whether the data are other ones afterwards."""
    survives_faults: bool = False
    results: tuple[Result, ...] = Field((), max_length=16)
    within: Seconds = 600.0
    """Beyond the seconds that it is asked for."""


class Load(Tool):
    """A load of a trial: its figures are needed, and whether its loop is closed."""

    loop: Literal["closed", "half open", "open"]
    results: tuple[Result, ...] = Field(min_length=1, max_length=16)
    within: Seconds = 120.0


class Speaks(Part):
    """A protocol of our own loads, by which rows and sysbench reach the database."""

    protocol: Literal["mysql", "postgresql", "redis"]
    port: Name
    user: str = "disklab"
    database: str = "disklab"
    workloads: tuple[Literal["rows", "sysbench"], ...] = ()


USUAL_UNITS = {
    "time": {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000},
    "bytes": {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30},
    "rate": {"b/s": 1, "kb/s": 1 << 10, "mb/s": 1 << 20},
}
Unit = Annotated[str, Field(pattern=r"^[A-Za-z/]{1,8}$")]
Port = Annotated[int, Field(ge=1024, le=65535)]


class Kit(Part):
    """A database that is a file."""

    kit: Name
    title: str = Field(min_length=1, max_length=64)
    version: Text
    licence: str = Field(min_length=1)
    tried: str = Field(min_length=1)
    programs: tuple[Program, ...] = Field(min_length=1, max_length=16)
    volumes: Mapping[Name, Literal["required", "optional"]]
    """Where an optional one is missing, it is a folder on `data`."""
    memory: Mapping[Name, Memory] = Field({}, max_length=8)
    ports: Mapping[Name, Port] = Field(min_length=1, max_length=16)
    several_nodes: bool = False
    units: Mapping[str, Mapping[Unit, int]] = USUAL_UNITS
    settings: Mapping[str, KitSetting] = Field({}, max_length=MOST)
    lists: Mapping[Name, Lines] = Field({}, max_length=MOST)
    files: tuple[ConfigFile, ...] = Field((), max_length=16)
    processes: tuple[Process, ...] = Field(min_length=1, max_length=4)
    phases: Phases = Phases()
    fill: Tool | None = None
    loads: Mapping[Name, Load] = Field({}, max_length=MOST)
    counters: tuple[Counter, ...] = Field((), max_length=MOST)
    check: Tool | None = None
    """Looks for what was acknowledged: `checked`, `lost` and `wrong`; or `there`."""
    speaks: Speaks | None = None
    events: tuple[Event, ...] = ("kill", "start", "restart", "lose")
    predicted_as: str | None = None
    unscaled: Bytes = 256 << 20
    """What a node writes beside its data, however small they are."""

    @model_validator(mode="after")
    def _whole(self) -> Kit:
        if self.volumes.get("data") != "required":
            raise ValueError("the volume data is required: write volumes: {data: required}")
        if not self.loads and self.speaks is None:
            raise ValueError("a kit has loads of its own, or speaks a protocol of disklab's")
        parameters = [kind for load in self.loads.values() for kind in load.parameters.items()]
        for name, setting in (*self.settings.items(), *parameters):
            units = self.units.get(setting.type, {})
            if setting.type in USUAL_UNITS and (setting.unit or next(iter(units), 0)) not in units:
                raise ValueError(f"{name}: write its units into units.{setting.type}")
        if len({program.name for program in self.programs}) < len(self.programs):
            raise ValueError("two programs have one name")
        return self

    def acts(self) -> Iterator[Act]:
        """Yield everything that is asked of a node."""
        for process in self.processes:
            yield from process.ready
        for _, acts in self.phases:
            yield from acts if isinstance(acts, tuple) else ()
        yield from self.counters
