"""The ublk devices of a host, as the kernel knows them: listed and removed by the engine."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from disklab.engine.control import refusal
from disklab.engine.messages import UblkDevice
from disklab.errors import EngineError
from disklab.machines import programs
from disklab.machines.binary import find_engine

# Removing waits five seconds at most for each device that somebody still has open.
SECONDS = 60.0


def ublk_devices(run_dir: Path, host: str) -> list[UblkDevice]:
    """Return the devices that carry the mark of this host, dead ones too, in order of number."""
    return _listed("ublk-devices", run_dir, host)


def remove_ublk(run_dir: Path, host: str) -> list[UblkDevice]:
    """Remove the dead devices of a host; return them.

    Raises UserError when the host lives, or when somebody holds a device: the device stays.
    """
    return _listed("remove-ublk", run_dir, host)


def _listed(command: str, run_dir: Path, host: str) -> list[UblkDevice]:
    arguments = [str(find_engine()), command, "--run-dir", str(run_dir), "--host", host]
    try:
        done = programs.run(arguments, SECONDS)
    except TimeoutError as error:
        raise EngineError(f"disklab-engine {command} does not end: {error}") from error
    lines = done.stdout.decode(errors="replace").splitlines()
    try:
        if done.code != 0:
            raise refusal(json.loads(lines[-1])["error"])
        return [UblkDevice.model_validate_json(line) for line in lines]
    except (ValidationError, ValueError, KeyError, IndexError) as error:
        said = (done.stdout + done.stderr).decode(errors="replace").strip() or "nothing"
        raise EngineError(f"disklab-engine {command} said: {said}") from error
