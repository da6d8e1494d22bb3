"""Runs tests in a small emulated machine with another kernel: `make test-kernels`.

The kernel is a distribution's, the programs are the ones built here. So ublk, cgroup v2 and the
oldest kernel that disklab supports are seen on a machine that has none of them. Needs neither root
nor KVM. Exit code 0: every case passed; 1: one failed, or the machine did not get so far; 2:
something is missing, and the message says what.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from campaigns.kernels import machine
from campaigns.kernels.interpreter import pack_environment, pack_files

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv"
# Kept between runs; `target/` is what git ignores and `cargo clean` removes.
DIRECTORIES = ROOT / "target" / "emulated-machines"
# The suite takes about a minute under emulation on two idle cores.
LIMIT_S = 600
# What the suite runs besides the engine -> Debian package.
TOOLS = {
    "blkid": "util-linux",
    "fio": "fio",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "losetup": "mount",
    "mount": "mount",
    "umount": "mount",
}
COMMAND = """#!/bin/sh
uname -srm
status=0
export DISKLAB_ENGINE=/bin/disklab-engine
for DISKLAB_TRANSPORT in {transports}; do
  export DISKLAB_TRANSPORT
  /bin/conformance {case} || status=1
done
exit $status
"""


def build() -> dict[str, Path]:
    """Build the engine and the suite; return both programs by name."""
    command = ["cargo", "test", "--locked", "--release", "--package", "disklab-engine"]
    command += ["--test", "conformance", "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise machine.MissingPartError("cargo could not build the engine and its conformance suite")
    programs = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable"):
            programs[message["target"]["name"]] = Path(message["executable"])
    return {name: programs[name] for name in ("disklab-engine", "conformance")}


def tools() -> dict[str, Path]:
    """Return what the suite runs in the machine, from this one."""
    path = "/usr/sbin:/sbin:/usr/bin:/bin"
    found = {name: shutil.which(name, path=path) for name in TOOLS}
    absent = sorted(TOOLS[name] for name, program in found.items() if program is None)
    if absent:
        raise machine.MissingPartError(f"not found; install: {' '.join(absent)}")
    return {name: Path(program) for name, program in found.items() if program is not None}


# For groups of cgroup v2, where this machine has v1.
GROUP_TESTS = ("tests/hosts/test_control_group.py", "tests/hosts/test_full_memory.py")
PYTEST = ["-p", "no:cacheprovider", *GROUP_TESTS]
GROUPS = """#!/bin/sh
export PATH={environment}/bin:/bin HOME=/tmp
mkdir -p /dev/shm /mnt
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /dev/shm
# A page cache wants a disk below it. It is written whole: its pages must be nobody's group's.
dd if=/dev/zero of=/dev/shm/disk bs=1M count=64 2>/dev/null
mkfs.ext4 -q /dev/shm/disk && mount -o loop /dev/shm/disk /mnt || exit 1
cd {root} && python -m pytest --basetemp /mnt/tmp {arguments}
"""


@dataclass(frozen=True)
class Work:
    """What a machine is to do, and what it needs for that."""

    command: str
    programs: dict[str, Path]
    load: str | None = None
    """Python that loads what is used of the virtual environment; None: nothing is."""
    files: tuple[Path, ...] = ()


def suite(transports: list[str], case: str) -> Work:
    """Return the conformance suite."""
    command = COMMAND.format(transports=" ".join(transports), case=case)
    return Work(command, build() | tools())


def command_line() -> Work:
    """Return a run of disklab's own commands."""
    script = Path(__file__).with_name("command_line.sh").read_text(encoding="utf-8")
    search = f"export PATH={ENVIRONMENT}/bin:/bin HOME=/tmp\n"
    load = "import disklab.cli.app, disklab.cli.clean, disklab.cli.disk"
    return Work(script.replace("\n", "\n" + search, 1), tools(), load)


def memory_groups() -> Work:
    """Return the tests of memory groups, under cgroup v2."""
    command = GROUPS.format(
        environment=ENVIRONMENT,
        root=ROOT,
        arguments=shlex.join(["-rA", "-q", "--color=no", *PYTEST]),
    )
    collect = ["--collect-only", "-q", *PYTEST]
    load = f"import pytest, disklab.cli.disk, disklab.cli.clean; pytest.main({collect!r})"
    return Work(
        command, tools(), load, (ROOT / "tests", ROOT / "campaigns", ROOT / "pyproject.toml")
    )


def run(work: Work, system: str) -> int:
    """Boot, show the console, print the verdict; return the exit code."""
    machine.require("qemu-system-x86_64", "ldd")
    directory = DIRECTORIES / system
    directory.mkdir(parents=True, exist_ok=True)
    parts = machine.fetch(directory, machine.SYSTEMS[system])
    initrd = directory / "initrd"
    archive = machine.Archive(initrd)
    if work.load is not None:
        pack_environment(archive, ENVIRONMENT, work.load)
    for path in work.files:
        pack_files(archive, path)
    machine.pack(archive, parts, work.programs, work.command)
    archive.close()
    print(f"booting {parts.kernel.name} in an emulated machine; console: {directory}/console.log")
    verdict = machine.boot(directory, parts, initrd, LIMIT_S)
    console = (directory / "console.log").read_text(encoding="utf-8", errors="replace")
    print("\n".join(console.splitlines()))
    if verdict.code == 0:
        print("emulated machine: passed")
        return 0
    # The kernel's log, which follows the suite's report after a failure, is long.
    print("\n".join(line for line in console.splitlines() if line.startswith("  FAILED")))
    print(f"emulated machine: FAILED: {verdict.reason}")
    return 1


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.kernels", description=__doc__)
    parser.add_argument(
        "--system",
        default="debian-13",
        choices=machine.SYSTEMS,
        help="whose kernel is booted (default: %(default)s)",
    )
    parser.add_argument(
        "--transports",
        help="comma-separated (default: ublk,fuse where the kernel has ublk, else fuse); FUSE "
        "under the same kernel tells the suite's faults from ublk's",
    )
    parser.add_argument(
        "--command-line",
        action="store_true",
        help="run disklab's own commands over ublk instead of the suite",
    )
    parser.add_argument(
        "--memory-groups",
        action="store_true",
        help="run the tests of memory groups, under cgroup v2, instead of the suite",
    )
    parser.add_argument("case", nargs="?", default="", help="run the cases that contain this word")
    arguments = parser.parse_args()
    has_ublk = "ublk_drv" in machine.SYSTEMS[arguments.system].modules
    transports = arguments.transports or ("ublk,fuse" if has_ublk else "fuse")
    try:
        if arguments.command_line:
            work = command_line()
        elif arguments.memory_groups:
            work = memory_groups()
        else:
            work = suite(transports.split(","), arguments.case)
        return run(work, arguments.system)
    except machine.MissingPartError as missing:
        print(f"emulated machine: cannot run: {missing}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
