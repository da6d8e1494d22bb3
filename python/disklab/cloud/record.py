"""What a run has made in a cloud, written down before it is made.

A note in the user's state folder, in a folder of the run's own that also has its SSH keys: it
outlives the run's folder. It goes when the cloud has said that the group is gone.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from disklab import durable, reading
from disklab.cloud.first_boot import HostKey
from disklab.errors import MachineError, UserError
from disklab.machines import programs

KIND = reading.Kind(
    "a record of a cloud's group", 1 << 20, "look at the group in the cloud's portal"
)
NAME = "record.json"


class Record(BaseModel):
    """A group that may exist."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    cloud: Literal["azure", "aws"] = "azure"
    run: str
    run_folder: str
    group: str
    subscription: str
    """Azure's subscription, or AWS's account."""
    endpoint: str
    region: str
    owner: str
    until: datetime
    """When it may go, whoever still works with it."""
    kept: bool = False
    """Whether it stays until then although the run is over (`--keep-until`)."""
    usd_per_hour: float
    idle_usd_per_hour: float
    """With its VMs deallocated."""


@dataclass(frozen=True)
class Notebook:
    """The folder of a run in the state folder."""

    folder: Path

    @classmethod
    def of(cls, run: str) -> Notebook:
        """Return that of a run; nothing is made."""
        return cls(state_folder() / run)

    @property
    def ssh_config(self) -> Path:
        """What ssh reads instead of ~/.ssh/config."""
        return self.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The hosts' keys, by the hosts' names."""
        return self.folder / "known_hosts"

    @property
    def user_key(self) -> Path:
        """The key that the hosts let in."""
        return self.folder / "user_key"

    def write(self, record: Record) -> None:
        """Write the record down; it is on the disk when this returns. Raises MachineError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            durable.write_whole(self.folder / NAME, record.model_dump_json(indent=1) + "\n")
            durable.sync_folder(self.folder.parent)
        except OSError as error:
            raise MachineError(
                f"{self.folder}: {error.strerror}: without this record `disklab clean --cloud` "
                "would not find the group; set XDG_STATE_HOME to a folder that you may write to"
            ) from error

    def make_keys(self, hosts: list[str]) -> tuple[str, dict[str, HostKey]]:
        """Make the run's own key and one of each host; return the public one, and the hosts'."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_key(self.user_key)
        keys, known = {}, []
        for name in hosts:
            path = self.folder / f"host_key.{name}"
            _make_key(path)
            public = path.with_suffix(path.suffix + ".pub").read_text(encoding="ascii").strip()
            keys[name] = HostKey(path.read_text(encoding="ascii"), public)
            # From here on only the host has it.
            path.unlink()
            known.append(f"{name} {' '.join(public.split()[:2])}\n")
        self.known_hosts.write_text("".join(known), encoding="ascii")
        public = self.user_key.with_suffix(".pub").read_text(encoding="ascii").strip()
        return public, keys

    def write_ssh_config(self, addresses: Mapping[str, str]) -> None:
        """Say where the hosts are; their keys are known by their names, not by addresses."""
        parts = [
            f"Host {name}\n  HostName {address}\n  HostKeyAlias {name}\n  User root\n"
            f'  IdentityFile "{self.user_key}"\n  IdentitiesOnly yes\n  IdentityAgent none\n'
            f'  UserKnownHostsFile "{self.known_hosts}"\n  GlobalKnownHostsFile none\n'
            "  StrictHostKeyChecking yes\n"
            for name, address in addresses.items()
        ]
        durable.write_whole(self.ssh_config, "".join(parts))

    def forget(self) -> None:
        """Remove the record and the keys: the group is gone."""
        # The record goes first: without it nothing of the rest is used.
        with suppress(OSError):
            (self.folder / NAME).unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


def state_folder() -> Path:
    """Return where the records are."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "disklab" / "clouds"


def records() -> Iterator[tuple[Notebook, Record | None]]:
    """Yield all that is written down; None for what cannot be read."""
    with suppress(OSError):
        for folder in sorted(state_folder().iterdir()):
            if not (folder / NAME).is_file():
                continue
            try:
                record = reading.record(folder / NAME, Record, KIND)
            except UserError:
                yield Notebook(folder), None
            else:
                yield Notebook(folder), record


def owner() -> str:
    """Return who we are in tags: random, the same for all runs of this user on this machine."""
    path = state_folder() / "owner"
    with suppress(UserError, ValueError):
        found = json.loads(reading.contents(path, KIND))
        if isinstance(found, str) and found.isalnum():
            return found
    made = secrets.token_hex(8)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    durable.write_whole(path, json.dumps(made) + "\n")
    return made


def _make_key(path: Path) -> None:
    for old in (path, path.with_suffix(path.suffix + ".pub")):
        old.unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "disklab", "-f", str(path)]
    try:
        ended = programs.run(words)
    except OSError as error:
        raise MachineError(f"ssh-keygen cannot make a key: {error}; install OpenSSH") from error
    if ended.code != 0:
        raise MachineError(f"ssh-keygen cannot make a key: {ended.said}")
