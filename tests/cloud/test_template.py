"""The template against Azure's own models, for every disk and VM size of the catalogue."""

from __future__ import annotations

import base64
import copy
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.catalog.facts import GIB
from disklab.cloud import first_boot
from disklab.cloud.azure.template import disk_names, needs_zone, template
from disklab.cloud.layout import Layout, layout_of
from disklab.errors import UserError
from disklab.spec import bundled

from .sdk_models import complaints

CATALOG = load_catalog()
AZURE_DISKS = [name for name in CATALOG.disks if name.startswith("azure/")]
AZURE_VMS = [name for name in CATALOG.vms if name.startswith("azure/")]
TAGS = {"disklab-run": "r", "disklab-owner": "me", "disklab-until": "2026-01-01T00:00:00Z"}


def laid(text: str) -> Layout:
    experiment = spec.parse(text)
    return layout_of(experiment, experiment.trials("measure"), CATALOG)


def device(volume: str, vm: str = "azure/Standard_E8ds_v4", more: str = "") -> str:
    return (
        f"title: t\ndevice: {{vm: {vm}, volume: {volume}}}\n"
        "workload: {fio: {profile: sync, rw: randread, bs: 4k}, stop: {duration: 1s}}\n" + more
    )


def wrong(made: dict[str, Any]) -> list[str]:
    return [text for one in made["resources"] for text in complaints(one["type"], one)]


def of_kind(made: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one for one in made["resources"] if one["type"].endswith(f"/{kind}")]


def names_are_there(made: dict[str, Any]) -> None:
    """Every resourceId() of the template is one of its resources, and every parameter is named."""
    text = json.dumps(made)
    there = {(one["type"], one["name"]) for one in made["resources"]}
    there.add(("Microsoft.Network/virtualNetworks/subnets", "disklab', 'hosts"))
    asked = set(re.findall(r"resourceId\('([^']+)', '((?:[^']|', ')+?)'\)", text))
    assert asked <= there, asked - there
    assert set(re.findall(r"parameters\('([^']+)'\)", text)) == set(made["parameters"])
    assert len(there) == len(made["resources"]) + 1, "two resources of one name"


@pytest.mark.parametrize("disk", AZURE_DISKS)
def test_every_disk_of_the_catalogue(disk: str) -> None:
    facts = CATALOG.disks[disk].facts
    chosen = not facts.size_gib.fixed
    asked = f"{disk}(256GiB, 5000 IOPS, 200 MB/s)" if chosen else disk
    layout = laid(device(f"{{disks: '2 x {asked}'}}"))
    made = template(layout, TAGS, ["1"] if needs_zone(layout) else [])
    assert wrong(made) == []
    names_are_there(made)
    disks = of_kind(made, "disks")
    assert len(disks) == 2
    for one in disks:
        assert one["properties"]["diskSizeGB"] == (256 if chosen else facts.size_gib.most)
        assert one["properties"].get("diskIOPSReadWrite") == (5000 if chosen else None)
        assert one["properties"].get("diskMBpsReadWrite") == (200 if chosen else None)
        assert one.get("zones") == (["1"] if chosen else None)
    assert {one["tags"]["disklab-run"] for one in made["resources"]} == {"r"}
    (machine,) = of_kind(made, "virtualMachines")
    attached = machine["properties"]["storageProfile"]["dataDisks"]
    assert [one["lun"] for one in attached] == [0, 1]
    ultra = disk == "azure/Ultra"
    assert ("additionalCapabilities" in machine["properties"]) == ultra


def test_every_vm_size_of_the_catalogue() -> None:
    for vm in AZURE_VMS:
        volume = "{disks: azure/E10}"
        if CATALOG.vms[vm].facts.nvme:
            volume = "{disks: nvme}"
        elif CATALOG.vms[vm].series.ephemeral_os:
            volume = "{disks: ephemeral-os, filesystem: ext4}"
        made = template(laid(device(volume, vm)), TAGS)
        assert wrong(made) == [], vm
        names_are_there(made)
        (machine,) = of_kind(made, "virtualMachines")
        assert machine["properties"]["hardwareProfile"]["vmSize"] == vm.removeprefix("azure/")


SEEDED: list[Callable[[dict[str, Any]], object]] = [
    lambda vm: vm.update(sise="x"),
    lambda vm: vm["properties"]["hardwareProfile"].update(vmsize="Standard_D2s_v3"),
    lambda vm: vm["properties"]["storageProfile"]["osDisk"].update(caching="Readonly2"),
    lambda vm: vm["properties"]["storageProfile"]["dataDisks"][0].update(lun="0"),
    lambda vm: vm["properties"]["storageProfile"].update(dataDisks={}),
    lambda vm: vm["properties"]["osProfile"].update(adminPasswort="x"),
    lambda vm: vm["properties"].update(provisioningState="Succeeded"),
    lambda vm: vm.update(zones="1"),
    lambda vm: vm["properties"]["networkProfile"]["networkInterfaces"][0].update(primary=True),
]


@pytest.mark.parametrize("number", range(len(SEEDED)))
def test_what_is_wrong_is_found(number: int) -> None:
    made = template(laid(device("{disks: azure/P30}")), TAGS)
    assert wrong(made) == []
    (machine,) = of_kind(copy.deepcopy(made), "virtualMachines")
    SEEDED[number](machine)
    assert complaints(machine["type"], machine) != []


