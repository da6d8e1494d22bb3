"""The clock of day jumps while disklab works: a day and a second, forth and back.

CLOCK_REALTIME is one for everybody on the machine and no namespace has its own, so the jumps are
made where programs read it: a library that is loaded before the C library adds what a file says.
libfaketime is not that library: it shifts the monotonic sleeps of Python too, which then fail. The
kernel's own times, those of files and frames, stay true, so what compares them sees the jump.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from disklab.results import Run

from campaigns.kills.lab import MOST_SECONDS, FoundError, Lab
from campaigns.kills.points import read_in_fork
from campaigns.kills.scenarios import EXPERIMENT, VM, Scenario
from campaigns.kills.trouble import REHEARSAL_SECONDS, trouble
from campaigns.kills.writer import Writing
from tests.journal import Promise

COMPILER = shutil.which("cc")
DAY_S = 86_400
JUMPS_S = (DAY_S, -DAY_S, 1, -1, 0)
# It has burst credits, so a wrong clock would fill them.
BURSTING = ("disk", "attach", "azure/P10", "--no-calibrate", "--size", "16MiB")
CACHED = (*BURSTING, "--vm", VM, "--caching", "readwrite")
# Of a full bucket: P10 fills its own of half an hour in hours, and a command takes seconds.
FEW_CREDITS = 0.2
REHEARSED = 0.25
"""The share of these troubles that jump in a rehearsal, too."""

LIBRARY = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead_s;

__attribute__((constructor)) static void look(void)
{
    const char *name = getenv("JUMPED_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED)
        ahead_s = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int done = syscall(SYS_clock_gettime, clock, now);
    if (!done && ahead_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead_s;
    return done;
}

int gettimeofday(struct timeval *now, void *zone)
{
    (void)zone;
    struct timespec precise;
    int done = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return done;
}

time_t time(time_t *where)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where)
        *where = now.tv_sec;
    return now.tv_sec;
}
"""


@dataclass(frozen=True)
class Clock:
    """A clock of day that jumps when told to, for the programs that are started with it."""

    library: Path
    ahead: Path

    @classmethod
    def make(cls, lab: Lab) -> Clock:
        """Make one in a lab. It must be told from outside that there is a compiler."""
        source, library, ahead = (lab.root / name for name in ("clock.c", "clock.so", "ahead"))
        source.write_text(LIBRARY)
        assert COMPILER is not None
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
        ahead.write_bytes(struct.pack("q", 0))
        return cls(library, ahead)

    def set(self, seconds: int) -> None:
        """Let it be so far ahead of the true one."""
        with self.ahead.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shown:
            struct.pack_into("q", shown, 0, seconds)

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "JUMPED_CLOCK": str(self.ahead)}

    @contextmanager
    def jumping(self, chance: random.Random) -> Iterator[None]:
        """Let it jump every tenth of a second or so, in a process of its own."""
        seed = chance.random()
        child = os.fork()
        if child == 0:
            own = random.Random(seed)
            while True:
                self.set(own.choice(JUMPS_S))
                time.sleep(own.uniform(0.01, 0.2))
        try:
            yield
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.set(0)


@trouble("clock jumps")
def clock_jumps(lab: Lab, chance: random.Random) -> int:
    """Attach, write, change, rehearse now and then, and clean up while the clock of day jumps."""
    if COMPILER is None:
        raise FoundError("not tried: there is no C compiler (cc), which the clock is made with")
    clock = Clock.make(lab)
    with clock.jumping(chance):
        said(lab, clock, *chance.choice((BURSTING, CACHED)))
        record = lab.volume("data")
        if record is None or record.device is None:
            raise FoundError("volume data has no device")
        if not shows(lab, clock):
            raise FoundError("the engine does not see the clock that jumps")
        writing = Writing.begin(record.device, chance.randrange(1 << 16))
        said(lab, clock, "disk", "set", "data", "--credits", "empty")
        began = time.monotonic()
        for _ in range(3):
            time.sleep(chance.uniform(0.0, 0.5))
            check_view(lab, clock, time.monotonic() - began + MOST_SECONDS)
        journal = writing.end()
        if writing.failures:
            raise FoundError(f"the writer met {writing.failures}")
        promise = Scenario("", BURSTING, promise=Promise.ACKNOWLEDGED)
        if violations := read_in_fork(record.device, journal, promise):
            raise FoundError("lost: " + "; ".join(violations[:10]))
        if chance.random() < REHEARSED:
            rehearse(lab, clock)
        said(lab, clock, "clean", "--all", "--data")
    return sum(version > 0 for version in journal.acknowledged)


