"""From an experiment file to a measured result and an empty subscription, through the command line.

The template goes to a fake resource manager over TLS, which makes emulated hosts; the user's own
ssh reaches them; fio measures emulated disks on them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disklab.hosts.namespaces import EmulatedHosts, HostWish
from disklab.hosts.places import Places
from disklab.results import Run

from tests.hosts.conftest import new_lab
from tests.programs import wait_until

from . import fake_arm
from .emulated_azure import EmulatedAzure, fake_login
from .fake_arm import SUBSCRIPTION, TOKEN, RealClock, Served, served

pytestmark = pytest.mark.machine

DISKLAB = Path(sys.executable).with_name("disklab")
EXPERIMENT = """
title: What does host caching do to writes?
device: {vm: azure/Standard_E8ds_v4, volume: {disks: azure/P4}}
workload: {fio: {profile: async, rw: randwrite, bs: 4k}, stop: {duration: 2s}}
factors:
  device.volume.caching: [None, ReadOnly]
"""
BURST_IOPS = 3500
"""Of a P4 with credits, which last for half an hour."""
MEASURE = ("measure", "e.yaml", "--cloud", "azure", "--ssh-from", "10.77.0.2", "--quick")


class Cloud:
    """A subscription, and a machine beside it on which `disklab` runs."""

    def __init__(self, folder: Path, hosts: EmulatedHosts, server: Served) -> None:
        self.folder, self.hosts, self.server, self.arm = folder, hosts, server, server.arm
        self.started: list[subprocess.Popen[str]] = []
        (folder / "e.yaml").write_text(EXPERIMENT, encoding="utf-8")
        path = fake_login(folder / "az", TOKEN)
        self.environment = {
            **os.environ,
            "PATH": f"{path}:{os.environ['PATH']}",
            "DISKLAB_ARM_ENDPOINT": self.arm.endpoint,
            "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
            "REQUESTS_CA_BUNDLE": str(server.ca),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            ["nsenter", f"--net=/proc/{self.hosts['conductor'].pid}/ns/net", str(DISKLAB), *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(made)
        return made

    def run(self, *words: str) -> tuple[int, str, str]:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=150)
        return process.returncode, out, err

    def nothing_is_left(self) -> None:
        with self.arm.lock:
            self.arm._pass_time()
        assert self.arm.groups == {}
        assert [one.name for one in (self.folder / "state/disklab/clouds").glob("*")] == ["owner"]
        assert self.arm.invalid == []


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    with cloud_of([HostWish("n1")], tmp_path, monkeypatch) as made:
        yield made


@contextmanager
def cloud_of(
    wishes: list[HostWish], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    """Yield a subscription in which these VMs can be made."""
    monkeypatch.setattr(fake_arm, "DEPLOY_S", 1.0)
    monkeypatch.setattr(fake_arm, "DELETE_S", 1.0)
    monkeypatch.setattr(fake_arm, "RETRY_AFTER_S", 1)
    all_wishes = [*wishes, HostWish("conductor")]
    with (
        new_lab() as lab,
        EmulatedHosts.start(Places(lab.run_dir, lab.data_dir), "azure", all_wishes) as hosts,
    ):

        def listen() -> socket.socket:
            with hosts["conductor"].inside_network():
                return socket.create_server(("127.0.0.1", 0))

        with served(RealClock(), tmp_path, listen) as server:
            azure = EmulatedAzure(hosts, lab)
            server.arm.on_made, server.arm.on_removed = azure.make, azure.remove
            made = Cloud(tmp_path, hosts, server)
            try:
                yield made
            finally:
                for process in made.started:
                    process.kill()
                    process.wait()
                for group in list(server.arm.groups.values()):
                    azure.remove(group)


@pytest.mark.alone
def test_a_file_is_measured_in_azure_and_nothing_is_left(cloud: Cloud) -> None:
    code, out, err = cloud.run(*MEASURE, "--max-usd", "3")
    assert code == 0, (out, err, cloud.arm.invalid)
    assert "bill: " in err
    cloud.nothing_is_left()
    assert cloud.server.arm.calls[-1].startswith("GET")
    (folder,) = (cloud.folder / "disklab-runs").iterdir()
    run = Run.open(folder)
    results = {one.factors["device.volume.caching"]: one for one in run.results()}
    for caching, most_off in (("None", 0.03), ("ReadOnly", 0.05)):
        result = results[caching]
        assert result.status == "ok", result.warnings
        extra = result.model_extra or {}
        assert extra["host"] == {"None": "n1/data", "ReadOnly": "n1/data-2"}[caching]
        off = result.ops_per_s / BURST_IOPS - 1
        sys.stdout.write(f"{caching}: {result.ops_per_s:.1f} of {BURST_IOPS} IOPS, {off:+.2%}\n")
        assert abs(off) <= most_off
    told = (run.info.model_extra or {})["cloud"]
    assert told["region"] == "eastus"
    assert [row[0] for row in told["bill"]] == [
        "1 x azure/Standard_E8ds_v4",
        "2 x azure/P4",
        "1 x OS disk (azure/E4)",
        "1 x public address",
    ]
    # What the run's folder has is given away with it.
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"PRIVATE KEY" not in path.read_bytes(), path


@pytest.mark.long
def test_fresh_hosts_take_repeats_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cloud_of([HostWish("n1"), HostWish("n2")], tmp_path, monkeypatch) as cloud:
        fresh = ("--fresh-hosts", "2", "--only", "device.volume.caching=None")
        code, _, err = cloud.run(*MEASURE, "--max-usd", "3", *fresh, "--repeat", "1")
        assert code == 2
        assert "each trial runs 1 times, each time on one of 2" in err
        code, out, err = cloud.run(*MEASURE, "--max-usd", "3", *fresh, "--repeat", "2")
        assert code == 0, (out, err, cloud.arm.invalid)
        cloud.nothing_is_left()
        (folder,) = (cloud.folder / "disklab-runs").iterdir()
        run = Run.open(folder)
        found = {(one.model_extra or {})["host"]: one for one in run.results()}
        assert sorted(found) == ["n1/data", "n2/data"]
        assert {one.repeat for one in found.values()} == {0, 1}
        assert "--fresh-hosts" in run.info.command
        bill = (run.info.model_extra or {})["cloud"]["bill"]
        assert bill[0][0] == "2 x azure/Standard_E8ds_v4"


def test_what_kill_9_leaves_is_removed_by_clean(cloud: Cloud) -> None:
    with cloud.start(*MEASURE, "--max-usd", "3") as process:
        wait_until(lambda: cloud.arm.groups, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len(cloud.arm.groups) == 1
    code, out, _ = cloud.run("clean", "--cloud", "--dry-run")
    assert code == 0
    assert out.startswith("would remove the group disklab-e-measure-")
    code, out, err = cloud.run("clean", "--cloud")
    assert code == 0, out + err
    assert out.startswith("removed the group disklab-e-measure-")
    cloud.nothing_is_left()
    code, out, _ = cloud.run("clean", "--cloud")
    assert (code, out) == (0, "nothing to remove\n")


@pytest.mark.long
def test_a_run_that_was_killed_while_it_measured_goes_on_in_new_hosts(cloud: Cloud) -> None:
    with cloud.start(*MEASURE, "--max-usd", "3") as process:
        deadline = time.monotonic() + 120
        stored = cloud.folder / "disklab-runs"
        while not any(path.stat().st_size for path in stored.glob("*/trials.jsonl")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len(cloud.arm.groups) == 1
    (folder,) = stored.iterdir()
    (first,) = Run.open(folder).results()
    again = ("measure", "--resume", folder.name, "--cloud", "azure", "--ssh-from", "10.77.0.2")
    code, out, err = cloud.run(*again, "--max-usd", "3")
    assert code == 0, (out, err, cloud.arm.invalid)
    cloud.nothing_is_left()
    results = Run.open(folder).results()
    assert [one.status for one in results] == ["ok", "ok"]
    # Trials run in an order of their own.
    kept = next(result for result in results if result.trial == first.trial)
    assert kept.started == first.started, "it was not measured again"
    code, _, err = cloud.run(*again, "--max-usd", "3")
    assert code == 2
    assert "every trial has its result" in err


@pytest.mark.long
def test_a_plan_makes_nothing_and_an_unbounded_run_is_asked_for(cloud: Cloud) -> None:
    code, out, err = cloud.run(*MEASURE, "--max-usd", "3", "--plan")
    assert code == 0, err
    assert "make    n1: azure/Standard_E8ds_v4 with azure/P4 as data, azure/P4 as data-2" in out
    assert "USD" in out
    code, _, err = cloud.run(*MEASURE)
    assert code == 2
    assert "--yes" in err
    code, _, err = cloud.run(*MEASURE, "--max-usd", "0.1")
    assert code == 2
    assert "is expected to cost" in err
    assert not any(call.startswith("PUT") for call in cloud.arm.calls)
    assert not (cloud.folder / "disklab-runs").exists()
