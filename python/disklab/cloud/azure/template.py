"""One ARM template with everything that a layout needs. A pure function; nothing is secret in it.

Resource groups have no other content: deleting the group removes all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from disklab.catalog.facts import GIB
from disklab.catalog.price import AZURE_SKUS
from disklab.cloud.layout import CloudHost, Layout, MadeVolume

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
# Versions that the SDK's models of the tests describe, or older ones with the same properties.
NETWORK, COMPUTE, DISKS = "2024-05-01", "2024-07-01", "2024-03-02"
SCHEDULES = "2018-09-15"
SUBNET = "10.77.0.0/24"
USER = "disklab"
"""The administrator whom Azure makes; sessions are root's, with the same key."""
OS_DISK_GIB = 30
"""The size of the image, so that an ephemeral OS disk fits into small caches."""
CHOSEN = {"PremiumV2_LRS", "UltraSSD_LRS"}
"""Disks whose IOPS and MB/s are bought; they need a VM in a zone (Microsoft Learn, "Deploy a
Premium SSD v2" and "Using Azure ultra disks")."""
IMAGE = {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "version": "latest"}
# Series of generation 1 only (Microsoft Learn, pages of the series, "VM generation support").
FIRST_GENERATION = {"azure/Dv2", "azure/Dv3", "azure/Ev3"}


def template(layout: Layout, tags: dict[str, str], zones: Sequence[str] = ()) -> dict[str, Any]:
    """Return the template. `zones`: the region's zones that are used, none for a region without.

    Parameters: `sshPublicKey`, `allowSshFrom` (address or range), `shutdownTime` (HHMM in UTC), and
    for each host `userData-HOST`, which is secret because it holds the host's private key.
    """
    zonal = _zones(layout, zones)
    parts = [_security_group(), _network()]
    parts += _proximity_groups(layout, zonal)
    for host in layout.hosts:
        zone = zonal.get(host.zone)
        parts += [_address(host, zone), _interface(host)]
        parts += _disks(host, zone)
        parts += [_machine(host, zone, zonal), _schedule(host)]
    for part in parts:
        part["tags"] = {name: _plain(value) for name, value in tags.items()}
        part["location"] = "[parameters('location')]"
    secrets = {_user_data(host): {"type": "secureString"} for host in layout.hosts}
    return {
        "$schema": SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": {
            "location": {"type": "string", "defaultValue": "[resourceGroup().location]"},
            "sshPublicKey": {"type": "string"},
            "allowSshFrom": {"type": "string"},
            "shutdownTime": {"type": "string"},
            **secrets,
        },
        "resources": parts,
        "outputs": {
            f"address-{host.name}": {
                "type": "string",
                "value": f"[reference({_id('Microsoft.Network/publicIPAddresses', host.name)})"
                ".ipAddress]",
            }
            for host in layout.hosts
        },
    }


def needs_zone(layout: Layout) -> bool:
    """Return whether the layout cannot be made in a region without zones."""
    skus = {sku_of(volume) for host in layout.hosts for volume in host.made}
    return layout.zones > 1 or bool(skus & CHOSEN)


def sku_of(volume: MadeVolume) -> str:
    """Return Azure's name for the kind of a volume's disks."""
    return AZURE_SKUS[volume.bought.entry.family_name]


def disk_names(host: CloudHost) -> list[tuple[str, MadeVolume, int]]:
    """Return a host's managed disks: name, volume and LUN."""
    return [
        (f"{host.name}-{volume.name}-{at}", volume, volume.first + at)
        for volume in host.made
        for at in range(volume.count)
    ]


def _zones(layout: Layout, zones: Sequence[str]) -> dict[int, str]:
    """Return the region's zone by the layout's number."""
    if not zones:
        return {}
    return {number: zones[number % len(zones)] for number in range(layout.zones)}


def _id(kind: str, name: str) -> str:
    return f"resourceId({_quoted(kind)}, {_quoted(name)})"


def _quoted(text: str) -> str:
    """Return a text as an expression has it: a quote stands twice."""
    return "'" + text.replace("'", "''") + "'"


