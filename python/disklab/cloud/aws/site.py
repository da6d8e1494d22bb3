"""A region of an AWS account as a site: what has a group's tags is all that a run makes.

The VPC is made first and removed last, so that whatever is left of a group is found by it.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from disklab.cloud.aws.ec2 import Ec2, Ec2Error
from disklab.cloud.aws.template import ARCHITECTURES, CANONICAL, IMAGES, template
from disklab.cloud.layout import Layout
from disklab.cloud.protocol import OWNER, RUN, CloudError, Fit, Found, Wish
from disklab.errors import Problem
from disklab.waiting import Wait

GROUP = "disklab-group"
POLL_S = 5.0
# Instances run within a minute or two, and end in as long; assumed until a real account says more.
WAIT_S = 900.0
MOST_USER_DATA_BYTES = 16384
"""EC2 user guide, "Run commands when you launch an EC2 instance": before base64."""
ALIVE = ["pending", "running", "shutting-down", "stopping", "stopped"]
MOST_TOKEN = 64
"""API reference, RunInstances."""

_PARTS = (
    ("describe_volumes", "Volumes", "delete_volume", "VolumeId"),
    ("describe_key_pairs", "KeyPairs", "delete_key_pair", "KeyName"),
    (
        "describe_network_interfaces",
        "NetworkInterfaces",
        "delete_network_interface",
        "NetworkInterfaceId",
    ),
    ("describe_security_groups", "SecurityGroups", "delete_security_group", "GroupId"),
    ("describe_subnets", "Subnets", "delete_subnet", "SubnetId"),
)
"""What may be left when the instances are gone, in the order in which it goes."""
_GONE = {
    "InvalidGroup.NotFound",
    "InvalidInternetGatewayID.NotFound",
    "InvalidKeyPair.NotFound",
    "InvalidNetworkInterfaceID.NotFound",
    "InvalidSubnetID.NotFound",
    "InvalidVolume.NotFound",
    "InvalidVpcID.NotFound",
}


@dataclass(frozen=True)
class AwsSite:
    """One region."""

    ec2: Ec2
    vcpu_limit: Callable[[], float | None] = lambda: None
    """The account's quota of vCPUs of standard instances there; None: it is not known."""

    @property
    def account(self) -> str:
        """Whose it is."""
        return self.ec2.account

    @property
    def endpoint(self) -> str:
        """Where it is asked; empty: AWS's own of the region."""
        return self.ec2.endpoint

    def fit(self, layout: Layout) -> Fit:
        """Look at instance types, zones and vCPUs; nothing is made."""
        wanted = Counter(_type(host.vm.name) for host in layout.hosts)
        names = sorted(wanted)
        filters = [{"Name": "instance-type", "Values": names}]
        offers = self.ec2.every(
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=filters,
        )
        where = {
            name: {o["Location"] for o in offers if o["InstanceType"] == name} for name in names
        }
        problems = [
            Problem("--region", f"{self.ec2.region}: {name}", "is not offered", "choose another")
            for name in names
            if not where[name]
        ]
        zones = sorted(set.intersection(*where.values()))
        if not problems and not zones:
            rule = "no zone has all instance types together"
            problems.append(Problem("--region", self.ec2.region, rule, "choose another"))
        if not problems:
            problems += self._quota_problems(wanted)
        return Fit(layout, tuple(zones[:1]), tuple(problems))

    def _quota_problems(self, wanted: Counter[str]) -> Iterator[Problem]:
        limit = self.vcpu_limit()
        if limit is None:
            return
        running = [
            one
            for part in self.ec2.every(
                "describe_instances",
                "Reservations",
                Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}],
            )
            for one in part["Instances"]
        ]
        used = sum(
            one.get("CpuOptions", {}).get("CoreCount", 0)
            * one.get("CpuOptions", {}).get("ThreadsPerCore", 1)
            for one in running
        )
        types = self._types(wanted)
        count = sum(types[name]["VCpuInfo"]["DefaultVCpus"] * n for name, n in wanted.items())
        if used + count > limit:
            rule = f"{limit - used:g} are left of the quota of vCPUs in {self.ec2.region}"
            way_out = "ask for more (Service Quotas, EC2), measure less (--only), another --region"
            yield Problem("quota", f"{count} vCPUs wanted", rule, way_out)

    def _types(self, wanted: Counter[str]) -> dict[str, dict[str, Any]]:
        found = self.ec2.every(
            "describe_instance_types", "InstanceTypes", InstanceTypes=sorted(wanted)
        )
        return {one["InstanceType"]: one for one in found}

    def make(self, wish: Wish) -> dict[str, str]:
        """Make network, key and instances; return the hosts' public addresses."""
        tags = {**wish.tags, GROUP: wish.group}
        zone = wish.zones[0] if wish.zones else None
        asked = template(wish.layout, tags, zone)
        images = self._images(wish.layout)
        user_data = {name: _user_data(name, text) for name, text in wish.user_data.items()}
        known = {
            "${group}": wish.group,
            "${sshPublicKey}": wish.ssh_public_key,
            "${allowSshFrom}": str(ipaddress.ip_network(wish.ssh_from, strict=False)),
        }
        vpc = self._made("create_vpc", "Vpc", "Vpcs", wish, asked["CreateVpc"])
        known["${vpc}"] = vpc["VpcId"]
        self._key(wish, _filled(asked["ImportKeyPair"], known))
        gateway = self._made(
            "create_internet_gateway",
            "InternetGateway",
            "InternetGateways",
            wish,
            asked["CreateInternetGateway"],
        )
        subnet = self._made(
            "create_subnet", "Subnet", "Subnets", wish, _filled(asked["CreateSubnet"], known)
        )
        known["${subnet}"] = subnet["SubnetId"]
        group = _filled(asked["CreateSecurityGroup"], known)
        security = self._made("create_security_group", None, "SecurityGroups", wish, group)
        known["${securityGroup}"] = security["GroupId"]
        self._connect(known["${vpc}"], gateway["InternetGatewayId"])
        self._quietly(
            "authorize_security_group_ingress",
            {"InvalidPermission.Duplicate"},
            **_filled(asked["AuthorizeSecurityGroupIngress"], known),
        )
        for host, one in zip(wish.layout.hosts, asked["RunInstances"], strict=True):
            known["${image}"] = images[_type(host.vm.name)]
            known[f"${{userData-{host.name}}}"] = user_data[host.name]
            parameters = _filled(one, known)
            # The end of a group's name is the random part of the run's.
            parameters["ClientToken"] = f"{wish.group}-{host.name}"[-MOST_TOKEN:]
            self.ec2.call("run_instances", partial(self._there, wish, host.name), **parameters)
        return self._addresses(wish)

    def _made(
        self, name: str, key: str | None, listed: str, wish: Wish, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        """Make something that has no client token; what a lost answer made is found by its tags."""
        describe = "describe_" + name.removeprefix("create_") + "s"

        def again() -> dict[str, Any] | None:
            found = self._tagged(describe, listed, wish.group, wish.tags[RUN])
            return None if not found else found[0] if key is None else {key: found[0]}

        answer = self.ec2.call(name, again, **parameters)
        made: dict[str, Any] = answer if key is None else answer[key]
        return made

    def _key(self, wish: Wish, parameters: dict[str, Any]) -> None:
        def again() -> dict[str, Any] | None:
            found = self._tagged("describe_key_pairs", "KeyPairs", wish.group, wish.tags[RUN])
            return found[0] if found else None

        self.ec2.call("import_key_pair", again, **parameters)

    def _connect(self, vpc: str, gateway: str) -> None:
        already = {"Resource.AlreadyAssociated"}
        names = {"InternetGatewayId": gateway, "VpcId": vpc}
        self._quietly("attach_internet_gateway", already, **names)
        main = [
            {"Name": "vpc-id", "Values": [vpc]},
            {"Name": "association.main", "Values": ["true"]},
        ]
        tables = self.ec2.every("describe_route_tables", "RouteTables", Filters=main)
        if not tables:
            raise CloudError(f"AWS: {vpc} has no route table yet; begin again")
        self._quietly(
            "create_route",
            {"RouteAlreadyExists"},
            RouteTableId=tables[0]["RouteTableId"],
            DestinationCidrBlock="0.0.0.0/0",
            GatewayId=gateway,
        )

    def _there(self, wish: Wish, name: str) -> dict[str, Any] | None:
        for one in self._instances(wish.group, wish.tags[RUN]):
            if {"Key": "Name", "Value": name} in one["Tags"]:
                return {"Instances": [one]}
        return None

    def _images(self, layout: Layout) -> dict[str, str]:
        """Return the newest image of Ubuntu 24.04 for each instance type."""
        types = self._types(Counter(_type(host.vm.name) for host in layout.hosts))
        newest: dict[str, str] = {}
        found = {}
        for name, facts in types.items():
            offered = facts["ProcessorInfo"]["SupportedArchitectures"]
            one = next((known for known in ARCHITECTURES if known in offered), None)
            if one is None:
                raise CloudError(f"AWS: {name} is {', '.join(offered)}: there is no image for it")
            if one not in newest:
                pattern = IMAGES.format(ARCHITECTURES[one])
                filters = [{"Name": "name", "Values": [pattern]}]
                images = self.ec2.every(
                    "describe_images", "Images", Owners=[CANONICAL], Filters=filters
                )
                if not images:
                    raise CloudError(f"AWS: {self.ec2.region} has no image {pattern} of Canonical")
                newest[one] = max(images, key=lambda image: str(image["CreationDate"]))["ImageId"]
            found[name] = newest[one]
        return found

    def _addresses(self, wish: Wish) -> dict[str, str]:
        """Return the hosts' public addresses, once all instances run."""
        wanted = {host.name for host in wish.layout.hosts}
        with Wait("all instances run", WAIT_S, clock=self.ec2.clock) as wait:
            while True:
                addresses = self._running(wish)
                if set(addresses) == wanted:
                    return addresses
                missing = ", ".join(sorted(wanted - set(addresses)))
                if wait.is_over:
                    raise CloudError(
                        f"AWS: {missing}: not running {WAIT_S / 60:.0f} min after the call"
                    )
                wait.pause(POLL_S, missing)

    def _running(self, wish: Wish) -> dict[str, str]:
        """Return the public addresses of the hosts whose instances run."""
        addresses = {}
        for instance in self._instances(wish.group, wish.tags[RUN]):
            name = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}["Name"]
            state = instance["State"]["Name"]
            if state in {"shutting-down", "stopping", "stopped"}:
                why = instance.get("StateReason", {}).get("Message", "no reason was given")
                raise CloudError(f"AWS: {name} is {state} already: {why}")
            if state == "running" and instance.get("PublicIpAddress"):
                addresses[name] = str(instance["PublicIpAddress"])
        return addresses

    def remove(self, group: str, run: str) -> None:
        """Remove what has a group's and a run's tags: instances first, the VPC last."""
        ids = [one["InstanceId"] for one in self._instances(group, run)]
        if ids:
            self.ec2.call("terminate_instances", InstanceIds=ids)
        with Wait(f"the instances of {group} are gone", WAIT_S, clock=self.ec2.clock) as wait:
            while left := self._instances(group, run):
                if wait.is_over:
                    raise CloudError(f"{group}: its instances are not gone; try again later")
                wait.pause(POLL_S, f"{len(left)} left")
        for describe, key, delete, name in _PARTS:
            for one in self._tagged(describe, key, group, run):
                self._quietly(delete, _GONE, **{name: one[name]})
        for one in self._tagged("describe_internet_gateways", "InternetGateways", group, run):
            self._drop_gateway(one)
        for one in self._tagged("describe_vpcs", "Vpcs", group, run):
            self._quietly("delete_vpc", _GONE, VpcId=one["VpcId"])

    def _drop_gateway(self, gateway: dict[str, Any]) -> None:
        name = gateway["InternetGatewayId"]
        absent = {"Gateway.NotAttached", *_GONE}
        for one in gateway.get("Attachments", []):
            self._quietly(
                "detach_internet_gateway", absent, InternetGatewayId=name, VpcId=one["VpcId"]
            )
        self._quietly("delete_internet_gateway", absent, InternetGatewayId=name)

    def ours(self, owner: str) -> list[Found]:
        """Return the groups of the region with an owner's tag: each has a VPC."""
        filters = [{"Name": f"tag:{OWNER}", "Values": [owner]}]
        found = {}
        for one in self.ec2.every("describe_vpcs", "Vpcs", Filters=filters):
            tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}
            if GROUP in tags:
                found[tags[GROUP]] = Found(tags[GROUP], tags)
        return list(found.values())

    def _tagged(self, name: str, key: str, group: str, run: str) -> list[dict[str, Any]]:
        filters = [
            {"Name": f"tag:{GROUP}", "Values": [group]},
            {"Name": f"tag:{RUN}", "Values": [run]},
        ]
        return self.ec2.every(name, key, Filters=filters)

    def _instances(self, group: str, run: str) -> list[dict[str, Any]]:
        """Return those that are not gone; EC2 lists the terminated for another hour."""
        return [
            one
            for part in self._tagged("describe_instances", "Reservations", group, run)
            for one in part["Instances"]
            if one["State"]["Name"] in ALIVE
        ]

    def _quietly(self, name: str, fine: set[str], **parameters: Any) -> None:
        """Send a call that may have been done already."""
        try:
            self.ec2.call(name, **parameters)
        except Ec2Error as error:
            if error.code not in fine:
                raise


def _type(name: str) -> str:
    return name.partition("/")[2]


def _user_data(name: str, text: str) -> str:
    # boto3 makes base64 of it itself.
    plain = base64.b64decode(text).decode()
    if len(plain.encode()) > MOST_USER_DATA_BYTES:
        raise CloudError(
            f"{name}: its first boot has {len(plain.encode())} bytes, and EC2 takes "
            f"{MOST_USER_DATA_BYTES}: measure fewer disks at a time (--only)"
        )
    return plain


TAGS = "TagSpecifications"


def _filled(parameters: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    """Return parameters with what is known now in place of `${...}`; tags are as they are."""
    names = re.compile("|".join(map(re.escape, known)))

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            # Once: what is put in its place may look like such a name as well.
            return names.sub(lambda found: known[found[0]], value)
        if isinstance(value, list):
            return [filled(part) for part in value]
        if isinstance(value, dict):
            return {k: part if k == TAGS else filled(part) for k, part in value.items()}
        return value

    return {name: part if name == TAGS else filled(part) for name, part in parameters.items()}
