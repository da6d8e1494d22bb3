"""`disklab run`: a disk that one command gets, as four requests; here or in root's part.

No request names a host, a volume or a folder: root's part draws them, and what is asked is about
the one disk that this process has made.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from disklab.catalog import Catalog, VolumeRequest
from disklab.catalog.weather import MOST_SPELLS, Spell
from disklab.engine import View
from disklab.errors import MachineError, UserError
from disklab.hosts import attach as attaching
from disklab.hosts import changes, running
from disklab.hosts import keeper as keeping
from disklab.hosts.attach import Attached, AttachRequest
from disklab.hosts.cleaning import clean_orphans
from disklab.hosts.control_group import MARK, end_marked
from disklab.hosts.filesystem import Filesystem, explained
from disklab.hosts.places import Owner, Places
from disklab.machines.foreground import Ended, run_command
from disklab.machines.programs import Process
from disklab.privilege.identity import Caller
from disklab.privilege.talk import Forms, Link, Said, Serving, Talk
from disklab.privilege.volumes import STRICT, Say
from disklab.waiting import Wait

HELD_SECONDS = 20.0
"""Longer than a container takes to leave the mounts of its parent."""
POLL_SECONDS = 0.2


@checked(config=STRICT)
class Make:
    """Make a disk with a file system, mounted in a new folder of the caller's."""

    volume: VolumeRequest
    vm: str | None
    filesystem: Filesystem
    read_ahead_kib: Annotated[int, Field(ge=0)] | None
    calibrate: bool
    catalog: Catalog
    credits: Annotated[str, Field(max_length=64)] | None = None
    """What the command begins with, in the words of `disk set --credits`; None: all there are."""


@checked(config=STRICT)
class RunCommand:
    """Run a command of the caller's, with the caller's rights, in the folder made for it."""

    words: Annotated[list[str], Field(min_length=1)]
    weather: Annotated[list[Spell], Field(max_length=MOST_SPELLS)] = field(default_factory=list)
    """When the disk is slow or serves nothing, in seconds of the command."""


@checked(config=STRICT)
class Look:
    """Tell what the disk does."""


@checked(config=STRICT)
class TakeAway:
    """Take the disk away, with all that was written to it."""


FORMS = Forms(
    requests={
        "make": TypeAdapter(Make),
        "run": TypeAdapter(RunCommand),
        "look": TypeAdapter(Look),
        "take away": TypeAdapter(TakeAway),
    },
    names={Make: "make", RunCommand: "run", Look: "look", TakeAway: "take away"},
    told={"Said": TypeAdapter(Said)},
    answers={
        "make": TypeAdapter(Attached),
        "run": TypeAdapter(Ended),
        "look": TypeAdapter(View),
        "take away": TypeAdapter(Literal[None]),
    },
)


