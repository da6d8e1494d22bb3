"""A command without a disk of its own: its recorded I/Os on the simulated one.

For runners that allow no FUSE and no root. Counts are those of the command's own calls under the
rules of `recording`; times are the disk model's, one I/O after the other.
"""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from disklab.catalog import Catalog, HostRequest, Resolution, VolumeRequest, resolve
from disklab.command.counts import (
    KINDS,
    SIMULATED,
    CommandRun,
    Kind,
    Latency,
    LimitUse,
    Operations,
)
from disklab.command.recording import Recording, command_of, recording_of
from disklab.databases.simulating import replayed, with_credits
from disklab.engine.simulation import simulate
from disklab.errors import EngineError, Problem, UserError
from disklab.machines.foreground import Ended, run_command
from disklab.traces import MOST_IOS, placed


def simulated_run(
    command: list[str],
    catalog: Catalog,
    disk: tuple[VolumeRequest, str | None, Fraction],
    keep: Path | None,
) -> CommandRun:
    """Run a command in an empty folder of its own, and tell what the disk would have done for it.

    `disk`: the volume, the VM size, and the share of burst credits that it begins with.
    Raises UserError where the disk cannot be, or strace is missing.
    """
    volume, vm, credits_ratio = disk
    resolution = resolve(catalog, HostRequest(vm), volume)
    if shutil.which("strace") is None:
        rule = "is not installed: it records what the command asks of its files"
        raise UserError(Problem("--simulate", "strace", rule, "apt-get install strace"))
    with tempfile.TemporaryDirectory(prefix="disklab-run-") as made:
        folder, log = Path(made, "data"), Path(made, "log")
        folder.mkdir()
        ended = run_command(command_of(command, log), folder)
        if not log.exists():
            rule = "strace may trace nothing here"
            raise UserError(Problem("--simulate", command[0], rule, "allow ptrace (SYS_PTRACE)"))
        recording, cut = recording_of(log, folder)
        if keep is not None:
            shutil.copytree(folder, keep, symlinks=True)
    answer = _answer(recording, resolution, credits_ratio)
    warnings = [
        *resolution.warnings,
        "simulated: files are recorded by strace, and I/Os follow one another",
        *([f"only the first {MOST_IOS:,} I/Os are simulated"] if cut else []),
    ]
    return CommandRun(
        command=command,
        exit_code=ended.exit_code,
        wall_s=_wall_s(ended, recording, answer),
        disks=str(resolution.expression),
        vm=vm,
        caching=volume.caching,
        filesystem=SIMULATED,
        operations=_operations(recording, answer),
        limits=_limits(answer),
        late_ratio=0.0,
        warnings=warnings,
    )


def _answer(recording: Recording, resolution: Resolution, credits_ratio: Fraction) -> Any:
    """Return the simulator's answer; None: nothing reached the disk."""
    if not len(recording.trace):
        return None
    host = with_credits(resolution.host.model_dump(mode="json"), float(credits_ratio))
    trace = placed(recording.trace, resolution.volume.size_bytes).trace
    job = {
        "cell": 0,
        "seed": 1,
        "fidelity": "full",
        "ablate": [],
        "device": replayed(host, trace, 1, "cold"),
    }
    answer = next(simulate([job], workers=1))
    if answer["event"] != "cell":
        raise EngineError(f"the simulator refused the command's I/Os: {answer}")
    return answer


def _wall_s(ended: Ended, recording: Recording, answer: Any) -> float:
    """Return the command's time with the simulated disk's waits for those that it had here."""
    disk_s = 0.0 if answer is None else float(answer["elapsed_s"])
    return max(0.0, ended.wall_s - recording.waited_s) + disk_s


def _operations(recording: Recording, answer: Any) -> dict[Kind, Operations]:
    made = {kind: Operations(ios=0, bytes=0, failed=0) for kind in KINDS}
    made["flush"] = Operations(ios=recording.flushes, bytes=0, failed=0)
    trace = recording.trace
    sides: tuple[tuple[Kind, bool], ...] = (("read", False), ("write", True))
    for kind, writes in sides:
        lengths = [
            length
            for length, is_write in zip(trace.length_bytes, trace.is_write, strict=True)
            if bool(is_write) == writes
        ]
        if lengths:
            latency_ms = answer["per_operation"][kind]["latency_ms"]
            figures = {
                f"{name}_ms": latency_ms[name] for name in ("mean", "p50", "p95", "p99", "max")
            }
            latency = Latency.model_validate(figures)
            made[kind] = Operations(ios=len(lengths), bytes=sum(lengths), failed=0, latency=latency)
    return made


def _limits(answer: Any) -> list[LimitUse]:
    """Return the limits that I/Os waited for."""
    if answer is None:
        return []
    ios = sum(int(operation["operations"]) for operation in answer["per_operation"].values())
    return [
        LimitUse(
            name=f"{limit['place']} {limit['resource']}".strip(),
            delayed_s=limit["wait_ms_per_operation"] * ios / 1e3,
        )
        for limit in sorted(answer["resources"], key=lambda limit: -limit["wait_ms_per_operation"])
        if limit["wait_ms_per_operation"] > 0
    ]
