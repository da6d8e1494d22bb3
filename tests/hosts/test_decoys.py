"""`clean --all --data` among two hundred things that look like ours, and one host that is ours."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from disklab.engine.own_folder import MADE, MARKER
from disklab.hosts.left_databases import OWNER, make_run_dir
from disklab.hosts.places import OWNER_LOCK, Places

from tests.foreign import loop_device, run
from tests.programs import wait_until

from .conftest import DISKLAB, Lab, new_lab
from .test_clean import kinds

pytestmark = pytest.mark.machine

EACH = 20
NOBODY = 65534
Seen = dict[str, tuple[object, ...]]


def seen(*places: Path) -> Seen:
    """Return what can be told of everything in these places, following no link."""
    found: Seen = {}
    for place in places:
        inside = [
            Path(folder) / name
            for folder, *rest in os.walk(place)
            for some in rest
            for name in some
        ]
        for path in [place, *inside]:
            facts = os.lstat(path)
            content = ""
            if stat.S_ISLNK(facts.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(facts.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            kept = (facts.st_dev, facts.st_ino, facts.st_mode, facts.st_uid, facts.st_mtime_ns)
            found[str(path)] = (*kept, content)
    return found


class Decoys:
    """Makes decoys in a lab, and takes their mounts away at the end."""

    def __init__(self, lab: Lab, undo: ExitStack) -> None:
        self.lab = lab
        self.undo = undo
        self.made: list[Path] = []
        self.precious = lab.root / "precious"
        self.databases = lab.run_dir / "databases"

    def fill(self, folder: Path) -> Path:
        """Put what a user would miss into a folder."""
        (folder / "deep").mkdir(parents=True)
        (folder / "data.img").write_text(f"the only copy of {folder}")
        (folder / "deep/table").write_text("rows")
        return folder

    def real_database(self, name: str) -> Path:
        """Make a database's run directory that is ours, of a process that is gone."""
        folder = Places(self.lab.run_dir, self.lab.data_dir).database(name)
        make_run_dir(folder)
        (folder / OWNER_LOCK).unlink()
        (folder / OWNER).write_text('{"pid": 2, "start_time": 0}')
        (folder / "conf").mkdir()
        (folder / "conf/cassandra.yaml").write_text("x")
        return folder

    def bind(self, source: Path, target: Path) -> None:
        """Show a directory at another place; it has the same device as everything around it."""
        target.mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", str(source), str(target))
        self.undo.callback(run, "umount", str(target))

    def add(self, number: int, host: Path, image: Path) -> None:
        """Add one of each kind."""
        precious, databases, data = self.precious, self.databases, self.lab.data_dir
        own = self.fill(precious / f"{number}")
        self.made += [own, self.fill(databases / f"prod-{number}")]
        (databases / f"link-{number}").symlink_to(own)
        self.bind(own, databases / f"bind-{number}")
        self.copy(self.real, databases / f"copy-{number}")
        self.copy(host, self.lab.run_dir / "hosts" / f"copy-{number}")
        theirs = self.copy(self.real, databases / f"theirs-{number}")
        os.chown(theirs, NOBODY, NOBODY)
        self.made.append(self.fill(data / f"unmarked-{number}"))
        (data / f"link-{number}").symlink_to(own)
        self.bind(own, data / f"bind-{number}")
        self.hard_link(own / "data.img", image, data / f"hard-{number}")

    def copy(self, source: Path, target: Path) -> Path:
        """Copy a folder of ours with its marker, as a backup does."""
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("mnt", "control.sock"))
        self.fill(target / "more")
        self.made.append(target)
        return target

    def hard_link(self, file: Path, image: Path, folder: Path) -> None:
        """Give a file a second name where an image would lie, and a forged marker."""
        folder.mkdir()
        os.link(file, folder / "data.img")
        marker = json.loads(image.with_name(f".{image.name}{MARKER}").read_text())
        marker |= {"inode": os.stat(file).st_ino}
        (folder / f".data.img{MARKER}").write_text(json.dumps(marker))
        self.made.append(folder)

    @property
    def real(self) -> Path:
        """A run directory of a database that is ours, to copy."""
        return self.databases / "real"


@pytest.fixture
def other() -> Iterator[Lab]:
    """Another run directory, with a healthy host of its own."""
    with new_lab() as made:
        made.attach("azure/P30", "--size", "64MiB")
        yield made


