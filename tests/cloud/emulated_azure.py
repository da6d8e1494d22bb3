"""VMs behind the fake resource manager: emulated hosts with emulated disks where Azure shows them.

What a deployment asks for is what they get: disks by kind, size and caching from the template, keys
and first boot from its user data. cloud-init itself is not here: the part of it that is used is
done by this file (keys, files, commands), and packages are those of this machine.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path, PurePosixPath
from typing import Any

from disklab.catalog import load_catalog
from disklab.catalog.facts import GIB
from disklab.catalog.price import AZURE_SKUS
from disklab.hosts.namespaces import EmulatedHosts
from disklab.hosts.requirements import find_program
from disklab.machines import Command
from disklab.machines.netns import NamespaceChild, NamespaceMachine

from tests.hosts.conftest import Lab
from tests.secure_shell import KEYS, SETTINGS

from .fake_arm import Group


def expression_of(disk: dict[str, Any]) -> str:
    """Return a managed disk as the catalogue calls it."""
    properties = disk["properties"]
    size = properties["diskSizeGB"]
    for name, entry in load_catalog().disks.items():
        if AZURE_SKUS.get(entry.family_name) != disk["sku"]["name"]:
            continue
        if entry.facts.size_gib.fixed and entry.facts.size_gib.most == size:
            return name
        if not entry.facts.size_gib.fixed:
            rates = (
                f"{properties['diskIOPSReadWrite']} IOPS, {properties['diskMBpsReadWrite']} MB/s"
            )
            return f"{name}({size}GiB, {rates})"
    raise AssertionError(f"no disk of the catalogue is {disk}")


class EmulatedAzure:
    """Turns deployments into emulated hosts; `hosts` has one of the name of each VM."""

    def __init__(self, hosts: EmulatedHosts, lab: Lab) -> None:
        self.hosts, self.lab = hosts, lab
        self.running: list[NamespaceChild] = []
        self.shown: list[tuple[str, str, str, int]] = []
        self.boots: dict[str, dict[str, Any]] = {}

    def make(self, group: Group) -> dict[str, str]:
        """Start the VMs of a group; return their addresses."""
        machines = [one for (kind, _), one in group.resources.items() if "Machines" in kind]
        for one in machines:
            self._attach(one, group)
            self._give_address(one["name"], group)
            self._boot(one)
        return {one["name"]: self.hosts[one["name"]].address for one in machines}

    def _attach(self, vm: dict[str, Any], group: Group) -> None:
        name, size = vm["name"], vm["properties"]["hardwareProfile"]["vmSize"]
        for at, disk in enumerate(vm["properties"]["storageProfile"]["dataDisks"]):
            resource = disk["managedDisk"]["id"].split("'")[3]
            asked = expression_of(group.resources["Microsoft.Compute/disks", resource])
            options = ["--host", name, "--name", resource, "--vm", f"azure/{size}"]
            told = self.lab.json("disk", "attach", asked, *options, "--caching", disk["caching"])
            device = f"sd{chr(ord('c') + at)}"
            path = self.hosts[name].show_disk(told["device"], device, disk["lun"])
            self.shown.append((name, resource, device, disk["lun"]))
            assert str(path) == f"/dev/{device}"
            assert told["size_bytes"] == group.resources["Microsoft.Compute/disks", resource][
                "properties"
            ]["diskSizeGB"] * GIB  # fmt: skip

    def _give_address(self, name: str, group: Group) -> None:
        """Give a host the private address of its VM too; the conductor reaches it at its own."""
        card = group.resources["Microsoft.Network/networkInterfaces", name]
        (one,) = card["properties"]["ipConfigurations"]
        address = f"{one['properties']['privateIPAddress']}/16"
        self.hosts[name].run(Command(["ip", "address", "replace", address, "dev", "eth0"]))

    def _boot(self, vm: dict[str, Any]) -> None:
        name, told = vm["name"], vm["_parameters"]
        machine: NamespaceMachine = self.hosts[name]
        data = base64.b64decode(told[f"userData-{name}"]).decode()
        assert data.startswith("#cloud-config\n")
        config = json.loads(data.partition("\n")[2])
        self.boots[name] = config
        machine.run(Command(["mkdir", "-p", "-m", "755", str(KEYS), "/run/sshd"]))
        files = machine.files
        files.write(KEYS / "host_key", config["ssh_keys"]["ed25519_private"].encode(), 0o600)
        files.write(KEYS / "authorized_keys", told["sshPublicKey"].encode() + b"\n", 0o644)
        files.write(KEYS / "settings", SETTINGS.encode(), 0o644)
        for file in config["write_files"]:
            path = PurePosixPath(file["path"])
            machine.run(Command(["mkdir", "-p", str(path.parent)]))
            files.write(path, file["content"].encode(), int(file["permissions"], 8))
        self.running.append(
            machine.start(Command([find_program("sshd"), "-D", "-e", "-f", str(KEYS / "settings")]))
        )
        self.running += [machine.start(Command(list(words))) for words in config["runcmd"]]

    def remove(self, group: Group) -> None:
        """End the VMs of a group, and take their disks away."""
        for child in self.running:
            child.end()
        self.running.clear()
        for host, resource, device, lun in self.shown:
            machine = self.hosts[host]
            # The next VM of this name begins with an empty OS disk and empty data disks.
            machine.run(Command(["sh", "-c", "umount /mnt/disklab/*; rm -rf /var/lib/disklab"]))
            machine.hide_disk(device, lun)
            self.lab.run("disk", "detach", resource, "--host", host, "--delete-data")
        self.shown.clear()


def fake_login(folder: Path, token: str) -> Path:
    """Return a folder with an `az` that says who is logged in."""
    folder.mkdir()
    told = {
        "accessToken": token,
        "expiresOn": "2099-01-01 00:00:00.000000",
        "expires_on": 4070908800,
        "subscription": "s",
        "tenant": "t",
        "tokenType": "Bearer",
    }
    program = folder / "az"
    program.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(told)}\nE\n")
    program.chmod(0o755)
    return folder
