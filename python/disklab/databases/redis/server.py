"""One Redis server of ours on a given volume."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from contextlib import suppress

from disklab.databases.copies import CopyServer
from disklab.databases.log import LogForm, NodeLog
from disklab.databases.place import write
from disklab.databases.protocol import NodePlace, Request
from disklab.databases.redis.configuration import (
    LOG_FOLDER,
    PORT,
    PORTS,
    MemoryPlan,
    ServerFiles,
    as_text,
    server_settings,
)
from disklab.databases.redis.installation import CLIENT, Installation
from disklab.databases.sql import Sql
from disklab.errors import MachineError
from disklab.waiting import Wait

# 0.1 s on an idle machine; it reads its whole log, at the speed of the disk.
READY_SECONDS = 300.0
POLL_SECONDS = 0.1
_FAILURE = r".*?(?i:error|fail|fatal|can't|cannot|no space|out of memory|bad file|misconf)"
LOG = LogForm(
    # 30558:M 27 Nov 2026 16:28:51.854 # Server initialized
    entry=re.compile(r"\d+:[A-Z] \d\d \w{3} \d{4} "),
    # Redis marks greetings as warnings, too. What stops it at its start is marked by no time.
    bad=re.compile(r"(\d+:[A-Z] [\w :.]+ # (?!WARNING)|\*\*\* |>>> )" + _FAILURE),
    cause=re.compile(r">>> |at line "),
    error=re.compile(r"\d+:[A-Z] [\w :.]+ # (?!WARNING)" + _FAILURE),
)


class Cli(Sql):
    """Commands to one server, each by a redis-cli of its own, which would outlive its server."""

    def __init__(self, installation: Installation, address: str, password: str) -> None:
        words = [installation.client, "-e", "-h", address, "-p", str(PORT)]
        self._words = installation.as_user(words)
        self._host = installation.host
        self._secret = {"REDISCLI_AUTH": password}

    def ask(self, statement: str) -> list[list[str]]:
        """Return the lines of the answer to a command whose words have no blanks in them."""
        said = self._host.run([*self._words, *statement.split()], self._secret, CLIENT)
        return [[line] for line in said.splitlines()]

    def close(self) -> None:
        """Do nothing: no program runs."""


class Server(CopyServer):
    """A server that disklab makes, starts and stops."""

    first_file = LOG_FOLDER
    ending = signal.SIGTERM

    def __init__(
        self,
        request: Request,
        place: NodePlace,
        installation: Installation,
        plan: MemoryPlan,
        password: str,
    ) -> None:
        # It logs to its standard output.
        log = NodeLog(place.log_dir, place.name, LOG).output
        process = place.host.process("Redis", place, PORTS, LOG, lambda _: log)
        super().__init__(request, place, process, installation.account, password)
        self.files: ServerFiles = ServerFiles(place)
        self.installation = installation
        self._plan = plan

    def make(self) -> None:
        """Make an empty directory of its data."""
        self.place.host.own_folder(self.files.data, self.installation.account)
        self._made_here = True

    def launch(self) -> None:
        """Write the configuration and start; returns at once."""
        if self.place.group is not None:
            self.place.group.set_limit(self._plan.limit)
        self.record()
        self._end_forks()
        settings = server_settings(self.files, self._plan, self.request.settings)
        text = as_text(settings)
        # The configuration is part of what a run keeps.
        self.place.log_dir.mkdir(parents=True, exist_ok=True)
        write(self.place.log_dir, f"{self.place.name}-redis.conf", text)
        secret = as_text({"requirepass": self._password})
        configured = self.put_secret("redis.conf", text + secret)
        command = [self.installation.server, str(configured)]
        self.process.launch(self.installation.as_user(command))

    def _end_forks(self) -> None:
        """End what a killed server has left: a fork that rewrites the log goes on by itself."""
        left = self.place.host.end_remains(self.files.data, self.installation.server)
        if left:
            raise self.process.failure(
                f"cannot be started: its killed processes {left} still wait for their disk"
            )

    def kill(self) -> None:
        """End at once, with its forks."""
        super().kill()
        # The next start says which of them stay.
        with suppress(MachineError):
            self.place.host.end_remains(self.files.data, self.installation.server)

    def wait_until_ready(self) -> None:
        """Return when it has read its log and answers."""
        cli = Cli(self.installation, self.place.address, self._password)
        with Wait(f"{self.place.name} has read its log", READY_SECONDS) as wait:
            while not _answers(cli):
                self.process.check()
                if wait.is_over:
                    raise self.process.failure(f"was not ready within {READY_SECONDS:.0f} s")
                wait.pause(POLL_SECONDS)
        self.sql = cli

    def info(self) -> Mapping[str, str]:
        """Return what it says of itself. Raises MachineError when it has died."""
        rows = self.connection().ask("INFO everything")
        return {name: value for name, _, value in (row[0].partition(":") for row in rows)}


def _answers(cli: Cli) -> bool:
    try:
        return cli.ask("PING") == [["PONG"]]
    except MachineError:
        return False
