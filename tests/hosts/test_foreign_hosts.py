"""Fifty hosts of other PID namespaces among ours: `clean --all --data` and a rehearsal touch none.

They are light: real locks, held in namespaces of their own, on folders that disklab made. What real
emulated hosts do is in `test_other_namespaces`, and two hundred other decoys are in `test_decoys`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from disklab.engine.locks import comes_free, is_held
from disklab.engine.own_folder import boot_id, make_folder
from disklab.hosts.cleaning import Scope, clean, clean_orphans
from disklab.hosts.left_databases import OWNER, make_run_dir
from disklab.hosts.places import OWNER_LOCK, HostRecord, Owner, Places

from .conftest import Lab
from .test_decoys import Seen, seen
from .test_disk import wait_until

pytestmark = pytest.mark.machine

MANY = int(os.environ.get("DISKLAB_NAMESPACES", "50"))
"""Namespaces; a quarter of them for each kind."""
FOLDERS = ("hosts", "databases", "networks")
ELSEWHERE = 7
"""The inode of a PID namespace that is not ours."""


class Holders:
    """Processes in PID namespaces of their own, which hold locks."""

    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo
        self.locks: list[Path] = []

    def hold(self, lock: Path) -> None:
        lock.touch(0o600)
        spaces = ["unshare", "--pid", "--fork", "--kill-child"]
        holder = subprocess.Popen([*spaces, "flock", str(lock), "sleep", "1000"])
        self._undo.callback(holder.wait)
        self._undo.callback(holder.kill)
        self.locks.append(lock)

    def wait(self) -> None:
        for lock in self.locks:
            wait_until(lambda lock=lock: bool(is_held(lock)), f"the lock of {lock.parent.name}")


def host(places: Places, name: str, owner: Owner | None = None) -> Path:
    """Make the folder of a host whose engine has the number of nobody here, with an image."""
    place = places.host(name)
    place.make()
    (place.run / "pid").write_text(f"1 {1 << 40} {ELSEWHERE} {boot_id()}\n")
    place.record_host(HostRecord(owner=owner, fuse_device="0:1", boot=boot_id()))
    place.mark_image("data")
    place.data_file("data").write_text(f"the only copy of {name}")
    place.mark_image("data")
    return place.run


def foreign_owner() -> Owner:
    return Owner.this().model_copy(update={"namespace": ELSEWHERE, "pid": 1})


def living(places: Places, holders: Holders, number: int) -> Iterator[Path]:
    """Make one of each kind, each with a life that is held elsewhere, or cannot be told."""
    # A user's own host.
    yield (run := host(places, f"own-{number}"))
    holders.hold(run / "lock")
    # A rehearsal's host, whose engine may be dead: its owner lives.
    yield (run := host(places, f"rehearsal-{number}", foreign_owner()))
    (run / "lock").touch(0o600)
    holders.hold(run / OWNER_LOCK)
    # A rehearsal's database, whose VM is lost.
    run = places.database(f"lost-{number}")
    make_run_dir(run)
    (run / OWNER).write_text(foreign_owner().model_dump_json())
    # This process holds it.
    (run / OWNER_LOCK).unlink()
    holders.hold(run / OWNER_LOCK)
    yield run
    # A set of hosts, whose first process lives on.
    run = places.network(f"set-{number}")
    make_folder(places.run, "network", "networks", run.name)
    (run / "owner").write_text(foreign_owner().model_dump_json())
    (run / OWNER_LOCK).touch()
    holders.hold(run / "lock.n1")
    yield run
    # Without a lock: nobody can tell.
    yield host(places, f"untold-{number}")


def test_clean_touches_no_host_of_another_namespace(lab: Lab) -> None:
    places = Places(lab.run_dir, lab.data_dir)
    with ExitStack() as undo:
        holders = Holders(undo)
        made = [run for number in range(-(-MANY // 4)) for run in living(places, holders, number)]
        holders.wait()
        assert len(holders.locks) >= MANY
        all_of_them = [*(lab.run_dir / one for one in FOLDERS), lab.data_dir]
        before: Seen = seen(*all_of_them)
        assert clean_orphans(places) == []
        removed, kept = clean(places, Scope(everything=True, data=True))
        assert removed == []
        assert {one.what for one in kept.foreign} >= {str(run) for run in made}
        assert all("PID namespace" in one.why for one in kept.foreign)
        # `clean` looks whether a lock is held; it leaves files and folders as they were.
        assert seen(*all_of_them) == before
    for lock in holders.locks:
        assert comes_free(lock)
    # Their locks are free: they are gone.
    removed, kept = clean(places, Scope(everything=True, data=True))
    assert all(one.done for one in removed)
    left = {one.what for one in kept.foreign}
    assert left == {str(run) for run in made if run.name.startswith("untold-")}
    assert {str(path) for path in (lab.run_dir / "hosts").iterdir()} == left
    for one in left:
        untold = places.host(Path(one).name)
        assert (untold.remove_image("data"), untold.remove()) == (None, [])
