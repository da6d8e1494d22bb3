"""Jobs for Kubernetes: against the published schemas, and run by a kubectl that does them here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from disklab import spec
from disklab.cli import app, probe, probing
from disklab.cloud.kubernetes.manifest import KEPT_S, Claim, probes_of
from disklab.errors import UserError
from disklab.probe.cells import Plan
from disklab.probe.run import Request, plan_of

from tests.programs import ended

DISKLAB = Path(sys.executable).with_name("disklab")
EXPERIMENT = """
title: What does a block's size do?
device: {vm: aws/m5.2xlarge, volume: {disks: "aws/gp3(100GiB)", caching: None}}
workload: {fio: {profile: async, rw: randwrite, bs: 4k}, stop: {duration: 2s}}
factors:
  workload.fio.bs: [4k, 64k]
"""
LOADED = EXPERIMENT.replace("bs: 4k}", "bs: 4k, jobs: 8, depth: 32}")
IMAGE = ("--image", "registry.example/disklab:1")


def run(folder: Path, *words: str, **told: str) -> subprocess.CompletedProcess[str]:
    program = folder / "bin/kubectl"
    program.parent.mkdir(exist_ok=True)
    fake = Path(__file__).with_name("kubectl.py")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = f"{program.parent}:{DISKLAB.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "FAKE_CLUSTER": str(folder), **told}
    return ended([str(DISKLAB), *words], env=environment, cwd=folder)


def manifest(folder: Path) -> dict[str, Any]:
    (folder / "e.yaml").write_text(EXPERIMENT, encoding="utf-8")
    said = run(
        folder, "kubernetes", "manifest", "e.yaml", "--class", "gp3", "--size", "20Gi", *IMAGE
    )
    assert said.returncode == 0, said.stderr
    made: dict[str, Any] = json.loads(said.stdout)
    return made


@pytest.mark.parametrize("version", ["1.25", "1.31", "1.34"])
def test_a_job_is_what_kubernetes_takes(tmp_path: Path, version: str) -> None:
    job = manifest(tmp_path)
    kubernetes_validate.validate(job, version, strict=True)
    pod = job["spec"]["template"]["spec"]
    (volume,) = pod["volumes"]
    wanted = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert wanted["storageClassName"] == "gp3"
    assert wanted["resources"] == {"requests": {"storage": "20Gi"}}
    lines = pod["containers"][0]["command"][2].splitlines()
    assert [line.split("--bs ")[1].split()[0] for line in lines] == ["4k", "64k"]
    assert job["spec"]["ttlSecondsAfterFinished"] == KEPT_S
    job["spec"]["template"]["spec"]["volumes"][0]["ephemeral"]["claim"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, version, strict=True)


def test_the_pod_offers_the_load_of_the_experiment() -> None:
    experiment = spec.parse(LOADED, "e.yaml")
    probes, _ = probes_of(experiment)
    for words, trial in zip(probes, experiment.trials("measure"), strict=True):
        (planned,) = planned_by(words).cells
        fio = trial.spec.workload.fio
        assert (planned.load.jobs, planned.load.depth) == fio.load == (8, 32)
        assert (planned.direction.rw, planned.block_bytes) == (fio.rw, fio.block_bytes)


def planned_by(words: list[str]) -> Plan:
    """What `disklab probe` would measure if it were told so."""
    found: list[Request] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "probe_path", lambda _at, _out, _look: None)

        def noted(request: Request) -> Plan:
            found.append(request)
            return plan_of(request)

        patch.setattr(probe, "plan_of", noted)
        app(["probe", "/tmp", *words], standalone_mode=False)
    return plan_of(found[0])


def test_a_class_is_probed_and_nothing_is_left(tmp_path: Path) -> None:
    said = run(tmp_path, "probe", "--pvc", "gp3", "--quick", "--json", *IMAGE)
    assert said.returncode == 0, said.stderr
    results = [json.loads(line) for line in said.stdout.splitlines()]
    assert results
    assert all(one["ops_per_s"] > 0 for one in results)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert calls[-1].startswith("delete job -l disklab-run=disklab-")
    assert not (tmp_path / "job.json").exists()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"FAKE_REFUSES": "1"}, "no jobs for you"),
        ({"FAKE_WAITS": "ImagePullBackOff"}, "no such image"),
    ],
)
def test_what_fails_is_said_and_removed(tmp_path: Path, told: dict[str, str], why: str) -> None:
    said = run(tmp_path, "probe", "--pvc", "gp3", *IMAGE, **told)
    assert said.returncode != 0
    assert why in said.stderr
    assert not (tmp_path / "job.json").exists()


def test_a_probe_that_fails_in_its_pod_fails_here(tmp_path: Path) -> None:
    said = run(tmp_path, "probe", "--pvc", "gp3", *IMAGE, FAKE_NO_VOLUME="1")
    assert said.returncode != 0
    assert "failed in its pod" in said.stderr
    assert not (tmp_path / "job.json").exists()


def test_a_job_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    told = {"FAKE_KEEPS": "1", "FAKE_WAITS": "ErrImagePull"}
    said = run(tmp_path, "probe", "--pvc", "gp3", *IMAGE, **told)
    assert said.returncode != 0
    assert "kubectl delete job -l disklab-run=" in said.stderr.replace("\n", " ")


def test_without_kubectl_it_is_named(tmp_path: Path) -> None:
    words = [str(DISKLAB), "probe", "--pvc", "gp3", *IMAGE]
    environment = {**os.environ, "PATH": str(tmp_path)}
    said = ended(words, env=environment, code=2)
    assert "kubectl" in said.stderr


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(UserError) as caught:
        Claim("GP3!", "much", "no image").check()
    assert len(caught.value.problems) == 3
