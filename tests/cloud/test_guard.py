"""The cost guard against a resource manager that fails at every call in every way."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.cloud import guard
from disklab.cloud.azure.arm import Arm, ArmError, NoAnswerError
from disklab.cloud.azure.site import AzureSite
from disklab.cloud.guard import Making, budget_of, held, tariff_of
from disklab.cloud.layout import Layout, layout_of
from disklab.cloud.protocol import OWNER, RUN, UNTIL, CloudError
from disklab.cloud.record import Notebook, Record, owner, records, state_folder
from disklab.errors import UserError

from .fake_arm import SUBSCRIPTION, FakeClock, Group, RealClock, Served, sender, served

CATALOG = load_catalog()
EXPERIMENT = """
title: How fast is this disk?
device: {vm: azure/Standard_E8ds_v4, volume: {disks: azure/P30}}
workload: {fio: {profile: sync, rw: randread, bs: 4k}, stop: {duration: 60s}}
factors:
  device.volume.disks: [azure/P30, 'azure/PremiumV2(256GiB, 5000 IOPS, 200 MB/s)']
"""
MEASURING_S = 600.0
MAX_USD = 3.0


def _allowed(kind: Any) -> contextlib.AbstractContextManager[Any]:
    return contextlib.suppress(kind) if kind else contextlib.nullcontext()


def layout() -> Layout:
    experiment = spec.parse(EXPERIMENT)
    return layout_of(experiment, experiment.trials("measure"), CATALOG)


class Lab:
    """A fake resource manager, a site before it, and a state folder."""

    def __init__(self, server: Served, clock: FakeClock | RealClock, folder: Path) -> None:
        self.server, self.arm, self.clock, self.folder = server, server.arm, clock, folder
        self.site = self.new_site()

    def new_site(self) -> AzureSite:
        arm = Arm(SUBSCRIPTION, sender(self.server), self.arm.endpoint, self.clock)
        return AzureSite(arm, "eastus")

    def making(self, run: str = "e-measure-1", **other: Any) -> Making:
        fit = self.site.fit(layout())
        assert fit.problems == ()
        tariff = tariff_of(fit.layout, CATALOG, "eastus")
        budget = budget_of(tariff, MEASURING_S, MAX_USD)
        record = Record(
            run=run,
            run_folder=str(self.folder / "runs" / run),
            group=f"disklab-{run}",
            subscription=SUBSCRIPTION,
            endpoint=self.arm.endpoint,
            region="eastus",
            owner=owner(),
            until=self.clock.now() + timedelta(seconds=budget.allowed_s),
            usd_per_hour=tariff.usd_per_hour,
            idle_usd_per_hour=tariff.idle_usd_per_hour,
            **other,
        )
        return Making(self.site, fit, record, Notebook.of(run), "198.51.100.7", self.clock)

    def run(self, told: list[str] | None = None, **other: Any) -> None:
        """Make hosts, spend the time that measuring takes, and remove them."""
        heard = [] if told is None else told
        with held(self.making(**other), heard.append) as there:
            spent = 0.0
            while spent < MEASURING_S and there.has_time_for(60.0):
                self.clock.sleep(60.0)
                spent += 60.0

    def groups_are_known(self) -> None:
        """No group without record, tags and time."""
        written = {record.group for _, record in records() if record is not None}
        for group in self.arm.groups.values():
            assert group.name in written
            assert {RUN, OWNER, UNTIL} <= set(group.tags)
            for resource in group.resources.values():
                assert {RUN, OWNER, UNTIL} <= set(resource["tags"])

    def cleaned(self) -> list[tuple[str, bool]]:
        """Clean until nothing is left; Azure goes on with what it was asked for."""
        return list(
            guard.clean_left(
                lambda record: self.site, self.clock.now(), everything=True, dry_run=False
            )
        )

    def nothing_is_left(self) -> None:
        self.arm._pass_time()
        assert self.arm.groups == {}
        assert [record for _, record in records()] == []
        # Nor keys: what is there says who we are.
        assert [path.name for path in state_folder().glob("*")] in [[], ["owner"]]

    def cost(self, group: Group) -> float:
        tariff = tariff_of(layout(), CATALOG, "eastus")
        return tariff.usd((group.gone - group.made).total_seconds())


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    clock = FakeClock()
    with served(clock, tmp_path) as server:
        yield Lab(server, clock, tmp_path)


def test_a_run_makes_one_group_and_removes_it(lab: Lab) -> None:
    told: list[str] = []
    with held(lab.making(), told.append) as there:
        assert there.addresses == {"n1": "20.0.0.1"}
        lab.groups_are_known()
        notebook = Notebook.of("e-measure-1")
        text = notebook.ssh_config.read_text()
        assert "HostName 20.0.0.1" in text
        assert "StrictHostKeyChecking yes" in text
        assert notebook.known_hosts.read_text().startswith("n1 ssh-ed25519 ")
        assert notebook.user_key.stat().st_mode & 0o077 == 0
        assert not list(notebook.folder.glob("host_key.n1"))
    assert told == []
    assert lab.arm.invalid == []
    lab.nothing_is_left()
    assert [call.split()[0] for call in lab.arm.calls if " GET" not in call].count("DELETE") == 1


def test_the_fake_acts_on_no_request_whose_client_died_within_it(lab: Lab) -> None:
    """A killed `disklab` leaves half a request; the fake is to be as deaf to it as Azure is."""
    host, _, port = lab.arm.endpoint.removeprefix("https://").partition(":")
    trusting = ssl.create_default_context(cafile=str(lab.server.ca))
    head = f"PUT /subscriptions/{SUBSCRIPTION} HTTP/1.1\r\nHost: {host}\r\n"
    with (
        socket.create_connection((host, int(port))) as plain,
        trusting.wrap_socket(plain, server_hostname=host) as client,
    ):
        client.sendall(f"{head}Content-Length: 100\r\n\r\n".encode())
        # Until the fake waits for the body.
        time.sleep(0.5)
    with (
        pytest.raises(urllib.error.HTTPError, match="401"),
        urllib.request.urlopen(f"{lab.arm.endpoint}/after", context=trusting, timeout=20),
    ):
        pass
    assert lab.arm.invalid == []
    assert lab.arm.calls == ["GET /after"]


REFUSALS = {"409", "QuotaExceeded", "SkuNotAvailable"}
"""What is not asked again: a run fails of it, and says so."""
FAULTS = ["429", "409", "lost", "QuotaExceeded"]
RARER = ["500", "deaf", "SkuNotAvailable"]
EACH = [
    *((number, len(FAULTS), fault) for number, fault in enumerate(FAULTS)),
    *(pytest.param(0, 1, fault, marks=pytest.mark.long) for fault in (*FAULTS, *RARER)),
]
"""First call that fails, which ones after it, and how: in CI each call fails in one way."""


@pytest.mark.parametrize(("first", "every", "fault"), EACH)
def test_whatever_fails_at_whichever_call_nothing_is_left(
    lab: Lab, first: int, every: int, fault: str
) -> None:
    lab.run()
    needed = len(lab.arm.calls)
    assert needed > 10
    for number in range(first, needed, every):
        lab.arm.calls.clear()
        lab.arm.removed.clear()
        lab.arm.faults = {number: fault}
        told: list[str] = []
        with _allowed(CloudError if fault in REFUSALS else ()):
            lab.run(told, run=f"e-measure-{number}")
        lab.groups_are_known()
        assert (told == []) == (lab.arm.groups == {}), (number, told)
        if lab.arm.groups:
            lab.clock.sleep(3600)
            assert all(fine for _, fine in lab.cleaned())
        lab.nothing_is_left()
        assert len(lab.arm.calls) <= 2 * needed, (number, fault)
        for group in lab.arm.removed:
            assert lab.cost(group) <= MAX_USD, (number, fault)
    assert lab.arm.invalid == []


def test_a_cloud_that_never_answers_again_keeps_the_record(lab: Lab) -> None:
    told: list[str] = []
    lab.arm.faults = dict.fromkeys(range(12, 200), "deaf")
    with held(lab.making(), told.append):
        pass
    assert len(told) == 1
    assert "`disklab clean --cloud`" in told[0]
    lab.groups_are_known()
    assert [record.group for _, record in records() if record] == ["disklab-e-measure-1"]
    assert [fine for _, fine in lab.cleaned()] == [False]
    lab.arm.faults = {}
    assert [fine for _, fine in lab.cleaned()] == [True]
    lab.nothing_is_left()


def test_a_refusal_says_what_and_what_to_do(lab: Lab) -> None:
    making = lab.making()
    for code in ("QuotaExceeded", "SkuNotAvailable", "ZonalAllocationFailed"):
        lab.arm.faults = dict.fromkeys(range(len(lab.arm.calls), 999), code)
        match = rf"PUT .*deployments/disklab: {code}: .*--region"
        with pytest.raises(ArmError, match=match), held(making, pytest.fail):
            pytest.fail("nothing was made")
        lab.nothing_is_left()


def test_ctrl_c_while_it_is_made_removes_it(lab: Lab) -> None:
    making = lab.making()
    before = lab.clock.sleep

    def interrupted(seconds: float) -> None:
        lab.clock.sleep = before  # type: ignore[method-assign]
        raise KeyboardInterrupt

    lab.clock.sleep = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), held(making, pytest.fail):
        pytest.fail("nothing was made")
    lab.nothing_is_left()
    assert len(lab.arm.removed) == 1


def test_a_kept_group_stays_until_its_time(lab: Lab) -> None:
    lab.run(kept=True)
    assert len(lab.arm.groups) == 1
    lines = list(
        guard.clean_left(lambda _: lab.site, lab.clock.now(), everything=False, dry_run=False)
    )
    assert [("kept until" in line, fine) for line, fine in lines] == [(True, True)]
    assert len(lab.arm.groups) == 1
    lab.clock.sleep(24 * 3600)
    lines = list(
        guard.clean_left(lambda _: lab.site, lab.clock.now(), everything=False, dry_run=False)
    )
    assert "removed the group disklab-e-measure-1" in lines[0][0]
    lab.nothing_is_left()


def test_a_group_of_somebody_else_is_left_alone(lab: Lab) -> None:
    making = lab.making()
    other = Group(making.record.group, "eastus", {RUN: "another"}, lab.clock.now())
    lab.arm.groups[other.name] = other
    told: list[str] = []
    with pytest.raises(CloudError, match="does not belong to this run"), held(making, told.append):
        pytest.fail("nothing was made")
    assert "is left alone" in told[0]
    assert other.gone is None
    assert other.tags == {RUN: "another"}
    ((line, fine),) = lab.cleaned()
    assert not fine
    assert "left alone" in line
    assert other.gone is None


def test_a_group_whose_record_was_lost_is_found_by_its_tag(lab: Lab) -> None:
    lab.run(kept=True)
    foreign = Group("theirs", "eastus", {RUN: "x", OWNER: "somebody"}, lab.clock.now())
    lab.arm.groups["theirs"] = foreign
    Notebook.of("e-measure-1").forget()
    lines = list(guard.clean_tagged(lab.site, owner(), frozenset(), dry_run=True))
    assert lines == [("would remove the group disklab-e-measure-1, found by its tag", True)]
    list(guard.clean_tagged(lab.site, owner(), frozenset(), dry_run=False))
    lab.arm._pass_time()
    assert list(lab.arm.groups) == ["theirs"]
    assert foreign.gone is None


class TestBefore:
    def test_too_little_money_is_told_with_the_price(self) -> None:
        tariff = tariff_of(layout(), CATALOG, "eastus")
        with pytest.raises(UserError, match=r"--max-usd: 0.1: the run is expected to cost \d"):
            budget_of(tariff, 3600, 0.1)

    @pytest.mark.parametrize("max_usd", [1.5, 2.0, 3.7, 10.0, 1000.0])
    def test_the_time_allowed_never_costs_more(self, max_usd: float) -> None:
        tariff = tariff_of(layout(), CATALOG, "eastus")
        budget = budget_of(tariff, 60, max_usd)
        assert budget.most_usd <= max_usd
        assert budget.expected_s <= budget.allowed_s
        assert budget.allowed_s % 60 == 0

    def test_quota_sizes_and_zones_are_looked_at(self, lab: Lab) -> None:
        lab.arm.core_limit = 7
        (problem,) = lab.site.fit(layout()).problems
        assert str(problem).startswith("quota: 8 wanted: 7 are left of the quota cores in eastus")
        lab.arm.core_limit = 500
        lab.arm.restricted = {"Standard_E8ds_v4"}
        (problem,) = lab.site.fit(layout()).problems
        assert "NotAvailableForSubscription" in problem.rule
        lab.arm.restricted = set()
        lab.arm.missing_sizes = {"Standard_E8ds_v4"}
        (problem,) = lab.site.fit(layout()).problems
        assert problem.rule == "there is no such size"
        lab.arm.missing_sizes = set()
        lab.arm.zones = []
        (problem,) = lab.site.fit(layout()).problems
        assert "1 zone" in problem.value
        assert lab.arm.groups == {}

    def test_tokens_go_to_the_endpoint_only(self, lab: Lab) -> None:
        lab.arm.endpoint, real = "https://elsewhere.example", lab.arm.endpoint
        making = lab.making()
        lab.site.arm.endpoint = real
        with pytest.raises(CloudError, match="points away from"), held(making, lambda _: None):
            pytest.fail("nothing was made")

    def test_no_token_over_plain_http(self, lab: Lab) -> None:
        lab.site.arm.endpoint = lab.arm.endpoint.replace("https", "http")
        with pytest.raises((NoAnswerError, CloudError)):
            lab.site.fit(layout())
        assert lab.arm.calls == []


KILLED = """
import os, sys
from pathlib import Path
from tests.cloud.test_guard import Lab, served
from tests.cloud.fake_arm import FakeClock, Served, sender
import disklab.cloud.azure.arm as arm
class Far:
    endpoint = sys.argv[1]
