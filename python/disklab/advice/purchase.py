"""How an option is bought: Terraform and the cloud's own command, to be completed by its user."""

from __future__ import annotations

import json
import shlex

from disklab.advice.options import Option
from disklab.catalog.facts import GIB
from disklab.catalog.price import AZURE_SKUS
from disklab.catalog.quantity import parse_disks

MB = 10**6
AWS_CHOSEN = {"gp3": ("iops", "throughput"), "io1": ("iops",), "io2": ("iops",)}
"""What is chosen beside the size, by type of volume."""


def snippet(option: Option, region: str) -> dict[str, str]:
    """Return texts by their names; empty: disklab has no form for that cloud.

    Network, image and key are the user's: only what was compared is in it.
    """
    vendor, _, vm = option.candidate.vm.partition("/")
    if vendor == "azure":
        return {"Terraform (azurerm)": _azurerm(option, vm, region), "az": _az(option, vm, region)}
    if vendor == "aws":
        return {"Terraform (aws)": _aws(option, vm, region)}
    return {}


def _volume(option: Option) -> tuple[int, int, int | None, int | None]:
    """Return disks of a node, GiB, IOPS and MB/s of each; no disks: those of the VM."""
    if option.local:
        return 0, 0, None, None
    asked = parse_disks(option.candidate.disks.expression)
    size = option.candidate.made.volume.size_bytes // asked.count // GIB
    rate = None if asked.bytes_per_s is None else asked.bytes_per_s // MB
    return asked.count, size, asked.iops, rate


def _quoted(text: str) -> str:
    """Return a text as Terraform writes it: JSON's quotes, and nothing in it is an expression."""
    return json.dumps(text).replace("${", "$${").replace("%{", "%%{")


def _azurerm(option: Option, vm: str, region: str) -> str:
    count, size, iops, mb_per_s = _volume(option)
    sku = AZURE_SKUS.get(option.candidate.disks.kind, "")
    zone = '\n  zone                = "1"' if sku in ZONAL else ""
    made = f"""resource "azurerm_linux_virtual_machine" "node" {{
  count               = {option.nodes}
  name                = "node-${{count.index}}"
  size                = {_quoted(vm)}
  location            = {_quoted(region)}{zone}
  # resource_group_name, network_interface_ids, admin_ssh_key, source_image_reference,
  # os_disk: yours
}}
"""
    if not count:
        return made
    chosen = "" if iops is None else f"\n  disk_iops_read_write = {iops}"
    chosen += "" if mb_per_s is None else f"\n  disk_mbps_read_write = {mb_per_s}"
    caching = option.candidate.disks.caching
    return (
        made
        + f"""
resource "azurerm_managed_disk" "data" {{
  count                = {option.nodes * count}
  name                 = "data-${{count.index}}"
  location             = {_quoted(region)}{zone}
  create_option        = "Empty"
  storage_account_type = {_quoted(sku)}
  disk_size_gb         = {size}{chosen}
  # resource_group_name: yours
}}

resource "azurerm_virtual_machine_data_disk_attachment" "data" {{
  count              = {option.nodes * count}
  managed_disk_id    = azurerm_managed_disk.data[count.index].id
  virtual_machine_id = azurerm_linux_virtual_machine.node[floor(count.index / {count})].id
  lun                = count.index % {count}
  caching            = {_quoted(caching)}
}}
"""
    )


ZONAL = ("PremiumV2_LRS", "UltraSSD_LRS")
"""Disks that exist in a zone only, as the VMs that they are attached to."""


def _az(option: Option, vm: str, region: str) -> str:
    count, size, iops, mb_per_s = _volume(option)
    sku = AZURE_SKUS.get(option.candidate.disks.kind, "")
    place = f'--resource-group "$GROUP" --location {shlex.quote(region)}'
    place += " --zone 1" if sku in ZONAL else ""
    caching = shlex.quote(option.candidate.disks.caching)
    lines = [
        f"for node in $(seq 1 {option.nodes}); do",
        f"  az vm create {place} --name node-$node \\",
        f"    --size {shlex.quote(vm)} --image Debian:debian-12:12:latest --generate-ssh-keys",
    ]
    if count:
        chosen = "" if iops is None else f" --disk-iops-read-write {iops}"
        chosen += "" if mb_per_s is None else f" --disk-mbps-read-write {mb_per_s}"
        lines += [
            f"  for disk in $(seq 1 {count}); do",
            f"    az disk create {place} \\",
            f"      --name node-$node-data-$disk --size-gb {size} --sku {shlex.quote(sku)}{chosen}",
            '    az vm disk attach --resource-group "$GROUP" --vm-name node-$node \\',
            f"      --name node-$node-data-$disk --caching {caching}",
            "  done",
        ]
    return "\n".join([*lines, "done", ""])


def _aws(option: Option, vm: str, region: str) -> str:
    count, size, iops, mb_per_s = _volume(option)
    made = f"""provider "aws" {{ region = {_quoted(region)} }}

resource "aws_instance" "node" {{
  count         = {option.nodes}
  instance_type = {_quoted(vm)}
  # ami, subnet_id, key_name: yours
}}
"""
    if not count:
        return made
    kind = parse_disks(option.candidate.disks.expression).name.partition("/")[2]
    told = {"iops": iops, "throughput": mb_per_s}
    chosen = "".join(
        f"\n  {name:<17} = {told[name]}"
        for name in AWS_CHOSEN.get(kind, ())
        if told[name] is not None
    )
    return (
        made
        + f"""
resource "aws_ebs_volume" "data" {{
  count             = {option.nodes * count}
  availability_zone = aws_instance.node[floor(count.index / {count})].availability_zone
  type              = {_quoted(kind)}
  size              = {size}{chosen}
}}

resource "aws_volume_attachment" "data" {{
  count       = {option.nodes * count}
  device_name = "/dev/sd${{substr("fghijklmnop", count.index % {count}, 1)}}"
  volume_id   = aws_ebs_volume.data[count.index].id
  instance_id = aws_instance.node[floor(count.index / {count})].id
}}
"""
    )
