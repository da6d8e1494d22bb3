"""Whose the places are: run directories of others, links, paths that lead elsewhere, records."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import wait_until

from .conftest import Lab, new_lab

pytestmark = pytest.mark.machine

ATTACH = ("disk", "attach", "azure/P30", "--size", "64MiB", "--no-calibrate")
NOBODY = 65534


@pytest.mark.parametrize("place", ["DISKLAB_RUN_DIR", "DISKLAB_DATA_DIR"])
def test_a_directory_that_others_can_write_to_is_refused(lab: Lab, place: str) -> None:
    folder = lab.run_dir if place == "DISKLAB_RUN_DIR" else lab.data_dir
    folder.mkdir()
    folder.chmod(0o777)
    message = lab.refused(*ATTACH)
    assert f"{place}: {folder}: others may write to it (mode 0777)" in message
    assert f"chmod go-w {folder}" in message
    folder.chmod(0o755)
    os.chown(folder, NOBODY, NOBODY)
    message = lab.refused(*ATTACH)
    assert "it belongs to uid 65534, and must belong to uid 0" in message
    assert lab.refused("clean") == message
    os.chown(folder, 0, 0)


def test_no_link_in_a_run_directory_is_followed(lab: Lab) -> None:
    precious = lab.root / "precious"
    precious.write_text("x")
    lab.host().mkdir(parents=True)
    for name in ("log", "host.json.new"):
        (lab.host() / name).symlink_to(precious)
    message = lab.refused(*ATTACH)
    assert "it is not empty, and disklab did not create it" in message
    assert precious.read_text() == "x"
    shutil.rmtree(lab.host())
    # One that comes between two attaches: records are made under other names and renamed.
    lab.attach("azure/P30", "--size", "64MiB")
    (lab.host() / "attached/log.json.new").symlink_to(precious)
    (lab.host() / "attached/log.json").symlink_to(precious)
    (lab.host() / "attached/log.json").unlink()
    lab.attach("azure/P30", "--size", "64MiB", "--name", "log")
    assert precious.read_text() == "x"


def test_a_copied_record_of_a_process_kills_nobody(lab: Lab) -> None:
    with new_lab() as other:
        for one in (lab, other):
            one.attach("azure/P30", "--size", "64MiB")
        os.kill(lab.engine(), signal.SIGKILL)
        shutil.copy(other.host() / "pid", lab.host() / "pid")
        outcome = lab.json("clean", "--all")
        assert "process" not in [one["kind"] for one in outcome["removed"]]
        assert Path(f"/proc/{other.engine()}").exists()
        assert other.json("disk", "list")["volumes"][0]["state"] == "attached"


def test_a_mount_point_behind_links_and_dots(lab: Lab) -> None:
    (lab.root / "real").mkdir()
    (lab.root / "link").symlink_to(lab.root / "real")
    options = ("--size", "64MiB", "--filesystem", "ext4", "--mount")
    for given in (lab.root / "link", lab.root / "link/../real", lab.root / "link/made"):
        made = lab.attach("azure/P30", *options, str(given))
        assert made["mount_point"] == str(given.resolve())
        lab.run("disk", "detach", "data")
    assert list((lab.root / "real").iterdir()) == [], "the mount point that it made is gone"
    (lab.root / "nowhere").symlink_to(lab.root / "absent")
    message = lab.refused(*ATTACH, "--mount", str(lab.root / "nowhere"))
    absent = lab.root / "absent"
    assert f"this link leads to {absent}, which does not exist; create it first: mkdir" in message


def test_another_directory_at_the_mount_point_stays(lab: Lab) -> None:
    point = lab.root / "mnt"
    lab.attach("azure/P30", "--size", "64MiB", "--filesystem", "ext4", "--mount", str(point))
    os.kill(lab.engine(), signal.SIGKILL)
    subprocess.run(["umount", "-l", str(point)], check=True)
    point.rename(lab.root / "moved")
    point.mkdir()
    inode = point.stat().st_ino
    lab.run("clean")
    assert point.stat().st_ino == inode, "an empty directory that somebody else made"
    point.rmdir()


HOLD = "import sys, time; print('here', flush=True); sys.stdin.read()"


@pytest.mark.alone  # a new mount namespace holds the disks of tests beside it
def test_detach_says_which_namespace_holds_a_mount(lab: Lab) -> None:
    point = lab.root / "mnt"
    lab.attach("azure/P30", "--size", "64MiB", "--filesystem", "ext4", "--mount", str(point))
    with subprocess.Popen(
        ["unshare", "-m", sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"here\n"
        message = lab.refused("disk", "detach", "data")
        assert f"is still mounted on {point} in another mount namespace" in message
        assert f"that of process {holder.pid} (python" in message
        assert "umount " not in message.replace("-m umount", "")
        holder.communicate()
    wait_until(lambda: holder.poll() is not None)
    lab.run("disk", "detach", "data")


@pytest.mark.alone  # as above
def test_detach_waits_for_a_namespace_that_is_about_to_let_go(lab: Lab) -> None:
    point = lab.root / "mnt"
    lab.attach("azure/P30", "--size", "64MiB", "--filesystem", "ext4", "--mount", str(point))
    # What a host does that starts meanwhile: a copy of all mounts, given up a moment later.
    script = f"echo here; sleep 1; umount {point}; exec sleep 60"
    with subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as holder:
        assert holder.stdout.readline() == b"here\n"
        lab.run("disk", "detach", "data")
        holder.kill()
