"""What has to be known of a database before any of it is loaded: `databases/X/facts.yaml`.

An experiment file names a database, so its reader must know which there are, what they take and how
much room they need, and lies far below the databases themselves. Both read the same file of the
database's own folder; `databases/registry.py` adds what the database does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from math import ceil
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from disklab.kits import KIT, engine_of, is_kit, is_there, kit_of
from disklab.kits.schema import Kit
from disklab.reading import PART, yaml_value

DATABASES = (
    "cassandra",
    "etcd",
    "mariadb",
    "mysql",
    "postgresql",
    "redis",
    "yugabytedb",
)
"""The folders of `databases/`, one line each: this is the registry."""

USUAL = "cassandra"
"""What is meant where nobody names a database."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Package(_Part):
    """A program that the database needs on this machine, and what installs it."""

    program: str
    debian: str
    """Of Debian and Ubuntu."""
    fedora: str
    usual: bool = True
    """Whether `disklab doctor` lists it with the machine's own programs."""


class TpccRoom(_Part):
    """Bytes that TPC-C's tables need on a node; the database compresses nothing."""

    server_bytes: int
    """Beside the warehouses: write-ahead log and catalogs."""
    warehouse_bytes: int
    """Of each warehouse while orders come in."""

    loaded_bytes: int
    """Of each warehouse as it is loaded."""

    def loaded(self, warehouses: int) -> int:
        """Return the bytes of one copy of all tables as they are loaded, with what is beside."""
        return self.server_bytes + warehouses * self.loaded_bytes


