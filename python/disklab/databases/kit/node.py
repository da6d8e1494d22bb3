"""One node of a kit: its folders, its processes, and the signs by which they are ready."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from disklab.databases.asking import Question
from disklab.databases.log import LogForm, NodeLog, tail
from disklab.databases.nodes import Node
from disklab.databases.place import ServerProcess
from disklab.databases.protocol import NodePlace
from disklab.databases.remote_host import BASH
from disklab.errors import MachineError
from disklab.kits.plan import Plan, filled
from disklab.kits.results import at_path, parsed
from disklab.kits.schema import Act, Counter, Process

ASK_SECONDS = 10.0
COMMAND_EVERY_S = 10.0
"""A counter that a command tells costs a program each time."""
MOST_LOG = 16 << 20
"""Bytes of a log that a sign is looked for in, since the start."""
LOG = LogForm(
    entry=re.compile(r"\S"),
    bad=re.compile(r".*(?i:\berror|fatal|fail|panic|exception|cannot|unable|no space)"),
    cause=re.compile(r"\s*(?:Caused by|at line)"),
    error=re.compile(r".*(?:\bERROR\b|\bFATAL\b|\[FTL\]|OutOfMemoryError|\bpanic:)"),
)
USERS = ("disklab",)
CONF = "conf"
"""The folder of configuration in a node's run folder; `open_run_dir` makes it."""
LISTENS = ': 3<>"/dev/tcp/$0/$1"'
"""Where it is run, an address and a port answer."""


