"""`disk attach --mount`: nothing is mounted but on the folder that was looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from disklab.catalog import VolumeRequest, load_catalog
from disklab.errors import DisklabError, MachineError
from disklab.hosts import attach as attaching
from disklab.hosts import filesystem, running
from disklab.hosts.attach import AttachRequest
from disklab.hosts.ownership import Mount, mounts
from disklab.hosts.places import Places
from disklab.hosts.running import Target, held

from .conftest import Lab

SIZE = 64 << 20
NOBODY = 65534


@pytest.fixture
def yard(tmp_path: Path) -> Path:
    """Return a folder with a mount point of its owner's, and one that is nothing of his."""
    for name in ("his", "etc"):
        (tmp_path / name).mkdir()
    return tmp_path


def mounted_below(folder: Path) -> list[Path]:
    return [mount.point for mount in mounts() if folder in (mount.point, *mount.point.parents)]


@pytest.fixture
def attach_with(
    lab: Lab, yard: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Path, Callable[[], object]], Any]]:
    """Yield what attaches at a mount point and does something while mkfs runs."""
    places = Places(lab.run_dir, lab.data_dir)
    usual = filesystem.make_filesystem

    def attach(point: Path, meanwhile: Callable[[], object]) -> Any:
        def make(*words: Any, **options: Any) -> None:
            usual(*words, **options)
            meanwhile()

        monkeypatch.setattr(attaching, "make_filesystem", make)
        request = AttachRequest(
            VolumeRequest("azure/P10", name="v", size_bytes=SIZE),
            filesystem="ext4",
            mount_point=point,
            calibrate=False,
        )
        return attaching.attach(load_catalog(), request, places)

    yield attach
    if places.host("default").run.exists():
        running.detach(Target(places.host("default"), "v"), places, delete_data=True)
    assert mounted_below(yard) == []


Attach = Callable[[Path, Callable[[], object]], Any]


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts are root's")
class TestAttach:
    def test_a_link_in_the_place_of_the_mount_point_is_not_followed(
        self, attach_with: Attach, yard: Path
    ) -> None:
        point, victim = yard / "his/point", yard / "etc"
        point.mkdir()

        def swap() -> None:
            point.rename(yard / "his/away")
            point.symlink_to(victim)

        with pytest.raises(MachineError, match=r"nothing is mounted|that is undone"):
            attach_with(point, swap)
        assert mounted_below(yard) == []

    def test_a_link_in_the_place_of_a_folder_above_is_not_followed(
        self, attach_with: Attach, yard: Path
    ) -> None:
        folder, point = yard / "his", yard / "his/point"

        def swap() -> None:
            folder.rename(yard / "away")
            folder.symlink_to(yard / "etc")

        with pytest.raises(MachineError):
            attach_with(point, swap)
        assert list((yard / "etc").iterdir()) == []
        assert mounted_below(yard) == []

    def test_a_link_in_the_place_of_one_that_is_made_is_not_followed(
        self, attach_with: Attach, yard: Path
    ) -> None:
        point = yard / "his/point"
        with pytest.raises(MachineError, match="something has replaced it"):
            attach_with(point, lambda: point.symlink_to(yard / "etc"))
        assert sorted(path.name for path in (yard / "his").iterdir()) == ["point"]

    def test_files_that_come_meanwhile_are_not_hidden(
        self, attach_with: Attach, yard: Path
    ) -> None:
        point = yard / "his/point"
        point.mkdir()
        with pytest.raises(MachineError, match="files have appeared in it"):
            attach_with(point, (point / "file").touch)
        shutil.rmtree(point)

    @pytest.mark.parametrize("there", [True, False])
    def test_where_nothing_happens_it_is_mounted(
        self, attach_with: Attach, yard: Path, there: bool
    ) -> None:
        point = yard / "his/point"
        if there:
            point.mkdir()
        made = attach_with(point, lambda: None)
        assert made.mount_point == str(point)
        assert mounted_below(yard) == [point]
        (point / "file").write_text("x")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o1775])
def test_a_folder_of_somebody_elses_in_one_of_everybodys_is_refused(
    tmp_path: Path, mode: int
) -> None:
    tmp_path.chmod(mode)
    point = tmp_path / "point"
    point.mkdir()
    with held(point) as mine:
        assert mine.exists
    os.chown(point, NOBODY, NOBODY)
    with pytest.raises(MachineError, match="belongs to uid 65534"), held(point):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
def test_a_databases_folder_in_one_of_roots_is_held(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    point = tmp_path / "postgresql"
    point.mkdir()
    os.chown(point, NOBODY, NOBODY)
    with held(point) as mine:
        assert mine.exists


def test_a_path_with_a_link_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for path in (tmp_path / "link/point", tmp_path / "link"):
        with pytest.raises(DisklabError), held(path):
            pass
    with held(tmp_path / "real/point") as point:
        assert not point.exists


def _mounted_at(point: Path) -> Mount:
    point.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "disklab-test", point], check=True)
    return next(mount for mount in mounts() if mount.point == point)


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts are root's")
@pytest.mark.parametrize("what", ["a link", "a folder of the mount"])
def test_what_stands_where_a_mount_was_is_not_unmounted(yard: Path, what: str) -> None:
    ours, victim = _mounted_at(yard / "his/a/p"), _mounted_at(yard / "etc/p")
    try:
        (yard / "his/a").rename(yard / "his/b")
        (yard / "his/b/p/p").symlink_to(yard / "etc/p")
        (yard / "his/a").symlink_to(yard / ("etc" if what == "a link" else "his/b/p"))
        with pytest.raises(MachineError, match="moved or unmounted"):
            filesystem.unmount(ours)
        assert not filesystem.force_unmount(ours, "-l")
        assert {ours.number, victim.number} <= {mount.number for mount in mounts()}
        (yard / "his/a").unlink()
        (yard / "his/b").rename(yard / "his/a")
        filesystem.unmount(ours)
        assert filesystem.force_unmount(victim)
        assert mounted_below(yard) == []
    finally:
        for point in mounted_below(yard):
            subprocess.run(["umount", "-l", point], check=True)