class StoredRow(_Part):
    """What a row of the rows workload takes of the data files; at least what the simulator lays."""

    row_bytes: int
    """Beside its columns' values."""
    column_bytes: int = 0
    """Beside the values of each column."""
    page_room_bytes: int | None = None
    """What a page leaves to rows, of which it holds whole ones; None: rows lie one behind another.
    """
    page_bytes: int = 0
    entry_bytes: int = 0
    """Of its entry in the index of the key, where that lies apart from the row."""
    filled_ratio: Mapping[int, float] = Field(default={0: 1.0})
    """How full pages are, by the bytes from which on a row is so long."""

    def of(self, columns: int, column_bytes: int) -> int:
        """Return the bytes of one copy of a row, uncompressed."""
        row = columns * (column_bytes + self.column_bytes) + self.row_bytes
        if self.page_room_bytes is not None:
            row = -(-self.page_bytes // max(1, self.page_room_bytes // row))
        shortest, *longer = self.filled_ratio
        least = max((least for least in longer if least <= row), default=shortest)
        return ceil(row / self.filled_ratio[least]) + self.entry_bytes


def aligned(size: int, unit: int) -> int:
    """Return the least multiple of a unit that is no smaller than a size."""
    return -(-size // unit) * unit


class RowInPage(_Part):
    """What a row of the rows workload takes of its page: a number and columns of bytes."""

    beside_bytes: int
    """Header, key and what else stands before the columns."""
    short_value_bytes: int
    """Longer values have a header of `long_header_bytes`, others one of a byte."""
    long_header_bytes: int
    long_alignment: int = 1
    """Where a longer value may begin."""
    alignment: int = 1
    """Of the row as a whole."""
    pointer_bytes: int = 0
    most_bytes: int
    """Longer rows are stored otherwise."""

    def of(self, columns: int, column_bytes: int) -> int:
        """Return the bytes of a row."""
        is_short = column_bytes <= self.short_value_bytes
        header, unit = (1, 1) if is_short else (self.long_header_bytes, self.long_alignment)
        each = header + column_bytes
        end = aligned(self.beside_bytes, unit) + (columns - 1) * aligned(each, unit) + each
        return aligned(end, self.alignment) + self.pointer_bytes


class RowsLoad(_Part):
    """How the load on rows reaches the database."""

    fill_in_flight: int
    """Writes in flight while the table is filled."""
    most_in_flight: int | None = None
    """Operations in flight of an open loop at most; None: as many as the load engine's usual."""
    fill_settings: Mapping[str, str] = Field(default={})
    """Settings of the fill's sessions, where the protocol has sessions."""
    lacks: Mapping[str, str] = Field(default={})
    """Operations on rows that it is not asked for, and why."""


class Lever(_Part):
    """A setting that costs no money and moves a limit: advice tries it before buying more."""

    setting: str
    value: str | int
    words: str
    """As people say it; `{}` is the value."""
    usual: int | None = None
    """The setting without it: a number, of which more is better; None: a setting that is given
    stays."""
    since: str | None = None
    """The first release that has it; None: all have."""
    before: str | None = None
    """The first release that has another in its place; None: none."""
    is_replayed: bool = False
    """Whether it is so much of a log that a crash leaves to be replayed."""
    of_writes: bool = False
    """Whether it moves what writes wait for, and nothing else."""
    of_all_primaries: bool = False
    """Whether it does so where every node takes writes alone."""
    whole_page: str | None = None
    """The setting of the size of a page that disks must write whole: without the lever, a page that
    is torn is lost, and with it the database."""
    page_bytes: int = 0
    """That size where the file does not say it."""


class Facts(_Part):
    """One database."""

    title: str
    """As its makers write it."""
    workloads: tuple[Literal["rows", "sysbench", "tpcc", "tool"], ...]
    """What it can be asked to do."""
    in_java: bool = False
    """Whether it runs in a Java virtual machine, which pauses."""
    has_strategies: bool = False
    """Whether the file chooses how its tables are compacted."""
    consistency_levels: bool = False
    """Whether each operation says how many copies must answer."""
    headroom_ratio: Mapping[Literal["size-tiered", "leveled", "unified"], float]
    """Disk space over the data's own that it may need for a while, by compaction strategy."""
    log_volumes: tuple[str, ...] = ()
    """Names of the volume that holds its log, where that is not on `data`, and no others are used;
    empty: it has directories on every volume."""
    least_volume_bytes: int = 0
    """The smallest volume on which it starts."""
    unscaled_bytes: int = 0
    """What a node writes to a volume beside its rows, however few of them there are here."""
    compiles: bool = False
    """Whether it compiles itself while it runs, and so wants a warm-up after each start."""
    events: tuple[
        Literal[
            "kill",
            "start",
            "restart",
            "lose",
            "replace",
            "promote",
            "add",
            "decommission",
            "migrate",
            "move",
            "repair",
        ],
        ...,
    ] = ()
    """What may happen to one of its nodes in a timetable; disks may break under any database."""
    restart_settings: tuple[str, ...] = ()
    """Settings that a restart changes: neither its data nor its memory hang on them."""
    stored: StoredRow
    in_page: RowInPage | None = None
    """Of servers that keep rows in pages, where rows are simulated."""
    rows: RowsLoad
    tpcc: TpccRoom | None = None
    simulator: str | None = None
    """The simulator's model of it; None: there is none."""
    usual_nodes: int = 1
    """Of a cluster of which nobody says how many it has."""
    whole_nodes: bool = False
    """Whether each node has all rows and takes part in each write: more nodes carry no more."""
    in_memory: bool = False
    """Whether memory has all rows, so that no read of one meets a disk."""
    primary: bool = False
    """Whether one node serves all operations and the others keep copies."""
    all_primaries_from: int | None = None
    """With so many copies every node could serve them, and none is promoted; None: never."""
    usual_version: str | None = None
    """What is meant where nobody names a release; None: the newest."""
    usual_vm: str | None = None
    """The VM size to begin with in a new experiment; None: none is written for it."""
    caching_vm: str | None = None
    """The same where the host caches disks; None: that one."""
    observed: bool = False
    """Whether `disklab observe` looks at one that runs."""
    measured_as_it_runs: bool = False
    """Whether `disklab measure` loads one that somebody else has started."""
    asks_who: bool = False
    """Whether it answers only to those who log in."""
    version_numbers: int = 2
    """How many numbers name a release series."""
    cloud_packages: tuple[str, ...] | None = None
    """What a host that is made for it needs beside what is sent there, as Ubuntu calls it; None: it
    cannot be asked through SSH alone, which is all that a cloud lets in."""
    newest: str | None = None
    """The newest release that disklab knows; later ones are refused, not taken for it."""
    advised: bool = False
    """Whether `disklab advise` searches with that model."""
    levers: tuple[Lever, ...] = ()
    is_quick: bool = False
    """Whether that is quick enough for bands of finalists that nobody has asked for."""
    packages: tuple[Package, ...] = ()


def names() -> tuple[str, ...]:
    """Return the databases as an experiment file writes them."""
    return DATABASES


def named_by(engine: object, kit: object) -> str | None:
    """Return the database that an experiment file names, `kit:NAME` for a kit; None: none is."""
    if engine == KIT:
        return engine_of(str(kit)) if is_there(str(kit)) else None
    return str(engine) if engine in names() else None


@cache
def facts_of(engine: str) -> Facts:
    """Return the facts of a database of the registry, or of a kit.

    Raises KeyError for any other, and UserError for a kit that nobody has named.
    """
    if is_kit(engine):
        return _facts_of_kit(kit_of(engine).kit)
    if engine not in DATABASES:
        raise KeyError(engine)
    file = resources.files("disklab") / "databases" / engine / "facts.yaml"
    return Facts.model_validate(yaml_value(file.read_text(), PART, str(file), ours=True))


def _facts_of_kit(kit: Kit) -> Facts:
    """Return what a kit says of itself; where it is predicted as another one, as that one is."""
    as_other = facts_of(kit.predicted_as) if kit.predicted_as is not None else None
    own = kit.speaks.workloads if kit.speaks is not None else ()
    return Facts(
        title=kit.title,
        workloads=(*own, *(("tool",) if kit.loads else ())),
        headroom_ratio=dict.fromkeys(("size-tiered", "leveled", "unified"), 2.0),
        log_volumes=tuple(kit.volumes),
        unscaled_bytes=kit.unscaled,
        events=kit.events,
        restart_settings=tuple(name for name, kind in kit.settings.items() if kind.restart),
        stored=as_other.stored if as_other else StoredRow(row_bytes=0),
        rows=RowsLoad(fill_in_flight=32, most_in_flight=200),
        simulator=as_other.simulator if as_other else None,
        primary=as_other.primary if as_other else False,
        advised=as_other.advised if as_other else False,
        levers=as_other.levers if as_other else (),
        is_quick=as_other.is_quick if as_other else False,
        in_java=as_other.in_java if as_other else False,
        has_strategies=as_other.has_strategies if as_other else False,
    )


def modelled_as(engine: str) -> str:
    """Return the database of the registry by whose model another one is simulated."""
    return (kit_of(engine).kit.predicted_as or engine) if is_kit(engine) else engine


def in_page(engine: str) -> RowInPage:
    """Return what a row takes of its page in a database that keeps rows in pages."""
    layout = facts_of(engine).in_page
    assert layout is not None, engine
    return layout


def has_one_primary(engine: str, copies: int) -> bool:
    """Return whether one node alone takes changes, and another one has to be promoted for it."""
    facts = facts_of(engine)
    limit = facts.all_primaries_from
    return facts.primary and (limit is None or copies < limit)


def simulated() -> str:
    """Return the titles of the databases that the simulator models, as a list in words."""
    return _listed(facts_of(name).title for name in DATABASES if facts_of(name).simulator)


def advised() -> str:
    """Return the titles of the databases that `disklab advise` searches for, likewise."""
    return _listed(facts_of(name).title for name in DATABASES if facts_of(name).advised)


def _listed(words: Iterable[str]) -> str:
    titles = list(words)
    return " and ".join([", ".join(titles[:-1]), titles[-1]] if len(titles) > 1 else titles)