def shows(lab: Lab, clock: Clock) -> bool:
    """Return whether the engine runs with the clock."""
    engine = lab.engine()
    assert engine is not None
    return str(clock.library) in Path(f"/proc/{engine.pid}/maps").read_text()


def said(lab: Lab, clock: Clock, *words: str, seconds: float = MOST_SECONDS) -> str:
    """Run a command with the clock that jumps; return what it printed. FoundError: it failed."""
    command = [sys.executable, "-c", "from disklab.cli import main; main()", *lab.words(words)]
    ran = subprocess.run(
        command,
        env={**os.environ, **lab.environment(), **clock.environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    if ran.returncode not in ((0, 1) if words[0] == "rehearse" else (0,)):
        told = f"{ran.stdout}{ran.stderr}"[-2000:]
        raise FoundError(f"`disklab {' '.join(words)}` ended with {ran.returncode}: {told}")
    return ran.stdout


def check_view(lab: Lab, clock: Clock, most_s: float) -> None:
    """Raise when anything that an emulated disk counts has taken longer than there was time."""
    view: dict[str, Any] = json.loads(said(lab, clock, "disk", "show", "data", "--json"))
    late_s = view["emulator"]["lateness_ns"]["max"] / 1e9
    if late_s > most_s:
        raise FoundError(f"a reply was late by {late_s:.0f} s of {most_s:.0f}")
    for limit in view["counters"]["limits"]:
        # As many threads wait as the writer has, and a flush.
        if limit["delayed_ns"] / 1e9 > 4 * most_s:
            raise FoundError(f"{limit['place']} delayed I/Os by {limit['delayed_ns']} ns")
        held = limit["credits"]
        if held and held["capacity"] and held["left"] / held["capacity"] > FEW_CREDITS:
            raise FoundError(f"{limit['place']} {limit['unit']}: the clock filled credits: {held}")


def rehearse(lab: Lab, clock: Clock) -> None:
    """Rehearse while the clock jumps; what the results say of time must be sane."""
    (lab.root / "experiment.yaml").write_text(EXPERIMENT)
    command = ("rehearse", "LAB/experiment.yaml", "--quick", "--out", "LAB/runs")
    began, today = time.monotonic(), datetime.now(timezone.utc)
    said(lab, clock, *command, seconds=REHEARSAL_SECONDS)
    took_s = time.monotonic() - began
    (folder,) = (lab.root / "runs").iterdir()
    run = Run.open(folder)
    if run.finished() != {(0, 0), (1, 0)}:
        raise FoundError(f"finished are {run.finished()}")
    for one in run.results():
        if one.status not in ("ok", "invalid"):
            raise FoundError(f"a trial ended {one.status}: {one.reason}")
        assert one.started is not None
        away = abs(datetime.fromisoformat(one.started) - today)
        if away > timedelta(days=1, seconds=took_s + 1):
            raise FoundError(f"a trial started {one.started}, {away} from now")
        spans = [one.duration_s or 0.0, *(phase.duration_s for phase in one.phases)]
        spans += [value / 1e3 for value in one.latency_ms.values()]
        if not all(0 <= span <= took_s for span in spans):
            raise FoundError(f"of {took_s:.0f} s, parts took {spans}")
        if not one.ops_per_s:
            raise FoundError("a trial has no rate")
