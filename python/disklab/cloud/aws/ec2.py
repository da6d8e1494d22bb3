"""Calls of EC2: each with a bound on tries and time, none of them blind.

What makes something and has no client token is looked for by its tags before it is asked for
again, so that an answer that was lost makes nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from disklab.cloud.protocol import Clock, CloudError, SystemClock
from disklab.errors import Problem, UserError
from disklab.waiting import Wait

ENDPOINT_VARIABLE = "DISKLAB_AWS_ENDPOINT"
EXTRA = "pip install 'disklab[aws]'"
TRIES = 6
"""As with Azure; EC2's buckets of requests fill again within seconds (API throttling)."""
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 60.0
ANSWER_S = 60
PATIENCE_S = TRIES * (ANSWER_S + LONGEST_WAIT_S)
"""No call with all its tries takes longer."""
AGAIN = {
    "InternalError",
    "InternalFailure",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "Unavailable",
}
"""EC2 user guide, "Error codes": server errors and throttling."""

IN_USE = "DependencyViolation"
"""What hangs on a network goes some seconds after EC2 has said so."""


class Ec2Error(CloudError):
    """EC2 refused."""

    def __init__(self, what: str, code: str, message: str) -> None:
        super().__init__(f"{what}: {code}: {message}" + _advice(code))
        self.code = code


_ADVICE = {
    "InsufficientInstanceCapacity": "the zone is full: try later, or another --region",
    "VcpuLimitExceeded": "ask for more (Service Quotas, EC2), or choose another --region",
    "VolumeLimitExceeded": "ask for more (Service Quotas, EBS), or choose another --region",
    "VpcLimitExceeded": "ask for more (Service Quotas, VPC), or choose another --region",
    "UnauthorizedOperation": "docs/aws.md lists the permissions that are needed",
    "AuthFailure": "log in again: `aws sso login`, or renew the keys",
    "ExpiredToken": "log in again: `aws sso login`",
    "RequestExpired": "log in again: `aws sso login`, or set this machine's clock",
    "OptInRequired": "the account is not let into this region: choose another --region",
}


def _advice(code: str) -> str:
    return f"; {_ADVICE[code]}" if code in _ADVICE else ""


@dataclass
class Ec2:
    """EC2 of one region and account; `client` is boto3's."""

    client: Any
    account: str
    region: str
    endpoint: str = ""
    clock: Clock = field(default_factory=SystemClock)
    asked: int = 0
    """Calls so far."""

    def call(
        self,
        name: str,
        again: Callable[[], dict[str, Any] | None] | None = None,
        **parameters: Any,
    ) -> dict[str, Any]:
        """Send a call until it is answered. `again`: what a try without an answer has made."""
        with Wait(f"AWS answers {name}", PATIENCE_S, clock=self.clock) as wait:
            return self._answer(wait, name, again, parameters)

    def _answer(
        self,
        wait: Wait,
        name: str,
        again: Callable[[], dict[str, Any] | None] | None,
        parameters: dict[str, Any],
    ) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        pause_s = FIRST_WAIT_S
        for tries in range(1, TRIES + 1):
            if tries > 1 and again is not None:
                made = again()
                if made is not None:
                    return made
            self.asked += 1
            try:
                answer: dict[str, Any] = getattr(self.client, name)(**parameters)
            except ClientError as error:
                said = error.response.get("Error", {})
                code = str(said.get("Code", "unknown"))
                passing = code in AGAIN or (code == IN_USE and name.startswith("delete_"))
                if not passing or tries == TRIES:
                    message = " ".join(str(said.get("Message", "no reason was given")).split())
                    raise Ec2Error(name, code, message[:600]) from None
                why = code
            except BotoCoreError as error:
                if not _may_pass(error) or tries == TRIES:
                    raise CloudError(f"AWS: {name}: {str(error).splitlines()[0]}") from None
                why = "no answer"
            else:
                return answer
            wait.pause(min(pause_s, LONGEST_WAIT_S), f"{why} at try {tries} of {TRIES}")
            pause_s *= 2
        raise AssertionError("the last try is answered or has raised")

    def every(self, name: str, key: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return all entries of a list, page after page."""
        found: list[dict[str, Any]] = []
        token: dict[str, Any] = {}
        while True:
            answer = self.call(name, **parameters, **token)
            found += answer.get(key, [])
            if not answer.get("NextToken"):
                return found
            token = {"NextToken": answer["NextToken"]}


def _may_pass(error: Exception) -> bool:
    from botocore.exceptions import HTTPClientError  # noqa: PLC0415

    # Connections that fail, end early or have no answer in time.
    return isinstance(error, HTTPClientError)


# Service Quotas: "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", in vCPUs.
STANDARD_VCPUS = "L-1216C47A"


def vcpu_limit(ec2: Ec2) -> float | None:
    """Return the account's quota of vCPUs; None: it may not be asked for."""
    import boto3  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    if ec2.endpoint:
        # Somebody's own EC2 has no service of quotas beside it.
        return None
    try:
        quotas = boto3.session.Session().client("service-quotas", region_name=ec2.region)
        told = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=STANDARD_VCPUS)
    except (BotoCoreError, ClientError):
        # Where it is too low, RunInstances says so (VcpuLimitExceeded).
        return None
    return float(told["Quota"]["Value"])


def connected(region: str, endpoint: str | None = None, account: str | None = None) -> Ec2:
    """Return EC2 of a region, with the credentials that AWS's own tools would use.

    Raises UserError without boto3 or credentials, or when they are another account's.
    """
    try:
        import boto3  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    except ImportError:
        rule = "needs boto3, which is not installed"
        raise UserError(Problem("--cloud", "aws", rule, f"install it: {EXTRA}")) from None
    found = endpoint or os.environ.get(ENDPOINT_VARIABLE) or ""
    # Tries are counted here: boto3's own would multiply them.
    config = Config(
        region_name=region,
        connect_timeout=ANSWER_S,
        read_timeout=ANSWER_S,
        retries={"total_max_attempts": 1},
    )
    more: dict[str, Any] = {"config": config, **({"endpoint_url": found} if found else {})}
    try:
        session = boto3.session.Session()
        who = str(session.client("sts", **more).get_caller_identity()["Account"])
        client = session.client("ec2", **more)
    except (BotoCoreError, ClientError) as error:
        rule = f"you are not logged in: {str(error).splitlines()[0]}"
        way_out = "log in (`aws configure`, `aws sso login`), or set AWS_PROFILE"
        raise UserError(Problem("--cloud", "aws", rule, way_out)) from None
    if account not in {None, who}:
        rule = f"the hosts were made in the account {account}"
        raise UserError(Problem("account", who, rule, "log in there, or set AWS_PROFILE"))
    return Ec2(client, who, region, found)
