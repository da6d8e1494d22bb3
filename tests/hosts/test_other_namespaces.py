"""Other PID namespaces with one run directory, as of containers: none touches another's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from disklab.catalog import VolumeRequest, load_catalog
from disklab.engine import locks
from disklab.engine.locks import Life, comes_free, is_held, pid_namespace
from disklab.engine.own_folder import boot_id, make_folder
from disklab.hosts.attach import AttachRequest, attach
from disklab.hosts.cleaning import Scope, clean, clean_orphans
from disklab.hosts.left_databases import OWNER, make_run_dir
from disklab.hosts.places import OWNER_LOCK, HostRecord, Owner, Places

from tests.programs import wait_until

from .conftest import DISKLAB, Lab
from .test_clean import kinds
from .test_decoys import Seen, seen

pytestmark = pytest.mark.machine

INSIDE = """
mount --make-rprivate /
grep -E 'fuse.disklab|/dev/loop' /proc/self/mountinfo | cut -d' ' -f5 | xargs -r -n1 umount -l
echo ready
while read -r line; do eval "$line"; echo "ended $?"; done
"""


class Container:
    """A shell in PID and mount namespaces of its own, which shares the run directory."""

    def __init__(self, lab: Lab) -> None:
        spaces = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        self.shell = subprocess.Popen(
            [*spaces, "sh", "-c", INSIDE],
            env=lab.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        return self.shell.stdout.readline().strip()

    def do(self, line: str, code: int = 0) -> str:
        """Do a line of shell inside; returns what it says, on any number of lines."""
        self.shell.stdin.write(line + "\n")
        self.shell.stdin.flush()
        said = []
        while not (word := self._line()).startswith("ended "):
            said.append(word)
        assert word == f"ended {code}", f"{line}: {word}\n{said}"
        return "\n".join(said)

    def disklab(self, *words: str, code: int = 0) -> str:
        return self.do(" ".join([str(DISKLAB), *words]), code)

    def json(self, *words: str) -> Any:
        return json.loads(self.disklab(*words, "--json"))

    def end(self) -> None:
        """End the shell; the kernel ends what else is inside."""
        self.shell.stdin.close()
        self.shell.wait(timeout=60)


@contextmanager
def container(lab: Lab) -> Iterator[Container]:
    inside = Container(lab)
    try:
        yield inside
    finally:
        # Nothing may have a file system mounted when the namespace goes: see docs/emulator.md.
        if inside.shell.poll() is None:
            inside.do("umount -a -t ext4,xfs 2>/dev/null; true")
            inside.do(f"{DISKLAB} clean --all --data >/dev/null 2>&1; true")
            inside.end()
        inside.shell.wait(timeout=60)


ATTACH = ("disk", "attach", "azure/P30", "--size", "64MiB", "--no-calibrate")
FUSE = ("--transport", "fuse")


def places_of(lab: Lab) -> Places:
    return Places(lab.run_dir, lab.data_dir)


def test_a_living_host_of_another_namespace_is_left_alone(lab: Lab) -> None:
    with container(lab) as inside:
        point = lab.root / "mnt"
        inside.json(*ATTACH, *FUSE, "--filesystem", "ext4", "--mount", str(point))
        inside.do(f"echo kept > {point}/file && sync {point}/file")
        before = lab.state()
        outcome = lab.json("clean")
        assert outcome["removed"] == []
        whole = {one["what"]: one["why"] for one in outcome["foreign"]}
        assert "another PID namespace" in whole[str(lab.host())]
        places = places_of(lab)
        for scope in (Scope(everything=True, data=True), Scope(host="default", everything=True)):
            removed, kept = clean(places, scope)
            assert (removed, kept.healthy) == ([], [])
            assert str(lab.host()) in {one.what for one in kept.foreign}
        assert clean_orphans(places) == []
        assert lab.state() == before
        # Caches dropped, so that the disk is asked.
        inside.do(f"cat {point}/file && dd if=/dev/zero of={point}/more bs=1M count=4 oflag=direct")
        said = lab.refused("disk", "attach", "azure/P30", "--name", "other")
        assert "another PID namespace" in said
        inside.disklab("disk", "detach", "data", "--delete-data")
    assert not lab.host().exists()
    assert (lab.devices(), lab.processes()) == ({}, [])


def test_a_living_host_is_left_alone_by_another_namespace(lab: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB", *FUSE)
    with container(lab) as inside:
        outcome = inside.json("clean", "--all", "--data")
        assert outcome["removed"] == []
        assert "another PID namespace" in outcome["foreign"][0]["why"]
        before = lab.state()
        inside.end()
    assert lab.state() == before
    assert lab.json("disk", "list")["volumes"][0]["state"] == "attached"
    lab.run("disk", "detach", "data")


@pytest.mark.parametrize("namespace", ["is gone", "is there"])
def test_a_dead_host_of_another_namespace_is_removed(lab: Lab, namespace: str) -> None:
    """Its lock is free. No file system is on its disk, whose last write nobody would answer."""
    inside = Container(lab)
    try:
        inside.json(*ATTACH, *FUSE)
        assert is_held(lab.host() / "lock")
        if namespace == "is there":
            inside.do(f"kill -KILL $(cut -d' ' -f1 {lab.host()}/pid)")
        else:
            inside.end()
        outcome = lab.json("clean", "--data")
        assert {"device", "run directory", "data"} <= set(kinds(outcome)), outcome
        assert all(one["done"] for one in outcome["removed"]), outcome
        assert (lab.devices(), lab.processes(), outcome["foreign"]) == ({}, [], [])
        assert not lab.host().exists()
    finally:
        if inside.shell.poll() is None:
            inside.end()


def test_an_owner_lives_as_long_as_its_lock_is_held(tmp_path: Path) -> None:
    """Whatever its number means here."""
    root = tmp_path / "run"
    run_dir = Places(root, tmp_path / "data").database("n1")
    make_run_dir(run_dir)
    owner = Owner.recorded(run_dir / OWNER)
    assert (owner.pid, owner.namespace, owner.boot) == (os.getpid(), pid_namespace(), boot_id())
    gone = owner.model_copy(update={"pid": 1 << 21})
    assert gone.life(run_dir) is Life.LIVES
    # No program that outlives it may hold it.
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        shown = [os.readlink(one) for one in Path(f"/proc/{sleeper.pid}/fd").iterdir()]
        sleeper.kill()
    assert not any(OWNER_LOCK in one for one in shown)
    elsewhere = owner.model_copy(update={"namespace": 7})
    assert elsewhere.why_elsewhere(run_dir) is not None
    (run_dir / OWNER_LOCK).unlink()
    assert owner.life(run_dir) is Life.LIVES
    assert gone.life(run_dir) is Life.GONE
    assert elsewhere.life(run_dir) is Life.UNKNOWN
    assert elsewhere.model_copy(update={"boot": "another"}).life(run_dir) is Life.GONE
    # An older release noted a number alone.
    assert Owner(pid=owner.pid, start_time=owner.start_time).life(run_dir) is Life.LIVES
    (run_dir / OWNER_LOCK).touch()
    assert owner.life(run_dir) is Life.GONE


FORKED = """
import os, sys, time
from pathlib import Path
from disklab.hosts.left_databases import make_run_dir
make_run_dir(Path(sys.argv[1]))
if os.fork() == 0:
    time.sleep(60)