def _plain(text: str) -> str:
    """Return a text as a value that is no expression, whatever it begins with."""
    return f"[{text}" if text.startswith("[") else text


def _reference(kind: str, name: str) -> dict[str, str]:
    return {"id": f"[{_id(kind, name)}]"}


def _user_data(host: CloudHost) -> str:
    return f"userData-{host.name}"


def _security_group() -> dict[str, Any]:
    rule = {
        "priority": 100,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": "Tcp",
        "sourceAddressPrefix": "[parameters('allowSshFrom')]",
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "22",
    }
    # What Azure adds by itself lets the network's own hosts in, and nobody else.
    return {
        "type": "Microsoft.Network/networkSecurityGroups",
        "apiVersion": NETWORK,
        "name": "disklab",
        "properties": {"securityRules": [{"name": "ssh", "properties": rule}]},
    }


def _network() -> dict[str, Any]:
    subnet = {
        "name": "hosts",
        "properties": {
            "addressPrefix": SUBNET,
            "networkSecurityGroup": _reference(
                "Microsoft.Network/networkSecurityGroups", "disklab"
            ),
        },
    }
    return {
        "type": "Microsoft.Network/virtualNetworks",
        "apiVersion": NETWORK,
        "name": "disklab",
        "dependsOn": [f"[{_id('Microsoft.Network/networkSecurityGroups', 'disklab')}]"],
        "properties": {"addressSpace": {"addressPrefixes": [SUBNET]}, "subnets": [subnet]},
    }


def _proximity_groups(layout: Layout, zonal: dict[int, str]) -> list[dict[str, Any]]:
    """Return one group for each zone; in a region without zones, one."""
    return [
        {
            "type": "Microsoft.Compute/proximityPlacementGroups",
            "apiVersion": COMPUTE,
            "name": f"near-{number + 1}",
            "properties": {"proximityPlacementGroupType": "Standard"},
        }
        for number in (range(layout.zones) if zonal else range(1))
    ]


def _address(host: CloudHost, zone: str | None) -> dict[str, Any]:
    return {
        "type": "Microsoft.Network/publicIPAddresses",
        "apiVersion": NETWORK,
        "name": _plain(host.name),
        "sku": {"name": "Standard"},
        **({"zones": [zone]} if zone else {}),
        "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
    }


def _interface(host: CloudHost) -> dict[str, Any]:
    subnet = "[resourceId('Microsoft.Network/virtualNetworks/subnets', 'disklab', 'hosts')]"
    inner = {
        "privateIPAllocationMethod": "Static",
        "privateIPAddress": host.address,
        "subnet": {"id": subnet},
        "publicIPAddress": _reference("Microsoft.Network/publicIPAddresses", host.name),
    }
    return {
        "type": "Microsoft.Network/networkInterfaces",
        "apiVersion": NETWORK,
        "name": _plain(host.name),
        "dependsOn": [
            f"[{_id('Microsoft.Network/virtualNetworks', 'disklab')}]",
            f"[{_id('Microsoft.Network/publicIPAddresses', host.name)}]",
        ],
        "properties": {
            "enableAcceleratedNetworking": host.accelerated,
            "ipConfigurations": [{"name": "main", "properties": inner}],
        },
    }


def _disks(host: CloudHost, zone: str | None) -> list[dict[str, Any]]:
    return [
        {
            "type": "Microsoft.Compute/disks",
            "apiVersion": DISKS,
            "name": _plain(name),
            "sku": {"name": sku_of(volume)},
            **({"zones": [zone]} if zone else {}),
            "properties": _disk_properties(volume),
        }
        for name, volume, _ in disk_names(host)
    ]


def _disk_properties(volume: MadeVolume) -> dict[str, Any]:
    bought = volume.bought
    made: dict[str, Any] = {"creationData": {"createOption": "Empty"}}
    made["diskSizeGB"] = bought.size_bytes // GIB
    if "performance-plus" in volume.disks:
        made["creationData"]["performancePlus"] = True
    if "on-demand-burst" in volume.disks:
        made["burstingEnabled"] = True
    if sku_of(volume) in CHOSEN:
        # Azure's MB/s are 10^6 bytes (REST reference of disks, diskMBpsReadWrite).
        made["diskIOPSReadWrite"] = bought.iops
        made["diskMBpsReadWrite"] = (bought.bytes_per_s or 0) // 1_000_000
    return made


