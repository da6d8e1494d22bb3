"""Which settings a version of Cassandra knows: read from that version's own Config class.

A list of ours would be wrong for the next release. The class file has every field, and in 4.1 and
5.0 the annotation @Replaces with each old name that is still understood.

**Source:** The Java Virtual Machine Specification, SE 17, chapter 4 (class file format).
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from disklab.catalog.suggest import did_you_mean
from disklab.database_settings import Setting, setting_problem, settings_of
from disklab.databases.protocol import Request
from disklab.errors import Problem

CONFIG = "org/apache/cassandra/config/Config.class"
_REPLACES = "Lorg/apache/cassandra/config/Replaces;"
_STATIC = 0x0008
# Bytes behind the tag of each kind of constant that is not text.
_CONSTANT_BYTES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4}
_CONSTANT_BYTES |= {15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_TEXT = 1
# A long or double takes two places in the table.
_WIDE = (5, 6)


def known_settings(classes: Path) -> dict[str, str]:
    """Return every name that cassandra.yaml may have, from the jar of Cassandra's classes.

    Each name maps to the version's own name for the same setting: an old name to the new one.
    """
    with zipfile.ZipFile(classes) as jar:
        return _ClassFile(io.BytesIO(jar.read(CONFIG))).names()


def check_settings(
    settings: Mapping[str, Setting], known: Mapping[str, str], version: str
) -> list[Problem]:
    """Return what is wrong with a user's settings, of a version that knows these names."""
    problems: list[Problem] = []
    first: dict[str, str] = {}
    listed = settings_of("cassandra")
    for name, value in settings.items():
        place = f"database.settings.{name}"
        problem = setting_problem("cassandra", name, value, place)
        if problem is None and name not in known:
            rule = f"Cassandra {version} has no such setting"
            names = known.keys() & listed.settings.keys()
            way_out = did_you_mean(name, names, "see the cassandra.yaml of this version")
            problem = Problem(place, repr(value), rule, way_out)
        elif problem is None and name in listed.reasons:
            rule = f"disklab sets this itself: {listed.reasons[name]}"
            problem = Problem(place, repr(value), rule, "leave it out")
        elif problem is None and known[name] in first:
            rule = f"it is the same setting as {first[known[name]]}"
            problem = Problem(place, repr(value), rule, "leave one of them out")
        if problem is not None:
            problems.append(problem)
        else:
            first[known[name]] = name
    return problems


def merged(
    user: Mapping[str, Setting], defaults: Mapping[str, object], known: Mapping[str, str]
) -> dict[str, object]:
    """Return the defaults with a user's settings over them, whichever of its names each has.

    A default that a user's setting excludes is left out: Cassandra would not start with both.
    """
    given = {known[name] for name in user}
    if user.get("commitlog_sync", "periodic") != "periodic":
        given |= {known[name] for name in defaults if name.startswith("commitlog_sync_period")}
    kept = {name: value for name, value in defaults.items() if known[name] not in given}
    return {**kept, **user}


