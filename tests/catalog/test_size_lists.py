"""VM sizes as vendors publish them as data: what of them the catalogue takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disklab.catalog import HostRequest, VolumeRequest, load_catalog, resolve
from disklab.catalog.size_lists import read_sizes, read_volumes
from disklab.errors import UserError

from tests.in_process import disklab

CATALOG = load_catalog([])


def sku(name: str, **capabilities: str) -> dict[str, Any]:
    told = {"vCPUs": "8", "MemoryGB": "32", "MaxDataDiskCount": "16", "PremiumIO": "True"}
    told |= {"UncachedDiskIOPS": "25600", "UncachedDiskBytesPerSecond": "768000000"}
    told |= capabilities
    return {
        "name": name,
        "family": "standardDSv9Family",
        "resourceType": "virtualMachines",
        "locations": ["eastus"],
        "capabilities": [{"name": key, "value": value} for key, value in told.items()],
    }


AZURE = [
    sku("Standard_D8s_v9"),
    sku("Standard_D8s_v9"),
    sku("Standard_D8s_v5"),
    sku("Standard_D8_v9", PremiumIO="False"),
    {"name": "Premium_LRS", "resourceType": "disks", "capabilities": []},
]
AWS = {
    "InstanceTypes": [
        {
            "InstanceType": "m9i.xlarge",
            "VCpuInfo": {"DefaultVCpus": 4},
            "MemoryInfo": {"SizeInMiB": 16384},
            "EbsInfo": {
                "EbsOptimizedInfo": {
                    "BaselineIops": 7000,
                    "BaselineThroughputInMBps": 175.5,
                    "MaximumIops": 50000,
                    "MaximumThroughputInMBps": 1500.0,
                }
            },
        },
        {"InstanceType": "m5.large", "EbsInfo": {"EbsOptimizedInfo": {"BaselineIops": 3600}}},
        {"InstanceType": "t1.micro"},
    ]
}


def written(folder: Path, content: object) -> Path:
    path = folder / "list.json"
    path.write_text(json.dumps(content))
    return path


def imported(folder: Path, content: object) -> Path:
    out = folder / "sizes.yaml"
    ran = disklab("catalog", "--sizes", str(written(folder, content)), "--out", str(out), code=0)
    assert "1 sizes written" in ran.stdout
    return out


def rates(vm: str, file: Path) -> list[tuple[int, int | None]]:
    made = resolve(load_catalog([file]), HostRequest(vm=vm), VolumeRequest("azure/E10"))
    return [
        (limit.per_s, limit.burst.per_s if limit.burst else None) for limit in made.host.uncached
    ]


def test_sizes_of_azure_are_taken(tmp_path: Path) -> None:
    found = rates("azure/Standard_D8s_v9", imported(tmp_path, AZURE))
    assert found == [(25600, None), (768_000_000, None)]


def test_sizes_of_aws_have_base_and_burst(tmp_path: Path) -> None:
    found = rates("aws/m9i.xlarge", imported(tmp_path, AWS))
    assert found == [(7000, 50000), (175_000_000, 1_500_000_000)]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    sizes = read_sizes(written(tmp_path, AWS), CATALOG)
    assert (sizes.known, sizes.without_limits) == (1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"InstanceTypes": [], "NextToken": "x"}, "continues"),
        ({"Items": []}, "is neither Azure's Resource SKUs"),
        ([], "is neither Azure's Resource SKUs"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_sizes(written(tmp_path, content), CATALOG)
    assert message in str(caught.value)


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "content",
    [
        [sku("Standard_D8s_v9", vCPUs="\u00b2")],
        [sku("Standard_D8s_v9", vCPUs="-4")],
        [sku("Standard_D8s_v9", MemoryGB="nan")],
        [sku("Standard_D8s_v9", UncachedDiskIOPS="many")],
        [sku("Standard_D8s_v9", UncachedDiskBytesPerSecond=DIGITS)],
        [{**sku("Standard_D8s_v9"), "name": 5}],
        [{"name": "Standard_D8s_v9", "capabilities": "none"}],
        {"InstanceTypes": [{"InstanceType": ["m9i.xlarge"]}]},
        {"InstanceTypes": [{"InstanceType": "m9i.xlarge", "VCpuInfo": {"DefaultVCpus": "two"}}]},
        {"InstanceTypes": [{"InstanceType": "m9i.xlarge", "MemoryInfo": {"SizeInMiB": None}}]},
    ],
)
def test_an_entry_of_another_form_is_refused_in_words(tmp_path: Path, content: object) -> None:
    with pytest.raises(UserError, match=r"has an entry of another form: .*save it again"):
        read_sizes(written(tmp_path, content), CATALOG)


@pytest.mark.parametrize("volume", [{"Size": "x"}, {"Iops": -1}, {"Tags": 7}, {"VolumeId": {}}])
def test_a_volume_of_another_form_is_refused_in_words(
    tmp_path: Path, volume: dict[str, object]
) -> None:
    content = {"Volumes": [{"VolumeId": "vol-1", "VolumeType": "gp3", "Size": 500, **volume}]}
    with pytest.raises(UserError, match=r"has an entry of another form: .*save it again"):
        read_volumes(written(tmp_path, content), CATALOG)


def test_what_is_older_than_a_year_is_stale() -> None:
    old = disklab("catalog", "Ddsv5", "--check", "--json")
    stale = disklab("catalog", "Ddsv5", "--stale", "--json")
    counts = [len(json.loads(ran.stdout)["doubts"]) for ran in (old, stale)]
    assert counts[1] > counts[0]


VOLUMES = {
    "Volumes": [
        {
            "VolumeId": "vol-1",
            "VolumeType": "gp3",
            "Size": 500,
            "Iops": 6000,
            "Throughput": 250,
            "Attachments": [{"InstanceId": "i-1", "Device": "/dev/sdf"}],
            "Tags": [{"Key": "Name", "Value": "data"}],
        },
        {"VolumeId": "vol-2", "VolumeType": "gp2", "Size": 100, "Iops": 300, "Attachments": []},
        {"VolumeId": "vol-3", "VolumeType": "io2", "Size": 200, "Iops": 8000},
        {"VolumeId": "vol-4", "VolumeType": "st1", "Size": 2000},
        {"VolumeId": "vol-5", "VolumeType": "standard", "Size": 8},
    ]
}


def test_volumes_of_aws_are_written_as_an_experiment_has_them(tmp_path: Path) -> None:
    ran = disklab("catalog", "--volumes", str(written(tmp_path, VOLUMES)), "--json", code=0)
    volumes = json.loads(ran.stdout)["volumes"]
    assert [volume["disks"] for volume in volumes] == [
        "aws/gp3(500GiB, 6000 IOPS, 250 MiB/s)",
        "aws/gp2(100GiB)",
        "aws/io2(200GiB, 8000 IOPS)",
        "aws/st1(2000GiB)",
        "standard",
    ]
    assert (volumes[0]["name"], volumes[0]["instance"]) == ("data", "i-1")
    assert [volume["known"] for volume in volumes] == [True, True, True, True, False]
    for volume in volumes[:4]:
        assert resolve(CATALOG, HostRequest(), VolumeRequest(volume["disks"])).volume.disks
    shown = disklab("catalog", "--volumes", str(tmp_path / "list.json")).stdout
    assert "aws/io2(200GiB, 8000 IOPS)" in shown
    assert "standard (not in the catalogue)" in shown


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"Volumes": [], "NextToken": "x"}, "continues"),
        ({"InstanceTypes": []}, "is not AWS's describe-volumes"),
    ],
)
def test_any_other_list_has_no_volumes(tmp_path: Path, content: object, message: str) -> None:
    ran = disklab("catalog", "--volumes", str(written(tmp_path, content)), code=2)
    assert message in " ".join(ran.stderr.split())
