"""Hosts in AWS, on an EC2 in memory (moto).

moto does not tell true in two things. It ignores client tokens, so that a lost answer is tried
without their help. It drops the IOPS of volumes that are made with an instance, and then refuses
io2 for having none: it is given gp3 in their place, and what was sent is held against the wish.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from disklab import spec
from disklab.catalog import load_catalog
from disklab.cli.app import app
from disklab.cloud import first_boot, guard
from disklab.cloud.aws.ec2 import Ec2, connected
from disklab.cloud.aws.site import GROUP, AwsSite
from disklab.cloud.aws.template import CANONICAL
from disklab.cloud.guard import tariff_of
from disklab.cloud.layout import Layout, layout_of
from disklab.cloud.protocol import OWNER, RUN, UNTIL, CloudError, CloudSite
from disklab.cloud.record import Notebook, Record, records
from disklab.errors import UserError
from disklab.results import Run
from moto import mock_aws
from typer.testing import CliRunner

REGION = "us-east-1"
EXPERIMENT = """
title: What do IOPS that are bought give?
device: {vm: aws/m5d.2xlarge, volume: {disks: "aws/gp3(100GiB)", caching: None}}
workload: {fio: {profile: async, rw: randwrite, bs: 4k}, stop: {duration: 2s}}
factors:
  device.volume.disks: ["aws/gp3(100GiB, 6000 IOPS)", "aws/io2(100GiB, 4000 IOPS)", nvme]
"""
START = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)


class StandingClock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float, /) -> None:
        self.at += timedelta(seconds=seconds)


def _for_moto(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters whose volumes have no IOPS of their own."""
    if "BlockDeviceMappings" not in parameters:
        return parameters
    disks = [
        {**one, "Ebs": {**one["Ebs"], "VolumeType": "gp3"}}
        for one in parameters["BlockDeviceMappings"]
    ]
    return {**parameters, "BlockDeviceMappings": disks}


