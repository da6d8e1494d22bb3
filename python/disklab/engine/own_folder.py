"""Folders and files that disklab makes and may delete later, and the proof that they are ours.

Each folder holds a marker, each disk image has one beside it: device, inode and a random key. The
key is also noted in `<root>/.made/`. A copy, a restored backup or another folder under the same
name has another inode, and something that was made before markers were has none: nothing of that is
deleted. Every step goes from the root by descriptors, follows no link and stays on one mount.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from disklab.errors import MachineError, Problem, UserError

Kind = Literal["host", "database", "data", "disk image", "network"]
Names = tuple[str, ...]
"""The way from the root to a folder, one name for each step."""

MARKER = ".disklab"
MADE = ".made"
HALF_WRITTEN = re.compile(r"[0-9a-f]{32}\.new", re.ASCII)
"""A record of ours that a kill left before it had its name."""
UNFINISHED = ".disklab-"
"""Begins the name of a folder that is being made or removed; its key follows."""
MOST_MARKER_BYTES = 4096
NOTE_TRIES = 20
KEY = re.compile(r"[0-9a-f]{32}", re.ASCII)
# Deeper than any tree of a database's configuration; a bound for what somebody else put there.
MOST_DEPTH = 32

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Words = TypeVar("Words", bound=BaseModel)


class ForeignError(Exception):
    """Something is not ours; its text says why, after the words "left alone: "."""


class Marker(BaseModel):
    """What a marker says."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: Kind
    key: str
    """Random; also the name of our record of it."""
    boot: str
    """The boot in which it was made: device numbers hold for one boot."""
    device: int
    inode: int | None = None
    """None: a disk image that was about to be made."""


