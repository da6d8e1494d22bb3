"""One node of a kit: its folders, its processes, and the signs by which they are ready."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from disklab.databases.asking import Question
from disklab.databases.log import LogForm, NodeLog
from disklab.databases.place import ServerProcess
from disklab.databases.protocol import NodePlace
from disklab.engine import Account
from disklab.errors import MachineError, UserError
from disklab.hosts.left_databases import record_group
from disklab.kits.plan import Plan, Spot
from disklab.kits.schema import Probe, Process, Step, When
from disklab.kits.words import at_path, filled
from disklab.waiting import Wait

POLL_SECONDS = 0.2
ASK_SECONDS = 10.0
CONNECT_SECONDS = 1.0
MOST_LOG = 16 << 20
"""Bytes of a log that a sign is looked for in, since the start."""
LOG = LogForm(
    entry=re.compile(r"\S"),
    bad=re.compile(r".*(?i:\berror|fatal|fail|panic|exception|cannot|unable|no space)"),
    cause=re.compile(r"\s*(?:Caused by|at line)"),
    error=re.compile(r".*(?:\bERROR\b|\bFATAL\b|\[FTL\]|OutOfMemoryError|\bpanic:)"),
)
SIGNALS = {"TERM": signal.SIGTERM, "INT": signal.SIGINT, "QUIT": signal.SIGQUIT}


def folders_of(kit_name: str, volumes: Sequence[str], place: NodePlace) -> dict[str, Path]:
    """Return the server's own folder on each volume; one that is missing lies beside the data."""
    data = place.volumes["data"]
    found = {}
    for name in volumes:
        there = place.volumes.get(name)
        own = kit_name if name == "data" or there not in (None, data) else f"{kit_name}-{name}"
        found[name] = (there or data) / own
    return found


