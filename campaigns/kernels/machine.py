"""A small emulated machine: a kernel of another distribution, busybox and the programs given to it.

QEMU emulates the processor in software, so it needs neither KVM nor root, and it boots a kernel
other than the one that runs here. Everything lies in one directory, which is kept: the second run
downloads nothing.
"""

from __future__ import annotations

import lzma
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class System:
    """A distribution whose kernel is booted: where apt finds it, and what of it."""

    sources: tuple[str, ...]
    keyring: str
    """Name of the file that apt trusts."""
    keyring_package: str
    kernel: str
    """A package that depends on the newest kernel."""
    modules: tuple[str, ...]
    """Each stands behind what it needs."""
    apart: bool
    """Whether the kernel's modules are a package of their own."""


SYSTEMS = {
    # Its 6.12 is the first Debian kernel with ublk_drv (Debian 12's 6.1 is built without). The
    # cloud flavour is a third of the size and has what this needs: 8250, FUSE and ext4 built in.
    # loop is there so that the FUSE transports can run beside ublk under the same kernel.
    "debian-13": System(
        sources=("http://deb.debian.org/debian trixie main",),
        keyring="debian-archive-keyring",
        keyring_package="debian-archive-keyring",
        kernel="linux-image-cloud-amd64",
        modules=("ublk_drv", "loop", "libcrc32c", "xfs"),
        apart=False,
    ),
    # 5.15, the oldest kernel that disklab supports. loop is built in.
    "ubuntu-22.04": System(
        sources=tuple(
            f"http://archive.ubuntu.com/ubuntu {suite} main" for suite in ("jammy", "jammy-updates")
        ),
        keyring="ubuntu-archive-keyring",
        keyring_package="ubuntu-keyring",
        kernel="linux-image-virtual",
        modules=("libcrc32c", "xfs"),
        apart=True,
    ),
}
# Program -> Debian package, for the message that says what is missing.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "ldd": "libc-bin",
}
# Two features of `-cpu max` cost time under software emulation: page tables of five levels (la57)
# and the 16-byte compare-and-exchange of SLUB (cx16): 5.5 s to boot without them, 7.5 s with.
PROCESSOR = "max,-cx16,-la57"
MEMORY = "2G"

INIT = """#!/bin/sh
# The first process of the machine: mounts, modules, the command, the verdict, power off.
# The root is in memory, /tmp and /run with it: a mount there could hide a packed checkout.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec >/dev/ttyS0 2>&1 </dev/null
for module in /modules/*.ko; do insmod "$module" || echo "init: cannot load $module"; done
/command
code=$?
[ "$code" = 0 ] || dmesg
echo "$code" >/dev/ttyS1
poweroff -f
"""


class MissingPartError(Exception):
    """A part of the machine is not here. The message says which and how to get it."""


@dataclass(frozen=True)
class Parts:
    """What a machine boots: paths of the kernel, its modules and a static busybox."""

    kernel: Path
    modules: tuple[Path, ...]
    busybox: Path


@dataclass(frozen=True)
class Verdict:
    """How a run ended: the exit code of the command, None when the machine did not say."""

    code: int | None
    reason: str


def require(*programs: str, packages: Mapping[str, str] = PROGRAMS) -> None:
    """Raise MissingPartError, naming the Debian packages, unless every program is on PATH."""
    if platform.machine() != "x86_64":
        raise MissingPartError(
            f"the emulated machine runs x86_64 programs built here; this is {platform.machine()}"
        )
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        wanted = " ".join(sorted({packages.get(program, program) for program in absent}))
        raise MissingPartError(f"not found: {', '.join(absent)}; install: {wanted}")