class Made(BaseModel):
    """Our record of what was made; `<root>/.made/<key>`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: Kind
    names: tuple[str, ...]


def check_root(root: Path, place: str) -> None:
    """Raise UserError for a run or data directory into which another user could put something.

    One that is not there is fine: we make it.
    """
    try:
        rule = _loose(os.lstat(root))
    except FileNotFoundError:
        return
    except OSError as error:
        rule = f"the directory must be reachable: {error.strerror}"
    if rule is not None:
        way_out = f"set {place} to a directory of your own, or: chown {os.geteuid()} {root}; "
        raise UserError(Problem(place, str(root), rule, f"{way_out}chmod go-w {root}"))


def _loose(found: os.stat_result) -> str | None:
    """Return why a folder is not safe from other users; None: it is."""
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_uid != os.geteuid():
        return f"it belongs to uid {found.st_uid}, and must belong to uid {os.geteuid()}"
    if stat.S_IMODE(found.st_mode) & 0o022:
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


@contextmanager
def folder(root: Path, *names: str) -> Iterator[int]:
    """Yield a descriptor of a folder below the root.

    Raises ForeignError when a step is a link, another mount, or another user's; OSError when it is
    not there.
    """
    at = os.open(root, _FOLDER)
    try:
        mount = _mount(at)
        for name in names:
            inner = _step(at, name)
            os.close(at)
            at = inner
            if _mount(at) != mount:
                raise ForeignError(f"something is mounted on {root.joinpath(*names)}")
            loose = _loose(os.fstat(at))
            if loose is not None:
                raise ForeignError(loose)
        yield at
    finally:
        os.close(at)


def _step(at: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=at)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise ForeignError(f"{name} is a symbolic link or a file, and not a directory") from error


def _mount(at: int) -> str:
    """Return the number of the mount that a descriptor is on, as /proc/self/mountinfo has it."""
    for line in Path(f"/proc/self/fdinfo/{at}").read_text(encoding="ascii").splitlines():
        if line.startswith("mnt_id:"):
            return line.split()[1]
    raise MachineError("/proc/self/fdinfo: no mnt_id; disklab needs Linux 3.15 or later")


def make_folder(root: Path, kind: Kind, *names: str) -> bool:
    """Make a folder of ours, with its marker; an empty one becomes ours.

    Returns whether it is ours: False for one that held something before, or for a link. The folders
    above it are made as well. Raises ForeignError as `folder` does, OSError when it cannot be made.
    """
    above = names[:-1]
    root.mkdir(parents=True, exist_ok=True, mode=0o755)
    for depth in range(len(above)):
        with folder(root, *above[:depth]) as at, suppress(FileExistsError):
            os.mkdir(above[depth], 0o755, dir_fd=at)
    if why_foreign(root, kind, *names) is None:
        return True
    key = secrets.token_hex(16)
    with folder(root, *above) as at:
        # Under its name it is never seen without its marker.
        unfinished = UNFINISHED + key
        # A database may run as a user of its own, who has folders of his own in it.
        os.mkdir(unfinished, 0o755 if kind == "database" else 0o700, dir_fd=at)
        try:
            with folder(root, *above, unfinished) as made:
                found = os.fstat(made)
                _note(root, key, Made(kind=kind, names=names))
                _create(made, MARKER, _marker(kind, key, found.st_dev, found.st_ino))
            # Takes the place of an empty folder only.
            os.rename(unfinished, names[-1], src_dir_fd=at, dst_dir_fd=at)
        except BaseException as error:
            _remove_unfinished(root, above, unfinished)
            _forget(root, key)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                return False
            raise
    return True


def mark_file(root: Path, kind: Kind, *names: str) -> None:
    """Mark a file beside it: as it is, or as one that is about to be made.

    Only for a file that is not there, or is ours: nothing else ever gets a marker.
    """
    with folder(root, *names[:-1]) as at:
        marker = _read(at, _beside(names[-1]), Marker)
        key = secrets.token_hex(16) if marker is None else marker.key
        try:
            inode = os.stat(names[-1], dir_fd=at, follow_symlinks=False).st_ino
        except FileNotFoundError:
            inode = None
        _note(root, key, Made(kind=kind, names=names))
        replace_file(at, _beside(names[-1]), _marker(kind, key, os.fstat(at).st_dev, inode))


def unmark_gone(root: Path, *names: str) -> None:
    """Remove the markers of files in a folder that are gone, such as those the engine removed."""
    with suppress(OSError, ForeignError), folder(root, *names) as at:
        there = set(os.listdir(at))
        for beside in there:
            name = beside.removeprefix(".").removesuffix(MARKER)
            if beside == _beside(name) and name and name not in there:
                marker = _read(at, beside, Marker)
                os.unlink(beside, dir_fd=at)
                if marker is not None:
                    _forget(root, marker.key)


def why_foreign(root: Path, kind: Kind, *names: str) -> str | None:
    """Return why something is not proved to be ours; None: it is ours."""
    try:
        if kind == "disk image":
            with folder(root, *names[:-1]) as at:
                _prove_file(root, at, names)
        else:
            with folder(root, *names) as at:
                _prove(root, kind, names, at, os.fstat(at).st_ino)
    except ForeignError as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _prove_file(root: Path, at: int, names: Names) -> Marker:
    found = os.stat(names[-1], dir_fd=at, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise ForeignError("it is not a regular file")
    if found.st_uid != os.geteuid() or found.st_nlink != 1:
        raise ForeignError("it belongs to another user, or has a second name")
    return _prove(root, "disk image", names, at, found.st_ino)


def _prove(root: Path, kind: Kind, names: Names, at: int, inode: int) -> Marker:
    """Return the marker of something if it is that of this very thing, and in our records."""
    name = _beside(names[-1]) if kind == "disk image" else MARKER
    marker = _read(at, name, Marker)
    if marker is None:
        raise ForeignError(f"disklab has not marked it as its own ({name})")
    if marker.kind != kind:
        raise ForeignError(f"its marker is that of another kind: {marker.kind}")
    moved = marker.boot == boot_id() and marker.device != os.fstat(at).st_dev
    # Only a disk image is marked before it is made.
    unmade = kind == "disk image" and marker.inode is None
    if moved or not (unmade or marker.inode == inode):
        raise ForeignError("its marker is that of another folder or file: it is a copy")
    made = _made(root, marker.key)
    if made is None or (made.kind, made.names) != (kind, names):
        raise ForeignError(f"the key of its marker is not in {root / MADE}")
    return marker


def remove_file(root: Path, *names: str) -> str | None:
    """Remove a disk image of ours with its marker; return why it was left, None: it is gone."""
    try:
        with folder(root, *names[:-1]) as at:
            marker = _prove_file(root, at, names)
            os.unlink(names[-1], dir_fd=at)
            os.unlink(_beside(names[-1]), dir_fd=at)
            # What was being written of the marker when it was killed.
            with suppress(FileNotFoundError):
                os.unlink(f"{_beside(names[-1])}.new", dir_fd=at)
            _forget(root, marker.key)
    except ForeignError as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)
    return None


def remove_empty(root: Path, kind: Kind, *names: str) -> list[str]:
    """Remove a folder of ours that holds nothing but its marker; return what it still holds.

    Raises ForeignError when it is not ours.
    """
    if (reason := why_foreign(root, kind, *names)) is not None:
        raise ForeignError(reason)
    with folder(root, *names[:-1]) as above:
        with folder(root, *names) as at:
            key = _prove(root, kind, names, at, os.fstat(at).st_ino).key
            left = sorted(name for name in os.listdir(at) if name != MARKER)
        if left:
            return left
        # A kill from here on leaves a name that says what it is.
        unfinished = UNFINISHED + key
        os.rename(names[-1], unfinished, src_dir_fd=above, dst_dir_fd=above)
        _remove_unfinished(root, names[:-1], unfinished)
        _forget(root, key)
    return []


def remove_tree(root: Path, kind: Kind, *names: str) -> str | None:
    """Remove a folder of ours with all it holds; return why it was left, None: it is gone.

    A tree with a mount in it is left whole.
    """
    try:
        if (reason := why_not_removable(root, kind, *names)) is not None:
            return reason
        with folder(root, *names) as at:
            for name in os.listdir(at):
                if name != MARKER:
                    _remove(at, name)
        left = remove_empty(root, kind, *names)
    except ForeignError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return f"it still holds {', '.join(left)}" if left else None


def why_not_removable(root: Path, kind: Kind, *names: str) -> str | None:
    """Return why `remove_tree` would leave a folder alone; None: it would remove it."""
    reason = why_foreign(root, kind, *names)
    if reason is not None:
        return reason
    try:
        with folder(root, *names) as at:
            _survey(at, _mount(at), os.fstat(at).st_dev, MOST_DEPTH)
    except ForeignError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def _survey(at: int, mount: str, device: int, depth: int) -> None:
    """Raise ForeignError for a tree with something in it that is on another mount."""
    for name in os.listdir(at):
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        # O_PATH opens whatever it is and touches nothing.
        inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            if _mount(inner) != mount or found.st_dev != device:
                raise ForeignError(f"something is mounted on {name} in it")
        finally:
            os.close(inner)
        if stat.S_ISDIR(found.st_mode):
            if depth == 0:
                raise ForeignError(f"it holds more than {MOST_DEPTH} folders in each other")
            deeper = os.open(name, _FOLDER, dir_fd=at)
            try:
                _survey(deeper, mount, device, depth - 1)
            finally:
                os.close(deeper)


def _remove(at: int, name: str) -> None:
    """Remove a file or a tree. The caller has surveyed it: a mount that came since is refused."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=at)
        return
    inner = os.open(name, _FOLDER, dir_fd=at)
    try:
        if _mount(inner) != _mount(at):
            raise ForeignError(f"something is mounted on {name} in it")
        for one in os.listdir(inner):
            _remove(inner, one)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=at)