class _ClassFile:
    """As much of the class file format as the names of fields and their annotations need."""

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        magic, _, _ = self._take(">IHH")
        assert magic == 0xCAFEBABE
        self._texts = self._constants()

    def names(self) -> dict[str, str]:
        """Return the names of all fields that are no constants, and the old names of each."""
        self._take(">HHH")  # access, this class, its parent
        self._content.read(2 * self._number())  # interfaces
        found: dict[str, str] = {}
        for _ in range(self._number()):
            access, name, _, attributes = self._take(">HHHH")
            old = self._old_names(attributes)
            if not access & _STATIC:
                found |= dict.fromkeys((self._texts[name], *old), self._texts[name])
        return found

    def _old_names(self, attributes: int) -> set[str]:
        found: set[str] = set()
        for _ in range(attributes):
            name, length = self._take(">HI")
            content = self._content.read(length)
            if self._texts[name] == "RuntimeVisibleAnnotations":
                found |= self._inside(content)
        return found

    def _inside(self, content: bytes) -> set[str]:
        outer, self._content = self._content, io.BytesIO(content)
        try:
            found: set[str] = set()
            for _ in range(self._number()):
                self._annotation(found)
            return found
        finally:
            self._content = outer

    def _annotation(self, found: set[str]) -> None:
        kind = self._texts[self._number()]
        for _ in range(self._number()):
            key = self._texts[self._number()]
            text = self._value(found)
            if kind == _REPLACES and key == "oldName" and text is not None:
                found.add(text)

    def _value(self, found: set[str]) -> str | None:
        """Read one value of an annotation; return it when it is text."""
        tag = chr(self._take(">B")[0])
        if tag == "s":
            return self._texts[self._number()]
        if tag == "e":
            self._take(">HH")
        elif tag == "@":
            self._annotation(found)
        elif tag == "[":
            for _ in range(self._number()):
                self._value(found)
        else:
            self._number()
        return None

    def _constants(self) -> dict[int, str]:
        """Return the texts of the constant pool by index."""
        texts: dict[int, str] = {}
        count, index = self._number(), 1
        while index < count:
            (tag,) = self._take(">B")
            if tag == _TEXT:
                texts[index] = self._content.read(self._number()).decode("utf-8", "replace")
            else:
                self._content.read(_CONSTANT_BYTES[tag])
            index += 2 if tag in _WIDE else 1
        return texts

    def _number(self) -> int:
        (number,) = self._take(">H")
        return int(number)

    def _take(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._content.read(struct.calcsize(form)))


# Cassandra's own periods, time-outs and rates under time dilation: its clock is this machine's.
#
# A second of the described system takes longer here, so what Cassandra waits for must be longer
# and what it throttles slower, or a commit log would be synced eight times as often as there.
#
# **Divergence:** periods that no setting has stay: the Java machine's, and gossip's one second.

# What the code does without a setting, in the described system's time: new and old name, ms.
# Source: org.apache.cassandra.config.Config of 4.0, 4.1 and 5.0.
USUAL_MS = {
    "read_request_timeout": ("read_request_timeout_in_ms", 5_000),
    "range_request_timeout": ("range_request_timeout_in_ms", 10_000),
    "write_request_timeout": ("write_request_timeout_in_ms", 2_000),
    "counter_write_request_timeout": ("counter_write_request_timeout_in_ms", 5_000),
    "truncate_request_timeout": ("truncate_request_timeout_in_ms", 60_000),
    "request_timeout": ("request_timeout_in_ms", 10_000),
}
# Rates of the described system: new name and value, old name and value.
# Source: the shipped cassandra.yaml of 4.0, 4.1 and 5.0, and Config of the same.
USUAL_RATES = (
    ("compaction_throughput", "64MiB/s", "compaction_throughput_mb_per_sec", 64),
    (
        "stream_throughput_outbound",
        "24MiB/s",
        "stream_throughput_outbound_megabits_per_sec",
        200,
    ),
    (
        "entire_sstable_stream_throughput_outbound",
        "24MiB/s",
        "entire_sstable_stream_throughput_outbound_megabits_per_sec",
        200,
    ),
)

