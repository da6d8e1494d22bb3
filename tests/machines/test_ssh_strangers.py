"""Hosts that are unknown, noisy, of another release, or that lie."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest
from disklab.errors import MachineError
from disklab.machines import link
from disklab.machines.binary import find_engine
from disklab.machines.openssh import Destination
from disklab.machines.protocol import Command
from disklab.machines.ssh import AgentFile, SshMachine, SshSettings

from tests.machines.ssh_server import SshServer, start_server

HERE = PurePosixPath("/here")


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    folder = tmp_path_factory.mktemp("liar")
    script = shutil.copy(Path(__file__).with_name("hostile.py"), folder)
    server = start_server(folder, force=f"{sys.executable} {script}")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    folder = tmp_path_factory.mktemp("noisy")
    shell = folder / "shell"
    shell.write_text(
        '#!/bin/sh\nprintf \'\\033[31mWelcome!\\n{"hello": "you"}\\n[1,\\n\'\nsleep 0.2\n'
        "echo trouble >&2\nprintf 'no end of line'\nexec sh -c \"$SSH_ORIGINAL_COMMAND\"\n"
    )
    shell.chmod(0o755)
    server = start_server(folder, force=str(shell))
    yield server
    server.stop()


def with_known(server: SshServer, folder: Path, known: str) -> Destination:
    """Return the same destination for a user who knows other keys."""
    (folder / "known").write_text(known)
    config = server.config.read_text()
    config = re.sub(r"UserKnownHostsFile \S+", f"UserKnownHostsFile {folder}/known", config)
    # Even a user who has turned checking off for himself.
    (folder / "config").write_text(config + " StrictHostKeyChecking no\n")
    return Destination("box", folder / "config", str(folder / "agents"))


def refusal(destination: Destination) -> str:
    with (
        SshMachine(destination, AgentFile(find_engine())) as machine,
        pytest.raises(MachineError) as refused,
    ):
        machine.run(Command(["true"]))
    return str(refused.value)


class TestKeys:
    def test_an_unknown_host_key_is_refused_with_what_to_do(
        self, noisy: SshServer, tmp_path: Path
    ) -> None:
        text = refusal(with_known(noisy, tmp_path, ""))
        assert "its host key is not known here" in text
        found = re.search(
            r"(ssh-keyscan -p \d+ 127\.0\.0\.1) > its-key;.*(cat its-key >> \S+)", text
        )
        assert found is not None, text
        # The advice is exact: it makes the host known.
        scanned = subprocess.run(found[1].split(), capture_output=True, check=True).stdout
        with SshMachine(
            with_known(noisy, tmp_path, scanned.decode()), AgentFile(find_engine())
        ) as machine:
            assert machine.run(Command(["echo", "in"])).stdout == b"in\n"

    def test_a_changed_host_key_is_refused(self, noisy: SshServer, tmp_path: Path) -> None:
        key = " ".join((noisy.folder / "user.pub").read_text().split()[:2])
        text = refusal(with_known(noisy, tmp_path, f"[127.0.0.1]:{noisy.port} {key}\n"))
        assert "another key than before" in text
        assert f"-R '[127.0.0.1]:{noisy.port}'" in text

    def test_a_user_without_a_key_is_told_how_to_get_in(
        self, noisy: SshServer, tmp_path: Path
    ) -> None:
        config = noisy.config.read_text().replace(f"{noisy.folder}/user", f"{tmp_path}/none")
        (tmp_path / "config").write_text(config)
        assert "ssh-add" in refusal(Destination("box", tmp_path / "config"))

    @pytest.mark.parametrize("text", ["-oProxyCommand=touch x", "a b", "a;b", "", "a\nb", "$(id)"])
    def test_a_destination_is_no_option_and_no_command(self, text: str) -> None:
        with pytest.raises(MachineError, match="not a destination of ssh"):
            Destination(text)


class TestGreeting:
    def test_what_a_login_shell_prints_is_skipped(self, noisy: SshServer) -> None:
        with noisy.machine() as machine:
            assert machine.run(Command(["echo", "in"])).stdout == b"in\n"

    def test_a_host_behind_a_jump_host_of_the_users_configuration(
        self, noisy: SshServer, tmp_path: Path
    ) -> None:
        plain = noisy.config.read_text()
        behind = plain.replace("Host box", "Host behind") + " ProxyJump box\n"
        (tmp_path / "config").write_text(f"{plain}\n{behind}")
        destination = Destination("behind", tmp_path / "config", str(tmp_path / "agents"))
        with SshMachine(destination, AgentFile(find_engine())) as machine:
            assert machine.run(Command(["echo", "in"])).stdout == b"in\n"
            assert machine.address == "127.0.0.1"

    def test_the_agent_is_sent_once(self, noisy: SshServer, tmp_path: Path) -> None:
        folder = tmp_path / "agents"
        destination = Destination("box", noisy.config, str(folder))
        for _ in range(2):
            with SshMachine(destination, AgentFile(find_engine())) as machine:
                machine.clock()
            [stored] = folder.glob("disklab-engine-*")
            assert stored.stat().st_mode & 0o777 == 0o700
            written_ns = stored.stat().st_ctime_ns
        # A damaged one is sent again.
        with stored.open("r+b") as file:
            file.write(b"damage")
        with SshMachine(destination, AgentFile(find_engine())) as machine:
            machine.clock()
        [stored] = folder.glob("disklab-engine-*")
        assert stored.read_bytes() == find_engine().read_bytes()
        assert stored.stat().st_ctime_ns > written_ns

    def test_a_host_that_cannot_run_it_is_told_the_way_out(
        self, noisy: SshServer, tmp_path: Path
    ) -> None:
        wrong = tmp_path / "engine"
        wrong.write_text("#!/no/such/interpreter\n")
        destination = Destination("box", noisy.config, str(tmp_path / "agents"))
        agent = AgentFile(wrong, "build a static one")
        with (
            SshMachine(destination, agent) as machine,
            pytest.raises(MachineError, match=r"not found.*build a static one"),
        ):
            machine.clock()

    def test_a_folder_that_cannot_hold_it_is_named(self, noisy: SshServer) -> None:
        destination = Destination("box", noisy.config, "/proc/agents")
        text = refusal(destination)
        assert "/proc/agents" in text


def ask_names(machine: SshMachine) -> object:
    return machine.files.names(HERE)


def ask_read(machine: SshMachine) -> object:
    return machine.files.read(HERE, 1000)


def ask_run(machine: SshMachine) -> object:
    return machine.run(Command(["true"]), 5.0)


def ask_clock(machine: SshMachine) -> object:
    return machine.clock()


def ask_tail(machine: SshMachine) -> object:
    return list(machine.start(Command(["true"])).lines())


@pytest.mark.parametrize(
    ("mode", "ask", "told"),
    [
        ("escape", ask_read, "no such|no�such|no"),
        ("names", ask_names, "names that no folder holds"),
        ("more", ask_read, "without a right `data`"),
        ("types", ask_read, "without a right `data`"),
        ("types", ask_clock, "without a right `clock_ns`"),
        ("types", ask_run, "without a right exit code"),
        ("endless", ask_read, "a line of more than"),
        ("strays", ask_read, "lines that were not asked for"),
        ("deep", ask_read, "lists within lists"),
        ("wants", ask_clock, "asks for the agent again and again"),
        *((mode, ask_clock, "which is no number from") for mode in ("many", "none", "text")),
        *((mode, ask_clock, "which is no number from") for mode in ("share", "true", "list")),
        ("clock", ask_clock, "which is no number from"),
        ("other-part", ask_tail, "another part"),
        ("forever", ask_read, "larger than 1000 bytes"),
        ("protocol", ask_clock, "speaks protocol 2"),
        ("noise-only", ask_clock, "login shell prints more than 1 MiB"),
    ],
)
def test_a_lie_is_an_error_with_the_hosts_name(
    liar: SshServer, mode: str, ask: Callable[[SshMachine], object], told: str
) -> None:
    (liar.folder / "mode").write_text(mode)
    began = time.monotonic()
    with liar.machine(patience_s=1.0) as machine, pytest.raises(MachineError, match=told) as error:
        ask(machine)
    assert "\x1b" not in str(error.value)
    assert "box" in str(error.value)
    assert time.monotonic() - began < 30.0


def test_a_host_that_never_greets_is_left(liar: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    (liar.folder / "mode").write_text("silent")
    monkeypatch.setattr("disklab.machines.ssh.GREET_S", 1.0)
    with (
        SshMachine(liar.destination, AgentFile(find_engine()), SshSettings(name="box")) as machine,
        pytest.raises(MachineError, match="did not answer in time"),
    ):
        machine.clock()


def test_the_longest_line_is_the_agents() -> None:
    source = Path(__file__).parents[2] / "crates/disklab-node/src/lines.rs"
    assert f"1 << {link.LINE_BYTES.bit_length() - 1}" in source.read_text()
