"""What a command writes as root under sudo belongs to the user who called it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def given(*folders: Path) -> Iterator[list[Path]]:
    """Yield a list for what is written, and give it to the user who called sudo, if there is one.

    The folders that are not there yet, and are then, go with it. Only what is root's and has one
    name: no link is followed, and nobody else's file is given.
    """
    absent = [one for place in folders for one in (*place.parents, place)]
    absent = [one for one in absent if not os.path.lexists(one)]
    written: list[Path] = []
    yield written
    _give_all([*written, *absent])


def _give_all(paths: list[Path]) -> None:
    try:
        user, group = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return
    if os.geteuid() != 0:
        return
    for path in paths:
        # What is below goes first: after that the folder is the caller's to change.
        for _, _, files, at in os.fwalk(path, topdown=False):
            for name in files:
                _give(name, at, user, group)
            _give(".", at, user, group)
        _give(str(path), None, user, group)


def _give(name: str, at: int | None, user: int, group: int) -> None:
    with suppress(OSError):
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if found.st_uid == 0 and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
            os.chown(name, user, group, dir_fd=at, follow_symlinks=False)
