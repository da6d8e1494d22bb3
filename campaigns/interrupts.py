"""`python -m campaigns.interrupts --tries 200`: Ctrl-C at random moments of every command.

Run as root. Each command gets SIGINT, as the terminal's group would, half of the times in its first
3 s. It is to end with 130 and one line, or with its own code where it was done already; nothing may
be left of it: no mount, no loop device, no process, no file of a host. `run` passes the signal on,
and tells the figures of its command whatever ended it. What comes before the first line of the
program's own script is Python's: it ends by the signal, or in its own words, and is counted apart.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from campaigns.attack.campaign import Tally
from campaigns.attack.page import INTERRUPTS as KIND
from campaigns.attack.page import renewed

DISKLAB = Path(sys.executable).with_name("disklab")
EXPERIMENTS = Path(__file__).parents[1] / "experiments"
FIRST_S, LATER_S = 3.0, 12.0
END_S = 30.0
"""A command that has heard Ctrl-C ends within this, beside other work too."""
LEFT_S = 10.0
"""What root's part still takes away after its command ended."""
MARKER = "DISKLAB_CAMPAIGN_OF_INTERRUPTS"
ENDLESS = ("rehearse", "run", "probe", "kit try", "predict --year")
"""Commands that are not done within the longest wait: they were interrupted, if they ended."""
INTERRUPTED = (130, -signal.SIGINT)
"""A shell reports both as 130."""
PYTHONS_OWN = "Fatal Python error: init"
FIGURES = "exit code 130"
"""In the heading of what `run` tells of a command that Ctrl-C has ended."""


def commands(folder: Path, silent: str) -> dict[str, list[str]]:
    """Return every command that works for longer than it takes to start, by its name.

    `silent`: a server that lets a client in and says nothing more.
    """
    redis = str(EXPERIMENTS / "redis-fsync.yaml")
    slow = str(EXPERIMENTS / "cassandra-local-or-attached.yaml")
    out = ["--out", str(folder / "runs")]
    disk = ["--disk", "azure/P10", "--size", "512MiB"]
    return {
        "advise": ["advise", "--data", "2TB", "--reads", "20000", "--p99", "10", *out],
        "predict": ["predict", slow, *out],
        "predict --year": ["predict", slow, "--year", *out],
        "rehearse": ["rehearse", redis, "--quick", *out],
        "run": ["run", *disk, "--no-calibrate", "--", "sleep", "600"],
        "disk attach": ["disk", "attach", "azure/P10", *disk[2:], "--weather", "aws/gp3"],
        "probe": ["probe", "--disk", "azure/P10", "--quick", *out],
        "serve": ["serve", "--port", "0", str(folder)],
        "knob": ["knob", str(folder / "knob.html")],
        "observe": ["observe", "mariadb", "--address", silent, "--user", "u", "--for", "60s"],
        "report": ["report", str(report_of(folder))],
        "doctor": ["doctor"],
        "clean": ["clean"],
        "catalog": ["catalog"],
        "kit try": ["kit", "try", "nats", "--seconds", "60"],
    }


