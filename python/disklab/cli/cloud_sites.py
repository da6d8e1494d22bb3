"""The clouds in which hosts are made, with the user's own login."""

from __future__ import annotations

import os

from disklab.catalog.price import REGIONS
from disklab.cloud.protocol import CloudSite
from disklab.cloud.record import Record
from disklab.errors import Problem, UserError

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
