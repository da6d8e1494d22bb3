"""Nothing is lost or mixed up: fio writes and verifies every disk of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from disklab.catalog import VolumeRequest, load_catalog
from disklab.catalog.profile import Caching
from disklab.hosts.attach import AttachRequest, attach
from disklab.hosts.cleaning import Scope, clean
from disklab.hosts.places import Places
from disklab.hosts.running import detach, find

from tests.programs import ended

pytestmark = pytest.mark.machine

SIZE_BYTES = 16 << 20
WRITTEN = "4m"  # a disk of 120 IOPS and 3500 in bursts takes a second or two


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Places of this module, cleaned whatever happens."""
    folder = tmp_path_factory.mktemp("verify")
    places = Places(folder / "run", folder / "data")
    yield places
    clean(places, Scope(everything=True, data=True))


CHOSEN = {
    "aws/gp2": "aws/gp2(500GiB)",
    "aws/st1": "aws/st1(500GiB)",
    "aws/gp3": "aws/gp3(500GiB, 6000 IOPS, 250 MB/s)",
    "aws/io1": "aws/io1(200GiB, 5000 IOPS)",
    "aws/io2": "aws/io2(200GiB, 20000 IOPS)",
    "azure/PremiumV2": "azure/PremiumV2(250GiB, 10000 IOPS, 250 MB/s)",
    "azure/Ultra": "azure/Ultra(250GiB, 10000 IOPS, 250 MB/s)",
    "gcp/pd-balanced": "gcp/pd-balanced(500GiB)",
    "gcp/pd-ssd": "gcp/pd-ssd(500GiB)",
    "gcp/pd-standard": "gcp/pd-standard(500GiB)",
    "gcp/hyperdisk-balanced": "gcp/hyperdisk-balanced(500GiB, 6000 IOPS, 250 MB/s)",
    "gcp/hyperdisk-throughput": "gcp/hyperdisk-throughput(2048GiB)",
    "gcp/hyperdisk-ml": "gcp/hyperdisk-ml(500GiB)",
    "gcp/hyperdisk-extreme": "gcp/hyperdisk-extreme(500GiB, 20000 IOPS)",
}
"""Disks whose size and rates the user chooses, with a choice."""

ON_A_VM: list[tuple[str, str | None, Caching]] = [
    ("azure/P30", "azure/Standard_DS14_v2", "ReadOnly"),
    ("azure/P30", "azure/Standard_DS14_v2", "ReadWrite"),
    ("4 x azure/P30", "azure/Standard_DS14_v2", "None"),
    ("4 x azure/P30", "azure/Standard_DS14_v2", "ReadWrite"),
    ("local", "azure/Standard_E8as_v4", "None"),
    ("local", "azure/Standard_E8ds_v4", "None"),
    ("nvme", "azure/Standard_L8s_v2", "None"),
    ("ephemeral-os", "azure/Standard_E8ds_v4", "None"),
]
"""What only exists on a VM, and what a VM's cache does to a disk."""


def cases() -> Iterator[object]:
    """Yield every disk of the catalogue by itself, and the combinations with a VM.

    In CI the smallest and the largest of a kind, as azure/P: others have other limits alone.
    """
    kinds: dict[str, list[str]] = {}
    for name in load_catalog([]).disks:
        kinds.setdefault(name.rstrip("0123456789"), []).append(name)
    for names in kinds.values():
        for name in names:
            marks = [pytest.mark.long] if name in names[1:-1] else []
            yield pytest.param(CHOSEN.get(name, name), None, "None", marks=marks)
    yield from ON_A_VM


@pytest.mark.parametrize(("disks", "vm", "caching"), list(cases()))
def test_what_is_written_is_read(
    places: Places, disks: str, vm: str | None, caching: Caching
) -> None:
    volume = VolumeRequest(disks, caching=caching, size_bytes=SIZE_BYTES)
    request = AttachRequest(volume, vm=vm, calibrate=False)
    device = attach(load_catalog([]), request, places).device
    try:
        command = [
            "fio", "--name=verify", f"--filename={device}", "--direct=1", "--ioengine=libaio",
            "--rw=randwrite", "--bsrange=4k-64k", "--iodepth=32", f"--size={WRITTEN}",
            "--verify=crc32c", "--verify_state_save=0",
            "--verify_fatal=1", "--do_verify=1", "--fsync=16",
        ]  # fmt: skip
        ended(command, code=0)
    finally:
        detach(find("data", None, places), places, delete_data=True)
