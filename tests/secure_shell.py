"""An SSH server in an emulated host, with keys of its own: hosts to measure over SSH without any.

The user's own ssh(1) reaches it by a configuration file made here, from outside of the network.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from disklab.errors import MachineError
from disklab.hosts.requirements import find_program
from disklab.machines.netns import NamespaceChild, NamespaceMachine
from disklab.machines.protocol import Command

from tests import relay

PORT = 22
READY_SECONDS = 20.0
POLL_SECONDS = 0.02
KEYS = PurePosixPath("/etc/disklab-ssh")
SETTINGS = f"""\
Port {PORT}
HostKey {KEYS}/host_key
AuthorizedKeysFile {KEYS}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
PrintMotd no
Subsystem sftp internal-sftp
"""


def serve_ssh(
    machine: NamespaceMachine,
    through: NamespaceMachine,
    folder: Path,
    variables: Mapping[str, str] | None = None,
) -> tuple[NamespaceChild, Path]:
    """Start an SSH server in a host; return it, and a file for `ssh -F FILE <host>`.

    Connections begin in the network of the host `through`. The keys and the file are in `folder`,
    one folder for all hosts of a set. `variables`: what every session finds in its environment;
    values without quotes. Raises MachineError when OpenSSH is not installed, or the
    server does not come up.
    """
    server = find_program("sshd")
    if server is None or find_program("ssh-keygen") is None:
        raise MachineError(
            "the programs sshd and ssh-keygen are not installed (package openssh-server)"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    user_key, host_key = folder / "user_key", folder / f"host_key.{machine.name}"
    for key in (user_key, host_key):
        if not key.exists():
            _make_key(key)
    machine.run(Command(["mkdir", "-p", "-m", "755", str(KEYS), "/run/sshd"]))
    files = machine.files
    sessions = "".join(f'SetEnv "{name}={value}"\n' for name, value in (variables or {}).items())
    files.write(KEYS / "host_key", host_key.read_bytes(), 0o600)
    files.write(KEYS / "authorized_keys", user_key.with_suffix(".pub").read_bytes(), 0o644)
    files.write(KEYS / "settings", (SETTINGS + sessions).encode(), 0o644)
    child = machine.start(Command([server, "-D", "-e", "-f", str(KEYS / "settings")]))
    try:
        _await_greeting(machine, through, child)
    except BaseException:
        child.end()
        raise
    return child, _write_configuration(machine, through, folder)


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "disklab", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)


def _await_greeting(
    machine: NamespaceMachine, through: NamespaceMachine, child: NamespaceChild
) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with suppress(MachineError), through.connect(machine.address, PORT, 1.0) as link:
            if link.recv(4) == b"SSH-":
                return
        ended = child.wait(POLL_SECONDS)
        if ended is not None or time.monotonic() > deadline:
            said = "" if ended is None else ended.stderr.decode(errors="replace").strip()
            raise MachineError(f"sshd on {machine.name} does not answer: {said}")


def _write_configuration(
    machine: NamespaceMachine, through: NamespaceMachine, folder: Path
) -> Path:
    """Add the host to the file of the set; host keys are checked from the first connection on."""
    known = folder / "known_hosts"
    key = (folder / f"host_key.{machine.name}.pub").read_text(encoding="ascii").split()
    with known.open("a", encoding="ascii") as file:
        file.write(f"{machine.address} {key[0]} {key[1]}\n")
    way = ["nsenter", f"--net=/proc/{through.pid}/ns/net"]
    way += [sys.executable, "-I", "-S", relay.__file__]
    configuration = folder / "ssh_config"
    with configuration.open("a", encoding="utf-8") as file:
        file.write(
            f"Host {machine.name}\n"
            f"  HostName {machine.address}\n  Port {PORT}\n  User root\n"
            f'  IdentityFile "{folder / "user_key"}"\n  IdentitiesOnly yes\n'
            f'  UserKnownHostsFile "{known}"\n  StrictHostKeyChecking yes\n'
            f"  ProxyCommand {shlex.join(way)} %h %p\n"
        )
    return configuration