def remove_unfinished(root: Path, *above: str) -> None:
    """Remove what a kill left half made or half removed in a folder, and our records of it."""
    with suppress(OSError, ForeignError), folder(root, *above) as at:
        for name in os.listdir(at):
            if name.startswith(UNFINISHED):
                _remove_unfinished(root, above, name)
    with suppress(OSError, ForeignError), folder(root, MADE) as records:
        for key in os.listdir(records):
            if HALF_WRITTEN.fullmatch(key):
                os.unlink(key, dir_fd=records)
                continue
            made = _read(records, key, Made)
            if made is None:
                continue
            if made.kind == "disk image":
                _unmark_removed(root, key, made.names)
            if not _lexists(root, made):
                _forget(root, key)


def _unmark_removed(root: Path, key: str, names: Names) -> None:
    """Remove what a kill left of a disk image's marker without the image, and the folder with it.

    The caller holds the lock of the places: no image is between its marker and its making.
    """
    with suppress(OSError, ForeignError):
        with folder(root, *names[:-1]) as at:
            beside = _beside(names[-1])
            # What was being written when it was killed; the file is named in our own record.
            with suppress(FileNotFoundError):
                os.unlink(f"{beside}.new", dir_fd=at)
            if os.path.lexists(root.joinpath(*names)):
                return
            marker = _read(at, beside, Marker)
            if marker is not None and marker.key == key:
                os.unlink(beside, dir_fd=at)
        remove_empty(root, "data", *names[:-1])


