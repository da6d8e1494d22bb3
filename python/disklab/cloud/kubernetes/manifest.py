"""The Job that probes a volume of a storage class. A pure function; nothing is secret in it.

Its volume is an ephemeral one of the pod, so that the claim goes with the pod, whoever removes
that: disklab, the user, or Kubernetes itself when the Job's time is over.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from disklab.cloud.protocol import CloudError
from disklab.errors import Problem, UserError, refuse
from disklab.interrupts import uninterrupted
from disklab.machines import programs
from disklab.probe.run import Request
from disklab.spec import Experiment
from disklab.waiting import Wait

LABEL = "disklab-run"
DIRECTORY = "/data"
USER_ID = 1000
"""That of the user `disklab` in the project's own image (Containerfile)."""
KEPT_S = 3600
"""So long a Job that has ended stays for its log to be read; then Kubernetes removes all of it."""
SLACK_S = 1800
"""For the volume, the image and the file that is laid out before it is read."""
# A label, of which names of objects are made, has at most 63 characters (RFC 1123).
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?")
_IMAGE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/:@]{0,511}")


@dataclass(frozen=True)
class Claim:
    """What is asked of the cluster."""

    storage_class: str
    size: str
    """As Kubernetes writes it, such as 100Gi."""
    image: str
    """With disklab and fio in it."""

    def check(self) -> None:
        """Raise UserError with all that is wrong."""
        wrong = []
        if not _NAME.fullmatch(self.storage_class):
            rule = "a storage class has small letters, digits, hyphens and dots"
            wrong.append(
                Problem("storage class", self.storage_class, rule, "see `kubectl get storageclass`")
            )
        if not _QUANTITY.fullmatch(self.size):
            rule = "a claim has a whole number of bytes with a unit"
            wrong.append(Problem("volume size", self.size, rule, "write for example 100Gi"))
        if not _IMAGE.fullmatch(self.image):
            rule = "is not the name of an image"
            wrong.append(Problem("--image", self.image, rule, "write REGISTRY/NAME:TAG"))
        refuse(wrong)


