"""Emulated hosts: each a set of namespaces with an address, a root, disks and a memory group.

Every host is held by a first process, and that by this one: nothing is mounted, linked or named
outside of the namespaces, so the end of this process, whatever ends it, is the end of them all. The
switch between them is held the same way; the network namespace of the machine gets no device, no
address and no rule. What is left after a kill is a folder in the run directory and empty memory
groups; `disklab clean` takes them away.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from disklab.engine import find_engine
from disklab.engine.locks import locked_file
from disklab.engine.own_folder import ForeignError, folder, make_folder, new_file, replace_file
from disklab.errors import MachineError
from disklab.hosts.control_group import UNLIMITED_BYTES, ControlGroup, GroupRoot
from disklab.hosts.delays import (
    Between,
    DelaySwitch,
    Link,
    NetworkWish,
    PortCounters,
    measured_own_ns,
    names_of,
)
from disklab.hosts.left_networks import GROUP, LOCK, OWNER, remove_network
from disklab.hosts.places import Owner, Places, check_name
from disklab.hosts.requirements import find_program
from disklab.interrupts import ended_once, held_back
from disklab.machines import host_init, programs
from disklab.machines.netns import HeldHost, NamespaceMachine

SWITCH = "switch"
"""The member of each set that has the other ends of all links."""
# Private, and in namespaces of our own: it meets no network of the machine.
ADDRESS = "10.77.{}.{}"
PREFIX_BITS = 16
MOST_HOSTS = 250
# Logs and settings that programs write outside of their disks; it counts as memory of the host.
ROOT_BYTES = 1 << 30
SET_UP_SECONDS = 30.0


@dataclass(frozen=True)
class HostWish:
    """What an emulated host is to be."""

    name: str
    memory_bytes: int | None = None
    """The limit of memory and page cache together; None: none."""
    grouped: bool = True
    """Whether it has a memory group and sees only that; False: it sees this machine's groups, in
    which programs that enter it are (a Java machine looks for its own)."""
    link: Link = field(default_factory=Link)
    shared: tuple[Path, ...] = ()
    """Folders of this machine that it sees at their places, and may write to: mounted volumes."""


class EmulatedHosts:
    """A set of emulated hosts on one network. As a context manager it is removed at the end."""

    def __init__(self, places: Places, name: str, wishes: Sequence[HostWish]) -> None:
        """Make nothing yet: `start` does."""
        self._places = places
        self._name = name
        self._machines: dict[str, NamespaceMachine] = {}
        self._links = names_of([wish.name for wish in wishes])
        self._first = {wish.name: wish.link for wish in wishes}
        self._held: list[HeldHost] = []
        self._delays: DelaySwitch | None = None

    @classmethod
    def start(
        cls,
        places: Places,
        name: str,
        wishes: Sequence[HostWish],
        network: NetworkWish | None = None,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> EmulatedHosts:
        """Make the hosts; when this returns, each answers at its address.

        Without a `network` a bridge of the kernel joins them, as fast as the machine is.

        Raises UserError for a name that cannot be one, MachineError with the part that this machine
        refuses; then nothing is left. `on_step` is told of each thing that was made.
        """
        check_name(name, "the name of a set of hosts")
        for wish in wishes:
            check_name(wish.name, "the name of a host")
        if why := why_not():
            raise MachineError(f"emulated hosts cannot be created: {why}")
        if len(wishes) > MOST_HOSTS or len({wish.name for wish in wishes}) != len(wishes):
            raise MachineError(f"a set has up to {MOST_HOSTS} hosts, each with a name of its own")
        made = cls(places, name, wishes)
        with ended_once(), places.locked():
            run_dir = places.network(name)
            try:
                _make_folder(places, name)
                on_step("folder")
                making = _Making(places, run_dir, on_step)
                made._machines = making.make(wishes, made._held, bridged=network is None)
                if network is not None:
                    links = {made._links[wish.name]: wish.link for wish in wishes}
                    made._delays = DelaySwitch(made.switch, links, network)
                    on_step("switch")
                    if network.own_ns is None and len(wishes) > 1:
                        made._learn_own(wishes[0], wishes[-1], network)
            except BaseException:
                made._remove()
                raise
        return made

    @property
    def names(self) -> list[str]:
        """The names of the hosts, without the switch."""
        return [name for name in self._machines if name != SWITCH]

    def __getitem__(self, name: str) -> NamespaceMachine:
        """Return a host by its name."""
        return self._machines[name]

    @property
    def switch(self) -> NamespaceMachine:
        """The network namespace in which every host's link ends, by the host's name."""
        return self._machines[SWITCH]

    @property
    def delays(self) -> DelaySwitch | None:
        """The engine's switch, which may change links; None: a bridge joins the hosts."""
        return self._delays

    def counters(self) -> dict[str, PortCounters]:
        """Return what each host has sent since the start; empty where a bridge joins them."""
        if self._delays is None:
            return {}
        counted = self._delays.counters()
        return {name: counted[link] for name, link in self._links.items()}

    def cut(self, name: str) -> None:
        """Cut the link of a host: what it sends is lost, and nobody is told."""
        self._set_cut(name, cut=True)

    def join(self, name: str) -> None:
        """Join the link of a host that was cut."""
        self._set_cut(name, cut=False)

    def part(self, one: str, other: str, *, cut: bool = True) -> None:
        """Cut the way between two hosts, or join it; both still reach the others."""
        self.change_way(one, other, Between(cut=cut))

    def change_way(self, one: str, other: str, way: Between) -> None:
        """Change the way between two hosts from now on; `Between()`: as their links are."""
        self._need_delays().between(self._links[one], self._links[other], way)

    def link(self, name: str) -> Link:
        """Return what a host's link is like now."""
        return self._need_delays().link(self._links[name])

    def change_link(self, name: str, **parts: object) -> None:
        """Change a host's link from now on, by the names of `Link`."""
        self._need_delays().change(self._links[name], **parts)

    def restore_link(self, name: str) -> None:
        """Let a host's link be as it was at first."""
        self._need_delays().change(self._links[name], **asdict(self._first[name]))

    def close(self) -> None:
        """End every program in the hosts and remove them all."""
        with held_back(), self._places.locked():
            self._remove()

    def __enter__(self) -> EmulatedHosts:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove them as `close` does."""
        self.close()

    def _learn_own(self, one: HostWish, other: HostWish, network: NetworkWish) -> None:
        trip = network.between(one.link.zone, other.link.zone)
        own_ns = measured_own_ns(self[one.name], self[other.name], trip)
        self._need_delays().set_own(own_ns)

    def _need_delays(self) -> DelaySwitch:
        if self._delays is None:
            raise MachineError("a bridge joins these hosts; give a network to change their links")
        return self._delays

    def _set_cut(self, name: str, *, cut: bool) -> None:
        if self._delays is not None:
            self._delays.change(self._links[name], cut=cut)
            return
        # The host keeps its carrier only while the bridge port, not the link, goes down.
        state = "0" if cut else "3"
        with self.switch.inside_network():
            _run(["bridge", "link", "set", "dev", self._links[name], "state", state])

    def _remove(self) -> None:
        if self._delays is not None:
            self._delays.close()
            self._delays = None
        for held in self._held:
            held.close()
        self._held.clear()
        left = [one for one in remove_network(self._places.network(self._name)) if not one.done]
        if left:
            shown = "; ".join(f"{one.kind} {one.what}: {one.note}" for one in left)
            raise MachineError(
                f"emulated hosts {self._name!r}: {shown}; `disklab clean` tries again"
            )


@dataclass(frozen=True)
class _Making:
    """One set in the making."""

    places: Places
    run_dir: Path
    on_step: Callable[[str], None]

    def make(
        self, wishes: Sequence[HostWish], held: list[HeldHost], *, bridged: bool
    ) -> dict[str, NamespaceMachine]:
        """Make all members; those that are up are in `held`, whatever fails after them."""
        addresses = {
            wish.name: ADDRESS.format(number >> 8, number & 255)
            for number, wish in enumerate(wishes, 1)
        }
        starts: list[_Starting] = []
        try:
            for wish in (*wishes, HostWish(SWITCH)):
                starts.append(self._start(wish, addresses, self._group(wish)))
                self.on_step(f"process of {wish.name}")
            # Each waits for its own process; they come up side by side.
            with ThreadPoolExecutor(len(starts)) as pool:
                coming = [pool.submit(_hold, start) for start in starts]
            held += [one.result() for one in coming if one.exception() is None]
            for one in coming:
                one.result()
            self.on_step("namespaces")
            _connect(addresses, held[:-1], held[-1], bridged=bridged)
            self.on_step("network")
        except BaseException:
            for start in starts:
                if start.process not in [one.process for one in held]:
                    start.give_up()
            raise
        names = [*addresses, SWITCH]
        return {
            name: NamespaceMachine(name, addresses.get(name, ""), one)
            for name, one in zip(names, held, strict=True)
        }

    def _group(self, wish: HostWish) -> ControlGroup | None:
        root = GroupRoot.of_machine()
        if root is None or wish.name == SWITCH or not wish.grouped:
            return None
        # Another run directory of this machine may have a set of the same name.
        name = f"{self.run_dir.name[:24]}-{wish.name[:24]}-{secrets.token_hex(4)}"
        with _folder(self.run_dir) as at:
            replace_file(at, GROUP + wish.name, name)
        self.on_step(f"group of {wish.name} noted")
        group = ControlGroup.make(name, wish.memory_bytes or UNLIMITED_BYTES, root)
        self.on_step(f"group of {wish.name}")
        return group

    def _start(
        self, wish: HostWish, addresses: Mapping[str, str], group: ControlGroup | None
    ) -> _Starting:
        """Start the first process of a member; it waits for what it is to be."""
        name = wish.name
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root, names = self.run_dir.parent.parent, (self.run_dir.parent.name, self.run_dir.name)
        lock = locked_file(root, *names, LOCK + name)
        log = new_file(root, *names, f"log.{name}")
        command = [sys.executable, "-I", "-S", "-B", str(Path(host_init.__file__))]
        try:
            # What it starts has no more variables than it.
            process = programs.start(
                [*command, str(theirs.fileno()), str(lock)],
                handles=(theirs.fileno(), lock),
                stdout=log,
                stderr=log,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(lock)
            os.close(log)
        roots = GroupRoot.of_machine()
        described: dict[str, object] = {
            "name": name,
            "folder": str(self.run_dir),
            "root_bytes": ROOT_BYTES,
            "shared": [
                *({"path": str(path), "write": False} for path in installation()),
                *({"path": str(path), "write": True} for path in wish.shared),
            ],
            "addresses": dict(addresses),
            "groups": [] if group is None else [str(one / "cgroup.procs") for one in group.folders],
            "homes": [] if group is None else _homes(group.root),
            "group_version": None if roots is None else roots.version,
        }
        return _Starting(name, process, ours, described, self.run_dir / f"log.{name}")


OWN = ("/tmp", "/run", "/dev")  # noqa: S108 - what a host has of its own, never this machine's
"""Folders of which a host sees nothing of this machine."""


def installation() -> list[Path]:
    """Return the folders of this program that hosts would not see: Python, engine, package.

    They see the file system of this machine's root, without what is mounted below it.
    """
    engine = find_engine().resolve()
    package = Path(__file__).resolve().parents[1]
    wanted = {Path(sys.prefix), Path(sys.base_prefix), engine.parent, package}
    root = os.stat("/").st_dev
    hidden = sorted(
        one
        for one in wanted
        if one.stat().st_dev != root or any(one.is_relative_to(own) for own in OWN)
    )
    return [one for one in hidden if not any(other in one.parents for other in hidden)]


@dataclass(frozen=True)
class _Starting:
    """A first process that has been started."""

    name: str
    process: programs.Process
    link: socket.socket
    described: dict[str, object]
    log: Path

    def told(self) -> dict[str, object]:
        """Return its next word. Raises MachineError with what went wrong in it."""
        try:
            message = self.link.recv(host_init.MOST_MESSAGE_BYTES)
        except TimeoutError:
            message = b'{"error": "it said nothing for 30 s"}'
        if not message:
            last = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise MachineError(f"emulated host {self.name!r} ended: {last[-1] if last else ''}")
        word: dict[str, object] = json.loads(message)
        if "error" in word:
            raise MachineError(f"emulated host {self.name!r}: {word['error']}")
        return word

    def give_up(self) -> None:
        """End it, held or not."""
        with suppress(OSError):
            self.link.close()
        self.process.kill()
        self.process.wait()


def why_not() -> str | None:
    """Return why this machine has no emulated hosts; None: it has."""
    if os.geteuid() != 0:
        return "namespaces and their links need root; run it with sudo"
    missing = [f"/proc/self/ns/{name}" for name in ("net", "mnt", "pid", "uts", "ipc")]
    missing = [path for path in missing if not os.path.exists(path)]
    if missing:
        return f"this kernel has no {', '.join(missing)}"
    if "\toverlay" not in Path("/proc/filesystems").read_text(encoding="ascii"):
        return "this kernel has no overlay file system (sudo modprobe overlay)"
    for program in ("ip", "bridge"):
        if find_program(program) is None:
            return f"the program {program} is not installed (package iproute2)"
    return None


def _make_folder(places: Places, name: str) -> None:
    run_dir = places.network(name)
    try:
        fresh = not os.path.lexists(run_dir)
        ours = make_folder(places.run, "network", run_dir.parent.name, name)
    except (ForeignError, OSError) as error:
        raise MachineError(f"{run_dir}: it cannot be made: {error}") from error
    if not (ours and fresh):
        raise MachineError(
            f"{run_dir}: there are hosts of this name; `disklab clean` removes those that were left"
        )
    owner = Owner.keeping(places.run, run_dir.parent.name, name)
    with _folder(run_dir) as at:
        replace_file(at, OWNER, owner.model_dump_json() + "\n")
        os.mkdir("root", 0o700, dir_fd=at)


def _folder(run_dir: Path) -> AbstractContextManager[int]:
    return folder(run_dir.parent.parent, run_dir.parent.name, run_dir.name)


def _homes(root: GroupRoot) -> list[str]:
    """Return the files by which a process comes back to the groups that this one is in."""
    found = []
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        for place, name in ((root.memory, "memory"), (root.blkio, "blkio")):
            wanted = controllers == "" if root.version == 2 else name in controllers.split(",")
            if wanted and place is not None:
                found.append(f"{place}{path.rstrip('/')}/cgroup.procs")
    return found


def _hold(start: _Starting) -> HeldHost:
    start.link.settimeout(SET_UP_SECONDS)
    start.link.send(json.dumps(start.described).encode())
    # Its parent tells its number, and it that it is ready: in any order.
    told = {**start.told(), **start.told()}
    pid = int(str(told["pid"]))
    start.link.settimeout(None)
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    return HeldHost(start.process, pid, start.link, root, network)


def _connect(
    addresses: Mapping[str, str], hosts: Sequence[HeldHost], switch: HeldHost, *, bridged: bool
) -> None:
    """Lay a link from each host to the switch, and give it its address."""
    lines = []
    if bridged:
        lines += ["link add br0 type bridge forward_delay 0", "link set br0 up"]
    for link, host in zip(names_of(list(addresses)).values(), hosts, strict=True):
        lines.append(f"link add eth0 netns {host.pid} type veth peer name {link}")
        lines.append(f"link set {link} {'master br0 ' if bridged else ''}up")
    _batch(switch, lines)
    for address, host in zip(addresses.values(), hosts, strict=True):
        lines = ["link set lo up", f"addr add {address}/{PREFIX_BITS} dev eth0", "link set eth0 up"]
        _batch(host, lines)


def _batch(host: HeldHost, lines: Sequence[str]) -> None:
    """Run commands of ip(8) in the network of a host; process numbers are this machine's."""
    command = ["nsenter", f"--net=/proc/{host.pid}/ns/net", "ip", "-batch", "-"]
    _run(command, "\n".join(lines) + "\n")


def _run(command: Sequence[str], text: str = "") -> None:
    program = find_program(command[0]) or command[0]
    ran = programs.run([program, *command[1:]], stdin=text.encode())
    if ran.code != 0:
        raise MachineError(f"{' '.join(command)}: {ran.said}")
