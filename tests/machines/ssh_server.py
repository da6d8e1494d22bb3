"""A real sshd on 127.0.0.1 with keys and files of its own, and a user who trusts it."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disklab.machines.binary import find_engine
from disklab.machines.openssh import Destination
from disklab.machines.ssh import AgentFile, SshMachine, SshSettings

from tests.programs import wait_until

SOON_SECONDS = 30.0


@dataclass
class SshServer:
    """A server in a folder; `alias` is a Host of its client's configuration."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def config(self) -> Path:
        """The client's configuration."""
        return self.folder / "config"

    @property
    def destination(self) -> Destination:
        """This server, with an agent folder of its own."""
        return Destination("box", self.config, str(self.folder / "agents"))

    def machine(self, told: Callable[[str], None] | None = None, **settings: object) -> SshMachine:
        """Return the host behind it."""
        return SshMachine(
            self.destination,
            AgentFile(find_engine()),
            SshSettings(name="box", **settings),  # type: ignore[arg-type]
            told,
        )

    def connections(self) -> list[int]:
        """Return the processes that serve a connection: children of the server."""
        try:
            file = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            return [int(pid) for pid in file.read_text().split()]
        except OSError:
            return []

    def cut(self) -> None:
        """Kill the connections as they are."""
        for pid in self.connections():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the server with its connections."""
        self.cut()
        self.process.terminate()
        self.process.wait(SOON_SECONDS)


def start_server(folder: Path, *, known: bool = True, force: str | None = None) -> SshServer:
    """Start a server; `force` is a command in place of whatever is asked for."""
    folder.chmod(0o700)
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    # Where the system's own service has not run yet, nobody has made it.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = folder / "home"
    home.mkdir()
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nMaxStartups 100\n"
        f"SetEnv XDG_CACHE_HOME={home}/.cache\n" + (f"ForceCommand {force}\n" if force else "")
    )
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host_key}\n" if known else "")
    (folder / "config").write_text(
        f"Host box\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n"
        f" IdentityFile {folder}/user\n IdentitiesOnly yes\n IdentityAgent none\n"
        f" UserKnownHostsFile {folder}/known\n GlobalKnownHostsFile none\n"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(folder / "sshd_config")],
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    wait_until(lambda: _listens(port), process, most_s=SOON_SECONDS)
    return SshServer(folder, port, process)


def _listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
