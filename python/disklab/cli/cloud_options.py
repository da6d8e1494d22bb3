"""The options of what is made in a cloud."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Annotated, Literal

import typer

from disklab.catalog.price import REGIONS
from disklab.cloud.protocol import CloudSite
from disklab.cloud.record import Record
from disklab.errors import Problem, UserError, refuse

# The clouds in which hosts are made, with the user's own login.

TITLES = {"azure": "Azure", "aws": "AWS"}
ENDPOINT_VARIABLE = "DISKLAB_ARM_ENDPOINT"
"""Azure's other clouds (China, US Government) have another resource manager."""


def region_of(cloud: str | None) -> str:
    """Return the region where none is given."""
    return REGIONS[cloud or "azure"]


def site_of(region: str, subscription: str | None, cloud: str | None = "azure") -> CloudSite:
    """Return a region of a cloud with the user's own login. Raises UserError without one."""
    if cloud == "aws":
        return _aws(region, subscription, None)
    from disklab.cloud.azure.arm import ENDPOINT, Arm, connected, subscription_of  # noqa: PLC0415
    from disklab.cloud.azure.site import AzureSite  # noqa: PLC0415

    endpoint = os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT
    if not endpoint.startswith("https://"):
        rule = "a token is sent over TLS only"
        raise UserError(Problem(ENDPOINT_VARIABLE, endpoint, rule, "write https://..."))
    found = subscription_of(subscription)
    return AzureSite(Arm(found, connected(endpoint), endpoint), region)


def site_at(record: Record) -> CloudSite:
    """Return the site at which a group was made."""
    if record.cloud == "aws":
        return _aws(record.region, record.subscription, record.endpoint)
    from disklab.cloud.azure.arm import Arm, connected  # noqa: PLC0415
    from disklab.cloud.azure.site import AzureSite  # noqa: PLC0415

    arm = Arm(record.subscription, connected(record.endpoint), record.endpoint)
    return AzureSite(arm, record.region)


def _aws(region: str, account: str | None, endpoint: str | None) -> CloudSite:
    from disklab.cloud.aws.ec2 import connected, vcpu_limit  # noqa: PLC0415
    from disklab.cloud.aws.site import AwsSite  # noqa: PLC0415

    ec2 = connected(region, endpoint, account)
    return AwsSite(ec2, lambda: vcpu_limit(ec2))


Cloud = Annotated[
    Literal["azure", "aws"] | None,
    typer.Option("--cloud", help="Make the hosts there, and remove them at the end."),
]
Region = Annotated[
    str | None,
    typer.Option(
        help="Where they are made; eastus in Azure and us-east-1 in AWS by default.", metavar="NAME"
    ),
]
MaxUsd = Annotated[
    float | None,
    typer.Option("--max-usd", help="The most that the hosts may cost, by list prices."),
]
SshFrom = Annotated[
    str | None,
    typer.Option(
        "--ssh-from", help="The only address that may connect: your public one.", metavar="ADDRESS"
    ),
]
KeepUntil = Annotated[
    str | None,
    typer.Option("--keep-until", help="Keep the hosts until this time (UTC).", metavar="HH:MM"),
]
Subscription = Annotated[
    str | None,
    typer.Option(
        help="The account. Azure: by default that of `az account show`. AWS: the login's own.",
        metavar="ID",
    ),
]
FreshHosts = Annotated[
    int | None,
    typer.Option(
        "--fresh-hosts",
        help="Make each host, or set of nodes, this many times; repeats use them in turn.",
        metavar="N",
    ),
]
MOST_COPIES = 20
"""A spread between VMs is known by then; each of them costs."""
WIDEST_BITS = {4: 16, 6: 32}
"""A provider's own block; more addresses are not yours."""


@dataclass(frozen=True)
class CloudOptions:
    """What was given of them."""

    cloud: str | None = None
    region: str | None = None
    max_usd: float | None = None
    ssh_from: str | None = None
    keep_until: str | None = None
    subscription: str | None = None
    fresh_hosts: int | None = None

    @property
    def copies(self) -> int:
        """How many there are of each host that a trial needs."""
        return self.fresh_hosts or 1

    def given(self) -> dict[str, object]:
        """Return those that are given, by their names."""
        return {
            "--" + name.replace("_", "-"): value
            for name, value in vars(self).items()
            if value is not None
        }

    def check(self) -> None:
        """Raise UserError with all that is wrong."""
        problems = []
        if self.max_usd is not None and not self.max_usd > 0:
            problems.append(Problem("--max-usd", f"{self.max_usd:g}", "is above 0", "give more"))
        if not 1 <= self.copies <= MOST_COPIES:
            rule = f"of each host there are 1 to {MOST_COPIES}"
            problems.append(Problem("--fresh-hosts", str(self.fresh_hosts), rule, "write 3"))
        why = _why_not_from(self.ssh_from)
        if why is not None:
            way_out = "give your public address: --ssh-from $(curl -s https://ifconfig.me)"
            problems.append(Problem("--ssh-from", self.ssh_from or "(nothing)", why, way_out))
        region = self.region or ""
        plain = region.replace("-", "") if self.cloud == "aws" else region
        if not (plain.isascii() and plain.isalnum()) and self.region is not None:
            rule, such = "a region is letters and digits", "eastus"
            if self.cloud == "aws":
                rule, such = "a region is letters, digits and hyphens", "us-east-1"
            problems.append(Problem("--region", region, rule, f"write for example {such}"))
        if self.cloud == "aws" and self.ssh_from and ":" in self.ssh_from:
            rule = "hosts in AWS have IPv4 addresses only"
            problems.append(Problem("--ssh-from", self.ssh_from, rule, "give an IPv4 address"))
        refuse(problems)


def _why_not_from(given: str | None) -> str | None:
    if given is None:
        return "hosts are never open to every address"
    try:
        network = ipaddress.ip_network(given, strict=False)
    except ValueError:
        return "is neither an address nor a range"
    if network.prefixlen < WIDEST_BITS[network.version]:
        return f"is wider than /{WIDEST_BITS[network.version]}: others are in it as well"
    return None


def until_of(text: str, now: datetime) -> datetime:
    """Return when a kept group goes: the next such time of day. Raises UserError."""
    try:
        hour, minute = (int(part) for part in text.split(":"))
        found = now.astimezone(timezone.utc).replace(
            hour=hour, minute=minute, second=0, microsecond=0
        )
    except ValueError:
        rule = "is a time of day in UTC"
        raise UserError(Problem("--keep-until", text, rule, "write for example 18:30")) from None
    return found if found > now else found + timedelta(days=1)
