"""What EC2 is asked for, for a layout. A pure function; nothing is secret in it.

Data volumes are made with their instance and by the same call: there is no volume without an
instance, and none that stays when it is terminated.
"""

from __future__ import annotations

from typing import Any

from disklab.catalog.facts import GIB
from disklab.cloud.first_boot import ec2_name
from disklab.cloud.layout import CloudHost, Layout, MadeVolume

NETWORK = "10.77.0.0/24"
ROOT_GIB = 8
"""The size of Canonical's images."""
CANONICAL = "099720109477"
"""The account of Canonical (ubuntu.com, "Find Ubuntu images in AWS")."""
IMAGES = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{}-server-*"
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
"""Canonical's names of EC2's."""
WITH_IOPS = {"gp3", "io1", "io2"}
WITH_MB_PER_S = {"gp3"}
MIB = 1 << 20


def template(layout: Layout, tags: dict[str, str], zone: str | None = None) -> dict[str, Any]:
    """Return the parameters of each call that makes something, in the order of the calls.

    What is known only then stands in `${...}`: identifiers of what was made before, the image, the
    public key, the address that is let in, and each host's user data.
    """
    return {
        "CreateVpc": {"CidrBlock": NETWORK, **_tagged(["vpc"], tags)},
        "ImportKeyPair": {
            "KeyName": "${group}",
            "PublicKeyMaterial": "${sshPublicKey}",
            **_tagged(["key-pair"], tags),
        },
        "CreateInternetGateway": _tagged(["internet-gateway"], tags),
        "CreateSubnet": {
            "CidrBlock": NETWORK,
            "VpcId": "${vpc}",
            **({"AvailabilityZone": zone} if zone else {}),
            **_tagged(["subnet"], tags),
        },
        "CreateSecurityGroup": {
            "GroupName": "disklab",
            "Description": "SSH from one address, and the hosts among themselves",
            "VpcId": "${vpc}",
            **_tagged(["security-group"], tags),
        },
        "AuthorizeSecurityGroupIngress": {
            "GroupId": "${securityGroup}",
            "IpPermissions": [
                {
                    "IpProtocol": "tcp",
                    "FromPort": 22,
                    "ToPort": 22,
                    "IpRanges": [{"CidrIp": "${allowSshFrom}"}],
                },
                {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "${securityGroup}"}]},
            ],
        },
        "RunInstances": [_instance(host, tags) for host in layout.hosts],
    }


def _tagged(kinds: list[str], tags: dict[str, str]) -> dict[str, Any]:
    pairs = [{"Key": name, "Value": value} for name, value in tags.items()]
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": pairs} for kind in kinds]}


def _instance(host: CloudHost, tags: dict[str, str]) -> dict[str, Any]:
    return {
        "ClientToken": f"${{token}}-{host.name}",
        "ImageId": "${image}",
        "InstanceType": host.vm.name.partition("/")[2],
        "MinCount": 1,
        "MaxCount": 1,
        "KeyName": "${group}",
        # With the timer of the first boot: the end of the price without any machine of the user.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required"},
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": "${subnet}",
                "Groups": ["${securityGroup}"],
                "PrivateIpAddress": host.address,
                "AssociatePublicIpAddress": True,
                "DeleteOnTermination": True,
            }
        ],
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {"VolumeType": "gp3", "VolumeSize": ROOT_GIB, "DeleteOnTermination": True},
            },
            *(
                {"DeviceName": f"/dev/{ec2_name(volume.first + at)}", "Ebs": _volume(volume)}
                for volume in host.made
                for at in range(volume.count)
            ),
        ],
        "UserData": f"${{userData-{host.name}}}",
        **_tagged(["instance", "volume", "network-interface"], {**tags, "Name": host.name}),
    }


def _volume(volume: MadeVolume) -> dict[str, Any]:
    bought = volume.bought
    kind = bought.entry.name.partition("/")[2]
    made: dict[str, Any] = {
        "VolumeType": kind,
        "VolumeSize": bought.size_bytes // GIB,
        "DeleteOnTermination": True,
    }
    if kind in WITH_IOPS:
        made["Iops"] = bought.iops
    if kind in WITH_MB_PER_S:
        # EBS counts throughput in MiB/s (API reference, CreateVolume).
        made["Throughput"] = (bought.bytes_per_s or 0) // MIB
    return made
