"""A host over a real sshd: programs, files, lost links, leases; strangers and liars."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest
from disklab.errors import MachineError
from disklab.machines import ssh
from disklab.machines.child import KEPT
from disklab.machines.protocol import Command, Machine
from disklab.machines.ssh import SshChild, SshMachine

from tests.machines.ssh_server import SshServer, start_server
from tests.machines.test_local import await_end, is_alive, sh

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

    def test_a_program_has_few_variables_of_its_session(self, box: SshMachine) -> None:
        """`SetEnv` of the server gives every session a folder for caches, as a shell's profile may
        give it keys."""
        ended = box.run(Command(["env", "-0"], variables={"OWN": "1"}))
        names = {line.partition(b"=")[0].decode() for line in ended.stdout.split(b"\0") if line}
        assert {"PATH", "OWN"} <= names
        assert all(n in (*KEPT, "OWN") or n.startswith("DISKLAB_") for n in names)

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
            count = "i=0; while [ $i -lt 150 ]; do echo line $i; i=$((i+1)); sleep 0.02; done"
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
        assert ended.code == 0

    def test_a_host_that_says_nothing_is_named_and_found_again(
        self, server: SshServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ssh, "SILENCE_S", 2.0)
        monkeypatch.setattr(ssh, "BEAT_S", 0.3)
        told: list[str] = []
        with (
            server.machine(told=told.append) as machine,
            machine.start(sh("sleep 3; echo here")) as child,
        ):
            stopped = server.connections()
            try:
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                # Its agent is there yet, and the new one takes its place.
                assert list(child.lines()) == [b"here"]
            finally:
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
        assert "silent" in told[0]
        assert "box (box)" in told[0]
        assert "under way there: sh" in told[0]

    def test_one_that_is_gone_for_good_is_told_once_and_with_the_way_out(
        self, tmp_path: Path
    ) -> None:
        server = start_server(tmp_path)
        machine = server.machine(patience_s=2.0, lease_s=3)
        try:
            child = machine.start(sh("sleep 1000"))
            server.stop()
            with pytest.raises(MachineError) as gone:
                list(child.lines())
            text = str(gone.value)
            for part in ("box (box) is gone", "under way there: sh", "3 s after", "try: ssh box"):
                assert part in text
            began = time.monotonic()
            with pytest.raises(MachineError, match="is gone"):
                machine.clock()
            assert time.monotonic() - began < 1.0
            await_end(child.pid)
        finally:
            machine.close()
            server.stop()


class TestJobs:
    def test_a_killed_process_finds_its_job_again_at_its_offset(self, server: SshServer) -> None:
        script = (
            "import sys, os, signal; from tests.machines.ssh_server import SshServer; "
            "from disklab.machines.protocol import Command; from pathlib import Path; "
            f"s = SshServer(Path({str(server.folder)!r}), {server.port}, None); "
            "m = s.machine(conductor='killed'); "
            "c = m.start(Command(['sh', '-c', 'for i in 1 2 3 4; do echo $i; sleep 1; done'])); "
            "l = c.lines(); next(l); next(l); print(c.job, c.offset, flush=True); "
            "os.kill(os.getpid(), signal.SIGKILL)"
        )
        killed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
        job, offset = killed.stdout.split()
        with server.machine(conductor="killed") as machine:
            with machine.resume(job.decode(), int(offset)) as child:
                assert list(child.lines()) == [b"3", b"4"]
            with pytest.raises(MachineError, match="conductor killed has no job"):
                machine.resume("j-other")

    def test_an_orphan_is_ended_when_its_lease_is_over(
        self, server: SshServer, tmp_path: Path
    ) -> None:
        with server.machine(lease_s=2) as machine:
            child = machine.start(sh(f"(setsid sleep 1000 & echo $! > {tmp_path}/pid); sleep 1000"))
            time.sleep(3.0)
            # The lease is renewed for as long as we are there.
            assert is_alive(child.pid)
        await_end(child.pid)
        await_end(int((tmp_path / "pid").read_text()))

    def test_signals_reach_children_and_the_end_is_told(self, box: SshMachine) -> None:
        with box.start(sh("trap 'echo got; exit 7' USR1; sleep 1000 & echo up; wait")) as child:
            lines = child.lines()
            assert next(lines) == b"up"
            assert child.wait(0.05) is None
            child.signal(signal.SIGUSR1)
            assert list(lines) == [b"got"]
            ended = child.wait(SOON_SECONDS)
        assert (ended.code, ended.stdout) == (7, b"")

    def test_its_context_ends_what_ignores_sigterm(
        self, box: SshMachine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("disklab.machines.watched.END_SECONDS", 0.5)
        with box.start(sh("trap '' TERM; echo up; while :; do sleep 0.1; done")) as child:
            assert next(child.lines()) == b"up"
        await_end(child.pid)
        assert all(job["job"] != child.job or not job["kept"] for job in box.jobs())

    def test_a_job_whose_keeper_is_killed_dies_with_it(self, box: SshMachine) -> None:
        child = box.start(sh("sleep 1000"))
        parent = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        with pytest.raises(MachineError, match="sh is gone without an exit code"):
            child.wait(SOON_SECONDS)
        await_end(child.pid)
        box.forget(child.job)


class TestFiles:
    def test_files_are_written_read_and_listed(self, box: SshMachine, tmp_path: Path) -> None:
        place = PurePosixPath(tmp_path)
        large = random.Random(1).randbytes(900_000)
        box.files.write(place / "a", b"one", 0o640)
        box.files.write(place / "b", large)
        assert box.files.read(place / "a") == b"one"
        assert box.files.read(place / "b") == large
        assert box.files.names(place) == ["a", "b"]
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
        with pytest.raises(MachineError, match="b is larger than 899999 bytes"):
            box.files.read(place / "b", 899_999)
        with pytest.raises(MachineError, match=r"box: .*/c: No such file"):
            box.files.read(place / "c")
        assert box.files.read(PurePosixPath("/proc/sys/kernel/ostype")) == b"Linux\n"

    def test_a_link_in_its_place_is_replaced_and_not_followed(
        self, box: SshMachine, tmp_path: Path
    ) -> None:
        (tmp_path / "victim").write_text("mine")
        for name in ("written", "put"):
            (tmp_path / name).symlink_to(tmp_path / "victim")
        (tmp_path / "source").write_bytes(b"new")
        box.files.write(PurePosixPath(tmp_path / "written"), b"new")
        box.files.put(tmp_path / "source", PurePosixPath(tmp_path / "put"))
        assert (tmp_path / "victim").read_text() == "mine"
        assert (tmp_path / "put").read_bytes() == b"new"

    def test_what_is_there_by_its_content_is_not_sent_again(
        self, box: SshMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(random.Random(2).randbytes(3_000_000))
        box.files.put(source, PurePosixPath(target), 0o600)
        assert target.read_bytes() == source.read_bytes()
        inode = target.stat().st_ino
        monkeypatch.setattr(box, "send", None)
        box.files.put(source, PurePosixPath(target), 0o755)
        assert (target.stat().st_ino, target.stat().st_mode & 0o777) == (inode, 0o755)
        fetched = tmp_path / "fetched"
        box.files.get(PurePosixPath(target), fetched)
        assert fetched.read_bytes() == source.read_bytes()
        with pytest.raises(MachineError, match="fetched: File exists"):
            box.files.get(PurePosixPath(target), fetched)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["fetched", "source", "target"]

    def test_a_file_is_sent_on_when_the_link_was_cut(
        self, server: SshServer, tmp_path: Path
    ) -> None:
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(random.Random(3).randbytes(24_000_000))
        with server.machine() as machine:
            machine.clock()
            cutter = threading.Timer(0.1, server.cut)
            cutter.start()
            machine.files.put(source, PurePosixPath(target))
            cutter.join()
        assert target.read_bytes() == source.read_bytes()


def agents_below(server: SshServer) -> list[int]:
    """Return the processes of agents that a server's connections have started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            program = Path(os.readlink(process / "exe"))
            # The engine that was sent there, and not the ssh that asked for it.
            if server.folder in program.parents and words[1:2] in ([b"node"], [b"node-keep"]):
                found.append(int(process.name))
    return found