class Faulty:
    """boto3's client, which counts its calls and fails at one of them."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fault: Callable[[str, Callable[[], Any]], Any] | None = None
        self.at = -1

    def __getattr__(self, name: str) -> Any:
        def call(**parameters: Any) -> Any:
            self.calls.append((name, parameters))

            def real() -> Any:
                return getattr(self.client, name)(**_for_moto(parameters))

            if self.fault is not None and len(self.calls) - 1 == self.at:
                return self.fault(name, real)
            return real()

        return call


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with mock_aws():
        real = boto3.client("ec2", region_name=REGION)
        from moto.ec2.models import ec2_backends  # noqa: PLC0415

        # Not by describe_images, whose hundreds of images moto takes seconds to write down.
        backend = ec2_backends["123456789012"][REGION]
        real.copy_image(Name="other", SourceImageId=next(iter(backend.amis)), SourceRegion=REGION)
        image = next(iter(backend.amis.values()))
        image.name = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261101"
        image.owner_id = CANONICAL
        yield Faulty(real)


def layout(tmp_path: Path) -> Layout:
    path = tmp_path / "e.yaml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    experiment = spec.load(path)
    return layout_of(experiment, experiment.trials("measure"), load_catalog(), cloud="aws")


def making(client: Faulty, tmp_path: Path) -> guard.Making:
    ec2 = Ec2(client, "123456789012", REGION, clock=StandingClock())
    site = AwsSite(ec2)
    wanted = layout(tmp_path)
    record = Record(
        cloud="aws",
        run="e-measure-1",
        run_folder=str(tmp_path),
        group="disklab-e-measure-1",
        subscription=ec2.account,
        endpoint="",
        region=REGION,
        owner="someone",
        until=START + timedelta(hours=1),
        usd_per_hour=1,
        idle_usd_per_hour=0.5,
    )
    notebook = Notebook.of(record.run)
    return guard.Making(site, site.fit(wanted), record, notebook, "203.0.113.7", ec2.clock)


def there(client: Faulty) -> dict[str, list[dict[str, Any]]]:
    """Return what is in the account, but for what every account begins with."""
    real = client.client
    instances = [
        one
        for part in real.describe_instances()["Reservations"]
        for one in part["Instances"]
        if one["State"]["Name"] != "terminated"
    ]
    vpcs = [one for one in real.describe_vpcs()["Vpcs"] if not one["IsDefault"]]
    own = [one["VpcId"] for one in vpcs]
    groups = real.describe_security_groups()["SecurityGroups"]
    return {
        "instances": instances,
        "vpcs": vpcs,
        "volumes": real.describe_volumes()["Volumes"],
        "keys": real.describe_key_pairs()["KeyPairs"],
        "subnets": [one for one in real.describe_subnets()["Subnets"] if one["VpcId"] in own],
        "gateways": real.describe_internet_gateways()["InternetGateways"],
        "groups": [one for one in groups if one["GroupName"] == "disklab"],
    }


def forget_terminated() -> None:
    """Forget instances that have ended, as EC2 does after an hour; moto tells of them for ever."""
    from moto.ec2.models import ec2_backends  # noqa: PLC0415

    ec2_backends["123456789012"][REGION].reservations.clear()


def nothing(client: Faulty) -> None:
    assert {kind: len(found) for kind, found in there(client).items() if found} == {}


def test_hosts_are_made_with_tags_and_an_end_and_are_removed(
    client: Faulty, tmp_path: Path
) -> None:
    made = making(client, tmp_path)
    assert made.fit.problems == ()
    with guard.held(made, print) as held:
        (record,) = [one for _, one in records() if one is not None]
        assert record.group == "disklab-e-measure-1"
        found = there(client)
        assert {kind: len(one) for kind, one in found.items()} == {
            "instances": 1, "vpcs": 1, "volumes": 3, "keys": 1, "subnets": 1, "gateways": 1,
            "groups": 1,
        }  # fmt: skip
        for kind, all_of in found.items():
            for one in all_of:
                tags = {tag["Key"] for tag in one["Tags"]}
                assert tags >= {RUN, OWNER, UNTIL, GROUP}, kind
        assert list(held.addresses.values()) == [found["instances"][0]["PublicIpAddress"]]
        (asked,) = [sent for name, sent in client.calls if name == "run_instances"]
        assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
        assert asked["ClientToken"].endswith("e-measure-1-n1")
        config = json.loads(asked["UserData"].partition("\n")[2])
        assert config["power_state"]["delay"] == "+60"
        assert config["ssh_keys"]["ed25519_private"].startswith("-----BEGIN OPENSSH PRIVATE KEY")
        script = config["write_files"][0]["content"]
        assert "by_name sdf" in script
        assert "by_name sdg" in script
        assert "local_nvme 0" in script
        root, gp3, io2 = (one["Ebs"] for one in asked["BlockDeviceMappings"])
        assert all(one["DeleteOnTermination"] for one in (root, gp3, io2))
        assert (gp3["VolumeType"], gp3["VolumeSize"], gp3["Iops"]) == ("gp3", 100, 6000)
        assert (io2["VolumeType"], io2["VolumeSize"], io2["Iops"]) == ("io2", 100, 4000)
        rules = found["groups"][0]["IpPermissions"]
        assert [one["IpRanges"] for one in rules if one["IpProtocol"] == "tcp"] == [
            [{"CidrIp": "203.0.113.7/32"}]
        ]
    nothing(client)
    assert list(records()) == []


def refused(name: str, _real: Callable[[], Any]) -> Any:
    raise ClientError({"Error": {"Code": "RequestLimitExceeded", "Message": "slower"}}, name)


def final(name: str, _real: Callable[[], Any]) -> Any:
    raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, name)


def lost(_name: str, real: Callable[[], Any]) -> Any:
    real()
    raise ReadTimeoutError(endpoint_url="https://ec2")


def killed(_name: str, real: Callable[[], Any]) -> Any:
    real()
    raise KeyboardInterrupt


FAULTS = [refused, final, lost, killed]


@pytest.mark.parametrize("every", [len(FAULTS), pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_leaves_nothing_unrecorded(
    client: Faulty, tmp_path: Path, fault: Callable[[str, Callable[[], Any]], Any], every: int
) -> None:
    """Beside the other tests each call meets one of the faults; `make test-long` tries them all."""
    with guard.held(making(client, tmp_path), print):
        pass
    needed = len(client.calls)
    for at in range(FAULTS.index(fault) % every, needed, every):
        client.calls.clear()
        client.fault, client.at = fault, -1
        made = making(client, tmp_path)
        client.calls.clear()
        client.at = at
        told: list[str] = []
        try:
            with guard.held(made, told.append):
                kinds = {kind: len(found) for kind, found in there(client).items()}
                assert kinds["instances"] == kinds["vpcs"] == 1, (at, kinds)
        except (CloudError, KeyboardInterrupt):
            assert fault in {final, killed}, at
        assert len(client.calls) <= 2 * needed, at
        left = there(client)
        if any(left.values()):
            assert [one.group for _, one in records() if one is not None] == [made.record.group]
            for kind, all_of in left.items():
                for one in all_of:
                    assert RUN in {tag["Key"] for tag in one["Tags"]}, (at, kind)
        client.fault = None
        cleaned = guard.clean_left(
            partial(_always, made.site), START, everything=False, dry_run=False
        )
        assert all(fine for _, fine in cleaned), at
        nothing(client)
        forget_terminated()


def _always(site: CloudSite, _record: Record) -> CloudSite:
    return site


def test_what_is_not_recorded_is_found_by_its_tag_and_others_stay(
    client: Faulty, tmp_path: Path
) -> None:
    other = client.client.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    made = making(client, tmp_path)
    kept = replace(made, record=made.record.model_copy(update={"kept": True}))
    with guard.held(kept, print):
        pass
    kept.notebook.forget()
    assert made.site.ours("nobody") == []
    made.site.remove(made.record.group, "another-run")
    assert len(there(client)["instances"]) == 1
    lines = list(guard.clean_tagged(made.site, "someone", frozenset(), dry_run=False))
    assert lines == [(f"removed the group {made.record.group}, found by its tag", True)]
    assert [one["VpcId"] for one in there(client)["vpcs"]] == [other]


def test_what_does_not_fit_is_said_before_anything_is_made(client: Faulty, tmp_path: Path) -> None:
    site = AwsSite(Ec2(client, "1", REGION, clock=StandingClock()), lambda: 5.0)
    (problem,) = site.fit(layout(tmp_path)).problems
    assert "8 vCPUs wanted" in str(problem)
    hosts = layout(tmp_path).hosts
    strange = replace(hosts[0].vm, name="aws/m5.nonsense")
    (problem,) = site.fit(Layout((replace(hosts[0], vm=strange),), 1, {})).problems
    assert "m5.nonsense: is not offered" in str(problem).replace("'", "")
    nothing(client)


def test_a_login_of_another_account_is_refused(client: Faulty) -> None:
    assert connected(REGION).account == "123456789012"
    with pytest.raises(UserError, match="210987654321"):
        connected(REGION, account="210987654321")


def test_the_price_has_every_resource(tmp_path: Path) -> None:
    tariff = tariff_of(layout(tmp_path), load_catalog(), REGION)
    assert tariff.unknown == ()
    assert Counter(item.what for item in tariff.items) == Counter(
        [
            "aws/m5d.2xlarge",
            "aws/gp3(100GiB, 6000 IOPS)",
            "aws/io2(100GiB, 4000 IOPS)",
            "OS disk (aws/gp3(8GiB))",
            "public address",
        ]
    )


def test_the_command_plans_makes_removes_and_tells_the_bill(
    client: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No instance answers here, so that the run ends at its first boot: with removal and bill."""
    layout(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(first_boot, "PATIENCE_S", 0.1)
    monkeypatch.setattr(first_boot, "ASK_S", 1.0)
    words = ["measure", "e.yaml", "--cloud", "aws", "--max-usd", "5", "--quick"]
    words += ["--ssh-from", "203.0.113.7"]
    said = CliRunner().invoke(app, [*words, "--plan"])
    assert said.exit_code == 0, said.output
    assert "3 measurements in AWS, us-east-1" in said.output
    assert "the instances terminate themselves" in said.output
    nothing(client)
    monkeypatch.setattr("disklab.cloud.aws.ec2.connected", partial(_connected, client))
    said = CliRunner().invoke(app, words)
    assert isinstance(said.exception, CloudError), said.output
    assert "it is not ready" in str(said.exception)
    assert "bill: 1 x aws/m5d.2xlarge" in said.output
    assert "run_instances" in {name for name, _ in client.calls}
    nothing(client)
    (folder,) = (tmp_path / "disklab-runs").iterdir()
    told = (Run.open(folder).info.model_extra or {})["cloud"]
    assert (told["cloud"], told["region"], len(told["bill"])) == ("aws", REGION, 5)
    monkeypatch.setenv("AWS_REGION", REGION)
    said = CliRunner().invoke(app, ["clean", "--cloud"])
    assert said.exit_code == 0, said.output
    assert "removed" not in said.output


def _connected(client: Faulty, region: str, endpoint: str | None, account: str | None) -> Ec2:
    real = connected(region, endpoint, account)
    return replace(real, client=client)
