"""The hosts file: which hosts an experiment is measured on, and what of them may be changed.

It is read as the experiment file is: typed, every problem at once, each with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from disklab import reading
from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError
from disklab.folders import Inside
from disklab.names import NAME, NAME_RULE
from disklab.reading import bounded, digits
from disklab.spec.amounts import Bytes, Part, Unreadable
from disklab.spec.located import Document, Form, complaints, document_of, read_document

GENERAL = "see docs/measure.md"
FORM = Form(
    reading.HOSTS, "--hosts", "a hosts file is a mapping with `hosts`", "start from docs/measure.md"
)
# ssh takes what begins with a dash for an option; a user, a name or an address has none of these.
_DESTINATION = re.compile(r"(?!-)[A-Za-z0-9._~%+@:\[\]-]{1,255}", re.ASCII)
_SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_BY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+=@-]{0,254}", re.ASCII)
MOST_LUN = 255
"""Azure has up to 64 data disks on a VM; SCSI's flat addressing ends here."""


_WITH_PORT = re.compile(r"(?:ssh://)?(?:([^@/]+)@)?([^:@/\[\]]+|\[[^\]]+\])(?::(\d+))?/?", re.ASCII)


def _destination(value: Any) -> str:
    parts = _WITH_PORT.fullmatch(value) if isinstance(value, str) else None
    if parts is not None and (parts[3] or str(value).startswith("ssh://")):
        rule = "ports and jump hosts belong in ssh's own configuration, not here"
        lines = ["Host NAME", f"HostName {parts[2].strip('[]')}"]
        lines += [f"User {parts[1]}"] if parts[1] else []
        lines += [f"Port {parts[3]}"] if parts[3] else []
        way_out = f"write `{'; '.join(lines)}` in ~/.ssh/config, or in a file that `ssh_config:`"
        raise Unreadable(rule, f"{way_out} of the hosts file names, and NAME here")
    if not isinstance(value, str) or _DESTINATION.fullmatch(value) is None:
        rule = "a destination is what ssh takes: a host or USER@HOST, or a name of ~/.ssh/config"
        raise Unreadable(rule, "write for example ubuntu@10.0.0.4")
    return value


