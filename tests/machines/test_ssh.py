"""A host over a real sshd: programs, files, lost links, leases; strangers and liars."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from disklab.errors import MachineError
from disklab.machines.protocol import Command, Machine
from disklab.machines.ssh import SshChild, SshMachine

from tests.machines.ssh_server import SshServer, start_server

SOON_SECONDS = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    server = start_server(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def box(server: SshServer) -> Iterator[SshMachine]:
    with server.machine() as machine:
        yield machine


def sh(script: str, **more: object) -> Command:
    return Command(["sh", "-c", script], **more)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def await_end(pid: int) -> None:
    deadline = time.monotonic() + SOON_SECONDS
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


class TestRun:
    def test_a_program_gets_its_input_variables_and_folder(
        self, box: SshMachine, tmp_path: Path
    ) -> None:
        machine: Machine = box
        ended = machine.run(
            sh('wc -c; echo "$A"; pwd; echo wrong >&2; exit 3', stdin=b"x" * 300_000,
               variables={"A": "b c"}, folder=PurePosixPath(tmp_path))
        )  # fmt: skip
        assert ended.stdout.split() == [b"300000", b"b", b"c", str(tmp_path).encode()]
        assert (ended.code, ended.stderr) == (3, b"wrong\n")

    def test_much_output_comes_whole(self, box: SshMachine) -> None:
        ended = box.run(sh("yes out | head -c 3000000; yes err | head -c 300000 >&2; echo e >&2"))
        assert ended.stdout == b"out\n" * 750_000
        assert len(ended.stderr) == 64 << 10
        assert ended.stderr.endswith(b"e\n")

    def test_what_cannot_be_started_names_host_and_program(self, box: SshMachine) -> None:
        with pytest.raises(MachineError, match="box: words: /no/such in /: No such file"):
            box.run(Command(["/no/such"]))

    def test_what_runs_too_long_is_killed_with_its_children(
        self, box: SshMachine, tmp_path: Path
    ) -> None:
        with pytest.raises(MachineError, match="box: sh still ran after 1 s"):
            box.run(sh(f"setsid sleep 1000 & echo $! > {tmp_path}/pid; wait"), seconds=1.0)
        await_end(int((tmp_path / "pid").read_text()))

    def test_the_clock_is_ours(self, box: SshMachine) -> None:
        offset = box.clock()
        assert abs(offset.ahead_s) <= offset.error_s < 1.0


class TestLostLink:
    def test_no_line_is_lost_or_doubled_while_connections_are_killed(
        self, server: SshServer
    ) -> None:
        chance = random.Random(20)
        over = threading.Event()
        cuts = 0

        def cut(child: SshChild) -> None:
            nonlocal cuts
            seen = 0
            while not over.wait(chance.uniform(0.05, 0.5)):
                # At any moment, but for a fifth of them not before something came: it must end.
                if child.offset > seen or chance.random() < 0.2:
                    seen = child.offset
                    server.cut()
                    cuts += 1

        with server.machine() as machine:
            count = "i=0; while [ $i -lt 150 ]; do echo line $i; i=$((i+1)); sleep 0.03; done"
            with machine.start(sh(count)) as child:
                cutter = threading.Thread(target=cut, args=(child,))
                cutter.start()
                try:
                    lines = list(child.lines())
                finally:
                    over.set()
                    cutter.join()
                ended = child.wait(SOON_SECONDS)
        assert cuts >= 2
        assert lines == [b"line %d" % number for number in range(150)]
        assert ended is not None
        assert ended.code == 0