def test_clean_touches_no_decoy(lab: Lab, other: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB", "--host", "ours")
    os.kill(lab.engine("ours"), signal.SIGKILL)
    with ExitStack() as undo:
        decoys = Decoys(lab, undo)
        decoys.real_database("real")
        image = lab.data_dir / "ours/data.img"
        for number in range(EACH):
            decoys.add(number, other.host(), image)
        # A folder of ours with another's directory mounted in it stays whole.
        around = decoys.real_database("around")
        decoys.bind(decoys.precious / "0", around / "conf/mounted")
        # A device over a plain file, at the path that a file of ours would have.
        fake = lab.run_dir / "hosts/fake/mnt/data"
        fake.parent.mkdir(parents=True)
        fake.write_bytes(os.urandom(1 << 20))
        device = undo.enter_context(loop_device(fake))
        # Another host's mount, shown at the path of one of ours: its end there would end it all.
        shown = lab.run_dir / "hosts/shown"
        decoys.bind(other.host() / "mnt", shown / "mnt")
        shutil.copy(other.host() / "pid", shown / "pid")
        places = [*decoys.made, decoys.precious, around, fake]
        before = seen(*places), other.state(), len(lab.mounts())
        assert len(list(lab.run_dir.glob("*/*"))) + len(list(lab.data_dir.iterdir())) > 10 * EACH

        planned = lab.json("clean", "--all", "--data", "--dry-run")
        assert (seen(*places), other.state(), len(lab.mounts())) == before
        outcome = lab.json("clean", "--all", "--data")
        assert (seen(*places), other.state()) == before[:2]
        assert other.json("disk", "list")["volumes"][0]["state"] == "attached"
        assert Path(f"/sys/block/{device.name}/loop/backing_file").exists()

        # It did what it planned, and what is ours is gone.
        assert outcome["removed"] == planned["removed"]
        assert outcome["foreign"] == planned["foreign"]
        assert kinds(outcome) == ["device", "fuse mount", "run directory", "run directory", "data"]
        left = {one["what"]: one["why"] for one in outcome["foreign"]}
        for number in range(EACH):
            assert f"link-{number}" in " ".join(left)
        assert "is mounted on" in left[str(around)]
        assert "not marked" in left[str(decoys.databases / "prod-0")]
        assert "a copy" in left[str(decoys.databases / "copy-0")]
        assert "uid 65534" in left[str(decoys.databases / "theirs-0")]
        assert "mounted" in left[str(decoys.databases / "bind-0")]
        assert "second name" in left[str(lab.data_dir / "hard-0/data.img")]
    shutil.rmtree(around)


def test_a_databases_folder_that_is_a_link_is_left_alone(lab: Lab) -> None:
    precious = lab.root / "precious"
    (precious / "prod").mkdir(parents=True)
    (precious / "prod/rows").write_text("x")
    lab.run_dir.mkdir()
    (lab.run_dir / "databases").symlink_to(precious)
    before = seen(precious)
    outcome = lab.json("clean", "--all", "--data")
    assert seen(precious) == before
    assert (outcome["removed"], len(outcome["foreign"])) == ([], 2)


def test_a_silent_host_and_one_with_many_clients_are_healthy(lab: Lab) -> None:
    point = lab.root / "mnt"
    lab.attach("azure/P30", "--size", "64MiB", "--filesystem", "ext4", "--mount", str(point))
    (point / "kept").write_text("x")
    with ExitStack() as undo:
        for _ in range(20):
            client = undo.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(1)
            client.connect(str(lab.host() / "control.sock"))
        outcome = lab.json("clean")
    assert (outcome["removed"], outcome["healthy"]) == ([], ["default"])
    # No answer at all: nobody listens at that name.
    (lab.host() / "control.sock").rename(lab.host() / "silent")
    outcome = lab.json("clean")
    assert (outcome["removed"], outcome["healthy"]) == ([], ["default"])
    (lab.host() / "silent").rename(lab.host() / "control.sock")
    # Its lock tells, whether or not its record is whole.
    (lab.host() / "pid").write_text("0 0\n")
    outcome = lab.json("clean")
    assert (outcome["removed"], outcome["healthy"]) == ([], ["default"])
    assert (point / "kept").read_text() == "x"
    assert lab.json("disk", "list")["volumes"][0]["state"] == "attached"


ELSEWHERE = """
set -e
mount --make-rprivate /
# The copies of other tests' mounts would hold their disks.
grep -E 'fuse.disklab|/dev/loop' /proc/self/mountinfo | cut -d' ' -f5 | xargs -r -n1 umount -l
mount -t tmpfs -o mode=755 none "$1"
cd "$1"
"$2" disk attach azure/P30 --size 64MiB --no-calibrate --json > "$1/made"
cp -r --parents hosts/default/pid hosts/default/attached "$3"
touch "$3/ready"
read _
"$2" clean --all --data --json
"""


@pytest.mark.alone  # a new mount namespace holds, for a moment, the disks of tests beside it
def test_a_device_of_another_mount_namespace_is_left_alone(lab: Lab) -> None:
    """There the same path is another file, the same command line another run directory."""
    lab.run_dir.mkdir()
    copies = lab.root / "copies"
    copies.mkdir()
    script = ["sh", "-c", ELSEWHERE, "sh", str(lab.run_dir), str(DISKLAB), str(copies)]
    with subprocess.Popen(
        ["unshare", "-m", *script],
        env=lab.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as inside:
        try:
            wait_until((copies / "ready").exists)
            (device,) = lab.devices()
            pid = int((copies / "hosts/default/pid").read_text().split()[0])
            # The same host name here, ours, dead, with the other's records.
            lab.attach("azure/P30", "--size", "64MiB", "--name", "log")
            os.kill(lab.engine(), signal.SIGKILL)
            shutil.copytree(copies / "hosts", lab.run_dir / "hosts", dirs_exist_ok=True)
            outcome = lab.json("clean", "--all")
            assert "run directory" in kinds(outcome)
            assert "process" not in kinds(outcome)
            assert [one["what"] for one in outcome["foreign"]] == [f"/dev/{device}"]
            assert "another mount namespace" in outcome["foreign"][0]["why"]
            assert list(lab.devices()) == [device]
            assert pid in lab.processes()
        finally:
            told, _ = inside.communicate(b"\n", timeout=60)
    assert "device" in kinds(json.loads(told))
    assert (lab.devices(), lab.processes()) == ({}, [])


def test_nothing_stays_of_our_records(lab: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB")
    assert len(list((lab.run_dir / MADE).iterdir())) == 1
    assert len(list((lab.data_dir / MADE).iterdir())) == 2
    lab.run("disk", "detach", "data", "--delete-data")
    assert list(lab.data_dir.iterdir()) == []
    assert not (lab.run_dir / MADE).exists()
