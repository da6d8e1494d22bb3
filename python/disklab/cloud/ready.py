"""Waiting until new hosts can be measured on: SSH answers, and the first boot says so."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from disklab.cloud.first_boot import FAILED, READY
from disklab.cloud.protocol import Clock, CloudError
from disklab.machines.openssh import Destination
from disklab.terminal import plain

PATIENCE_S = 900.0
"""From the end of the deployment. Assumed: packages are there after 3 min."""
LOOK_S = 5.0
ASK_S = 60.0
_FAILED_CODE, _NOT_YET = 3, 4
_SCRIPT = (
    f"if [ -e {FAILED} ]; then head -c 2000 {FAILED}; exit {_FAILED_CODE}; fi; "
    f"cat {READY} 2>/dev/null || exit {_NOT_YET}"
)


def wait_until_ready(
    names: Sequence[str],
    ssh_config: Path,
    run: str,
    clock: Clock,
    told: Callable[[str], None],
) -> None:
    """Return when every host is ready. Raises CloudError for one that fails, or is not in time."""
    until = clock.now() + timedelta(seconds=PATIENCE_S)
    waiting = list(names)
    said = ""
    while waiting:
        name = waiting[0]
        found = _look(name, ssh_config)
        if found.returncode == 0 and found.stdout.decode(errors="replace").strip() == run:
            told(f"{name} is ready")
            waiting.pop(0)
            continue
        if found.returncode == _FAILED_CODE:
            reason = plain(found.stdout.decode(errors="replace").strip())
            raise CloudError(f"{name}: its first boot failed: {reason}")
        said = plain(found.stderr.decode(errors="replace").strip().rpartition("\n")[2])
        if "host key" in said.lower():
            # Its key was made here and given to it: whoever answers is not that host.
            raise CloudError(f"{name}: {said}: it is not the host that was made")
        if clock.now() >= until:
            raise CloudError(
                f"{name}: it is not ready {PATIENCE_S / 60:.0f} min after it was made ({said}); "
                f"look with --keep-until and ssh -F {ssh_config} {name}"
            )
        clock.sleep(LOOK_S)


def _look(name: str, ssh_config: Path) -> subprocess.CompletedProcess[bytes]:
    command = Destination(name, ssh_config).command(_SCRIPT)
    try:
        return subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=ASK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 255, b"", b"no answer within a minute")