class FarServer:
    arm, ca = Far, Path(sys.argv[2])
class Clock(FakeClock):
    def sleep(self, seconds):
        super().sleep(seconds)
        print(f"slept {seconds}", flush=True)
        sys.stdin.readline()
lab = Lab(FarServer, Clock(), Path(sys.argv[2]).parent)
send, left, late = lab.site.arm.send, int(sys.argv[3]), sys.argv[4] == "after"
def counted(*call):
    global left
    left -= 1
    if left < 0 and not late:
        os._exit(9)
    answer = send(*call)
    if left < 0:
        os._exit(9)
    return answer
lab.site.arm.send = counted
lab.run()
"""


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_conductor_killed_at_any_call_leaves_what_clean_finds(lab: Lab, when: str) -> None:
    lab.run()
    needed = len(lab.arm.calls)
    for number in range(40):
        lab.arm.calls.clear()
        ended = _killed(lab, number, when)
        lab.groups_are_known()
        lab.clock.sleep(7200)
        assert all(fine for _, fine in lab.cleaned())
        lab.nothing_is_left()
        assert len(lab.arm.calls) <= 2 * needed, number
        if ended == 0:
            break
    assert number > 5, "it was killed at each of its calls, and went through at last"


def _killed(lab: Lab, number: int, when: str) -> int:
    command = [sys.executable, "-c", KILLED, lab.arm.endpoint, str(lab.server.ca)]
    environment = {**os.environ, "PYTHONPATH": f"{os.getcwd()}:{os.getcwd()}/python"}
    with subprocess.Popen(
        [*command, str(number), when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as child:
        for line in child.stdout:
            # Both clocks go together: when it sleeps, time passes here too.
            lab.clock.sleep(float(line.split()[1]))
            child.stdin.write("\n")
            child.stdin.flush()
        code = child.wait(60)
    assert code in {0, 9}
    return code


def test_the_fake_finds_a_body_that_azure_would_refuse(lab: Lab) -> None:
    making = lab.making()
    body: dict[str, Any] = {"location": "eastus"}
    lab.site.arm.put(
        f"/resourcegroups/{making.record.group}", "2021-04-01", body | {"tags": {"a": "b"}}, 60
    )
    wrong = {"properties": {"mode": "Incremental", "parameters": {}, "template": {
        "parameters": {}, "resources": [{"type": "Microsoft.Compute/disks", "name": "d",
                                         "properties": {"diskSizeGb": 5}}]}}}  # fmt: skip
    path = (
        f"/resourcegroups/{making.record.group}/providers/Microsoft.Resources/deployments/disklab"
    )
    with pytest.raises(ArmError, match=r"InvalidTemplateDeployment: .*diskSizeGb"):
        lab.site.arm.put(path, "2021-04-01", wrong, 60)