def cpu_s(pid: int) -> float:
    """Return what a process has used of processors, in seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def most_resident_kib(pid: int) -> int:
    """Return the most memory that a process has had, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (one for one in status.splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1])


class TestCounters:
    def test_files_are_watched_each_tick_while_the_link_is_away(
        self, server: SshServer, tmp_path: Path
    ) -> None:
        steady, gone = tmp_path / "steady", tmp_path / "gone"
        steady.write_text("same")
        uptime = PurePosixPath("/proc/uptime")
        paths = [uptime, PurePosixPath(steady), PurePosixPath(gone)]
        with server.machine() as machine, machine.watch(paths, interval_ms=200) as child:
            lines = child.lines()
            seen = [json.loads(next(lines))]
            server.cut()
            seen += [json.loads(next(lines)) for _ in range(6)]
        assert set(seen[0]["files"]) == {str(path) for path in paths}
        assert seen[0]["files"][str(gone)] is None
        assert all(set(tick["files"]) == {str(uptime)} for tick in seen[1:])
        ticks = [tick["mono_ns"] // 200_000_000 for tick in seen]
        assert ticks == sorted(set(ticks))

    def test_a_host_that_is_watched_gives_a_hundredth_of_a_core_and_20_mb_at_most(
        self, server: SshServer
    ) -> None:
        """As a host is watched: its CPUs, memory, network and disks. A second has one such tick."""
        ticks = 20
        names = ("stat", "meminfo", "net/dev", "diskstats")
        others = set(agents_below(server))
        with server.machine() as machine:
            files = [PurePosixPath("/proc") / name for name in names]
            with machine.watch(files, interval_ms=100) as child:
                lines = child.lines()
                # The agent, and what keeps the job; one whose link was lost before may end late.
                for _ in range(10 * ticks):
                    next(lines)
                    pids = [pid for pid in agents_below(server) if pid not in others]
                    if len(pids) == 2:
                        break
                assert len(pids) == 2
                before = sum(cpu_s(pid) for pid in pids)
                for _ in range(ticks):
                    next(lines)
                took_s = sum(cpu_s(pid) for pid in pids) - before
                kib = sum(most_resident_kib(pid) for pid in pids)
        assert took_s / ticks <= 0.01
        assert kib * 1024 <= 20e6

    def test_pages_are_counted_and_dropped(self, box: SshMachine, tmp_path: Path) -> None:
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep" / "data").write_bytes(b"x" * (4 << 20))
        (tmp_path / "link").symlink_to("/usr")
        place = [PurePosixPath(tmp_path)]
        assert box.cached_bytes(place) == (4 << 20, 4 << 20)
        if _is_on_memory(tmp_path):
            return
        box.drop_pages(place)
        assert box.cached_bytes(place) == (4 << 20, 0)

    def test_the_offset_of_a_clock_has_its_error(self, box: SshMachine) -> None:
        assert box.hello["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert box.clock().error_s < 0.5


def _is_on_memory(path: Path) -> bool:
    found = subprocess.run(
        ["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True
    )
    return found.stdout.strip() in ("tmpfs", "ramfs")
