"""Runs the conformance suite over ublk in a small emulated machine: `make test-ublk`.

For machines whose own kernel lacks ublk_drv. The kernel is Debian's, the programs are the ones
built here. Needs neither root nor KVM. Exit code 0: every case passed; 1: one failed, or the
machine did not get so far; 2: something is missing, and the message says what.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.ublk import machine
from tests.ublk.interpreter import pack_environment, pack_files

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv"
# Kept between runs; `target/` is what git ignores and `cargo clean` removes.
DIRECTORY = ROOT / "target" / "ublk-machine"
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


def run_suite(transports: list[str], case: str) -> int:
    """Run the conformance suite; return the exit code."""
    command = COMMAND.format(transports=" ".join(transports), case=case)
    return run(build() | tools(), command, None)


def run_command_line() -> int:
    """Run disklab's own commands; return the exit code."""
    script = Path(__file__).with_name("command_line.sh").read_text(encoding="utf-8")
    search = f"export PATH={ENVIRONMENT}/bin:/bin HOME=/tmp\n"
    load = "import disklab.cli.app, disklab.cli.clean, disklab.cli.disk"
    return run(tools(), script.replace("\n", "\n" + search, 1), load)


def run_groups() -> int:
    """Run the tests of memory groups under cgroup v2; return the exit code."""
    command = GROUPS.format(
        environment=ENVIRONMENT,
        root=ROOT,
        arguments=shlex.join(["-rA", "-q", "--color=no", *PYTEST]),
    )
    collect = ["--collect-only", "-q", *PYTEST]
    load = f"import pytest, disklab.cli.disk, disklab.cli.clean; pytest.main({collect!r})"
    return run(tools(), command, load, (ROOT / "tests", ROOT / "pyproject.toml"))


def run(
    programs: dict[str, Path], command: str, load: str | None, files: tuple[Path, ...] = ()
) -> int:
    """Boot, show the console, print the verdict; return the exit code."""
    machine.require("qemu-system-x86_64", "ldd")
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    parts = machine.fetch(DIRECTORY)
    initrd = DIRECTORY / "initrd"
    archive = machine.Archive(initrd)
    if load is not None:
        pack_environment(archive, ENVIRONMENT, load)
    for path in files:
        pack_files(archive, path)
    machine.pack(archive, parts, programs, command)
    archive.close()
    print(f"booting {parts.kernel.name} in an emulated machine; console: {DIRECTORY}/console.log")
    verdict = machine.boot(DIRECTORY, parts, initrd, LIMIT_S)
    console = (DIRECTORY / "console.log").read_text(encoding="utf-8", errors="replace")
    print("\n".join(console.splitlines()))
    if verdict.code == 0:
        print("test-ublk: passed")
        return 0
    # The kernel's log, which follows the suite's report after a failure, is long.
    print("\n".join(line for line in console.splitlines() if line.startswith("  FAILED")))
    print(f"test-ublk: FAILED: {verdict.reason}")
    return 1


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.ublk", description=__doc__)
    parser.add_argument(
        "--transports",
        default="ublk,fuse",
        help="comma-separated; FUSE under the same kernel tells the suite's faults from ublk's",
    )
    parser.add_argument(
        "--command-line",
        action="store_true",
        help="run disklab's own commands instead of the suite",
    )
    parser.add_argument(
        "--memory-groups",
        action="store_true",
        help="run the tests of memory groups, under cgroup v2, instead of the suite",
    )
    parser.add_argument("case", nargs="?", default="", help="run the cases that contain this word")
    arguments = parser.parse_args()
    try:
        if arguments.command_line:
            return run_command_line()
        if arguments.memory_groups:
            return run_groups()
        return run_suite(arguments.transports.split(","), arguments.case)
    except machine.MissingPartError as missing:
        print(f"test-ublk: cannot run: {missing}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
