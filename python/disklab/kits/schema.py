"""What a kit file says: how a database is had, started, filled, loaded, read and checked.

docs/kits.md explains every key. Text in a kit is a template (`kits/plan.py`); commands are lists of
words that no shell reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from disklab.catalog.quantity import parse_bytes
from disklab.names import NAME
from disklab.setting_kinds import SettingKind

MOST = 64  # entries of any list or mapping of a kit


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
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


def _amount(what: str, units: Mapping[str, float]) -> Callable[[object], float]:
    pattern = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(units)})")

    def read(given: object) -> float:
        match = pattern.fullmatch(str(given))
        if match is None:
            raise ValueError(f"is {what}")
        return float(match[1]) * units[match[2]]

    return read


def _like(pattern: str) -> Any:
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
Glob = Annotated[str, Field(pattern=r"^[\w.*-]+$")]
Event = Literal["kill", "start", "restart", "lose", "replace"]


class Program(Part):
    """A program, and the one way in which it is had."""

    name: Name
    wheel: str | None = _like(r"^[\w.-]+==[\w.]+$")
    maven: str | None = _like(r"^[\w.-]+(:[\w.-]+){2,3}( [\w.-]+(:[\w.-]+){2,3})*$")
    go: str | None = _like(r"^[\w./-]+@v[\w.+-]+$")
    deb: str | None = _like(r"^[a-z0-9.+-]+=[\w.+:~-]+$")
    debian: str | None = _like(r"^[a-z0-9.+-]+$")
    fedora: str | None = _like(r"^[\w.+-]+$")
    folder: bool = False
    script: str | None = _like(r"^[\w-]+\.py$")
    sha256: str | None = _like(r"^[0-9a-f]{64}$")
    lock: str | None = _like(r"^[\w-]+\.lock$")
    unpack: tuple[Glob, ...] = Field(default=(), max_length=4)
    path: str = Field(default="", pattern=r"^[\w.*/-]*$")

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
    restart: bool = False
    period: bool = False
    promises: Mapping[Text, str] = Field(default={}, max_length=MOST)


class Lines(Part):
    """All nodes in one text, each in a form with words of its own, joined."""

    nodes: Text
    join: str = Field(default=",", max_length=16)


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
    matches: Pattern | None = None
    nodes: Literal["each", "first"] = "first"
    retry: Seconds | None = None

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
    environment: Mapping[str, Text] = Field(default={}, max_length=MOST)
    nodes: str = Field(default="all", pattern=r"^(all|first [1-9])$")
    ready: Acts = Field(min_length=1)
    within: Seconds = 60.0
    stop: Stop = Stop()


class Phases(Part):
    """What is done when, beside starting and stopping."""

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
_CHECKED = ("checked", "lost", "wrong", "there")
"""Acknowledged operations: looked for, gone, with another content; or how many there are."""
_FIGURES = (
    *LATENCIES,
    *_CHECKED,
    *("count", "failed", "seconds", "rate", "latency", "times", "hdr"),
)
Figure = Annotated[str, Field(pattern=f"^({'|'.join(_FIGURES)}|_)$")]


class Result(Part):
    """How figures are read from what a tool writes. The last line that matches counts."""

    line: Pattern | None = None
    json_paths: tuple[str, ...] | None = Field(default=None, alias="json", max_length=16)
    figures: Annotated[tuple[Figure, ...], Field(min_length=1, max_length=16)]
    sum: bool = False
    unit: Literal["ns", "us", "ms", "s"] = "ms"
    thousands: str = Field(default="", max_length=1)
    optional: bool = False

    @model_validator(mode="after")
    def _one(self) -> Result:
        self.one_of("a result is read", "line", "json_paths")
        number = re.compile(self.line).groups if self.line else len(self.json_paths or ())
        if number != len(self.figures):
            what = f"{self.line or 'json'} has {number} groups"
            raise ValueError(f"{what}, and {len(self.figures)} figures are named")
        return self


class Tool(Part):
    """A program that fills, loads or checks, and how what it writes is read."""

    run: Command
    at_rate: Words = ()
    unlimited: Words = ()
    per_second: int = Field(default=1000, ge=1, le=10_000_000)
    operation: Name = "operation"
    loop: Literal["closed", "half open", "open"] = "closed"
    parameters: Mapping[Name, KitSetting] = Field(default={}, max_length=MOST)
    progress: Pattern | None = None
    survives_faults: bool = False
    results: tuple[Result, ...] = Field(default=(), max_length=16)
    within: Seconds = 600.0


class Load(Tool):
    """A load of a trial: its figures are needed, and whether its loop is closed."""

    loop: Literal["closed", "half open", "open"]
    results: tuple[Result, ...] = Field(min_length=1, max_length=16)
    within: Seconds = 120.0


class Speaks(Part):
    """A protocol of our own loads, by which rows and sysbench reach the database."""

    protocol: Literal["mysql", "postgresql"]
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
    memory: Mapping[Name, Memory] = Field(default={}, max_length=8)
    ports: Mapping[Name, Port] = Field(min_length=1, max_length=16)
    several_nodes: bool = False
    units: Mapping[str, Mapping[Unit, int]] = USUAL_UNITS
    settings: Mapping[str, KitSetting] = Field(default={}, max_length=MOST)
    lists: Mapping[Name, Lines] = Field(default={}, max_length=MOST)
    files: tuple[ConfigFile, ...] = Field(default=(), max_length=16)
    processes: tuple[Process, ...] = Field(min_length=1, max_length=4)
    phases: Phases = Phases()
    fill: Tool | None = None
    loads: Mapping[Name, Load] = Field(default={}, max_length=MOST)
    counters: tuple[Counter, ...] = Field(default=(), max_length=MOST)
    check: Tool | None = None
    speaks: Speaks | None = None
    events: tuple[Event, ...] = ("kill", "start", "restart", "lose")
    predicted_as: str | None = None
    unscaled: Bytes = 256 << 20

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
