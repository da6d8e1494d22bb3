"""Waiting until new hosts can be measured on: SSH answers, and the first boot says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from disklab.cloud.first_boot import FAILED, READY
from disklab.cloud.protocol import Clock, CloudError
from disklab.machines import programs
from disklab.machines.openssh import Destination
from disklab.machines.protocol import Finished
from disklab.terminal import plain
from disklab.waiting import Wait

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
    with Wait("the new hosts are ready", PATIENCE_S, clock=clock) as wait:
        for name in names:
            while missing := _missing(name, ssh_config, run):
                if wait.is_over:
                    raise CloudError(
                        f"{name}: it is not ready {PATIENCE_S / 60:.0f} min after it was made "
                        f"({missing}); look with --keep-until and ssh -F {ssh_config} {name}"
                    )
                wait.pause(LOOK_S, f"{name}: {missing}")
            told(f"{name} is ready")


def _missing(name: str, ssh_config: Path, run: str) -> str:
    """Return why a host is not ready yet; empty: it is. Raises CloudError: it never will be."""
    answer = _look(name, ssh_config)
    if answer.code == 0 and answer.stdout.decode(errors="replace").strip() == run:
        return ""
    if answer.code == _FAILED_CODE:
        reason = plain(answer.stdout.decode(errors="replace").strip())
        raise CloudError(f"{name}: its first boot failed: {reason}")
    last_line = plain(answer.said.rpartition("\n")[2])
    if "host key" in last_line.lower():
        # We made its key and gave it to the host, so another key means another host.
        raise CloudError(f"{name}: {last_line}: it is not the host that was made")
    return last_line or "its first boot goes on"


def _look(name: str, ssh_config: Path) -> Finished:
    command = Destination(name, ssh_config).command(_SCRIPT)
    try:
        return programs.run(command, ASK_S, inherits=True)
    except TimeoutError:
        return Finished(255, b"", b"no answer within a minute")