@dataclass
class CommandDisk:
    """The disk that this process makes for one command, or for one test."""

    prefix: str = "run"
    _made: Attached | None = None
    _keeper: Process | None = None
    _over: Event = field(default_factory=Event)
    """Set when the command has ended, or is to: then the disk is well."""

    @property
    def folder(self) -> Path:
        """Where it is mounted. Raises MachineError before it is made, and after its end."""
        return Path(str(self._there().mount_point))

    def done(self, request: object, say: Say) -> Any:
        """Do what a request asks, in this process."""
        match request:
            case Make():
                return self._make(request, say)
            case RunCommand(words=words, weather=weather):
                caller = Caller.of(os.environ)
                become = (lambda: None) if caller is None else caller.become
                # By this what it leaves running is found, when this process is killed.
                mark = {MARK: str(self.target().host.run)}
                try:
                    return run_command(words, self.folder, become, mark, self._living(weather))
                except MachineError as error:
                    raise explained(error, Places.usual().room()[0]) from error
            case Look():
                return running.show(self.target())
            case TakeAway():
                return self.take_away()
        raise MachineError(f"refused: {type(request).__name__} is not a request")

    @contextmanager
    def _living(self, weather: Sequence[Spell]) -> Iterator[None]:
        """Let the disk have its weather inside the block, and none behind it."""
        if not weather:
            yield
            return
        target, self._over = self.target(), Event()

        def fail(fault: str, value: str | None, _spell: Spell | None) -> None:
            running.fail(target, changes.fault_of(fault, value, None))

        with ThreadPoolExecutor(1) as thread:
            living = thread.submit(changes.live_through, weather, fail, self._over)
            try:
                yield
            finally:
                self._over.set()
                living.result()

    def target(self) -> running.Target:
        """Return the disk as a volume of its host."""
        made = self._there()
        return running.Target(Places.usual().host(made.host), made.name)

    def _there(self) -> Attached:
        if self._made is None:
            raise MachineError("refused: no disk has been made for a command")
        return self._made

    def _make(self, request: Make, say: Say) -> Attached:
        if self._made is not None:
            raise MachineError("refused: a command has one disk, and it has been made")
        places = Places.usual()
        clean_orphans(places)
        host = f"{self.prefix}-{secrets.token_hex(4)}"
        wish = AttachRequest(
            volume=request.volume,
            host=host,
            vm=request.vm,
            filesystem=request.filesystem,
            mount_point=Path(tempfile.gettempdir()).resolve() / f"disklab-{host}",
            read_ahead_kib=request.read_ahead_kib,
            calibrate=request.calibrate,
            owner=Owner.this(),
        )
        self._keeper = keeping.keep(places, host)
        try:
            self._made = attaching.attach(request.catalog, wish, places, say)
            self._hand_over(request)
        except BaseException:
            self.close()
            raise
        return self._made

    def _hand_over(self, request: Make) -> None:
        """Give the mounted folder to who called, and fill the credits that mkfs has spent."""
        made, target = self._there(), self.target()
        _give(made, Caller.of(os.environ))
        profile = running.show(target).profile
        if request.credits is not None or changes.has_credits(profile.disks[0].limits):
            wish = changes.WishedChange(credits=request.credits or "full")
            host = target.host.host_record()
            assert host is not None  # it has just been attached to
            change = changes.change_of(request.catalog, wish, profile, target.record(), host)
            running.change(target, change, None)

    def take_away(self) -> None:
        """Take it away, with all that was written to it. UserError: somebody uses it."""
        running.detach(self.target(), Places.usual(), delete_data=True)
        self._made = None
        self._dismiss()

    def close(self) -> None:
        """Take the disk away where it is still there."""
        # Of what was not made whole the keeper takes away what is left, when this process ends.
        if self._made is not None:
            with suppress(UserError, MachineError):
                _until_free(self.take_away)

    def end_command(self) -> None:
        """End what runs on the disk, which waits for it no longer."""
        self._over.set()
        if (made := self._made) is not None:
            end_marked(Places.usual().host(made.host).run)

    def _dismiss(self) -> None:
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()
            self._keeper = None


class RunPart(Serving):
    """Root's part of `disklab run`."""

    forms = FORMS

    def __init__(self, link: Link) -> None:
        """Take the end of the socket; `serve` does the rest."""
        super().__init__(link)
        self._disk = CommandDisk()

    def done(self, request: object) -> object:
        """Do what a request asks."""
        return self._disk.done(request, lambda text: self.tell(Said(text)))

    def left(self) -> None:
        """End the command, which has nobody to run for."""
        self._disk.end_command()

    def close(self) -> None:
        """Take the disk away: the caller's part may have been killed."""
        self._disk.close()


Ask = Callable[[object], Any]


@contextmanager
def disk_for_command(
    link: Link | None, make: Make, say: Say, warn: Say
) -> Iterator[tuple[Attached, Ask]]:
    """Make a disk for the length of the block, whatever ends it.

    Yields what was made, and what asks about it.
    """
    disk, talk = CommandDisk(), None if link is None else Talk(link, FORMS)

    def ask(request: object) -> Any:
        if talk is None:
            return disk.done(request, say)
        return talk.ask(request, lambda what: say(what.text))

    made: Attached = ask(make)
    try:
        yield made, ask
    finally:
        taken_away(lambda: ask(TakeAway()), warn)


def taken_away(take: Callable[[], object], warn: Say) -> None:
    """Take a disk away. What holds it longer is told: the command's result is not lost by it."""
    try:
        _until_free(take)
    except UserError as error:
        warn(f"the disk stays until `disklab clean`: {error}")


def _until_free(take: Callable[[], object]) -> None:
    with Wait("nobody uses the command's disk", HELD_SECONDS) as wait:
        while True:
            try:
                take()
            except UserError:  # noqa: PERF203 - it waits between two tries
                # A container that starts beside it copies all mounts, and lets go of them soon.
                if wait.is_over:
                    raise
                wait.pause(POLL_SECONDS)
            else:
                return


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
