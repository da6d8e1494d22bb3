"""Who called disklab through sudo, and how a process becomes that user for good."""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from disklab.engine.account import Account, unreachable
from disklab.errors import EngineError, MachineError, Problem, UserError
from disklab.hosts.ownership import FUSE_TYPE, backing_file, mounts, our_devices
from disklab.hosts.places import Places
from disklab.machines.binary import find_engine

# From <sys/prctl.h>, <sched.h> and <sys/mount.h>.
NO_NEW_PRIVILEGES = 38
NEW_MOUNTS = 0x20000
BIND, RECURSIVE, FOLLOWS = 0x1000, 0x4000, 0x80000
NO_DEVICES_NO_PRIVILEGES = 0x2 | 0x4
DETACH = 2

# Python, its packages, ours and the engine: more closed folders than these there cannot be.
MOST_CLOSED = 8

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Caller:
    """The user who called sudo."""

    name: str
    uid: int
    gid: int
    home: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Caller | None:
        """Return who called sudo; None: this is not root, nobody did, or root himself."""
        try:
            uid, gid = int(environment["SUDO_UID"]), int(environment["SUDO_GID"])
        except (KeyError, ValueError):
            return None
        # -1 would mean "leave it as it is" to setresuid(2).
        if os.geteuid() != 0 or not (0 < uid < (1 << 32) - 1 and 0 <= gid < (1 << 32) - 1):
            return None
        name, home = f"uid {uid}", "/"
        with suppress(KeyError):
            found = pwd.getpwuid(uid)
            name, home = found.pw_name, found.pw_dir
        return cls(name, uid, gid, home)

    def _groups(self) -> list[int]:
        with suppress(KeyError):
            return os.getgrouplist(pwd.getpwuid(self.uid).pw_name, self.gid)
        return [self.gid]

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Open files with the caller's rights while the block lasts, and not with root's."""
        groups, gid = os.getgroups(), os.getegid()
        os.setgroups(self._groups())
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(gid)
            os.setgroups(groups)

    def become(self) -> None:
        """Give root up for good: users, groups, capabilities, and every way back by a program.

        Raises MachineError when something of root's is left.
        """
        os.setgroups(self._groups())
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if _libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise MachineError(f"root cannot be given up: {os.strerror(ctypes.get_errno())}")
        if left := _left():
            raise MachineError(f"root was not given up: {', '.join(left)}")
        os.environ.update(HOME=self.home, USER=self.name, LOGNAME=self.name)


def _left() -> list[str]:
    """Return what of root's a process still has, from the kernel."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    facts = {name: told.split() for name, _, told in (line.partition(":") for line in lines)}
    left = [f"{name} {facts[name]}" for name in ("Uid",) if "0" in facts[name]]
    return left + [
        f"{name} {facts[name][0]}"
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")
        if int(facts[name][0], 16)
    ]


def open_way(caller: Caller, *, lets_go: bool = False) -> None:
    """Let the caller read the program itself, where it lies in a folder of root's alone.

    The folder stays closed: in a mount namespace of this process an empty one stands in its place,
    with the program in it. Raises UserError when that cannot be. `lets_go`: the command has no use
    for what lies on volumes of ours, and does not keep them mounted by its view of them.
    """
    account = Account(caller.name, caller.uid, caller.gid)
    needed = {Path(place).resolve() for place in (sys.prefix, sys.base_prefix)}
    needed.add(Path(__file__).resolve().parents[1])
    with suppress(EngineError):
        needed.add(find_engine().resolve().parent)
    inside = False
    for _ in range(MOST_CLOSED):
        closed = unreachable(account, sorted(needed))
        if closed is None:
            return
        try:
            if not inside:
                _call("unshare", NEW_MOUNTS)
                _call("mount", b"none", b"/", None, RECURSIVE | FOLLOWS, None)
                _let_go(needed, volumes=lets_go)
                inside = True
            _stand_in(closed, [one for one in needed if one.is_relative_to(closed)])
        except OSError as error:
            rule = f"{caller.name} may not look into it, and root's part is to be small: {error}"
            way_out = "install disklab where everybody may read it"
            raise UserError(Problem("this machine", str(closed), rule, way_out)) from error
    rule = f"{caller.name} may not read it"
    way_out = "install disklab where everybody may read it"
    raise UserError(Problem("this machine", str(closed), rule, way_out))


def _let_go(needed: Iterable[Path], *, volumes: bool) -> None:
    """Take beds' file systems out of this process's view, and of `volumes`: it would hold them.

    Whoever takes a bed or a volume away, this command or another one, would be told that it is in
    use. On a bed there is nothing of a user's, and a volume of another run directory is not ours.
    """
    places = Places.usual()
    keeps = set() if volumes else {device.number for device in our_devices(places)}
    seen = mounts()
    beds = [mount.point for mount in seen if mount.kind == FUSE_TYPE]
    for mount in reversed(seen):
        # What a loop device shows, or the bed itself.
        shown = Path(backing_file(Path(mount.source)) or mount.point)
        on_bed = mount.device not in keeps and any(shown.is_relative_to(bed) for bed in beds)
        goes = on_bed or mount.point.is_relative_to(places.run.absolute())
        if goes and not any(one.is_relative_to(mount.point) for one in needed):
            # Only in this namespace: what happens in it reaches no other one.
            with suppress(OSError):
                _call("umount2", os.fsencode(mount.point), DETACH)


def _stand_in(closed: Path, shown: list[Path]) -> None:
    """Put an empty folder in the place of one, with what is to be seen of it at its place."""
    if closed in shown or not closed.is_dir():
        raise OSError(f"{closed} itself is closed")
    # Of one in another only the outer.
    outer = [one for one in shown if not any(two in one.parents for two in shown)]
    held = [(one, os.open(one, os.O_PATH | os.O_CLOEXEC)) for one in outer]
    try:
        options = b"mode=755,size=64k"
        where = os.fsencode(closed)
        _call("mount", b"disklab", where, b"tmpfs", NO_DEVICES_NO_PRIVILEGES, options)
        for place, handle in held:
            place.mkdir(parents=True)
            source = f"/proc/self/fd/{handle}".encode()
            _call("mount", source, os.fsencode(place), None, BIND | RECURSIVE, None)
    finally:
        for _, handle in held:
            os.close(handle)


def _call(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
