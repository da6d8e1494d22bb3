"""This machine as a `Machine`: programs with their children and limits, files that are whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath

import pytest
from disklab.errors import MachineError
from disklab.machines import child
from disklab.machines.child import LocalChild
from disklab.machines.local import LocalMachine, cached_bytes, drop
from disklab.machines.protocol import Command, Machine

from tests.programs import wait_until

MACHINE = LocalMachine()
SOON_SECONDS = 20.0


def sh(script: str, **more: object) -> Command:
    return Command(["sh", "-c", script], **more)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def await_end(pid: int) -> None:
    wait_until(lambda: not is_alive(pid), most_s=SOON_SECONDS)


def await_file(path: Path) -> None:
    wait_until(path.exists, most_s=SOON_SECONDS)


def test_it_is_a_machine() -> None:
    machine: Machine = MACHINE
    assert machine.name == "this machine"
    assert machine.clock().ahead_s == 0


def test_a_start_that_hangs_is_told_and_others_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does in a folder of a disk that serves nothing."""
    monkeypatch.setattr(child, "START_SECONDS", 0.3)
    starter, mended = child._Starter(), threading.Event()
    started: list[int] = []

    def hangs() -> child.Started:
        mended.wait(SOON_SECONDS)
        process = child.Started(["sleep", "60"], start_new_session=True)
        started.append(process.pid)
        return process

    with pytest.raises(OSError, match="did not start within 0 s; its disk may serve nothing"):
        starter.call(hangs)
    assert starter.call(lambda: child.Started(["true"])).wait() == 0
    mended.set()
    wait_until(lambda: started, most_s=SOON_SECONDS)
    await_end(started[0])


class TestRun:
    def test_a_program_gets_its_input_variables_and_folder(self, tmp_path: Path) -> None:
        big = b"x" * 300_000
        ended = MACHINE.run(
            sh('wc -c; echo "$A"; pwd; echo wrong >&2; exit 3', stdin=big, variables={"A": "b c"},
               folder=PurePosixPath(tmp_path))
        )  # fmt: skip
        assert ended.stdout.split() == [b"300000", b"b", b"c", str(tmp_path).encode()]
        assert (ended.code, ended.stderr) == (3, b"wrong\n")

    def test_much_output_on_both_pipes_is_no_deadlock_and_bounded(self) -> None:
        ended = MACHINE.run(
            sh("yes out | head -c 3000000; yes err | head -c 3000000 >&2; echo last >&2")
        )
        assert len(ended.stdout) == 3_000_000
        assert len(ended.stderr) == 64 << 10
        assert ended.stderr.endswith(b"last\n")

    def test_a_signal_is_a_negative_code(self) -> None:
        assert MACHINE.run(sh("kill -9 $$")).code == -signal.SIGKILL

    def test_a_program_that_is_not_there_is_named(self) -> None:
        with pytest.raises(MachineError, match="no-such-program: there is no such program"):
            MACHINE.run(Command(["no-such-program"]))

    def test_what_takes_too_long_is_killed_with_its_children(self, tmp_path: Path) -> None:
        note = tmp_path / "child"
        with pytest.raises(MachineError, match=r"sh still ran after 1 s; it said: hello"):
            MACHINE.run(sh(f"echo hello >&2; sleep 1000 & echo $! > {note}; wait"), seconds=1.0)
        await_end(int(note.read_text(encoding="ascii")))