class KitNode:
    """A node on given volumes. What fails raises MachineError with the end of its log."""

    def __init__(
        self,
        place: NodePlace,
        spot: Spot,
        number: int,
        account: Account | None,
        scripts: Mapping[str, str],
    ) -> None:
        """Take where it is to be, and the programs that lie beside its kit.

        `number`: its place in the plan, from 0.
        """
        self._scripts = scripts
        self.place, self.spot, self.number = place, spot, number
        self.account = account
        self.is_made = False
        self._processes: list[tuple[Process, ServerProcess, NodeLog]] = []

    def configure(self, plan: Plan) -> None:
        """Take what its kit says, before it is started."""
        self.plan = plan
        if not self._processes:
            ports: tuple[int, ...] = tuple(plan.kit.ports.values())
            for position, process in enumerate(self._own_processes()):
                name = self.place.name if position == 0 else f"{self.place.name}-{process.name}"
                place = replace(self.place, name=name)
                log = NodeLog(place.log_dir, name, LOG)
                child = place.host.process(
                    plan.kit.title,
                    place,
                    ports if position == 0 else (),
                    LOG,
                    partial(_output, log),
                )
                self._processes.append((process, child, log))

    def _own_processes(self) -> Iterator[Process]:
        for process in self.plan.kit.processes:
            if process.nodes == "all" or self.number < int(process.nodes.removeprefix("first ")):
                yield process

    @property
    def values(self) -> Mapping[str, str | int | float]:
        """What templates mean here."""
        return self.plan.values(self.number)

    @property
    def folders(self) -> list[Path]:
        """The folders that are the server's alone."""
        return [Path(folder) for folder in dict.fromkeys(self.spot.volumes.values())]

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes on this machine."""
        return tuple(pid for _, child, _ in self._processes for pid in child.pids)

    def as_user(self, words: Sequence[str]) -> list[str]:
        """Return a command that gives up root first."""
        return [*words] if self.account is None else self.account.command([*words])

    def write_files(self) -> None:
        """Write its configuration, and the programs that lie beside the kit."""
        host = self.place.host
        folder = host.open_run_dir(self.place.run_dir)
        for file in self.plan.kit.files:
            host.write(folder, file.name, self.plan.text(self.number, file.name))
        for name, script in self._scripts.items():
            host.write(folder, name, script)

    def make(self) -> None:
        """Make its folders, empty, and format them."""
        host = self.place.host
        for folder in self.folders:
            host.remove(folder)
            host.own_folder(folder, self.account)
        self.write_files()
        for step in self.plan.kit.phases.format:
            self.do(step)
        self.is_made = True

    def has_data(self) -> bool:
        """Return whether its disks hold its folders."""
        return all(self.place.host.exists(folder) for folder in self.folders)

    def launch(self, position: int, limit_bytes: int) -> None:
        """Start one of its processes; returns at once. One that it does not have is none."""
        if position >= len(self._processes):
            return
        process, child, log = self._processes[position]
        if self.place.group is not None:
            self.place.group.set_limit(limit_bytes)
            record_group(self.place.run_dir, self.place.group)
        self.write_files()
        # Signs are looked for in what it writes from here on.
        self._processes[position] = (process, child, log.from_now())
        values = self.values
        command = [filled(word, values, f"processes.{process.name}") for word in process.run]
        child.launch(self.as_user(command), variables=self._variables(process.environment))

    def _variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        values = self.values
        return {name: filled(text, values, name) for name, text in environment.items()}

    def wait_until_ready(self, position: int) -> None:
        """Return when all signs of a process have come."""
        if position >= len(self._processes):
            return
        process, child, log = self._processes[position]
        what = f"{self.plan.kit.title} node {self.place.name} is ready"
        with Wait(what, process.within) as wait:
            for probe in process.ready:
                while not self.shows(probe, log):
                    child.check()
                    if wait.is_over:
                        raise child.failure(
                            f"was not ready within {process.within:g} s: {_named(probe)}"
                        )
                    wait.pause(POLL_SECONDS)
        child.check()

    def shows(self, probe: Probe, log: NodeLog | None = None) -> bool:
        """Return whether a sign is there now."""
        if not _is_meant(probe.when, len(self.plan.spots)):
            return True
        if probe.log is not None:
            assert log is not None, "signs of a log are those of a process"
            return _logged(log, probe.log)
        try:
            if probe.http is not None:
                answer = self.ask("GET", probe.http, str(probe.port), None)
            elif probe.command is not None:
                answer = self.run(probe.command, {})
            else:
                return self._listens(str(probe.port))
        except (MachineError, OSError):
            return False
        return _fits(answer, probe.path, probe.matches)

    def _listens(self, port: str) -> bool:
        address = (self.place.address, self.plan.kit.ports[port])
        with suppress(OSError), socket.create_connection(address, CONNECT_SECONDS):
            return True
        return False

    def ask(self, method: str, path: str, port: str, body: str | None) -> str:
        """Return what it answers over HTTP. Raises OSError: nobody answers, or not with 2xx."""
        values = self.values
        question = Question(
            host=self.place.address,
            port=self.plan.kit.ports[port],
            method=method,
            path=filled(path, values, "http"),
            headers={} if body is None else {"Content-Type": "application/json"},
            body=None if body is None else filled(body, values, "body"),
            seconds=ASK_SECONDS,
        )
        status, answer = self.place.host.ask(question)
        text = answer.decode(errors="replace")
        if not 200 <= status < 300:
            raise OSError(f"{method} {question.path} answered {status}: {text[:400]}")
        return text

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> str:
        """Run a command of the kit to its end as the server's user; return what it wrote."""
        values = self.values
        command = [filled(word, values, "run") for word in words]
        name = Path(command[0]).name
        return self.place.host.run(self.as_user(command), self._variables(environment), name)

    def do(self, step: Step) -> None:
        """Take a step of a phase; tried again as long as it says."""
        if not _is_meant(step.when, len(self.plan.spots)):
            return
        what = " ".join(step.run or (step.http or "",))[:120]
        with Wait(f"{self.place.name}: {what}", step.retry or ASK_SECONDS) as wait:
            while True:
                reason = self._failed(step)
                if reason is None or step.ignore:
                    return
                if step.retry is None or wait.is_over:
                    raise MachineError(f"{self.plan.kit.title} on {self.place.name}: {reason}")
                self.check()
                wait.pause(POLL_SECONDS)

    def _failed(self, step: Step) -> str | None:
        """Take a step once; return why it has failed."""
        try:
            if step.run is not None:
                answer = self.run(step.run, step.environment)
            else:
                method, _, path = str(step.http).partition(" ")
                answer = self.ask(method, path, str(step.port), step.body)
        except UserError:
            raise
        except (MachineError, OSError) as error:
            return str(error)
        if step.matches is not None and re.search(step.matches, answer) is None:
            return f"answered what does not match {step.matches}: {answer.strip()[-400:]}"
        return None

    def check(self) -> None:
        """Raise MachineError when one of its processes has ended by itself."""
        for _, child, _ in self._processes:
            child.check()

    def is_running(self) -> bool:
        """Return whether its processes run."""
        return any(child.is_running() for _, child, _ in self._processes)

    def stop(self) -> None:
        """End its processes in order, the last first."""
        for process, child, _ in reversed(self._processes):
            child.end(SIGNALS[process.stop.signal], process.stop.within)

    def kill(self) -> None:
        """End them at once."""
        for _, child, _ in self._processes:
            child.kill()

    def failure(self, what: str) -> MachineError:
        """Return an error that says what happened, with the end of its log."""
        return self._processes[0][1].failure(what)

    def sync(self) -> None:
        """Write everything back that is dirty on its volumes."""
        self.place.host.sync(self.place)

    def drop_page_cache(self) -> None:
        """Drop what the page cache holds of its files. It should not run."""
        self.sync()
        if self.place.group is not None:
            self.place.group.reclaim()
        self.place.host.drop_pages(self.folders)

    def cached_bytes(self) -> tuple[int, int]:
        """Return the size of its data, and how much of it the page cache holds."""
        return self.place.host.cached_bytes(self.folders)


def _output(log: NodeLog, _: bytes) -> Path:
    return log.output


def _is_meant(when: When | None, nodes: int) -> bool:
    return when is None or (when == "several nodes") == (nodes > 1)


def _named(probe: Probe) -> str:
    said = probe.log or probe.http or (probe.command and " ".join(probe.command)) or probe.port
    return f"no sign of {said}"


def _logged(log: NodeLog, pattern: str) -> bool:
    with suppress(OSError), log.output.open("rb") as file:
        file.seek(log.output_start)
        text = file.read(MOST_LOG).decode(errors="replace")
        return re.search(pattern, text, re.MULTILINE) is not None
    return False


def _fits(answer: str, path: str | None, matches: str | None) -> bool:
    """Return whether an answer has a value at a path, and something that matches."""
    if path is not None:
        try:
            values = list(at_path(json.loads(answer), path))
        except (ValueError, RecursionError):
            return False
        if not values or not all(values):
            return False
        return matches is None or all(re.search(matches, str(value)) for value in values)
    return matches is None or re.search(matches, answer) is not None