def report_of(folder: Path) -> Path:
    """Return the folder of a run that can be reported, made by a small prediction."""
    out = folder / "reported"
    words = ["predict", str(EXPERIMENTS / "azure-queue-depths.yaml"), "--fidelity", "quick"]
    subprocess.run(
        [str(DISKLAB), *words, "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (run,) = out.iterdir()
    return run


@dataclass(frozen=True)
class Ended:
    """What became of one interrupt."""

    name: str
    at_s: float
    code: int | None
    errors: str
    """What it said on standard error after the signal."""
    left: tuple[str, ...]

    @property
    def is_pythons(self) -> bool:
        """Whether Python ended, before any of the program's own lines."""
        return self.errors.startswith(PYTHONS_OWN)

    @property
    def faults(self) -> list[str]:
        """What is wrong with it; empty: nothing."""
        faults = []
        if self.code is None:
            faults.append("did not hear it")
        elif self.code not in INTERRUPTED and not self.is_pythons:
            # One that was done already ends with 0, and `observe` with 1: nobody answers it.
            done = 1 if self.name == "observe" else 0
            faults += [f"code {self.code}"] if self.code != done or self.name in ENDLESS else []
        if "Traceback" in self.errors and not self.is_pythons:
            faults.append("a traceback")
        # What is indented is progress: the phase in which all is taken back.
        lines = [line for line in self.errors.splitlines() if line.strip() and line[0] != " "]
        if (
            self.code == 130
            and len(lines) > 1
            and not (self.name == "run" and FIGURES in self.errors)
        ):
            faults.append("more than a line")
        return [*faults, *(f"left {what}" for what in self.left)]


def remains(folder: Path, marker: str) -> tuple[str, ...]:
    """Return what is there of a command that ended: processes, mounts, devices, hosts' files."""
    remaining = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker.encode() in (process / "environ").read_bytes():
                remaining.append((process / "cmdline").read_text().replace("\0", " ")[:100])
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    remaining += [line.split()[1] for line in mounts.splitlines() if str(folder) in line]
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    remaining += [str(file) for file in backing if str(folder) in file.read_text(encoding="utf-8")]
    remaining += [
        str(path) for path in (folder / "run").rglob("*") if path.suffix in {".img", ".sock"}
    ]
    return tuple(remaining)


def interrupted(name: str, words: list[str], at_s: float, folder: Path) -> Ended:
    """Start a command, interrupt it after so long, wait for its end and for what it left."""
    marker = f"{folder.name}-{time.monotonic_ns()}"
    environment = {**os.environ, MARKER: marker, "DISKLAB_RUN_DIR": str(folder / "run")}
    environment |= {"DISKLAB_DATA_DIR": str(folder / "data"), "DISKLAB_CALM_WAIT": "0"}
    before = 0
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [str(DISKLAB), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(at_s)
        if process.poll() is None:
            # Progress that it printed before the signal is not an answer to it.
            before = os.fstat(errors.fileno()).st_size
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(END_S)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(END_S)
            code = None
        errors.seek(before)
        answer = errors.read().decode(errors="replace")
        out.seek(0)
        is_attached = name == "disk attach" and b"/dev/" in out.read()
    deadline = time.monotonic() + LEFT_S
    while (left := remains(folder, marker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        subprocess.run([str(DISKLAB), "clean", "--all"], env=environment, check=False)
        # A disk that was attached stays, whatever ends its weather: the command is for that.
        left = () if is_attached else left
    return Ended(name, at_s, code, answer, left)


def main() -> int:
    """Interrupt each command in turn; print what went wrong; 1 where something did."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.interrupts", description=__doc__)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="these commands")
    parser.add_argument("--page", type=Path, help="where the counts are written")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    faults: list[str] = []
    codes: Counter[tuple[str, int | str | None]] = Counter()
    with (
        tempfile.TemporaryDirectory(prefix="disklab-interrupts-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        # Databases run as another user.
        Path(folder).chmod(0o755)
        own = commands(Path(folder), f"127.0.0.1:{server.getsockname()[1]}")
        names = given.only or [*own]
        for number in range(given.tries):
            name = names[number % len(names)]
            # Each command gets early ones and later ones in turn.
            early = number // len(names) % 2 == 0
            at_s = chance.uniform(0.0, FIRST_S) if early else chance.uniform(FIRST_S, LATER_S)
            end = interrupted(name, own[name], at_s, Path(folder))
            codes[name, "Python's start" if end.is_pythons else end.code] += 1
            for fault in end.faults:
                faults.append(f"{name} at {at_s:.2f} s: {fault}")
                print(faults[-1], end.errors[-1500:], sep="\n", flush=True)
    for (name, code), count in sorted(codes.items(), key=str):
        print(f"{name}: code {code}: {count}")
    print(f"{given.tries} interrupts, {len(faults)} faults")
    if given.page is not None:
        ended = sum(count for (_, code), count in codes.items() if code in INTERRUPTED)
        tally = Tally(KIND, given.tries, ended, faults)
        renewed(given.page, [tally], given.seed, datetime.now(timezone.utc).date().isoformat())
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
