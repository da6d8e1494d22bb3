"""What a new VM does at its first boot: its host key, what is installed, its volumes, its end.

cloud-init reads it. Nothing here is done to a machine that existed before the run.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from disklab.catalog.facts import GIB
from disklab.cloud.layout import CloudHost, CloudVolume, MadeVolume
from disklab.cloud.protocol import Clock, CloudError
from disklab.database_facts import facts_of
from disklab.machines import programs
from disklab.machines.openssh import Destination
from disklab.machines.protocol import Finished
from disklab.terminal import plain
from disklab.waiting import Wait

STATE = "/var/lib/disklab"
READY = f"{STATE}/ready"
FAILED = f"{STATE}/failed"
PACKAGES = ("fio", "mdadm", "xfsprogs")
AWS_PACKAGES = ("nvme-cli",)
"""It asks a controller which of EC2's volumes it is."""
USER = "disklab"
"""Who runs servers and loads. Source: `engine.account`."""
# blockdev's sectors, whatever the disk's own are.
SECTOR_BYTES = 512

PREPARE = r"""#!/bin/bash
# Written by disklab for this VM, which was made for one run of it: finds, formats and mounts.
set -u
mkdir -p /var/lib/disklab
fail() {
  echo "$*" > /var/lib/disklab/failed.new
  mv /var/lib/disklab/failed.new /var/lib/disklab/failed
  exit 1
}

# A disk of a LUN: where Azure's rules show it, and as which namespace of the NVMe controller.
by_lun() {
  local path
  for _ in $(seq 1200); do
    for path in "/dev/disk/azure/scsi1/lun$1" "/dev/disk/azure/data/by-lun/$1"; do
      if [ -e "$path" ]; then readlink -f "$path"; return 0; fi
    done
    sleep 0.1
  done
  return 1
}
local_nvme() {
  local controller number=0
  for controller in $(ls -d /sys/class/nvme/nvme* 2>/dev/null | sort -V); do
    grep -q -e "Microsoft NVMe Direct Disk" -e "Amazon EC2 NVMe Instance Storage" \
      "$controller/model" || continue
    if [ "$number" = "$1" ]; then echo "/dev/$(basename "$controller")n1"; return 0; fi
    number=$((number + 1))
  done
  return 1
}
# A volume of EC2 by its name: as a link, or as what the NVMe controller says of itself (bytes 3072
# to 3103 of its answer to Identify, as Amazon's own ebsnvme-id reads them).
by_name() {
  local path said
  for _ in $(seq 1200); do
    if [ -e "/dev/$1" ]; then readlink -f "/dev/$1"; return 0; fi
    for path in /sys/class/nvme/nvme*; do
      grep -qs "Amazon Elastic Block Store" "$path/model" || continue
      said=$(nvme id-ctrl --raw-binary "/dev/$(basename "$path")" 2>/dev/null \
        | dd bs=1 skip=3072 count=32 status=none | tr -d '\0 ')
      if [ "${said#/dev/}" = "$1" ]; then echo "/dev/$(basename "$path")n1"; return 0; fi
    done
    sleep 0.1
  done
  return 1
}
temp_disk() {
  local path=/dev/disk/azure/resource
  [ -e "$path" ] || return 1
  readlink -f "$path"
}
empty() {
  local found
  found=$(wipefs --no-act --noheadings "$1") || fail "$1: wipefs cannot look at it"
  [ -z "$found" ] || fail "$1: it is not empty: $found"
}
# volume NAME FILESYSTEM READ_AHEAD_SECTORS CHUNK_KIB DEVICE...
volume() {
  local name=$1 filesystem=$2 ahead=$3 chunk=$4 device point=/mnt/disklab/$1
  shift 4
  if mountpoint -q -- "$point"; then return 0; fi
  device=$1
  if [ $# -gt 1 ]; then
    device=/dev/md/$name
    mdadm --create "$device" --run --level=0 --chunk="$chunk" --raid-devices=$# "$@" \
      || fail "$name: mdadm cannot make a stripe of $*"
    device=$(readlink -f "$device")
  fi
  if [ "$filesystem" = xfs ]; then mkfs.xfs -q "$device"
  else mkfs.ext4 -q -T largefile -E lazy_itable_init=0,lazy_journal_init=0 "$device"; fi \
    || fail "$name: mkfs.$filesystem $device"
  mkdir -p -- "$point" && mount -o noatime -- "$device" "$point" \
    || fail "$name: it cannot be mounted"
  if [ "$ahead" -ge 0 ]; then blockdev --setra "$ahead" "$device" || fail "$name: read-ahead"; fi
}
"""


_MAKE_USER = f"""
getent passwd {USER} > /dev/null \\
  || useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {USER} \\
  || fail "no user {USER} can be made"
"""


@dataclass(frozen=True)
class HostKey:
    """The key by which a host is known, made before the host is."""

    private: str
    public: str


def prepare_script(host: CloudHost, run: str) -> str:
    """Return the script that makes a host's volumes; its last act is to say that it is ready."""
    lines = [PREPARE]
    # Servers and loads of a cluster have a user of their own.
    lines += [_MAKE_USER] if host.engines or host.role == "client" else []
    for volume in host.volumes:
        lines += _volume_lines(volume, in_aws=_in_aws(host))
    lines.append(f"echo {shlex.quote(run)} > {READY}.new && mv {READY}.new {READY}\n")
    return "\n".join(lines)


def _packages(host: CloudHost) -> Iterator[str]:
    yield from PACKAGES
    yield from AWS_PACKAGES if _in_aws(host) else ()
    for name in host.engines:
        yield from facts_of(name).cloud_packages or ()


