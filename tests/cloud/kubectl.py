"""A kubectl for tests: holds Jobs against the published schemas, and does them in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    home = Path(os.environ["FAKE_CLUSTER"])
    with (home / "calls").open("a", encoding="utf-8") as calls:
        calls.write(" ".join(words) + "\n")
    there = home / "job.json"
    if words[0] == "create":
        # Half a second of imports, which the many looks at a job do without.
        import kubernetes_validate  # noqa: PLC0415

        job = json.loads(sys.stdin.read())
        kubernetes_validate.validate(job, "1.31", strict=True)
        if os.environ.get("FAKE_REFUSES"):
            sys.stderr.write("Error from server (Forbidden): no jobs for you\n")
            return 1
        there.write_text(json.dumps(job), encoding="utf-8")
        return 0
    if words[0] == "delete":
        there.unlink(missing_ok=True)
        return int(bool(os.environ.get("FAKE_KEEPS")))
    job = json.loads(there.read_text(encoding="utf-8"))
    if words[:2] == ["get", "pods"]:
        status: dict[str, object] = {"phase": "Running"}
        if why := os.environ.get("FAKE_WAITS"):
            state = {"waiting": {"reason": why, "message": "no such image"}}
            status = {"phase": "Pending", "containerStatuses": [{"state": state}]}
        sys.stdout.write(json.dumps({"items": [{"status": status}]}))
        return 0
    if words[0] == "logs":
        (container,) = job["spec"]["template"]["spec"]["containers"]
        command = [word.replace("/data", str(home / "data")) for word in container["command"]]
        if not os.environ.get("FAKE_NO_VOLUME"):
            (home / "data").mkdir(exist_ok=True)
        job["status"] = {"succeeded": 1} if subprocess.call(command) == 0 else {"failed": 1}
        there.write_text(json.dumps(job), encoding="utf-8")
        return 0
    sys.stdout.write(json.dumps(job))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