class KitNode(Node):
    """A node on given volumes. What fails raises MachineError with the end of its log."""

    def __init__(self, place: NodePlace, scripts: Mapping[str, str], plan: Plan) -> None:
        """Take where it is to be, and the programs that lie beside its kit."""
        self.place, self.plan, self.account = place, plan, place.host.account(USERS)
        self.number = next(n for n, spot in enumerate(plan.spots) if spot.name == place.name)
        self.is_made = False
        self._scripts = scripts
        self._counts: dict[str, tuple[float, float | None]] = {}
        self.processes: list[tuple[Process, ServerProcess, NodeLog]] = []
        for process in plan.kit.processes:
            if process.nodes == "all" or self.number < int(process.nodes.removeprefix("first ")):
                self.processes.append(self._made(process))
        self.process = self.processes[0][1]

    def _made(self, process: Process) -> tuple[Process, ServerProcess, NodeLog]:
        kit, first = self.plan.kit, not self.processes
        name = self.place.name if first else f"{self.place.name}-{process.name}"
        log = NodeLog(self.place.log_dir, name, LOG)
        ports = tuple(kit.ports.values()) if first else ()
        place = replace(self.place, name=name)
        child = self.place.host.process(kit.title, place, ports, LOG, lambda _: log.output)
        return process, child, log

    @property
    def own(self) -> Sequence[Path]:
        """The folders that are the server's alone."""
        volumes = self.plan.spots[self.number].volumes
        return [Path(folder) for folder in dict.fromkeys(volumes.values())]

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes on this machine."""
        return tuple(pid for _, child, _ in self.processes for pid in child.pids)

    def filled(self, texts: Sequence[str]) -> list[str]:
        """Return what templates mean here."""
        values = self.plan.values(self.number)
        return [filled(text, values, self.place.name) for text in texts]

    def _as_user(self, words: Sequence[str]) -> list[str]:
        """Return a command that gives up root first."""
        own = self.filled(words)
        return own if self.account is None else self.account.command(own)

    def _write_files(self) -> None:
        host = self.place.host
        folder = host.open_run_dir(self.place.run_dir)
        own = {file.name: self.plan.text(self.number, file.name) for file in self.plan.kit.files}
        for name, text in {**own, **self._scripts}.items():
            host.write(folder, name, text)

    def make(self) -> None:
        """Make its folders, empty, and format them."""
        for folder in self.own:
            self.place.host.remove(folder)
            self.place.host.own_folder(folder, self.account)
        self._write_files()
        for act in self.plan.kit.phases.format:
            self.do(act)
        self.is_made = True

    def has_data(self) -> bool:
        """Return whether its disks hold its folders."""
        return all(self.place.host.exists(folder) for folder in self.own)

    def launch(self, position: int) -> None:
        """Start one of its processes; returns at once."""
        process, child, log = self.processes[position]
        self.record(self.plan.memory["node"])
        self._write_files()
        self.place.log_dir.mkdir(parents=True, exist_ok=True)
        for act in self.plan.kit.phases.start if position == 0 else ():
            self.do(act)
        # Signs are looked for in what it writes from here on.
        self.processes[position] = (process, child, log.from_now())
        texts = self.filled([*process.environment.values()])
        variables = dict(zip(process.environment, texts, strict=True))
        child.launch(self._as_user(process.run), variables=variables)

    def wait_until_ready(self, position: int) -> None:
        """Return when all signs of a process have come."""
        process, child, log = self.processes[position]
        self.wait_until(
            "is ready", partial(self.shows, process.ready, log), process.within, child.check
        )
        child.check()

    def do(self, act: Act) -> None:
        """Take a step of a phase; tried again as long as it says."""
        what = " ".join(act.run or (str(act.http),))[:120]
        if act.retry is not None:
            self.wait_until(f"has done {what}", partial(self.shows, [act]), act.retry)
        elif (reason := self._lacks(act)) is not None:
            raise self.failure(f"did not do {what}: {reason}")

    def shows(self, acts: Sequence[Act], log: NodeLog | None = None) -> bool | str:
        """Do them, or look for signs; return whether all is done and there, or why it is not."""
        reasons = (self._lacks(act, log) for act in acts)
        return next((reason for reason in reasons if reason is not None), True)

    def _lacks(self, act: Act, log: NodeLog | None = None) -> str | None:
        if act.log is not None:
            lines = [] if log is None else tail(log.output, log.output_start, MOST_LOG)
            shows = any(re.search(act.log, line) for line in lines)
            return None if shows else f"no line of its log matches {act.log}"
        try:
            answer = self._answer(act)
        except (MachineError, OSError) as error:
            return str(error)
        values = [answer] if act.path is None else [*at_path(parsed(answer), act.path)]
        if act.matches is not None:
            shown = [re.search(act.matches, str(value)) is not None for value in values]
        else:
            shown = [act.path is None or bool(value) for value in values]
        wanted = act.matches or act.path
        return None if shown and all(shown) else f"no {wanted} in its answer: {answer[-400:]}"

    def _answer(self, act: Act) -> str:
        """Return what is answered. Raises MachineError or OSError: nothing, or no good."""
        host, port = self.place.host, self.plan.kit.ports.get(act.port or "", 0)
        if act.http is None:
            words = act.run or (*BASH, LISTENS, self.place.address, str(port))
            return host.run(self._as_user(words), {}, Path(self.filled(words[:1])[0]).name)
        path, body = self.filled([act.http, act.body])
        method, path = ("GET", path) if path[0] == "/" else path.split(" ", 1)
        headers = {"Content-Type": "application/json"} if body else {}
        status, answer = host.ask(
            Question(
                host=self.place.address,
                port=port,
                method=method,
                path=path,
                headers=headers,
                body=body or None,
                seconds=ASK_SECONDS,
            )
        )
        text = answer.decode(errors="replace")
        if not 200 <= status < 300:
            raise OSError(f"{act.http} answered {status}: {text[:400]}")
        return text

    def counted(self, counter: Counter) -> float | None:
        """Return a counter, the last known one where it does not answer; None: it never has."""
        now, (asked_at, last) = time.monotonic(), self._counts.get(counter.name, (-math.inf, None))
        if counter.run is None or now - asked_at >= COMMAND_EVERY_S:
            with suppress(MachineError, OSError, ValueError):
                answer, numbers = self._answer(counter), []
                if counter.path is not None:
                    values = [*at_path(parsed(answer), counter.path)]
                    numbers = [float(value) for value in values if isinstance(value, int | float)]
                elif match := re.search(str(counter.matches), answer, re.MULTILINE):
                    numbers = [float(match[1])]
                last = sum(numbers) if numbers else last
            self._counts[counter.name] = (now, last)
        return last

    def check(self) -> None:
        """Raise MachineError when one of its processes, once started, has ended by itself."""
        for _, child, _ in self.processes:
            if child.pid is not None:
                child.check()

    def is_running(self) -> bool:
        """Return whether one of its processes runs."""
        return any(child.is_running() for _, child, _ in self.processes)

    def stop(self) -> None:
        """End its processes in order, the last first."""
        for process, child, _ in reversed(self.processes):
            child.end(signal.Signals[f"SIG{process.stop.signal}"], process.stop.within)

    def kill(self) -> None:
        """End them at once."""
        for _, child, _ in reversed(self.processes):
            child.kill()
