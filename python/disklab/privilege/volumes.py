"""`disklab disk` under sudo: what root does with volumes, as requests; here or in another process.

The caller's part reads the command line and the catalogue files, and prints.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from disklab.catalog import Catalog
from disklab.catalog.profile import VolumeProfile
from disklab.engine import CacheCounters, View
from disklab.errors import MachineError
from disklab.hosts import attach as attaching
from disklab.hosts import changes, running
from disklab.hosts import keeper as keeping
from disklab.hosts.attach import Attached, AttachRequest
from disklab.hosts.places import HostRecord, Places, check_name
from disklab.hosts.running import Listed
from disklab.privilege.identity import Caller
from disklab.privilege.talk import Forms, Link, Said, Serving, Talk

STRICT = ConfigDict(extra="forbid", frozen=True)
Name = Annotated[str, Field(max_length=4096)]
"""Of a volume, or the path of its device: only compared with what is attached."""
Host = Annotated[str, Field(max_length=64)]
TRANSPORTS = ("auto", "fuse-io-uring", "fuse", "ublk")
Range = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


@checked(config=STRICT)
class Attach:
    """Make a volume. Its mount point is the one path that a request has."""

    wish: AttachRequest
    catalog: Catalog


@checked(config=STRICT)
class ListAll:
    """Tell of every volume."""

    host: Host | None = None


@checked(config=STRICT)
class Show:
    """Tell what a volume does."""

    volume: Name
    host: Host | None = None


@checked(config=STRICT)
class Set:
    """Change a volume while it works."""

    volume: Name
    host: Host | None
    wish: changes.WishedChange
    read_ahead_kib: Annotated[int, Field(ge=0)] | None
    catalog: Catalog


@checked(config=STRICT)
class Fail:
    """Break a volume, or mend it; in the words of the command line."""

    volume: Name
    host: Host | None
    fault: Annotated[str, Field(max_length=64)]
    value: Annotated[str, Field(max_length=64)] | None
    disk: int | None


@checked(config=STRICT)
class Cache:
    """Fill or empty the host cache."""

    volume: Name
    host: Host | None
    action: Literal["warm", "drop"]
    ranges: Annotated[list[Range], Field(max_length=100_000)] | None = None


@checked(config=STRICT)
class Detach:
    """Take a volume away."""

    volume: Name
    host: Host | None
    delete_data: bool


@checked(config=STRICT)
class Named:
    """A volume that was named by its name or its device."""

    volume: str
    host: str


@checked(config=STRICT)
class Changed(Named):
    """A volume that was changed."""

    profile: VolumeProfile


@checked(config=STRICT)
class Cached(Named):
    """A volume whose host cache was filled or emptied."""

    cache: CacheCounters


@checked(config=STRICT)
class Detached(Named):
    """A volume that was taken away."""

    kept: list[str]
    """Places of data that stay."""


FORMS = Forms(
    requests={
        "attach": TypeAdapter(Attach),
        "list": TypeAdapter(ListAll),
        "show": TypeAdapter(Show),
        "set": TypeAdapter(Set),
        "fail": TypeAdapter(Fail),
        "cache": TypeAdapter(Cache),
        "detach": TypeAdapter(Detach),
    },
    names={
        Attach: "attach",
        ListAll: "list",
        Show: "show",
        Set: "set",
        Fail: "fail",
        Cache: "cache",
        Detach: "detach",
    },
    told={"Said": TypeAdapter(Said)},
    answers={
        "attach": TypeAdapter(Attached),
        "list": TypeAdapter(list[Listed]),
        "show": TypeAdapter(View),
        "set": TypeAdapter(Changed),
        "fail": TypeAdapter(Named),
        "cache": TypeAdapter(Cached),
        "detach": TypeAdapter(Detached),
    },
)

Say = Callable[[str], None]


def perform(link: Link | None, request: object, say: Say = lambda _: None) -> Any:
    """Do what a request asks, in root's part where there is one; return its answer."""
    if link is None:
        return done(request, say)

    def hear(what: Said) -> None:
        say(what.text)

    return Talk(link, FORMS).ask(request, hear)


class VolumesPart(Serving):
    """Root's part of `disklab disk`."""

    forms = FORMS

    def done(self, request: object) -> object:
        """Do what a request asks."""
        if isinstance(request, Attach):
            wish = request.wish
            if wish.transport not in TRANSPORTS or wish.owner is not None:
                raise MachineError("refused: a command attaches disks only for itself")
        caller = Caller.of(os.environ)
        uid = None if caller is None else caller.uid
        return done(request, lambda text: self.tell(Said(text)), uid)


def done(request: object, say: Say, caller: int | None = None) -> object:
    """Do what a request asks, in this process; for a caller, who does not mount everywhere."""
    match request:
        case Attach():
            return _attached(request, say, caller)
        case ListAll():
            return running.list_volumes(Places.usual(), request.host)
        case Show() | Set() | Fail() | Cache() | Detach():
            return _with(request, say)
    raise MachineError(f"refused: {type(request).__name__} is not a request")


def _attached(request: Attach, say: Say, caller: int | None) -> Attached:
    """Attach; what is half made when this process is killed goes."""
    places = Places.usual()
    check_name(request.wish.host, "--host")
    keeper = keeping.keep(places, request.wish.host)
    try:
        return attaching.attach(request.catalog, request.wish, places, say, caller)
    finally:
        keeper.kill()
        keeper.wait()


def _with(request: Show | Set | Fail | Cache | Detach, say: Say) -> View | Named:
    places = Places.usual()
    target = running.find(request.volume, request.host, places)
    names = (target.volume, target.host.name)
    match request:
        case Show():
            return running.show(target)
        case Set():
            return Changed(*names, _changed(request, target))
        case Fail():
            running.fail(target, changes.fault_of(request.fault, request.value, request.disk))
            return Named(*names)
        case Cache(action="drop"):
            return Cached(*names, running.drop_cache(target))
        case Cache():
            say(f"warming {target.volume}")
            return Cached(*names, running.warm_cache(target, request.ranges))
        case Detach():
            say(f"detaching {target.volume}")
            kept = running.detach(target, places, delete_data=request.delete_data)
            return Detached(*names, kept)


def _changed(request: Set, target: running.Target) -> VolumeProfile:
    record = target.record()
    host = target.host.host_record() or HostRecord()
    profile = running.show(target).profile
    changed = changes.change_of(request.catalog, request.wish, profile, record, host)
    running.change(target, changed, request.read_ahead_kib)
    return running.show(target).profile
