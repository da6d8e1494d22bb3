"""`disklab disk` under sudo: what root does with volumes, as requests; here or in another process.

The caller's part reads the command line and the catalogue files, and prints.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from disklab.catalog import Catalog
from disklab.catalog.profile import VolumeProfile
from disklab.engine import CacheCounters, View
from disklab.errors import MachineError, UserError
from disklab.hosts import attach as attaching
from disklab.hosts import changes, running
from disklab.hosts.attach import Attached, AttachRequest
from disklab.hosts.cleaning import clean_orphans
from disklab.hosts.places import HostRecord, Owner, Places
from disklab.hosts.running import Listed
from disklab.machines.foreground import Ended, run_command
from disklab.privilege.identity import Caller
from disklab.privilege.talk import Forms, Link, Said, Serving, Talk
from disklab.waiting import Wait

STRICT = ConfigDict(extra="forbid", frozen=True)
Name = Annotated[str, Field(max_length=4096)]
"""Of a volume, or the path of its device: only compared with what is attached."""
Host = Annotated[str, Field(max_length=64)]
TRANSPORTS = ("auto", "fuse-io-uring", "fuse", "ublk")
HELD_SECONDS = 20.0
"""Longer than a container takes to leave the mounts of its parent."""
POLL_SECONDS = 0.2
Range = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


@checked(config=STRICT)
class Attach:
    """Make a volume. Its mount point is the one path that a request has."""

    wish: AttachRequest
    catalog: Catalog


@checked(config=STRICT)
class AttachForCommand:
    """Make a volume with a file system for one command: it ends with the process that made it."""

    wish: AttachRequest
    catalog: Catalog
    credits: Annotated[str, Field(max_length=64)] | None = None
    """What the command begins with, in the words of `disk set --credits`; None: all there are."""


@checked(config=STRICT)
class RunCommand:
    """Run a command of the caller's, with the caller's rights, in the folder made for it."""

    volume: Name
    host: Host
    words: Annotated[list[str], Field(min_length=1)]


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
        "attach for command": TypeAdapter(AttachForCommand),
        "run": TypeAdapter(RunCommand),
        "list": TypeAdapter(ListAll),
        "show": TypeAdapter(Show),
        "set": TypeAdapter(Set),
        "fail": TypeAdapter(Fail),
        "cache": TypeAdapter(Cache),
        "detach": TypeAdapter(Detach),
    },
    names={
        Attach: "attach",
        AttachForCommand: "attach for command",
        RunCommand: "run",
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
        "attach for command": TypeAdapter(Attached),
        "run": TypeAdapter(Ended),
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


def folder_of(host: str) -> Path:
    """Return where the disk of a host that lives for one command is mounted."""
    return Path(tempfile.gettempdir()).resolve() / f"disklab-{host}"


@contextmanager
def made_for_command(
    link: Link | None, request: AttachForCommand, say: Say, warn: Say
) -> Iterator[Attached]:
    """Attach a disk for the length of the block, whatever ends it; its data go with it."""
    made: Attached = perform(link, request, say)
    try:
        yield made
    finally:
        _detach(link, made, say, warn)


def _detach(link: Link | None, made: Attached, say: Say, warn: Say) -> None:
    """Take the disk away. What holds it longer is told: the command's result is not lost by it."""
    with Wait(f"nobody uses the disk {made.name}", HELD_SECONDS) as wait:
        while True:
            try:
                perform(link, Detach(made.name, made.host, delete_data=True), say)
            except UserError as error:  # noqa: PERF203 - it waits between two tries
                # A container that starts beside it copies all mounts, and lets go of them soon.
                if wait.is_over:
                    warn(f"the disk stays until `disklab clean`: {error}")
                    return
                wait.pause(POLL_SECONDS)
            else:
                return


class VolumesPart(Serving):
    """Root's part of `disklab disk`."""

    forms = FORMS

    def done(self, request: object) -> object:
        """Do what a request asks."""
        if isinstance(request, Attach | AttachForCommand):
            wish = request.wish
            if wish.transport not in TRANSPORTS or wish.owner is not None:
                raise MachineError("refused: a command attaches disks only for itself")
        return done(request, lambda text: self.tell(Said(text)))


def done(request: object, say: Say) -> object:
    """Do what a request asks, in this process."""
    match request:
        case Attach():
            return attaching.attach(request.catalog, request.wish, Places.usual(), say)
        case AttachForCommand():
            return _attached_for_command(request, say)
        case RunCommand():
            return _ran(request)
        case ListAll():
            return running.list_volumes(Places.usual(), request.host)
        case Show() | Set() | Fail() | Cache() | Detach():
            return _with(request, say)
    raise MachineError(f"refused: {type(request).__name__} is not a request")


def _attached_for_command(request: AttachForCommand, say: Say) -> Attached:
    """Attach, give the mounted folder to who called, and fill the credits that mkfs has spent."""
    places = Places.usual()
    clean_orphans(places)
    wish = replace(request.wish, owner=Owner.this())
    made = attaching.attach(request.catalog, wish, places, say)
    _give(made, Caller.of(os.environ))
    profile = running.show(running.find(made.name, made.host, places)).profile
    if request.credits is None and not changes.has_credits(profile.disks[0].limits):
        return made
    change = changes.WishedChange(credits=request.credits or "full")
    _with(Set(made.name, made.host, change, None, request.catalog), say)
    return made


def _give(made: Attached, caller: Caller | None) -> None:
    """Make the caller the owner of the mounted folder, of that of our device and no other."""
    folder = os.open(str(made.mount_point), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(folder).st_dev != os.stat(made.device).st_rdev:
            raise MachineError(f"{made.mount_point}: another file system was mounted there")
        # What mkfs.ext4 makes for fsck would stand beside the command's files, closed to it.
        with suppress(FileNotFoundError):
            os.rmdir("lost+found", dir_fd=folder)
        if caller is not None:
            os.fchown(folder, caller.uid, caller.gid)
    finally:
        os.close(folder)


def _ran(request: RunCommand) -> Ended:
    """Run it here, where the disk is mounted: the caller's part may have another view of mounts."""
    target = running.find(request.volume, request.host, Places.usual())
    record, host = target.host.volume_record(target.volume), target.host.host_record()
    if host is None or host.owner != Owner.this() or record is None or not record.mount_point:
        raise MachineError("refused: a command runs on a disk that was made for it")
    caller = Caller.of(os.environ)
    become = (lambda: None) if caller is None else caller.become
    return run_command(request.words, Path(record.mount_point), become)


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
