"""`disklab disk` under sudo: the caller's part reads and prints, root's part has the devices."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from disklab.catalog import VolumeRequest, load_catalog
from disklab.errors import MachineError
from disklab.hosts.attach import AttachRequest
from disklab.hosts.places import Owner
from disklab.privilege.talk import Link
from disklab.privilege.volumes import FORMS, Attach, VolumesPart

from tests.hosts.conftest import Lab, new_lab
from tests.programs import ended

from .conftest import CALLER
from .test_caller import DISKLAB, SUDO

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root"),
]


def disk(lab: Lab, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `sudo disklab disk`."""
    ran = ended(
        [str(DISKLAB), "disk", *arguments], env={**lab.environment(), **SUDO}, cwd="/", code=code
    )
    assert "Traceback" not in ran.stderr
    return ran


def told(lab: Lab, *arguments: str) -> Any:
    return json.loads(disk(lab, *arguments, "--json").stdout)


def test_a_volume_is_made_shown_changed_broken_and_taken_away(lab: Lab, mine: Path) -> None:
    options = ("--size", "64MiB", "--caching", "ReadOnly", "--vm", "azure/Standard_DS14_v2")
    mounted = ("--filesystem", "ext4", "--mount", str(mine / "point"))
    made = told(lab, "attach", "azure/P30", "--no-calibrate", *options, *mounted)
    assert os.path.ismount(mine / "point")
    (listed,) = told(lab, "list")["volumes"]
    assert (listed["name"], listed["device"]) == ("data", made["device"])
    changed = told(lab, "set", made["device"], "--iops", "500")["profile"]
    limits = changed["disks"][0]["limits"]
    assert {limit["per_s"] for limit in limits if limit["unit"] == "ios"} == {500}
    assert told(lab, "fail", "data", "slow", "2x")["fault"]["permille"] == 2000
    assert told(lab, "cache", "warm", "data", "--range", "0:1MiB")["cache"]["cached_bytes"] > 0
    assert told(lab, "detach", "data", "--delete-data")["data"] == []
    assert lab.devices() == {}


