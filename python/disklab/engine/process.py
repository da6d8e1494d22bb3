"""The process of an emulated host: its start, the proof that it is ours, its end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from disklab.catalog.profile import HostProfile
from disklab.engine.binary import NAME, find_engine
from disklab.engine.control import refusal
from disklab.engine.messages import Ready
from disklab.errors import EngineError

# Calibration measures the machine for a few seconds; a busy machine takes its time over the rest.
READY_SECONDS = 60.0
END_SECONDS = 10.0
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class EngineProcess:
    """A process that was an emulated host of ours when it wrote its `pid` file."""

    pid: int
    start_time: int
    """Field 22 of /proc/PID/stat: a number that is used again has another one."""

    @classmethod
    def recorded(cls, file: Path) -> EngineProcess | None:
        """Return the process that a `pid` file names; None: there is none, or it says nothing."""
        try:
            pid, start_time = file.read_text(encoding="ascii").split()
            return cls(int(pid), int(start_time))
        except (OSError, ValueError):
            return None

    def is_ours(self) -> bool:
        """Return whether it runs, since the recorded time, and is an engine."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
            program = os.readlink(f"/proc/{self.pid}/exe")
        except OSError:
            return False
        fields = stat.rpartition(")")[2].split()
        # A reinstalled engine leaves " (deleted)" behind the name of the running one.
        name = Path(program.removesuffix(" (deleted)")).name
        return fields[0] != "Z" and int(fields[19]) == self.start_time and name == NAME

    def wait(self, seconds: float = END_SECONDS) -> bool:
        """Wait for its end; returns whether it has ended."""
        deadline = time.monotonic() + seconds
        while self.is_ours():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def end(self, sign: signal.Signals = signal.SIGKILL) -> bool:
        """Send a signal, if it is ours, and wait for its end. Returns whether it has ended."""
        return end_process(self.pid, self.is_ours, sign, END_SECONDS)


def end_process(
    pid: int, is_ours: Callable[[], bool], sign: signal.Signals, seconds: float
) -> bool:
    """Send a signal to a process that is ours and wait for its end; returns whether it has ended.

    A pidfd holds on to the process, so that no other one can get its number between the proof and
    the signal.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not is_ours():
            return True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, sign)
        ended, _, _ = select.select([handle], [], [], seconds)
        return bool(ended)
    finally:
        os.close(handle)


def start_host(  # noqa: PLR0913 - each is an option of the engine
    profile: HostProfile,
    name: str,
    run_dir: Path,
    data_dir: Path,
    *,
    calibrate: bool = True,
    measure_anew: bool = False,
    transport: str = "auto",
) -> tuple[Ready, list[str]]:
    """Start an emulated host of its own session; return its first event and its warnings.

    Raises UserError when the machine refuses, EngineError when the engine dies or says nothing.
    Then nothing is left.
    """
    directory = run_dir / "hosts" / name
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [str(find_engine()), "emulate", "--host", name]
    command += ["--run-dir", str(run_dir), "--data-dir", str(data_dir)]
    command += ["--transport", transport]
    command += [] if calibrate else ["--no-calibrate"]
    command += ["--measure-anew"] if measure_anew else []
    log_path = directory / "log"
    # Lines are read from the log: a pipe would break when this process ends before the host.
    with log_path.open("wb") as log, log_path.open("rb") as events:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
        try:
            assert child.stdin is not None
            with suppress(BrokenPipeError), child.stdin as stdin:
                stdin.write(profile.model_dump_json().encode())
            return _first_event(child, events, log_path)
        except BaseException:
            child.kill()
            child.wait()
            raise


def _first_event(
    child: subprocess.Popen[bytes], events: IO[bytes], log: Path
) -> tuple[Ready, list[str]]:
    warnings: list[str] = []
    deadline = time.monotonic() + READY_SECONDS
    pending = b""
    while True:
        ended = child.poll() is not None
        pending += events.read()
        *lines, pending = pending.split(b"\n")
        for line in lines:
            event = _event(line)
            if event.get("event") == "warning":
                warnings.append(str(event.get("text")))
            elif event.get("event") == "failed":
                child.wait()
                raise refusal(event.get("error"))
            elif event.get("event") == "ready":
                try:
                    return Ready.model_validate(event), warnings
                except ValidationError as error:
                    raise EngineError(
                        f"{log}: the engine is of another release: {error}"
                    ) from error
        if ended:
            said = (b" ".join(lines) + pending).decode(errors="replace").strip() or "nothing"
            raise EngineError(f"the engine ended with code {child.returncode}; it said: {said}")
        if time.monotonic() > deadline:
            raise EngineError(f"the engine was not ready within {READY_SECONDS:.0f} s; see {log}")
        time.sleep(POLL_SECONDS)


def _event(line: bytes) -> dict[str, object]:
    """Return a line as an event; what is none (standard error goes to the same log) is empty."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