def test_ssh_is_let_in_from_one_address_only_and_nothing_secret_is_in_the_template() -> None:
    made = template(laid(device("{disks: azure/P30}")), TAGS)
    (group,) = of_kind(made, "networkSecurityGroups")
    (rule,) = group["properties"]["securityRules"]
    assert rule["properties"]["access"] == "Allow"
    assert rule["properties"]["sourceAddressPrefix"] == "[parameters('allowSshFrom')]"
    assert rule["properties"]["destinationPortRange"] == "22"
    assert made["parameters"]["userData-n1"] == {"type": "secureString"}
    assert "PRIVATE KEY" not in json.dumps(made)


def test_volumes_share_a_vm_where_they_have_room_and_each_cell_has_its_own() -> None:
    factors = (
        "factors:\n"
        "  device.volume.disks: [azure/P30, 4 x azure/P30, local]\n"
        "  device.volume.caching: [None, ReadOnly]\n"
    )
    layout = laid(device("{disks: azure/P30}", more=factors))
    (host,) = layout.hosts
    assert [(one.kind, one.count, one.caching, one.first) for one in host.volumes] == [
        ("disk", 1, "None", 0),
        ("disk", 1, "ReadOnly", 1),
        ("disk", 4, "None", 2),
        ("disk", 4, "ReadOnly", 6),
        ("local", 1, "None", 0),
    ]
    assert [lun for _, _, lun in disk_names(host)] == list(range(10))
    # A VM of two vCPUs takes four disks.
    small = laid(device("{disks: azure/P30}", "azure/Standard_E2ds_v4", factors))
    assert [len(one.volumes) for one in small.hosts] == [3, 1, 1]


def test_a_cluster_has_nodes_in_zones_and_a_client() -> None:
    layout = laid(
        "title: t\n"
        "cluster: {nodes: 3, vm: azure/Standard_E8ds_v4, zones: 3, volumes: "
        "{data: {disks: '2 x azure/P30', caching: ReadOnly}, commitlog: {disks: local}}}\n"
        "client: {vm: azure/Standard_D16ds_v5}\n"
        "database: {engine: cassandra, replication_factor: 3}\n"
        "dataset: {rows: 1M, row: 5 x 818B}\n"
        "workload: {operations: {read: 100%}, load: {threads: 64}, stop: {duration: 60s}}\n"
        "factors: {workload.load.threads: [64, 128]}\n"
    )
    assert [(one.name, one.role, one.zone) for one in layout.hosts] == [
        ("n1", "node", 0),
        ("n2", "node", 1),
        ("n3", "node", 2),
        ("c1", "client", 0),
    ]
    made = template(layout, TAGS, ["1", "2", "3"])
    assert wrong(made) == []
    names_are_there(made)
    assert [one["zones"] for one in of_kind(made, "virtualMachines")] == [
        ["1"], ["2"], ["3"], ["1"],
    ]  # fmt: skip
    assert len(of_kind(made, "proximityPlacementGroups")) == 3


def test_the_seeds_experiments_become_templates() -> None:
    for name in ("azure-local-disks", "cassandra-local-or-attached", "yugabytedb-disk-types"):
        experiment = spec.load(bundled.found(Path(name)))
        layout = layout_of(experiment, experiment.trials("measure"), CATALOG)
        made = template(layout, TAGS, ["1", "2", "3"])
        assert wrong(made) == []
        names_are_there(made)


def test_what_cannot_be_made_is_told_with_its_line() -> None:
    with pytest.raises(UserError, match=r"experiment.yaml:2: device.vm: aws/m6i.xlarge: .*Azure"):
        laid(device("{disks: aws/gp3(100GiB)}", "aws/m6i.xlarge"))
    with pytest.raises(UserError, match="the OS disk of the image has ext4"):
        laid(device("{disks: ephemeral-os}"))


def test_the_first_boot_is_a_script_that_bash_reads_and_names_every_disk() -> None:
    layout = laid(device("{disks: '2 x azure/P30', stripe: 64KiB, read_ahead: 8KiB}"))
    (host,) = layout.hosts
    script = first_boot.prepare_script(host, "run-1")
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)
    assert f'[ "$(blockdev --getsize64 "$device")" = {1024 * GIB} ]' in script
    assert 'volume data xfs 16 64 "${devices[@]}"' in script
    key = first_boot.HostKey("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n", "ssh-ed25519 AAAA")
    given = base64.b64decode(first_boot.user_data(host, "run-1", key, 120)).decode()
    assert given.startswith("#cloud-config\n")
    told = json.loads(given.partition("\n")[2])
    assert told["power_state"]["delay"] == "+120"
    assert told["ssh_keys"]["ed25519_public"] == "ssh-ed25519 AAAA"
    # Azure takes 64 KiB in base64 (REST reference of virtual machines, customData: 65535).
    assert len(first_boot.user_data(host, "run-1", key, 120)) < 65535


def test_local_disks_are_found_by_what_they_are() -> None:
    for volume in ("{disks: nvme}", "{disks: '2 x nvme'}", "{disks: local}"):
        (host,) = laid(device(volume, "azure/Standard_L16s_v2")).hosts
        script = first_boot.prepare_script(host, "run-1")
        subprocess.run(["bash", "-n"], input=script.encode(), check=True)
        assert ("temp_disk)" in script.partition("empty()")[2]) == ("local" in volume)
        assert not host.made
