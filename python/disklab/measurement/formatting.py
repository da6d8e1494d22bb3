"""Disks that may be formatted: looked at, formatted and mounted by the engine on their host.

The engine proves and formats in one go, with the disk claimed all the time; nothing here decides
whether a disk is empty.
"""

from __future__ import annotations

import json
import secrets
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict

from disklab import reading
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.filesystem import Filesystem
from disklab.machines.protocol import Command, Machine
from disklab.measurement import striping
from disklab.measurement.hosts_file import Disk, StripeOfDisks, Volume
from disklab.measurement.journal import OURS, Change, Journal
from disklab.measurement.striping import Stripe

# mkfs writes some hundred MiB at most, at the 25 MB/s of the slowest disk.
MKFS_SECONDS = 600.0
LOOK_SECONDS = 60.0
MOUNTS = PurePosixPath("/mnt")


class Refused(BaseModel):
    """Why the engine leaves a disk alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    value: str = ""
    rule: str = ""
    way_out: str = ""


class Answer(BaseModel):
    """What the engine says of a job."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ok: bool
    device: str = ""
    refused: Refused = Refused()


def new_uuid() -> str:
    """Return a UUID by which the engine knows a file system of ours (RFC 9562, version 8)."""
    text = secrets.token_hex(12)
    return f"d15c1ab0-{text[:4]}-8{text[4:7]}-8{text[7:10]}-{text[10:22]}"


def why_not(machine: Machine, volume: Volume, place: str) -> Problem | None:
    """Return why a volume's disks cannot be formatted; None: they can, as they are now.

    Changes nothing.
    """
    try:
        if volume.stripe is not None:
            _striped(machine, volume.stripe, place)
            return _missing_mdadm(machine, place)
        for disk in volume.disks:
            _asked(machine, disk, None, place, LOOK_SECONDS)
    except UserError as error:
        return error.problems[0]
    return None


def _missing_mdadm(machine: Machine, place: str) -> Problem | None:
    if machine.run(Command(["sh", "-c", "command -v mdadm"])).code == 0:
        return None
    rule = "the program is missing on the host; disklab installs nothing"
    return Problem(place, "mdadm", rule, "install it there: apt-get install mdadm")


def format_and_mount(
    machine: Machine, volume: Volume, filesystem: Filesystem, journal: Journal, place: str
) -> tuple[str, list[Change]]:
    """Format a volume's disk, or a stripe of its disks, and mount it.

    Returns where, and what is to be undone, in this order. Raises UserError for a disk that is not
    empty, in use or another one; then it is as it was.
    """
    folder = MOUNTS / f"{OURS}{journal.folder.name[-40:]}-{secrets.token_hex(4)}"
    if volume.stripe is not None:
        stripe = _striped(machine, volume.stripe, place)
        # Written down before: mdadm may be killed between its first superblock and its last.
        members = json.dumps(list(stripe.devices))
        change = journal.note(machine.name, "stop_stripe", stripe.path, stripe.uuid, members)
        striping.make(machine, stripe, volume.stripe.chunk_bytes)
        made, mounted = _mount_point(machine, folder, journal, stripe.path)
        striping.mount(machine, stripe, filesystem, str(folder))
        return str(folder), [mounted, made, change]
    (disk,) = volume.disks
    made, mounted = _mount_point(machine, folder, journal)
    make = {"filesystem": filesystem, "uuid": new_uuid(), "mount_point": str(folder)}
    _asked(machine, disk, make, place, MKFS_SECONDS)
    return str(folder), [mounted, made]


def _striped(machine: Machine, asked: StripeOfDisks, place: str) -> Stripe:
    """Return the stripe to be made of disks, each of which was looked at. Raises UserError."""
    devices = [_asked(machine, disk, None, place, LOOK_SECONDS) for disk in asked.disks]
    twice = [one for one in devices if devices.count(one) > 1]
    if twice:
        rule = "two members of the stripe are the same disk"
        raise UserError(Problem(place, twice[0], rule, "name each disk once"))
    return Stripe.of(devices)


def _mount_point(
    machine: Machine, folder: PurePosixPath, journal: Journal, stripe: str = ""
) -> tuple[Change, Change]:
    """Make a folder to mount at; return it and the mount to come, as changes."""
    made = journal.note(machine.name, "remove_folder", str(folder))
    ended = machine.run(Command(["mkdir", "-m", "700", "--", str(folder)]))
    if ended.code != 0:
        raise MachineError(f"{machine.name}: {folder}: {ended.said}")
    return made, journal.note(machine.name, "unmount", str(folder), before=stripe)


def _asked(
    machine: Machine, disk: Disk, make: dict[str, Any] | None, place: str, seconds: float
) -> str:
    job = {
        "by_id": disk.by_id,
        "lun": disk.lun,
        "size_bytes": disk.size_bytes,
        "kind": disk.kind,
        "make": make,
    }
    command = Command([*machine.engine, "format"], stdin=json.dumps(job).encode())
    ended = machine.run(command, seconds)
    try:
        answer = reading.parse(Answer, ended.stdout)
    except reading.NotAsExpectedError:
        code, words = ended.code, ended.said
        raise MachineError(
            f"{machine.name}: the engine reported nothing about the disk (code {code}): {words}"
        ) from None
    if not answer.ok:
        told = answer.refused
        raise UserError(Problem(place, told.value, told.rule, told.way_out))
    return answer.device