def _machine(host: CloudHost, zone: str | None, zonal: dict[int, str]) -> dict[str, Any]:
    disks = disk_names(host)
    near = f"near-{host.zone + 1}" if zonal else "near-1"
    key = {"path": f"/home/{USER}/.ssh/authorized_keys", "keyData": "[parameters('sshPublicKey')]"}
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": host.vm.name.partition("/")[2]},
        "proximityPlacementGroup": _reference("Microsoft.Compute/proximityPlacementGroups", near),
        "storageProfile": {
            "imageReference": {**IMAGE, "sku": _image_sku(host)},
            "osDisk": _os_disk(host),
            "dataDisks": [
                {
                    "lun": lun,
                    "createOption": "Attach",
                    "caching": volume.caching,
                    "deleteOption": "Delete",
                    "managedDisk": _reference("Microsoft.Compute/disks", name),
                }
                for name, volume, lun in disks
            ],
        },
        "osProfile": {
            "computerName": _plain(host.name),
            "adminUsername": USER,
            "customData": f"[parameters({_quoted(_user_data(host))})]",
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {"publicKeys": [key]},
            },
        },
        "networkProfile": {
            "networkInterfaces": [
                {
                    **_reference("Microsoft.Network/networkInterfaces", host.name),
                    "properties": {"primary": True, "deleteOption": "Delete"},
                }
            ]
        },
    }
    if any(sku_of(volume) == "UltraSSD_LRS" for _, volume, _ in disks):
        properties["additionalCapabilities"] = {"ultraSSDEnabled": True}
    needed = [("Microsoft.Network/networkInterfaces", host.name)]
    needed += [("Microsoft.Compute/proximityPlacementGroups", near)]
    needed += [("Microsoft.Compute/disks", name) for name, _, _ in disks]
    return {
        "type": "Microsoft.Compute/virtualMachines",
        "apiVersion": COMPUTE,
        "name": _plain(host.name),
        **({"zones": [zone]} if zone else {}),
        "dependsOn": [f"[{_id(kind, name)}]" for kind, name in needed],
        "properties": properties,
    }


def _image_sku(host: CloudHost) -> str:
    return "server-gen1" if host.vm.series_name in FIRST_GENERATION else "server"


def _os_disk(host: CloudHost) -> dict[str, Any]:
    disk: dict[str, Any] = {
        "name": _plain(f"{host.name}-os"),
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "diskSizeGB": OS_DISK_GIB,
    }
    if not host.ephemeral_os:
        managed = {"storageAccountType": "StandardSSD_LRS"}
        return {**disk, "caching": "ReadWrite", "managedDisk": managed}
    # Ephemeral OS disks are ReadOnly cached (Microsoft Learn, "Ephemeral OS disks for Azure VMs").
    cached = host.vm.facts.cached
    in_cache = cached is not None and (cached.cache_gib or 0) >= OS_DISK_GIB
    placement = "CacheDisk" if in_cache else "ResourceDisk"
    settings = {"option": "Local", "placement": placement}
    return {**disk, "caching": "ReadOnly", "diffDiskSettings": settings}


def _schedule(host: CloudHost) -> dict[str, Any]:
    """Return what deallocates a VM when the run's time is over, without any machine of the user."""
    return {
        "type": "Microsoft.DevTestLab/schedules",
        "apiVersion": SCHEDULES,
        # Azure takes this name only (the schema of auto-shutdown of VMs).
        "name": f"shutdown-computevm-{host.name}",
        "dependsOn": [f"[{_id('Microsoft.Compute/virtualMachines', host.name)}]"],
        "properties": {
            "status": "Enabled",
            "taskType": "ComputeVmShutdownTask",
            "dailyRecurrence": {"time": "[parameters('shutdownTime')]"},
            "timeZoneId": "UTC",
            "notificationSettings": {"status": "Disabled", "timeInMinutes": 30},
            "targetResourceId": f"[{_id('Microsoft.Compute/virtualMachines', host.name)}]",
        },
    }
