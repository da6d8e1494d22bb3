"""Emulated hosts in namespaces: what they are, and that nothing of them outlives their maker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from disklab.errors import MachineError, UserError
from disklab.hosts.cleaning import Scope, clean
from disklab.hosts.namespaces import EmulatedHosts, HostWish, installation
from disklab.hosts.places import Places
from disklab.machines import Command, Machine, child
from disklab.machines.local import LocalMachine
from disklab.machines.netns import NamespaceMachine

from tests.foreign import loop_device
from tests.secure_shell import serve_ssh

from .conftest import Lab, new_lab

pytestmark = [pytest.mark.machine, pytest.mark.xdist_group("hosts in namespaces")]

MIB = 1 << 20
WISHES = [HostWish("n1", 256 * MIB), HostWish("n2"), HostWish("client")]


def places(lab: Lab) -> Places:
    return Places(lab.run_dir, lab.data_dir)


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[Lab]:
    with new_lab() as made:
        yield made


@pytest.fixture(scope="module")
def hosts(shared_lab: Lab) -> Iterator[EmulatedHosts]:
    with EmulatedHosts.start(places(shared_lab), "three", WISHES) as made:
        yield made


def said(machine: Machine, *words: str) -> str:
    ended = machine.run(Command(words))
    assert ended.code == 0, ended.stderr
    return ended.stdout.decode().strip()


def kernel_state() -> object:
    """Return what of the whole machine must stay as it is: links, mounts, memory groups."""
    links = Path("/proc/net/dev").read_text().splitlines()
    names = sorted(line.split(":")[0].strip() for line in links if ":" in line)
    named = sorted(os.listdir("/run/netns")) if Path("/run/netns").exists() else []
    return names, named


class TestHost:
    def test_it_has_a_name_an_address_and_a_root_of_its_own(self, hosts: EmulatedHosts) -> None:
        machine: Machine = hosts["n1"]
        assert said(machine, "hostname") == "n1"
        assert machine.address in said(machine, "ip", "-4", "addr", "show", "eth0")
        assert said(machine, "getent", "hosts", "n2").split() == [hosts["n2"].address, "n2"]
        assert said(machine, "ls", "/run") == ""
        # A clone below /tmp runs there too: nothing but the way to it is shown.
        ways = {path.parts[2] for path in installation() if path.is_relative_to("/tmp")}
        assert set(said(machine, "ls", "/tmp").split()) == ways
        # Its own processes only, and the first is the one that holds it.
        assert "1" in said(machine, "ls", "/proc").split()
        assert str(os.getpid()) not in [
            name for name in said(machine, "ls", "/proc").split() if name.isdigit()
        ]
        said(machine, "sh", "-c", "echo changed > /etc/motd; mknod /dev/x c 1 3; echo > /dev/x")
        assert not Path("/etc/motd").exists() or Path("/etc/motd").read_text() != "changed\n"
        assert said(hosts["n2"], "sh", "-c", "cat /etc/motd || true") != "changed"
        assert machine.clock().ahead_s == 0

    def test_its_memory_is_limited(self, hosts: EmulatedHosts) -> None:
        fill = "import sys; x = bytearray(400 << 20); print(len(x))"
        assert hosts["n1"].run(Command([sys.executable, "-c", fill])).code == -signal.SIGKILL
        assert said(hosts["n2"], sys.executable, "-c", fill) == str(400 << 20)
        # Killed was the program, not the host.
        assert said(hosts["n1"], "hostname") == "n1"

    def test_a_disk_is_shown_where_the_cloud_shows_it(
        self, hosts: EmulatedHosts, shared_lab: Lab
    ) -> None:
        file = shared_lab.root / "disk.img"
        file.write_bytes(bytes(64 * MIB))
        machine = hosts["n2"]
        with loop_device(file) as device:
            path = machine.show_disk(str(device), "sdc", lun=0)
            link = "/dev/disk/azure/scsi1/lun0"
            assert said(machine, "readlink", "-f", link) == str(path)
            said(machine, "sh", "-c", f"mkfs.ext4 -q {link} && mkdir /data && mount {link} /data")
            said(machine, "sh", "-c", "echo kept > /data/file && umount /data")
            assert str(device) not in Path("/proc/mounts").read_text()
            machine.hide_disk("sdc", lun=0)
            assert "sdc" not in machine.files.names(PurePosixPath("/dev"))
        assert b"kept" in file.read_bytes()


class TestPrograms:
    def test_output_variables_input_and_ends(self, hosts: EmulatedHosts) -> None:
        command = Command(
            ["sh", "-c", 'wc -c; echo "$A"; pwd; echo wrong >&2; exit 3'],
            stdin=b"x" * 300_000,
            variables={"A": "b c"},
            folder=PurePosixPath("/etc"),
        )
        ended = hosts["n1"].run(command)
        assert ended.stdout.split() == [b"300000", b"b", b"c", b"/etc"]
        assert (ended.code, ended.stderr) == (3, b"wrong\n")

    def test_lines_come_as_they_are_written(self, hosts: EmulatedHosts) -> None:
        script = "echo one; sleep 0.1; echo two"
        with hosts["n1"].start(Command(["sh", "-c", script])) as child:
            assert list(child.lines()) == [b"one", b"two"]
            assert child.wait(10.0) is not None

    def test_children_end_with_it(self, hosts: EmulatedHosts) -> None:
        script = "sleep 3601 & trap '' TERM; echo ready; wait"
        child = hosts["n1"].start(Command(["sh", "-c", script]))
        assert next(child.lines()) == b"ready"
        child.signal(signal.SIGKILL)
        assert child.wait(10.0).code == -signal.SIGKILL
        child.end()
        assert "3601" not in said(hosts["n1"], "sh", "-c", "cat /proc/*/cmdline | tr '\\0' ' '")

    def test_what_cannot_be_started_is_named(self, hosts: EmulatedHosts) -> None:
        with pytest.raises(MachineError, match="no-such-program cannot be started on n1"):
            hosts["n1"].run(Command(["no-such-program"]))

    def test_one_that_runs_too_long_is_ended(self, hosts: EmulatedHosts) -> None:
        with pytest.raises(MachineError, match=r"sleep on n1 still ran after 0\.2 s"):
            hosts["n1"].run(Command(["sleep", "3602"]), seconds=0.2)


def test_a_program_of_this_machine_enters_a_host(lab: Lab) -> None:
    shared = lab.root / "volume"
    shared.mkdir()
    wish = HostWish("n1", grouped=False, shared=(shared,))
    with EmulatedHosts.start(places(lab), "entered", [wish]) as made:
        machine = made["n1"]
        script = f"echo seen > {shared}/file; readlink /proc/self/exe; hostname; ip -4 addr; exec "
        command = machine.entering(["sh", "-c", script + "sleep 3604"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as entered:
            told = [entered.stdout.readline() for _ in range(4)]
            # Its number is that of this machine, where its memory group is known as well.
            groups = Path(f"/proc/{entered.pid}/cgroup").read_text()
            assert groups == Path("/proc/self/cgroup").read_text()
            entered.kill()
        assert told[0].startswith(b"/")
        assert told[1] == b"n1\n"
        assert (shared / "file").read_text() == "seen\n"
    assert (shared / "file").exists(), "a shared folder is never emptied"


class TestFiles:
    def test_a_link_does_not_lead_out_of_the_host(self, hosts: EmulatedHosts) -> None:
        machine = hosts["n1"]
        said(machine, "ln", "-sfn", "/etc/hostname", "/tmp/link")
        said(machine, "ln", "-sfn", "/etc", "/tmp/folder")
        assert machine.files.read(PurePosixPath("/tmp/link")) == b"n1\n"
        assert machine.files.read(PurePosixPath("/tmp/folder/hostname")) == b"n1\n"
        machine.files.write(PurePosixPath("/tmp/link"), b"mine")
        assert machine.files.read(PurePosixPath("/etc/hostname")) == b"n1\n"
        with pytest.raises(MachineError, match=r"has no `\.\.`"):
            machine.files.read(PurePosixPath("/tmp/../etc/hostname"))
        with pytest.raises(MachineError, match="regular file"):
            machine.files.read(PurePosixPath("/dev/zero"))

    def test_files_go_in_and_out(self, hosts: EmulatedHosts, tmp_path: Path) -> None:
        given = tmp_path / "given"
        given.write_bytes(os.urandom(MIB))
        files = hosts["n1"].files
        files.put(given, PurePosixPath("/tmp/put"), 0o640)
        said(hosts["n1"], "chmod", "600", "/tmp/put")
        files.put(given, PurePosixPath("/tmp/put"), 0o640)
        assert said(hosts["n1"], "stat", "-c", "%a", "/tmp/put") == "640"
        files.get(PurePosixPath("/tmp/put"), tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == given.read_bytes()


def test_hosts_reach_each_other_until_a_link_is_cut(hosts: EmulatedHosts) -> None:
    n1, client = hosts["n1"], hosts["client"]
    serve = [sys.executable, "-m", "http.server", "--directory", "/etc", "8000"]
    with n1.start(Command(serve)):
        get_page(client, n1.address)
        hosts.cut("n1")
        with pytest.raises(MachineError, match="timed out"):
            client.connect(n1.address, 8000, 0.3)
        hosts.join("n1")
        get_page(client, n1.address)


def get_page(client: NamespaceMachine, address: str) -> None:
    deadline = time.monotonic() + 20.0
    while True:
        with contextlib.suppress(MachineError), client.connect(address, 8000, 1.0) as link:
            link.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
            with link.makefile("rb") as answer:
                assert answer.read().endswith(b"\r\n\r\nn1\n")
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_host_answers_the_users_own_ssh(hosts: EmulatedHosts, tmp_path: Path) -> None:
    child, configuration = serve_ssh(hosts["n2"], hosts["client"], tmp_path / "ssh")
    with child:
        command = ["ssh", "-F", str(configuration), "n2", "hostname; cat"]
        ran = subprocess.run(command, input=b"through", capture_output=True, check=True, timeout=60)
        assert ran.stdout == b"n2\nthrough"


KILLED = """
import os, signal, sys
from pathlib import Path
from disklab.hosts.namespaces import EmulatedHosts, HostWish
from disklab.hosts.places import Places
left = int(sys.argv[2])
def count(step):
    global left
    left -= 1
    if left < 0:
        print(step, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
root = Path(sys.argv[1])
wishes = [HostWish("n1", 64 << 20), HostWish("n2")]
with EmulatedHosts.start(Places(root / "run", root / "data"), "killed", wishes, on_step=count):
    print("up", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def left_over(lab: Lab) -> list[str]:
    """Return processes and memory groups of the set that is killed."""
    found = [str(path) for path in Path("/sys/fs/cgroup").glob("**/disklab/killed-*")]
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if str(lab.run_dir) in (process / "environ").read_text(errors="replace"):
                found.append((process / "cmdline").read_text())
    return found


def test_nothing_is_left_after_kill_9_at_any_step(lab: Lab, foreign: Path) -> None:
    before = kernel_state()
    with EmulatedHosts.start(places(lab), "living", [HostWish("n1")]) as living:
        for step in range(100):
            killed = subprocess.run(
                [sys.executable, "-c", KILLED, str(lab.root), str(step)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env=lab.environment(),
            )
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            removed, kept = clean(places(lab), Scope())
            assert [one for one in removed if not one.done] == [], killed.stdout
            assert kept.healthy == ["living"]
            assert os.listdir(lab.run_dir / "networks") == ["living"]
            # A first process that had just been started ends as soon as it sees its socket closed.
            deadline = time.monotonic() + 10
            while left_over(lab) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert left_over(lab) == [], killed.stdout
            if killed.stdout == "up\n":
                break
        assert step > 8
        assert said(living["n1"], "hostname") == "n1"
        assert foreign.exists()
    assert kernel_state() == before


def test_a_folder_that_is_not_ours_is_left_alone(lab: Lab) -> None:
    strange = lab.run_dir / "networks" / "strange"
    strange.mkdir(parents=True)
    (strange / "group.n1").write_text("disklab")
    seen = lab.json("clean", "--all")
    assert [one["what"] for one in seen["foreign"]] == [str(strange)]
    with pytest.raises(MachineError, match="there are hosts of this name"):
        EmulatedHosts.start(places(lab), "strange", [HostWish("n1")])
    (strange / "group.n1").unlink()
    strange.rmdir()


def test_names_that_cannot_be(lab: Lab) -> None:
    with pytest.raises(UserError, match="a name has 1 to 64"):
        EmulatedHosts.start(places(lab), "a/b", [HostWish("n1")])
    with pytest.raises(MachineError, match="a name of its own"):
        EmulatedHosts.start(places(lab), "two", [HostWish("n1"), HostWish("n1")])


MACHINE = LocalMachine()


def network_of_a_program() -> str:
    """Return the network namespace of a program that is started now."""
    with MACHINE.start(Command(["sleep", "1000"])) as started:
        return os.readlink(f"/proc/{started.pid}/ns/net")


def test_a_program_is_in_the_network_of_who_asked(lab: Lab) -> None:
    # The thread that starts programs is there from here on, in this machine's network.
    home = network_of_a_program()
    assert home == os.readlink(f"/proc/self/task/{threading.get_native_id()}/ns/net")
    with EmulatedHosts.start(places(lab), "started", [HostWish("n1")]) as hosts:
        with hosts["n1"].inside_network():
            inside = network_of_a_program()
        assert inside == os.readlink(Path(f"/proc/{hosts['n1'].pid}/ns/net"))
        assert inside != home
        assert network_of_a_program() == home


def test_a_system_with_one_network_starts_programs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_OWN_NETWORK", "/no/such/place/{}")
    assert MACHINE.run(Command(["echo", "here"])).stdout == b"here\n"
