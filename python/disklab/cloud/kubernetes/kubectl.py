"""A Job through the user's own kubectl: made, followed, removed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from disklab.cloud.kubernetes.manifest import LABEL
from disklab.cloud.protocol import CloudError
from disklab.errors import Problem, UserError
from disklab.interrupts import uninterrupted
from disklab.machines import programs
from disklab.waiting import Wait

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
        """Raise UserError where there is no kubectl."""
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
        raise CloudError(f"{name}: its log ended, and it did not: results may be missing")

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