def job(name: str, claim: Claim, probes: Sequence[Sequence[str]], seconds: float) -> dict[str, Any]:
    """Return the Job that runs some probes one after the other.

    `probes`: the words behind `disklab probe DIRECTORY`. `seconds`: how long they measure.
    """
    lines = [shlex.join(["disklab", "probe", DIRECTORY, *words]) for words in probes]
    labels = {"app.kubernetes.io/name": "disklab", LABEL: name}
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": claim.storage_class,
        "resources": {"requests": {"storage": claim.size}},
    }
    template = {"metadata": {"labels": labels}, "spec": wanted}
    container = {
        "name": "probe",
        "image": claim.image,
        "command": ["sh", "-ec", "\n".join(lines)],
        "volumeMounts": [{"name": "data", "mountPath": DIRECTORY}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        # A probe that failed would find another volume.
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": template}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(seconds) + SLACK_S,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def probes_of(experiment: Experiment) -> tuple[list[list[str]], float]:
    """Return what fio does in the trials of an experiment, once each, and how many seconds.

    The disk is that of the storage class, whatever the file says. Raises UserError for a database.
    """
    place = str(experiment.path)
    if experiment.kind != "device":
        rule = "a claim is probed with fio; no database is built on it"
        raise UserError(
            Problem(place, f"kind {experiment.kind}", rule, "name an experiment of a device")
        )
    found: dict[tuple[str, ...], float] = {}
    for trial in experiment.trials("measure"):
        fio, stop = trial.spec.workload.fio, trial.spec.workload.stop
        seconds = None if stop is None else stop.duration_s
        if fio is None or seconds is None:
            rule = "has no fio with a duration"
            raise UserError(
                Problem(place, "workload", rule, "write workload: {fio: ..., stop: ...}")
            )
        size = fio.block_bytes
        block = str(size) if size % 1024 else f"{size // 1024}k"
        asked = Request(
            fio.profile,
            fio.rw,
            fio.rwmixread,
            block,
            f"{seconds:g}s",
            jobs=fio.jobs,
            depth=fio.depth,
        )
        found[(*asked.words, "--json")] = seconds
    return [list(words) for words in found], sum(found.values())


# A Job through the user's own kubectl: made, followed, removed.

START_S = 600.0
"""A volume is there within a minute or two, an image within some; assumed."""
LOOK_S = 2.0
ASK_S = 60.0
HOPELESS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"}
"""Reasons for waiting that pass only when the user does something."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl with its current context."""

    namespace: str | None = None

    def check(self) -> None:
        """Raise UserError if kubectl is not installed."""
        if shutil.which("kubectl") is None:
            rule = "is not on PATH, and disklab reaches clusters through it only"
            way_out = "install it, or run the Job of `disklab kubernetes manifest` elsewhere"
            raise UserError(Problem("kubectl", "(not found)", rule, way_out))

    def run(self, job: dict[str, Any], told: Callable[[str], None]) -> None:
        """Run a Job, its log to standard output; remove it at the end, whatever that is.

        Raises CloudError when it fails.
        """
        self.check()
        name = job["metadata"]["name"]
        try:
            self._ask("create", "-f", "-", stdin=json.dumps(job))
            told(f"made the job {name}; waiting for its volume and its pod")
            self._wait(name)
            words = self._words("logs", "-f", f"job/{name}")
            logs = programs.run(words, inherits=True, shown=True)
            self._judge(name, logs.code)
        finally:
            with uninterrupted():
                self._remove(name, told)

    def _wait(self, name: str) -> None:
        with Wait(f"the pod of {name} has started", START_S, "no pod") as wait:
            while not wait.is_over:
                pods = json.loads(self._ask("get", "pods", "-l", f"{LABEL}={name}", "-o", "json"))
                for pod in pods["items"]:
                    status = pod.get("status", {})
                    if status.get("phase") in {"Running", "Succeeded", "Failed"}:
                        return
                    wait.what = _reason(status) or wait.what
                    if wait.what.partition(":")[0] in HOPELESS:
                        raise CloudError(f"{name}: its pod does not start: {wait.what}")
                wait.pause(LOOK_S)
        raise CloudError(
            f"{name}: its pod has not started after {START_S / 60:.0f} min: {wait.what}; "
            "look at `kubectl get events`"
        )

    def _judge(self, name: str, followed: int) -> None:
        """Raise CloudError unless the Job is done and its log was read to the end."""
        with Wait(f"the job {name} has ended", ASK_S) as wait:
            while not wait.is_over:
                status = json.loads(self._ask("get", "job", name, "-o", "json")).get("status", {})
                if status.get("failed"):
                    raise CloudError(f"{name}: the probe failed in its pod; its log is above")
                if status.get("succeeded"):
                    if followed:
                        raise CloudError(f"{name}: its log broke off; results may be missing")
                    return
                wait.pause(LOOK_S)
        raise CloudError(f"{name}: its log ended, but the job did not: results may be missing")

    def _remove(self, name: str, told: Callable[[str], None]) -> None:
        words = ("delete", "job", "-l", f"{LABEL}={name}", "--ignore-not-found")
        try:
            self._ask(*words)
        except CloudError as error:
            told(f"the job {name} may still be there: {error}; run: kubectl {' '.join(words)}")

    def _words(self, *words: str) -> list[str]:
        return ["kubectl", *(["-n", self.namespace] if self.namespace else []), *words]

    def _ask(self, *words: str, stdin: str = "") -> str:
        try:
            done = programs.run(self._words(*words), ASK_S, stdin=stdin.encode(), inherits=True)
        except TimeoutError:
            raise CloudError(f"kubectl {words[0]}: no answer within {ASK_S:.0f} s") from None
        if done.code != 0:
            reason = done.said.rpartition("\n")[2]
            raise CloudError(f"kubectl {words[0]}: {reason or 'no reason was given'}")
        return done.stdout.decode(errors="replace")


def _reason(status: dict[str, Any]) -> str:
    for one in status.get("containerStatuses", []):
        waiting = one.get("state", {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason')}: {waiting.get('message', '')}"
    for one in status.get("conditions", []):
        if one.get("status") == "False" and one.get("message"):
            return f"{one.get('reason')}: {one['message']}"
    return ""