_DURATION = re.compile(r"(\d+)\s*(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_RATE = re.compile(r"(\d+)\s*(B|KiB|MiB)/s", re.ASCII)
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def usual_timing(known: Mapping[str, str]) -> dict[str, object]:
    """Return what the code does by itself, as settings of the version whose names are `known`."""
    found: dict[str, object] = {}
    for new, (old, ms) in USUAL_MS.items():
        if new in known:
            found[new] = f"{ms}ms"
        elif old in known:
            found[old] = ms
    for new, rate, old, old_rate in USUAL_RATES:
        if new in known:
            found[new] = rate
        elif old in known:
            found[old] = old_rate
    return found


def dilated_timing(settings: Mapping[str, object], dilation: int) -> dict[str, object]:
    """Return settings of the described system as they must be here; 1: as they are."""
    if dilation == 1:
        return dict(settings)
    return {name: _dilated(name, value, dilation) for name, value in settings.items()}


def _dilated(name: str, value: object, dilation: int) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        if name.endswith("_in_ms"):
            return value * dilation
        # 0 means without a limit, and so must not become of a small rate.
        is_rate = name.endswith(("_mb_per_sec", "_megabits_per_sec"))
        return max(1, round(value / dilation)) if is_rate and value else value
    if not isinstance(value, str):
        return value
    duration, rate = _DURATION.fullmatch(value), _RATE.fullmatch(value)
    if duration is not None:
        return f"{int(duration[1]) * dilation}{duration[2]}"
    if rate is not None:
        bytes_per_s = int(rate[1]) * _BYTES[rate[2]]
        return f"{max(1, bytes_per_s // dilation)}B/s" if bytes_per_s else value
    return value


# Keyspace and tables of the rows workload.

# Named as experiment files do; the classes are the same in 4.0, 4.1 and 5.0 but for the last.
COMPRESSION = {
    "none": "{'enabled': 'false'}",
    "lz4": "{'class': 'LZ4Compressor'}",
    "snappy": "{'class': 'SnappyCompressor'}",
    "deflate": "{'class': 'DeflateCompressor'}",
    "zstd": "{'class': 'ZstdCompressor'}",
}
COMPACTION = {
    "size-tiered": "SizeTieredCompactionStrategy",
    "leveled": "LeveledCompactionStrategy",
    "unified": "UnifiedCompactionStrategy",
}
UNIFIED_SINCE = "5.0"
OPTIONS = {"compression": COMPRESSION, "compaction": COMPACTION}
CHUNK_LENGTH = "chunk_length"
# As `database.table` of the experiment file has them when nothing is said.
DEFAULTS = {"compression": "none", "compaction": "size-tiered"}


def statements(request: Request, data_center: str | None = None) -> list[str]:
    """Return the CQL that makes keyspace and tables where they are not there yet.

    With `data_center` the copies are in that one alone and in as many of its racks as there are;
    without, on nodes that follow each other.
    """
    columns = "".join(f", c{number} blob" for number in range(request.columns))
    factor = request.replication_factor
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
    if data_center is not None:
        name = data_center.replace("'", "''")
        replication = f"{{'class': 'NetworkTopologyStrategy', '{name}': {factor}}}"
    asked = {**DEFAULTS, **request.table}
    compression = COMPRESSION[str(asked["compression"])]
    if CHUNK_LENGTH in asked:
        length_kib = int(asked[CHUNK_LENGTH]) >> 10
        compression = f"{compression[:-1]}, 'chunk_length_in_kb': '{length_kib}'}}"
    options = (
        f"compression = {compression} "
        f"AND compaction = {{'class': '{COMPACTION[str(asked['compaction'])]}'}}"
    )
    return [
        f"CREATE KEYSPACE IF NOT EXISTS {request.keyspace} WITH replication = {replication}",
        *(
            f"CREATE TABLE IF NOT EXISTS {request.keyspace}.{name} "
            f"(key bigint PRIMARY KEY{columns}) WITH {options}"
            for name in (request.table_name, *request.tables_beside)
        ),
    ]


def check_table(request: Request, line: str) -> Iterator[Problem]:
    """Yield what is wrong with the table's options, for a line of versions such as `5.0`."""
    for name, value in request.table.items():
        place = f"database.table.{name}"
        if name == CHUNK_LENGTH:
            continue
        if name not in OPTIONS:
            known = (*OPTIONS, CHUNK_LENGTH)
            way_out = did_you_mean(name, known, f"choose from {', '.join(known)}")
            yield Problem(place, repr(value), "a table has no such option", way_out)
        elif str(value) not in OPTIONS[name]:
            way_out = did_you_mean(
                str(value), OPTIONS[name], f"choose one of {', '.join(OPTIONS[name])}"
            )
            yield Problem(place, repr(value), f"Cassandra has no such {name}", way_out)
        elif value == "unified" and line != UNIFIED_SINCE:
            rule = f"Cassandra {line} has no unified compaction, {UNIFIED_SINCE} has"
            yield Problem(place, repr(value), rule, "choose size-tiered or leveled")