def _lexists(root: Path, made: Made) -> bool:
    file = root.joinpath(*made.names)
    return os.path.lexists(file) or os.path.lexists(file.with_name(_beside(file.name)))


def _remove_unfinished(root: Path, above: Names, name: str) -> None:
    """Remove a folder that holds at most its marker."""
    with suppress(OSError, ForeignError), folder(root, *above) as at:
        with folder(root, *above, name) as inner:
            if set(os.listdir(inner)) <= {MARKER}:
                with suppress(FileNotFoundError):
                    os.unlink(MARKER, dir_fd=inner)
        os.rmdir(name, dir_fd=at)


def replace_file(at: int, name: str, text: str) -> None:
    """Replace a file in one step, so that no reader sees half of it and no link is followed."""
    # One name: who writes holds the lock of the run directory, and a kill leaves one file only.
    following = f"{name}.new"
    with suppress(FileNotFoundError):
        os.unlink(following, dir_fd=at)
    _create(at, following, text)
    os.rename(following, name, src_dir_fd=at, dst_dir_fd=at)


def new_file(root: Path, *names: str) -> int:
    """Return a descriptor, to write, of a new file in the place of one of that name."""
    with folder(root, *names[:-1]) as at:
        with suppress(FileNotFoundError):
            os.unlink(names[-1], dir_fd=at)
        return os.open(names[-1], _NEW_FILE, 0o600, dir_fd=at)


def _create(at: int, name: str, text: str) -> None:
    with open(os.open(name, _NEW_FILE, 0o600, dir_fd=at), "w", encoding="utf-8") as file:
        file.write(text)


def _read(at: int, name: str, model: type[Words]) -> Words | None:
    """Return what a small file of ours says; None: it says nothing, or is another's."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if not plain or found.st_uid != os.geteuid() or found.st_size > MOST_MARKER_BYTES:
            return None
        return model.model_validate_json(os.read(file, MOST_MARKER_BYTES))
    except (OSError, ValidationError, ValueError):
        return None
    finally:
        os.close(file)


def _note(root: Path, key: str, made: Made) -> None:
    for _ in range(NOTE_TRIES):
        with folder(root) as at, suppress(FileExistsError):
            os.mkdir(MADE, 0o700, dir_fd=at)
        # Another process may remove the empty folder just now.
        with suppress(FileNotFoundError), folder(root, MADE) as records:
            replace_file(records, key, made.model_dump_json() + "\n")
            return
    raise MachineError(f"{root / MADE}: it is removed again and again; try again")


def _made(root: Path, key: str) -> Made | None:
    if KEY.fullmatch(key) is None:
        return None
    try:
        with folder(root, MADE) as records:
            return _read(records, key, Made)
    except (OSError, ForeignError):
        return None


def _forget(root: Path, key: str) -> None:
    """Remove our record of something that is gone, and the folder of the records with the last."""
    with suppress(OSError, ForeignError):
        with folder(root, MADE) as records:
            os.unlink(key, dir_fd=records)
        with folder(root) as at:
            os.rmdir(MADE, dir_fd=at)


def _marker(kind: Kind, key: str, device: int, inode: int | None) -> str:
    made = Marker(kind=kind, key=key, boot=boot_id(), device=device, inode=inode)
    return made.model_dump_json() + "\n"


def boot_id() -> str:
    """Return what tells this boot of the machine from every other one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _beside(name: str) -> str:
    return f".{name}{MARKER}"