def _directory(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    plain = text.startswith("/") and ".." not in text.split("/")
    if not plain or len(text) > 4000 or reading.UNSAFE.search(text):
        rule = "a path here is absolute and has no `..`"
        raise Unreadable(rule, "write for example /mnt/data")
    return text


def _by_id(value: Any) -> str:
    text = value.removeprefix("/dev/disk/by-id/") if isinstance(value, str) else ""
    if _BY_ID.fullmatch(text) is None:
        rule = "is not a name below /dev/disk/by-id"
        raise Unreadable(rule, "write what `ls /dev/disk/by-id` shows there; /dev/sdX may change")
    return text


class Disk(Part):
    """A disk that disklab may format: how it is found, and what it must be."""

    by_id: Annotated[str | None, BeforeValidator(_by_id)] = Field(
        default=None, examples=["scsi-14d53465420202020"]
    )
    """Its name below /dev/disk/by-id."""
    lun: Annotated[int, Field(ge=0, le=MOST_LUN)] | None = Field(default=None, examples=[0])
    """Instead: the number under which the cloud attached it."""
    size_bytes: Bytes = Field(alias="size", examples=["1TiB"])
    """Its size; another one is another disk."""
    kind: Literal["scsi", "nvme", "virtio", "loop"] = Field(examples=["scsi"])
    """How the host sees it; another one is another disk."""

    @model_validator(mode="after")
    def _one_name(self) -> Disk:
        if (self.by_id is None) == (self.lun is None):
            raise Unreadable("a disk is named by either by_id or lun", "write one of them")
        return self


class StripeOfDisks(Part):
    """Several disks as one (RAID 0), made by the host's mdadm."""

    disks: list[Disk] = Field(
        min_length=2, max_length=MOST_LUN, examples=[[{"lun": 0, "size": "1TiB", "kind": "scsi"}]]
    )
    """Its members; each is found, and must be, as a single disk is."""
    chunk_bytes: Bytes = Field(alias="chunk", default=64 << 10, examples=["64KiB"])
    """What lies on one disk before the next one has its turn."""

    @model_validator(mode="after")
    def _whole_pages(self) -> StripeOfDisks:
        if self.chunk_bytes < 4096 or self.chunk_bytes & (self.chunk_bytes - 1):
            rule = "a chunk is a power of two, from 4 KiB on: mdadm accepts no other"
            raise Unreadable(rule, "write for example 64KiB")
        return self


class Volume(Part):
    """Where a volume of the experiment lies on a host: a directory, or disks to be formatted."""

    directory: Annotated[str | None, BeforeValidator(_directory)] = Field(
        default=None, examples=["/mnt/data"]
    )
    """A directory on the disk. disklab makes a folder of its own in it and removes it again."""
    disk: Disk | None = None
    """Instead: an empty disk, which disklab formats and mounts."""
    stripe: StripeOfDisks | None = None
    """Or: several empty disks, which disklab makes one of, formats and mounts."""
    format: bool = Field(default=False, examples=[True])
    """Whether the disk or the disks may be formatted; they need it."""

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"directory": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_place(self) -> Volume:
        if sum(one is not None for one in (self.directory, self.disk, self.stripe)) != 1:
            rule = "a volume is either a directory, a disk or a stripe of disks"
            raise Unreadable(rule, "write one of them")
        if self.format != (self.directory is None):
            rule = "`format: true` belongs to a disk or a stripe: only named disks are formatted"
            raise Unreadable(rule, "write both, or a directory alone")
        return self

    @property
    def disks(self) -> list[Disk]:
        """The disks that are formatted."""
        if self.stripe is not None:
            return self.stripe.disks
        return [] if self.disk is None else [self.disk]


Change = Literal["read_ahead", "governor", "swap", "page_cache", "links", "network"]
CHANGES: dict[Change, str] = {
    "read_ahead": "read-ahead of a volume's disk, as the experiment requires",
    "governor": "the CPUs' frequency governor: performance",
    "swap": "swapping off",
    "page_cache": "the host's clean page cache dropped before a cold trial",
    "links": "its connections to the other hosts cut, if a timetable says so",
    "network": "its connections to the other hosts slow or lossy (tc, netem), if a timetable "
    "says so",
}
"""What of a host may be changed when its `may_change` says so, and is changed back."""


class Host(Part):
    """A host: how it is reached, what it is for, where its volumes lie."""

    @model_validator(mode="before")
    @classmethod
    def _no_port(cls, value: Any) -> Any:
        if isinstance(value, dict) and "port" in value:
            _destination(f"{value.get('address', 'HOST')}:{digits(value['port']) or 22}")
        return value

    address: Annotated[str | None, BeforeValidator(_destination)] = Field(
        default=None, examples=["ubuntu@10.0.0.4"]
    )
    """Where ssh reaches it, with all of ~/.ssh/config."""
    local: bool = Field(default=False, examples=[True])
    """Instead: it is the machine that disklab runs on."""
    private_address: Annotated[str | None, BeforeValidator(_destination)] = Field(
        default=None, examples=["10.0.0.4"]
    )
    """IP address at which the other hosts reach it. Without it: that of `address`."""
    role: Literal["node", "client"] = Field(default="node", examples=["client"])
    """node: its disks are measured; client: it makes the load."""
    zone: Annotated[str, BeforeValidator(str)] | None = Field(default=None, examples=["1"])
    """Availability zone; only noted."""
    volumes: dict[str, Volume] = Field(default={}, examples=[{"data": "/mnt/data"}])
    """By the names of the experiment's volumes; a device experiment's is `data`."""
    may_change: list[Change] = Field(default=[], examples=[["read_ahead"]])
    """What of the host may be changed; it is changed back at the end."""

    @model_validator(mode="after")
    def _one_way(self) -> Host:
        if self.local == (self.address is not None):
            rule = "a host is either reached at an address, or local: true"
            raise Unreadable(rule, "write one of them")
        if self.role == "node" and not self.volumes:
            rule = "a node has volumes: where the experiment's data lie"
            raise Unreadable(rule, "write for example volumes: {data: /mnt/data}")
        return self


def _server(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "1")
    if _SERVER.fullmatch(host) is None or not digits(port, (1 << 16) - 1):
        rule = "an address of a database is HOST or HOST:PORT"
        raise Unreadable(rule, "write for example 10.0.0.4:9042")
    return text


def _word(value: Any) -> str:
    if not isinstance(value, str) or _VARIABLE.fullmatch(value) is None:
        raise Unreadable("is a name of letters, digits and underscores", "write for example bench")
    return value


class Endpoint(Part):
    """A database that runs already. It is loaded, and neither started, stopped nor configured."""

    addresses: list[Annotated[str, BeforeValidator(_server)]] = Field(
        min_length=1, examples=[["10.0.0.4:9042"]]
    )
    """HOST or HOST:PORT of nodes that take reads and writes."""
    user: Annotated[str | None, BeforeValidator(_word)] = Field(default=None, examples=["bench"])
    """Who logs in; it may make a keyspace (Cassandra) or a schema (PostgreSQL) of its own."""
    password_file: Annotated[str | None, BeforeValidator(_directory)] = Field(
        default=None, examples=["/home/me/.bench-password"]
    )
    """A file with the password. No password stands in this file, which is kept with the results."""
    password_variable: Annotated[str | None, BeforeValidator(_word)] = Field(
        default=None, examples=["BENCH_PASSWORD"]
    )
    """Instead: the environment variable that holds it."""
    database: Annotated[str, BeforeValidator(_word)] = Field(default="postgres", examples=["bench"])
    """PostgreSQL: the database in which the schema is made."""
    tls: bool = Field(default=False, examples=[True])
    """Whether every connection is encrypted."""
    ca_file: Annotated[str | None, BeforeValidator(_directory)] = Field(
        default=None, examples=["/home/me/ca.pem"]
    )
    """Certificates that the server's must come from, for the address that is connected to: with
    PostgreSQL the one in `addresses`, with Cassandra each node's own. Without it any server is
    believed."""

    @model_validator(mode="after")
    def _one_password(self) -> Endpoint:
        if self.password_file is not None and self.password_variable is not None:
            rule = "the password comes from a file or from a variable"
            raise Unreadable(rule, "write one of them")
        return self


class HostsFile(Part):
    """The hosts on which experiments are measured."""

    hosts: dict[str, Host] = Field(default={})
    """Hosts by name."""
    database: Endpoint | None = None
    """Instead: a database that runs already, for experiments of clusters."""
    ssh_config: Annotated[str | None, BeforeValidator(_directory)] = Field(
        default=None, examples=["/home/me/study/ssh_config"]
    )
    """A configuration of ssh that is read instead of ~/.ssh/config."""

    @model_validator(mode="after")
    def _something(self) -> HostsFile:
        if not self.hosts and self.database is None:
            rule = "there is nothing to measure on: no `hosts` and no `database`"
            raise Unreadable(rule, "write one of them; see docs/measure.md")
        return self

    groups: dict[str, dict[str, list[str]]] = Field(
        default={}, examples=[{"disk": {"azure/P30": ["n1"], "azure/P40": ["n2"]}}]
    )
    """For a factor that differs between hosts: which of them have which level. An entry is a host,
    or HOST/VOLUME where one host has disks of several levels."""


@dataclass(frozen=True)
class Hosts:
    """A checked hosts file."""

    document: Document
    file: HostsFile

    def place(self, *key: str | int) -> str:
        """Return `file:line: dotted.key`."""
        return self.document.place(key)


def load(path: Path | Inside) -> Hosts:
    """Return what a hosts file says. Raises UserError with all problems, each with its line."""
    if isinstance(path, Inside):
        return parse(reading.text(path, reading.HOSTS), path.path)
    return hosts_of(read_document(path, FORM))


def parse(text: str, path: Path | str) -> Hosts:
    """Return what the text of a hosts file says; `path` is what the errors call it."""
    return hosts_of(document_of(Path(path), text, FORM))


def hosts_of(document: Document) -> Hosts:
    """Return a document's hosts. Raises UserError with all problems."""
    try:
        made = Hosts(document, HostsFile.model_validate(document.root.plain()))
    except ValidationError as error:
        found = complaints(error, HostsFile, document, document.root, GENERAL)
        problems = [problem for _, _, problem in found]
        raise UserError(*bounded(problems, str(document.path), error.error_count())) from None
    problems = [*_problems(made)]
    if problems:
        raise UserError(*bounded(problems, str(document.path)))
    return made


def _problems(hosts: Hosts) -> Iterator[Problem]:
    """Yield what is wrong between the parts of a file."""
    for name, host in hosts.file.hosts.items():
        keys: list[tuple[str, ...]] = [("hosts", name)]
        keys += [("hosts", name, "volumes", volume) for volume in host.volumes]
        for key in keys:
            if NAME.fullmatch(key[-1]) is None:
                way_out = "choose another name"
                yield Problem(hosts.place(*key), repr(key[-1]), NAME_RULE, way_out)
    yield from _same_machine(hosts)
    yield from _unknown_members(hosts)


def _same_machine(hosts: Hosts) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name, host in hosts.file.hosts.items():
        address = "this machine" if host.local else str(host.address)
        first = seen.setdefault(address, name)
        if first != name:
            key = "local" if host.local else "address"
            rule = f"is where {first} is: one machine is one host"
            yield Problem(hosts.place("hosts", name, key), address, rule, "remove one of them")


def _unknown_members(hosts: Hosts) -> Iterator[Problem]:
    given = hosts.file.hosts
    known = [*given, *(f"{name}/{volume}" for name in given for volume in given[name].volumes)]
    for factor, levels in hosts.file.groups.items():
        for level, members in levels.items():
            for at, member in enumerate(members):
                if member not in known:
                    place = hosts.place("groups", factor, level, at)
                    way_out = did_you_mean(member, known, f"known are {', '.join(known[:8])}")
                    rule = "is none of the hosts, nor HOST/VOLUME of one"
                    yield Problem(place, reading.shown(member), rule, way_out)