print(os.getpid(), flush=True)
os._exit(0)
"""


def test_a_fork_of_an_owner_does_not_keep_its_lock(tmp_path: Path) -> None:
    run_dir = Places(tmp_path / "run", tmp_path / "data").database("n1")
    command = [sys.executable, "-c", FORKED, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as ended:
        ended.stdout.readline()
        ended.wait(timeout=60)
        try:
            # The fork lets go a moment after it began.
            assert comes_free(run_dir / OWNER_LOCK)
        finally:
            os.killpg(ended.pid, signal.SIGKILL)


def test_a_rehearsal_of_another_namespace_keeps_its_hosts(lab: Lab) -> None:
    """Its hosts here, its owner there: as when a rehearsal in a container is seen from outside."""
    places = places_of(lab)
    volume = VolumeRequest("azure/P30", size_bytes=64 << 20)
    request = AttachRequest(volume, host="r1", owner=Owner.this(), calibrate=False)
    attach(load_catalog([]), request, places)
    place = places.host("r1")
    record = place.host_record()
    foreign = record.owner.model_copy(update={"namespace": 7, "pid": 1 << 21})
    place.record_host(record.model_copy(update={"owner": foreign}))
    assert clean_orphans(places) == []
    removed, kept = clean(places, Scope(everything=True, data=True))
    assert (removed, [one.what for one in kept.foreign]) == ([], [str(place.run)])
    # Without its lock it cannot be told; with a free one it is gone.
    (place.run / OWNER_LOCK).unlink()
    assert clean_orphans(places) == []
    (place.run / OWNER_LOCK).touch()
    assert {one.kind for one in clean_orphans(places)} > {"process", "run directory", "data"}
    assert not place.run.exists()


@pytest.mark.parametrize("transport", ["fuse", "auto"])
def test_a_killed_host_lets_go_of_its_disk_before_its_namespace(lab: Lab, transport: str) -> None:
    """The kernel closes what was opened last first; see `HostDir` of the engine.

    Tried by looking only: where this is wrong, a kill leaves what waits for ever.
    """
    lab.attach("azure/P30", "--size", "64MiB", "--transport", transport)
    shown = {int(one.name): os.readlink(one) for one in Path(f"/proc/{lab.engine()}/fd").iterdir()}
    (namespace,) = [number for number, name in shown.items() if name.startswith("mnt:[")]
    ways = [
        number
        for number, name in shown.items()
        if name.startswith(("/dev/fuse", "/dev/ublk", "anon_inode:[io_uring]"))
    ]
    assert ways
    assert namespace < min(ways)


def test_processes_of_one_number_make_hosts_of_different_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = set()
    for namespace in (locks.INITIAL, 0xF0000123, 0xF0000124):
        monkeypatch.setattr(locks, "pid_namespace", lambda namespace=namespace: namespace)
        names.add(locks.own_name("rehearsal"))
    assert len(names) == 3
    assert f"rehearsal-{os.getpid()}" in names


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
            wait_until(partial(is_held, lock))


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