def test_volumes_of_another_run_directory_are_not_held(lab: Lab, mine: Path) -> None:
    waits = (str(DISKLAB), "run", "--disk", "azure/P10", "--no-calibrate", "--", "sh", "-c")
    with new_lab() as others:
        where = ("--filesystem", "ext4", "--mount", str(others.root / "point"))
        others.attach("azure/P10", "--size", "64MiB", *where)
        with subprocess.Popen(
            [*waits, "echo ready; read -r _"],
            env={**lab.environment(), **SUDO, "TMPDIR": str(mine)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        ) as command:
            assert command.stdout.readline() == "ready\n"
            others.run("disk", "detach", "data", "--delete-data")
            command.communicate("\n")


@pytest.fixture
def below_mnt() -> Iterator[Path]:
    """Yield a folder of root's below /mnt, as an administrator makes one."""
    with tempfile.TemporaryDirectory(prefix="disklab-test-", dir="/mnt") as made:
        yield Path(made).resolve()


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """Return a folder of root's that everybody may look into, as /etc/systemd/system is."""
    made = tmp_path / "system"
    made.mkdir(mode=0o755)
    (made / "there").mkdir(mode=0o755)
    (made / "his").mkdir()
    os.chown(made / "his", CALLER, CALLER)
    return made


def attach_at(lab: Lab, point: Path, code: int = 0) -> str:
    options = ("--no-calibrate", "--size", "64MiB", "--filesystem", "ext4", "--mount", str(point))
    return disk(lab, "attach", "azure/P10", *options, code=code).stderr


@pytest.mark.parametrize("name", ["cron.service.d", "there"])
def test_a_caller_mounts_in_no_folder_of_roots(lab: Lab, roots: Path, name: str) -> None:
    error = " ".join(attach_at(lab, roots / name, code=2).split())
    assert str(roots / name) in error.replace(" ", "")
    for words in ("--mount", "a folder of your own", "/mnt", "mkdir"):
        assert words in error
    assert not os.path.ismount(roots / name)
    assert sorted(path.name for path in roots.iterdir()) == ["his", "there"]
    assert lab.devices() == {}


@pytest.mark.parametrize("name", ["file", "missing/point", "full", "link", "mounted"])
def test_a_caller_is_told_nothing_of_roots_folders(lab: Lab, roots: Path, name: str) -> None:
    roots.chmod(0o700)
    (roots / "file").write_text("")
    (roots / "full/one").mkdir(parents=True)
    (roots / "link").symlink_to("/nowhere/at/all")
    point = Path("/sys") if name == "mounted" else roots / name
    error = " ".join(attach_at(lab, point, code=2).split())
    assert "under sudo a disk is mounted at an empty folder of your own" in error
    for words in ("does not exist", "hide", "is not a directory", "already", "leads to"):
        assert words not in error


@pytest.mark.parametrize("place", ["roots/his", "mine/new", "mine/there", "below_mnt/new"])
def test_a_caller_mounts_at_his_own_folder_and_below_mnt(
    lab: Lab, request: pytest.FixtureRequest, place: str
) -> None:
    fixture, name = place.split("/")
    point: Path = request.getfixturevalue(fixture) / name
    if place == "mine/there":
        point.mkdir()
    attach_at(lab, point)
    assert os.path.ismount(point)
    disk(lab, "detach", "data", "--delete-data")
    assert not os.path.ismount(point)


@pytest.mark.parametrize("name", ["", "new", "there"])
def test_a_caller_mounts_in_no_folder_of_another_user_below_mnt(
    lab: Lab, below_mnt: Path, name: str
) -> None:
    theirs = below_mnt / "theirs"
    theirs.mkdir()
    if name == "there":
        (theirs / name).mkdir()
    os.chown(theirs, CALLER - 1, CALLER - 1)
    error = " ".join(attach_at(lab, theirs / name, code=2).split())
    assert "a folder of your own" in error
    assert not os.path.ismount(theirs / name)


def test_a_folder_of_roots_within_ones_own_leads_no_further(lab: Lab, mine: Path) -> None:
    (mine / "bound" / "etc").mkdir(parents=True)
    attach_at(lab, mine / "bound" / "etc" / "new", code=2)
    assert list((mine / "bound" / "etc").iterdir()) == []


def test_mistakes_are_told_as_without_sudo(lab: Lab) -> None:
    for words in (("attach", "azure/P31"), ("detach", "/dev/null")):
        assert disk(lab, *words, code=2).stderr == lab.run("disk", *words, code=2).stderr


def test_a_catalogue_that_is_roots_alone_is_not_read(lab: Lab, mine: Path) -> None:
    secret = mine / "secret.yaml"
    secret.write_text("secret: of root\n")
    secret.chmod(0o600)
    said = disk(lab, "attach", "azure/P30", "--catalog", str(secret), code=2).stderr
    assert "of root" not in said
    assert lab.devices() == {}


@pytest.mark.parametrize(
    "wish",
    [
        AttachRequest(VolumeRequest("azure/P30"), transport="--data-dir=/"),
        AttachRequest(VolumeRequest("azure/P30"), owner=Owner(pid=1, start_time=1)),
    ],
)
def test_an_attach_has_no_options_of_roots(wish: AttachRequest) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        part = VolumesPart(Link(ours))
        with pytest.raises(MachineError, match=r"^refused: "):
            part.done(Attach(wish, load_catalog()))


def test_what_is_attached_arrives_as_it_was_asked() -> None:
    wish = AttachRequest(
        VolumeRequest("4 x azure/P30", chunk_bytes=65536),
        scale=Fraction(1, 100),
        mount_point=Path("/mnt/p30"),
    )
    request = Attach(wish, load_catalog())
    assert FORMS.request_of(FORMS.asked(request)) == ("attach", request)