def ec2_name(lun: int) -> str:
    """Return EC2's name of a host's volume by its number: sdf to sdp."""
    return f"sd{chr(ord('f') + lun)}"


def _in_aws(host: CloudHost) -> bool:
    return host.vm.name.startswith("aws/")


def _volume_lines(volume: CloudVolume, *, in_aws: bool) -> list[str]:
    name = shlex.quote(volume.name)
    numbers = range(volume.first, volume.first + volume.count)
    if volume.kind == "ephemeral-os":
        return [f"mkdir -p -- {shlex.quote(volume.directory)} || fail {name}: no folder"]
    lines = ["devices=()"]
    if isinstance(volume, MadeVolume):
        for lun in numbers:
            size = volume.bought.size_bytes
            what, find = f"LUN {lun}", f"by_lun {lun}"
            if in_aws:
                what, find = f"volume {ec2_name(lun)}", f"by_name {ec2_name(lun)}"
            lines += [
                f'device=$({find}) || fail "{what}: no disk after two minutes"',
                f'[ "$(blockdev --getsize64 "$device")" = {size} ] || '
                f'fail "{what}: $device has not the {size // GIB} GiB that were bought"',
                'empty "$device"',
                'devices+=("$device")',
            ]
    elif volume.kind == "nvme":
        for number in numbers:
            lines += [
                f'device=$(local_nvme {number}) || fail "local NVMe disk {number}: not found"',
                'empty "$device"',
                'devices+=("$device")',
            ]
    else:
        # Azure formats it and cloud-init mounts it; it is this VM's own and came empty.
        lines += [
            'device=$(temp_disk) || fail "the temp disk is not found"',
            "if mountpoint -q /mnt; then umount /mnt || fail /mnt: it is in use; fi",
            'wipefs --all --force "$device"* > /dev/null || fail "$device: wipefs"',
            'devices+=("$device")',
        ]
    ahead = -1 if volume.read_ahead_bytes is None else volume.read_ahead_bytes // SECTOR_BYTES
    chunk = (volume.chunk_bytes or 0) >> 10
    lines.append(
        f'volume {name} {shlex.quote(volume.filesystem)} {ahead} {chunk} "${{devices[@]}}"'
    )
    return lines


def user_data(host: CloudHost, run: str, key: HostKey, alive_minutes: int) -> str:
    """Return what cloud-init is given, in base64 as ARM wants it.

    `alive_minutes`: after so many the VM shuts itself down. In Azure it is then still paid for:
    only what deallocates it, the schedule beside it or its removal, ends that. In AWS it is
    terminated by that, and its volumes go with it.
    """
    config = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": key.private, "ed25519_public": key.public},
        "disable_root": False,
        "package_update": True,
        "packages": [*_packages(host)],
        "write_files": [
            {
                "path": f"{STATE}/prepare",
                "permissions": "0700",
                "content": prepare_script(host, run),
            }
        ],
        "runcmd": [["bash", f"{STATE}/prepare"]],
        "power_state": {
            "mode": "poweroff",
            "delay": f"+{alive_minutes}",
            "message": f"disklab: the time of {run} is over",
            "condition": True,
        },
    }
    # JSON is YAML, and needs no rules for what a key may hold.
    text = "#cloud-config\n" + json.dumps(config, indent=1)
    return base64.b64encode(text.encode()).decode("ascii")


# Waiting until new hosts can be measured on: SSH answers, and the first boot says so.

PATIENCE_S = 900.0
"""From the end of the deployment. Assumed: packages are there after 3 min."""
LOOK_S = 5.0
ASK_S = 60.0
_FAILED_CODE, _NOT_YET = 3, 4
_SCRIPT = (
    f"if [ -e {FAILED} ]; then head -c 2000 {FAILED}; exit {_FAILED_CODE}; fi; "
    f"cat {READY} 2>/dev/null || exit {_NOT_YET}"
)


def wait_until_ready(
    names: Sequence[str],
    ssh_config: Path,
    run: str,
    clock: Clock,
    told: Callable[[str], None],
) -> None:
    """Return when every host is ready. Raises CloudError for one that fails, or is not in time."""
    with Wait("the new hosts are ready", PATIENCE_S, clock=clock) as wait:
        for name in names:
            while missing := _missing(name, ssh_config, run):
                if wait.is_over:
                    raise CloudError(
                        f"{name}: it is not ready {PATIENCE_S / 60:.0f} min after it was made "
                        f"({missing}); look with --keep-until and ssh -F {ssh_config} {name}"
                    )
                wait.pause(LOOK_S, f"{name}: {missing}")
            told(f"{name} is ready")


def _missing(name: str, ssh_config: Path, run: str) -> str:
    """Return why a host is not ready yet; empty: it is. Raises CloudError: it never will be."""
    answer = _look(name, ssh_config)
    if answer.code == 0 and answer.stdout.decode(errors="replace").strip() == run:
        return ""
    if answer.code == _FAILED_CODE:
        reason = plain(answer.stdout.decode(errors="replace").strip())
        raise CloudError(f"{name}: its first boot failed: {reason}")
    last_line = plain(answer.said.rpartition("\n")[2])
    if "host key" in last_line.lower():
        # We made its key and gave it to the host, so another key means another host.
        raise CloudError(f"{name}: {last_line}: it is not the host that was made")
    return last_line or "its first boot goes on"


def _look(name: str, ssh_config: Path) -> Finished:
    command = Destination(name, ssh_config).command(_SCRIPT)
    try:
        return programs.run(command, ASK_S, inherits=True)
    except TimeoutError:
        return Finished(255, b"", b"no answer within a minute")
