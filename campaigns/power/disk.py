"""A recorded disk with a file system, and images of it mounted after a cut."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEBIBYTE = 1 << 20
SIZES = {"ext4": 64 * MEBIBYTE, "xfs": 300 * MEBIBYTE}
"""Bytes. xfs makes nothing smaller than 300 MiB; PostgreSQL needs 200 MiB, see its own."""
MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
    "ext4 of 16 KiB": ("mkfs.ext4", "-q", "-O", "bigalloc", "-C", "16384", "-E", "nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-K"),
}
E2FSCK = ("e2fsck", "-f", "-n")
CHECK = {"ext4": E2FSCK, "ext4 of 16 KiB": E2FSCK, "xfs": ("xfs_repair", "-n")}
SECONDS = 60.0


class LostError(Exception):
    """What was promised is not there, or what is there is damaged."""


def run(*command: str | Path) -> str:
    """Run a command; return what it printed. LostError: it failed."""
    words = [str(one) for one in command]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    if ran.returncode:
        raise LostError(
            f"`{' '.join(words)}` ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
        )
    return ran.stdout


@contextmanager
def mounted(device: str | Path, folder: Path, *options: str) -> Iterator[Path]:
    """Mount while the block runs. LostError: it cannot be mounted."""
    folder.mkdir(exist_ok=True)
    run("mount", *options, device, folder)
    try:
        yield folder
    finally:
        _unmount(folder)


def _unmount(folder: Path) -> None:
    """Unmount; wait for files of a process that has ended.

    The kernel closes those of an io_uring, which MariaDB has, some time after their process is
    gone. A failure here would stand for what the check inside the mount has found.
    """
    deadline = time.monotonic() + SECONDS
    while (error := _failure(folder)) and "busy" in error and time.monotonic() < deadline:
        time.sleep(0.1)
    if error:
        raise RuntimeError(error)


def _failure(folder: Path) -> str:
    ran = subprocess.run(["umount", folder], capture_output=True, text=True, check=False)
    return ran.stderr


@contextmanager
def recorded(lab: Path, filesystem: str, size: int) -> Iterator[tuple[Path, Path]]:
    """Yield a fresh file system on a recorded disk, mounted, and the file for marks.

    The log is `lab/log` and complete when the block has ended.
    """
    image, front = lab / "disk.img", lab / "front"
    front.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "campaigns.power.recorder",
        image,
        front,
        lab / "log",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout
        assert recorder.stdout.readline() == "ready\n"
        try:
            loop = run("losetup", "--find", "--show", "--direct-io=on", front / "disk").strip()
            try:
                run(*MAKE[filesystem], loop)
                with mounted(loop, lab / "volume") as volume:
                    yield volume, front / "marks"
            finally:
                run("losetup", "--detach", loop)
        finally:
            run("umount", front)
    image.unlink()


def check_file_system(image: Path, filesystem: str) -> None:
    """Have the file system's own checker look at an image whose journal was replayed."""
    run(*CHECK[filesystem], image)
