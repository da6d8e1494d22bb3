"""Runs fio on a machine, near or far, and reads what it measured there."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from disklab.errors import MachineError
from disklab.machines.protocol import Child, Command, Machine
from disklab.probe.fio import HUGE_PAGES, POLL_S, START_POLL_S, Ran, Tick, read_report
from disklab.probe.starts import StartWatch

MOST_OUTPUT_BYTES = 64 << 20
"""fio's report has some ten KiB; more is none."""


class FioOn:
    """A runner of fio on a machine, for `probe.fio.Job`."""

    def __init__(self, machine: Machine) -> None:
        """Take the machine; fio is found on its PATH."""
        self._machine = machine

    def __call__(self, command: Sequence[str], limit_s: float, tick: Tick, jobs: int) -> Ran:
        """Run fio to its end; on any exception it is ended before that is passed on."""
        started = time.monotonic()
        with self._machine.start(Command(command, variables=HUGE_PAGES)) as child:
            output = _Output(child)
            watch = StartWatch(child.pid, jobs, self._machine.files.read)
            while True:
                ended = child.wait(POLL_S if watch.over or jobs == 1 else START_POLL_S)
                if ended is not None:
                    break
                if jobs > 1 and not watch.over:
                    watch.look()
                elapsed_s = time.monotonic() - started
                if elapsed_s > limit_s:
                    raise MachineError(
                        f"{self._machine.name}: fio did not end within {limit_s:.0f} s: the disk "
                        "seems to be stalled"
                    )
                tick(elapsed_s)
            text = output.text()
        told = ended.stderr.decode(errors="replace")
        try:
            return Ran(read_report(command, ended.code, text, told), watch.spread_s)
        except MachineError as error:
            raise MachineError(f"{self._machine.name}: {error}") from None


class _Output:
    """The standard output of a program, read by a thread so that it never waits for us."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._lines: list[bytes] = []
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._read, name="fio's output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        size = 0
        try:
            for line in self._child.lines():
                size += len(line)
                if size > MOST_OUTPUT_BYTES:
                    raise MachineError(f"fio wrote more than {MOST_OUTPUT_BYTES >> 20} MiB")
                self._lines.append(line)
        except Exception as error:  # it is raised where the output is wanted
            self._failure = error

    def text(self) -> str:
        """Return what came until the end of the program."""
        self._thread.join(10.0)
        if self._failure is not None:
            raise self._failure
        return b"\n".join(self._lines).decode(errors="replace")
