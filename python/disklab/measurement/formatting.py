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
from disklab.engine.binary import find_engine
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.filesystem import Filesystem
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command, Machine
from disklab.machines.ssh import SshMachine
from disklab.measurement.hosts_file import Disk
from disklab.measurement.journal import OURS, Change, Journal

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


def engine_on(machine: Machine) -> str:
    """Return the path of the engine on a machine. Raises MachineError where it has none."""
    if isinstance(machine, LocalMachine):
        return str(find_engine())
    if isinstance(machine, SshMachine):
        # What serves us there is the engine, whatever folder it was pushed to.
        return f"/proc/{int(machine.hello['pid'])}/exe"
    raise MachineError(f"{machine.name}: there is no engine on this host to format disks with")


def new_uuid() -> str:
    """Return a UUID by which the engine knows a file system of ours (RFC 9562, version 8)."""
    text = secrets.token_hex(12)
    return f"d15c1ab0-{text[:4]}-8{text[4:7]}-8{text[7:10]}-{text[10:22]}"


def why_not(machine: Machine, disk: Disk, place: str) -> Problem | None:
    """Return why a disk cannot be formatted; None: it can, as it is now. Changes nothing."""
    try:
        _asked(machine, disk, None, place, LOOK_SECONDS)
    except UserError as error:
        return error.problems[0]
    return None


def format_and_mount(
    machine: Machine, disk: Disk, filesystem: Filesystem, journal: Journal, place: str
) -> tuple[str, list[Change]]:
    """Format a disk and mount it; return where, and what is to be undone.

    Raises UserError for a disk that is not empty, in use or another one; then it is as it was.
    """
    folder = MOUNTS / f"{OURS}{journal.folder.name[-40:]}-{secrets.token_hex(4)}"
    made = journal.note(machine.name, "remove_folder", str(folder))
    ended = machine.run(Command(["mkdir", "-m", "700", "--", str(folder)]))
    if ended.code != 0:
        said = ended.stderr.decode(errors="replace").strip()
        raise MachineError(f"{machine.name}: {folder}: {said}")
    mounted = journal.note(machine.name, "unmount", str(folder))
    make = {"filesystem": filesystem, "uuid": new_uuid(), "mount_point": str(folder)}
    _asked(machine, disk, make, place, MKFS_SECONDS)
    return str(folder), [mounted, made]


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
    command = Command([engine_on(machine), "format"], stdin=json.dumps(job).encode())
    ended = machine.run(command, seconds)
    try:
        answer = reading.parse(Answer, ended.stdout)
    except reading.NotAsExpectedError:
        said = ended.stderr.decode(errors="replace").strip()
        raise MachineError(
            f"{machine.name}: the engine said nothing of the disk (code {ended.code}): {said}"
        ) from None
    if not answer.ok:
        told = answer.refused
        raise UserError(Problem(place, told.value, told.rule, told.way_out))
    return answer.device
