"""The engine accepts every profile that the catalogue resolves."""

from __future__ import annotations

import json
from collections.abc import Iterator

from disklab.catalog import HostRequest, VolumeRequest, load_catalog, resolve
from disklab.catalog.profile import Caching, HostProfile
from disklab.catalog.quantity import LOCAL_DISKS
from disklab.engine import find_engine
from disklab.errors import UserError

from tests.programs import ended

CATALOG = load_catalog([])
CACHINGS: tuple[Caching, ...] = ("None", "ReadOnly", "ReadWrite")


# A disk's profile does not depend on the VM's, so every disk on some VMs and some disks on every VM
# are all that there is; a vendor's disks are on no other's VMs.
SOME_VMS = (None, "azure/Standard_DS14_v2", "azure/Standard_D4_v2", "aws/i4i.xlarge")
GCP = ("gcp/pd-ssd", "gcp/hyperdisk-balanced")
SOME_DISKS = ("azure/P30", "azure/E10", "azure/PremiumV2", "aws/gp3", *GCP, *LOCAL_DISKS)


def profiles() -> Iterator[HostProfile]:
    """Yield every disk and every VM, alone and striped, with every caching that they allow."""
    pairs = [(vm, disk) for vm in SOME_VMS for disk in CATALOG.disk_names()]
    own = {vm: (vm.partition("/")[0], *LOCAL_DISKS) for vm in CATALOG.vms}
    pairs += [(vm, disk) for vm in own for disk in SOME_DISKS if disk.startswith(own[vm])]
    for vm, name in pairs:
        sizes = CATALOG.disks[name].facts.size_gib if name in CATALOG.disks else None
        chosen = name in CATALOG.families or (sizes is not None and not sizes.fixed)
        size = 128 if sizes is None else max(128, sizes.least)
        disks = f"{name}({size}GiB)" if chosen else name
        for caching in CACHINGS:
            for expression in (disks, f"3 x {disks}"):
                volume = VolumeRequest(expression, caching=caching)
                try:
                    yield resolve(CATALOG, HostRequest(vm=vm), volume).host
                except UserError:
                    continue


def test_the_engine_accepts_what_is_resolved() -> None:
    resolved = list(profiles())
    assert {profile.name for profile in resolved} == {"no VM", *CATALOG.vms}
    names = {disk.name for profile in resolved for disk in profile.volumes[0].disks}
    assert set(CATALOG.disks) <= names
    distinct = sorted({profile.model_dump_json() for profile in resolved})
    ran = ended([str(find_engine()), "check"], input="\n".join(distinct) + "\n")
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    refused = [answer for answer in answers if not answer["ok"]]
    assert refused == []
    assert len(answers) == len(distinct)
    assert ran.returncode == 0


def test_the_engine_refuses_what_is_not_a_profile() -> None:
    host = resolve(CATALOG, HostRequest(), VolumeRequest("azure/P30")).host
    odd = json.loads(host.model_dump_json()) | {"colour": "red"}
    ran = ended([str(find_engine()), "check"], input=json.dumps(odd) + "\n", code=2)
    assert "colour" in ran.stdout