class Packages:
    """Debian packages through apt, with lists and a cache apart from the system's."""

    def __init__(self, directory: Path, system: System) -> None:
        self.directory = directory
        self.system = system
        self.sources = directory / "sources.list"
        self.options = [
            f"-oDir::Etc::SourceList={self.sources}",
            "-oDir::Etc::SourceParts=-",
            f"-oDir::State={directory / 'state'}",
            f"-oDir::State::Status={directory / 'status'}",
            f"-oDir::Cache={directory / 'cache'}",
            "-oAcquire::Languages=none",
            "-oAcquire::Retries=3",
            # The sandbox user cannot write below a private directory; apt would only warn.
            "-oAPT::Sandbox::User=",
        ]

    def update(self) -> None:
        """Read the archive's list of packages."""
        keyring = Path(f"/usr/share/keyrings/{self.system.keyring}.gpg")
        if not keyring.exists():
            wanted = self.system.keyring_package
            raise MissingPartError(f"not found: {keyring}; install: {wanted}")
        for part in ("state/lists/partial", "cache/archives/partial"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        (self.directory / "status").touch()
        lines = (f"deb [signed-by={keyring}] {source}\n" for source in self.system.sources)
        self.sources.write_text("".join(lines), encoding="utf-8")
        self._run(["apt-get", *self.options, "--quiet=2", "--error-on=any", "update"])

    def dependency(self, package: str, pattern: str) -> str:
        """Return the first package matching `pattern` that `package` depends on."""
        shown = self._run(["apt-cache", *self.options, "depends", package])
        found = re.search(rf"Depends: ({pattern})", shown)
        if found is None:
            raise MissingPartError(f"{package} depends on nothing like {pattern}:\n{shown}")
        return found[1]

    def unpack(self, packages: list[str], into: Path) -> None:
        """Download packages and lay their files below `into`."""
        into.mkdir(parents=True)
        self._run(["apt-get", *self.options, "--quiet=2", "download", *packages], cwd=into)
        for archive in sorted(into.glob("*.deb")):
            self._run(["dpkg-deb", "-x", str(archive), str(into)])
            archive.unlink()

    def _run(self, command: list[str], cwd: Path | None = None) -> str:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingPartError(
                f"{' '.join(command)} failed; are these within reach? "
                f"{', '.join(self.system.sources)}\n{done.stderr}"
            )
        return done.stdout


def fetch(directory: Path, system: System) -> Parts:
    """Return the parts of the machine, downloading them unless an earlier run has.

    Raises MissingPartError when a program, the keyring or the archive is out of reach.
    """
    root = directory / "root"
    if not (root / "complete").exists():
        require("apt-get", "dpkg-deb")
        shutil.rmtree(root, ignore_errors=True)
        packages = Packages(directory / "apt", system)
        packages.update()
        kernel = packages.dependency(system.kernel, r"linux-image-[0-9]\S+")
        modules = [kernel.replace("-image-", "-modules-")] if system.apart else []
        packages.unpack([kernel, *modules, "busybox-static"], root)
        (root / "complete").write_text(kernel + "\n", encoding="utf-8")
    return Parts(
        kernel=only(root / "boot", "vmlinuz-*"),
        modules=tuple(only(root, f"**/{name}.ko*") for name in system.modules),
        busybox=only(root, "**/bin/busybox"),
    )


def only(directory: Path, pattern: str) -> Path:
    """Return the one path below `directory` that matches `pattern`."""
    found = list(directory.glob(pattern))
    if len(found) != 1:
        raise MissingPartError(
            f"{directory}: {len(found)} files match {pattern}, not one; remove it and run again"
        )
    return found[0]


def shared_objects(program: Path) -> list[Path]:
    """Return the libraries that `program` loads, among them the dynamic loader."""
    listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    if "not found" in listing.stdout:
        raise MissingPartError(f"{program} lacks libraries:\n{listing.stdout}")
    return [Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listing.stdout, re.M)]


class Archive:
    """An initial RAM file system: cpio, format `newc` (buffer-format.rst of the kernel)."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("wb")
        self.inode = 0
        self.names: set[str] = set()

    def add(self, name: str, mode: int, content: bytes = b"") -> None:
        """Add one entry and the directories above it, unless the name is there already."""
        if name in self.names:
            return
        parent = name.rpartition("/")[0]
        if parent:
            self.add(parent, stat.S_IFDIR | 0o755)
        self.names.add(name)
        self._write(name, mode, content)

    def program(self, name: str, path: Path) -> None:
        """Add a program under /bin and the libraries it loads where its loader looks for them."""
        self.add(f"bin/{name}", stat.S_IFREG | 0o755, path.read_bytes())
        for library in shared_objects(path):
            self.add(str(library).lstrip("/"), stat.S_IFREG | 0o755, library.read_bytes())

    def close(self) -> None:
        """End the archive."""
        self._write("TRAILER!!!", 0, b"")
        self.stream.close()

    def _write(self, name: str, mode: int, content: bytes) -> None:
        self.inode += 1
        # ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        fields = (self.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self.stream.write(header + bytes(-len(header) % 4))
        self.stream.write(content + bytes(-len(content) % 4))


def pack(archive: Archive, parts: Parts, programs: Mapping[str, Path], command: str) -> None:
    """Fill the initial RAM file system; `command` is a shell script that the machine runs."""
    for directory in ("proc", "sys", "dev", "run", "tmp"):
        archive.add(directory, stat.S_IFDIR | 0o755)
    for name, program in programs.items():
        archive.program(name, program)
    archive.add("bin/busybox", stat.S_IFREG | 0o755, parts.busybox.read_bytes())
    applets = subprocess.run([parts.busybox, "--list"], capture_output=True, text=True, check=True)
    for applet in applets.stdout.split():
        archive.add(f"bin/{applet}", stat.S_IFLNK | 0o777, b"busybox")
    for number, module in enumerate(parts.modules):
        name, content = module.name, module.read_bytes()
        if module.suffix == ".xz":
            name, content = module.stem, lzma.decompress(content)
        archive.add(f"modules/{number}-{name}", stat.S_IFREG | 0o644, content)
    archive.add("init", stat.S_IFREG | 0o755, INIT.encode())
    archive.add("command", stat.S_IFREG | 0o755, command.encode())


def boot(directory: Path, parts: Parts, initrd: Path, limit_s: int) -> Verdict:
    """Run the machine until it powers off; `console.log` in `directory` is what it said.

    A machine that panics, hangs longer than `limit_s` or ends without a verdict has code None.
    """
    require("qemu-system-x86_64")
    console, verdict = directory / "console.log", directory / "verdict"
    verdict.unlink(missing_ok=True)
    command = [
        "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", PROCESSOR,
        "-smp", "2", "-m", MEMORY, "-nodefaults", "-no-reboot", "-display", "none",
        "-serial", f"file:{console}", "-serial", f"file:{verdict}",
        "-kernel", str(parts.kernel), "-initrd", str(initrd),
        # I/O errors are what some cases ask for: INIT shows the kernel's log only after a failure.
        "-append", "console=ttyS0 panic=-1 loglevel=1",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Verdict(None, f"the machine did not end within {limit_s} s")
    said = verdict.read_text(encoding="utf-8").strip() if verdict.exists() else ""
    if not said:
        return Verdict(None, f"the machine ended without a verdict\n{done.stderr}".strip())
    return Verdict(int(said), f"exit code {said}")
