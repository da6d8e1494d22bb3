"""The Job that probes a volume of a storage class. A pure function; nothing is secret in it.

Its volume is an ephemeral one of the pod, so that the claim goes with the pod, whoever removes
that: disklab, the user, or Kubernetes itself when the Job's time is over.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disklab.errors import Problem, UserError
from disklab.probe.request import Request
from disklab.spec import Experiment

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
        if wrong:
            raise UserError(*wrong)


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
        rule = "a claim is probed with fio, and no database is built on it"
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