class TestStart:
    def test_lines_come_in_order_while_it_runs(self, tmp_path: Path) -> None:
        # A line without an end is told at the end: a file says when it is written.
        script = f"echo a; echo; printf b; touch {tmp_path}/written; exec sleep 1000"
        with MACHINE.start(sh(script)) as child:
            lines = child.lines()
            assert [next(lines), next(lines)] == [b"a", b""]
            assert child.wait(0.0) is None
            await_file(tmp_path / "written")
            child.signal(signal.SIGINT)
            assert list(lines) == [b"b"]
            ended = child.wait(SOON_SECONDS)
            assert ended.code == -signal.SIGINT
            child.signal(signal.SIGKILL)
            assert child.wait() == ended
        assert child.wait() == ended

    def test_the_end_of_the_context_ends_children_that_outlive_their_parent(self) -> None:
        with MACHINE.start(sh("sleep 1000 >/dev/null 2>&1 & echo $!")) as child:
            (line,) = child.lines()
            assert child.wait(SOON_SECONDS) is not None
            assert is_alive(int(line))
        await_end(int(line))

    def test_what_ignores_sigterm_is_killed(self) -> None:
        with MACHINE.start(sh('trap "" TERM; echo ready; while :; do sleep 1; done')) as child:
            assert next(child.lines()) == b"ready"
        assert not is_alive(child.pid)

    def test_it_outlives_the_thread_that_started_it(self) -> None:
        started = []
        thread = threading.Thread(
            target=lambda: started.append(MACHINE.start(sh("echo up; exec sleep 1000")))
        )
        thread.start()
        thread.join()
        with started[0] as child:
            assert next(child.lines()) == b"up"
            assert child.wait(0.3) is None

    def test_it_ends_with_a_killed_process(self) -> None:
        script = (
            "import time\n"
            "from disklab.machines.local import LocalMachine\n"
            "from disklab.machines.protocol import Command\n"
            "child = LocalMachine().start(Command(['sleep', '1000']))\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(1000)\n"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as conductor:
            pid = int(conductor.stdout.readline())
            assert is_alive(pid)
            conductor.kill()
        await_end(pid)


class TestFiles:
    def test_what_is_written_is_read_and_nothing_else_is_there(self, tmp_path: Path) -> None:
        files, path = MACHINE.files, PurePosixPath(tmp_path / "a")
        files.write(path, b"one")
        files.write(path, b"two", mode=0o644)
        assert files.read(path) == b"two"
        assert files.names(PurePosixPath(tmp_path)) == ["a"]
        assert os.stat(path).st_mode & 0o777 == 0o644

    def test_a_link_is_replaced_and_its_target_stays(self, tmp_path: Path) -> None:
        (tmp_path / "target").write_bytes(b"precious")
        (tmp_path / "link").symlink_to(tmp_path / "target")
        MACHINE.files.write(PurePosixPath(tmp_path / "link"), b"new")
        MACHINE.files.put(Path(__file__), PurePosixPath(tmp_path / "link"))
        assert (tmp_path / "target").read_bytes() == b"precious"
        assert (tmp_path / "link").read_bytes() == Path(__file__).read_bytes()

    def test_files_of_the_kernel_are_read_and_written_in_place(self) -> None:
        files, path = MACHINE.files, PurePosixPath("/proc/self/comm")
        release = files.read(PurePosixPath("/proc/sys/kernel/osrelease"), most_bytes=64 << 20)
        assert release.decode().strip() == os.uname().release
        before = files.read(path)
        files.write(path, b"changed")
        try:
            assert files.read(path) == b"changed\n"
        finally:
            files.write(path, before.strip())

    def test_put_writes_nothing_that_is_there(self, tmp_path: Path) -> None:
        source, there = tmp_path / "source", PurePosixPath(tmp_path / "there")
        source.write_bytes(b"content")
        MACHINE.files.put(source, there, mode=0o700)
        first = os.stat(there)
        MACHINE.files.put(source, there, mode=0o700)
        assert os.stat(there).st_ino == first.st_ino
        source.write_bytes(b"other")
        MACHINE.files.put(source, there)
        assert MACHINE.files.read(there) == b"other"
        MACHINE.files.get(there, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"other"
        with pytest.raises(MachineError, match="File exists"):
            MACHINE.files.get(there, tmp_path / "back")

    def test_what_cannot_be_read_is_said(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "large").write_bytes(b"x" * 11)
        with pytest.raises(MachineError, match="No such file"):
            MACHINE.files.read(PurePosixPath(tmp_path / "absent"))
        with pytest.raises(MachineError, match="regular file"):
            MACHINE.files.read(PurePosixPath(tmp_path / "pipe"))
        with pytest.raises(MachineError, match="larger than 10 bytes"):
            MACHINE.files.read(PurePosixPath(tmp_path / "large"), most_bytes=10)
        with pytest.raises(MachineError, match="absolute"):
            MACHINE.files.read(PurePosixPath("/tmp/../etc/passwd"))
        with pytest.raises(MachineError, match="No such file"):
            MACHINE.files.names(PurePosixPath(tmp_path / "absent"))


class TestTalk:
    def test_a_program_is_told_line_by_line_until_it_is_hushed(self) -> None:
        with LocalChild.start(["cat"], stdin=None) as child:
            lines = child.lines()
            for word in (b"one", b"two"):
                child.say(word + b"\n")
                assert next(lines) == word
            child.hush()
            assert list(lines) == []
            ended = child.wait(SOON_SECONDS)
            with pytest.raises(MachineError, match="cat reads no more"):
                child.say(b"three\n")
        assert ended.code == 0

    def test_one_that_has_ended_reads_no_more(self) -> None:
        with LocalChild.start(["true"], stdin=None) as child:
            assert child.wait(SOON_SECONDS) is not None
            with pytest.raises(MachineError, match="true reads no more"):
                child.say(b"anything\n")

    def test_its_context_ends_one_that_waits_for_words(self) -> None:
        with LocalChild.start(["cat"], stdin=None) as child:
            pid = child.pid
        await_end(pid)


IGNORING = """
import sys
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command
script = "trap 'echo interrupted; exit 7' INT; kill -INT $$; sleep 1"
ran = LocalMachine().run(Command(["sh", "-c", script]))
sys.stdout.buffer.write(ran.stdout)
sys.exit(ran.code)
"""


def test_a_program_ignores_nothing_that_its_parent_ignores() -> None:
    """A shell cannot trap what it ignored at its start."""
    ignoring = ["sh", "-c", 'trap "" INT HUP QUIT TERM; exec "$@"', "sh"]
    ran = subprocess.run(
        [*ignoring, sys.executable, "-c", IGNORING], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (7, "interrupted\n"), ran.stderr


ORPHANED = """
import os, sys
from pathlib import Path
from disklab.machines import child
words = child._bound(())
# As when this process were killed before its child had said that it is to end with it.
words[-1] = "1" if os.getppid() != 1 else "2"
os.execvp(words[0], [*words, "touch", sys.argv[1]])
"""


def test_a_program_does_not_begin_when_its_parent_is_gone_already(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ORPHANED, str(tmp_path / "begun")]
    assert subprocess.run(command, check=False).returncode == 1
    assert not (tmp_path / "begun").exists()


def test_pipes_links_and_sockets_are_passed_over(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 10_000)
    folder = tmp_path / "data"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_bytes(b"x" * 5_000)
    (folder / "link").symlink_to(outside)
    (folder / "a/folder").symlink_to(tmp_path)
    os.mkfifo(folder / "a/pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "s"))
        drop(folder)
        assert cached_bytes(folder)[0] == 5_000
    assert cached_bytes(tmp_path / "absent") == (0, 0)
    names = ["link", "a/folder", "a/pipe", "s", "absent", "a/b/file"]
    assert sum(cached_bytes(folder / name)[0] for name in names) == 5_000
