"""`python -m campaigns.busy`: do figures that other work spoiled count, and do the others?

Run as root, its quiet trials on a machine on which nothing else runs. The same small trials are
rehearsed quiet and beside other work, one line each in `busy.jsonl` below `--folder`; started
again it goes on with what is missing. `--page` writes what became of them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DISKLAB = Path(sys.executable).with_name("disklab")
MOST_SECONDS = 900.0
"""Of a trial: beside other work it takes several times as long as alone."""
MOST_SECONDS_TO_END = 120.0
WITHIN: Mapping[str, float] = {"rate": 0.10, "median": 0.15, "tail": 0.30}
"""How near the quiet median a figure has to be to be right; `telemetry/spoiled.py` has the same."""
COUNTING, NEAR = 0.95, 0.70
"""Of the figures that count so many are to be right; of the loaded right ones so many to count."""

REDIS = """
title: Redis, MODE
cluster:
  nodes: 1
  vm: azure/Standard_D4s_v5
  volumes: {data: {disks: azure/P10, caching: None, filesystem: ext4}}
database: {engine: redis, replication_factor: 1, settings: {appendfsync: MODE}}
dataset: {rows: 20k, row: 1 x 1000B}
workload:
  operations: {write: 70%, read: 30%}
  keys: uniform
  load: LOAD
  stop: {duration: 12s}
before: {page_cache: as-left, credits: 0%}
rehearse: {scale: 1, time_dilation: 1}
"""
POSTGRESQL = """
title: PostgreSQL on P10 in slow motion
cluster:
  nodes: 1
  vm: azure/Standard_D4s_v5
  volumes: {data: {disks: azure/P10, caching: None, filesystem: xfs}}
database: {engine: postgresql, replication_factor: 1, tls: false, settings: {shared_buffers: 32MB}}
dataset: {rows: 60k, row: 1 x 1000B}
workload:
  operations: {read: 80%, write: 20%}
  keys: uniform
  load: {threads: 16}
  stop: {duration: 8s}
before: {page_cache: cold, credits: 0%}
rehearse: {scale: 1, time_dilation: 4}
"""
FIO = """
title: fio on P10
device: {vm: azure/Standard_D4s_v5, volume: {disks: azure/P10}}
workload: {fio: {profile: async, rw: randread, bs: 4k}, stop: {duration: 8s}}
before: {credits: 0%}
"""
TRIALS: Mapping[str, str] = {
    "PostgreSQL, slow motion": POSTGRESQL,
    "Redis, everysec": REDIS.replace("MODE", "everysec").replace("LOAD", "{rate: 1000/s}"),
    "Redis, always": REDIS.replace("MODE", "always").replace("LOAD", "{threads: 8}"),
    "fio": FIO,
}

LOOP = "while True: pass"
WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(file, bytes(1 << 20), 0)
    os.fsync(file)
"""
COPIER = """
block = bytearray(256 << 20)
while True:
    bytes(block)
"""
STARTER = """
import subprocess
while True:
    subprocess.run(["true"])
"""
COMPILER = """
import subprocess
text = "".join(f"int f{n}(int x) {{ return x * {n} + (x >> 3) % 7; }}\\n" for n in range(20000))
while True:
    subprocess.run(["cc", "-O2", "-c", "-x", "c", "-o", "/dev/null", "-"], input=text.encode())
"""
REHEARSAL = """
import subprocess, sys
while True:
    subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
QUIET = "quiet"


def beside(name: str, folder: Path) -> list[list[str]]:
    """Return the programs that a kind of other work is made of, each in its own process."""
    python = [sys.executable, "-c"]
    files = [str(folder / f"written-{number}") for number in range(3)]
    second = folder / "second.yaml"
    second.write_text(TRIALS["Redis, always"], encoding="utf-8")
    rehearse = [str(DISKLAB), "rehearse", str(second), "--quick", "--out", str(folder / "second")]
    return {
        QUIET: [],
        "loops": [[*python, LOOP]] * 12,
        "writers and copies": [
            *([*python, WRITER, file] for file in files),
            *[[*python, COPIER]] * 3,
            *[[*python, STARTER]] * 3,
        ],
        "a second rehearsal": [[*python, REHEARSAL, *rehearse]],
        "a compiler": [[*python, COMPILER]] * 3,
    }[name]


KINDS = (QUIET, "loops", "writers and copies", "a second rehearsal", "a compiler")


@contextmanager
def working(programs: Sequence[Sequence[str]], environment: Mapping[str, str]) -> Iterator[None]:
    """Have programs run inside the block."""
    with ExitStack() as undo:
        for words in programs:
            process = subprocess.Popen(
                words, env=dict(environment), stderr=subprocess.DEVNULL, start_new_session=True
            )
            undo.callback(_end, process)
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    # It leads a group of its own. A rehearsal takes its hosts away meanwhile.
    deadline = time.monotonic() + MOST_SECONDS_TO_END
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def figures(result: Mapping[str, Any]) -> dict[str, float]:
    """Return rate, median and tail of a result, as far as it has them."""
    latency = result.get("latency_ms") or {}
    told = {"rate": result.get("ops_per_s"), "median": latency.get("p50")}
    told["tail"] = latency.get("p99")
    return {name: value for name, value in told.items() if value}


def trial(name: str, kind: str, folder: Path) -> dict[str, Any]:
    """Rehearse one trial beside a kind of work; return its line."""
    file = folder / "trial.yaml"
    file.write_text(TRIALS[name], encoding="utf-8")
    environment = {**os.environ, "DISKLAB_CALM_WAIT": "0", "COLUMNS": "200"}
    environment |= {
        "DISKLAB_RUN_DIR": str(folder / "run"),
        "DISKLAB_DATA_DIR": str(folder / "data"),
    }
    second = environment | {"DISKLAB_RUN_DIR": str(folder / "run2")}
    command = [str(DISKLAB), "rehearse", str(file), "--quick", "--repeat", "1", "--json"]
    with working(beside(kind, folder), second):
        time.sleep(1.0)
        ran = subprocess.run(
            [*command, "--out", str(folder / "runs")],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=MOST_SECONDS,
        )
        load = os.getloadavg()[0]
    if ran.returncode not in (0, 1) or not ran.stdout.strip():
        raise SystemExit(f"{name}, {kind}: {ran.stderr[-2000:]}")
    result = json.loads(ran.stdout.splitlines()[0])
    kept = {"status": result["status"], "spoiled": result.get("spoiled") or {}}
    kept |= {"invalid": result["invalid_reasons"], "figures": figures(result)}
    return {"trial": name, "beside": kind, "load": round(load, 1), **kept}


@dataclass(frozen=True)
class Figure:
    """One figure of one trial."""

    line: Mapping[str, Any]
    name: str
    value: float
    quiet: float
    """The median of the quiet trials."""

    @property
    def counts(self) -> bool:
        """Whether a reader gets it as an answer."""
        return self.line["status"] == "ok" and self.name not in self.line["spoiled"]

    @property
    def right(self) -> bool:
        """Whether it is as near the quiet one as it has to be."""
        return abs(self.value / self.quiet - 1) <= WITHIN[self.name]


def judged(lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return every figure for which quiet ones are known."""
    found = []
    for line in lines:
        for name, value in line["figures"].items():
            quiet = [
                other["figures"][name]
                for other in lines
                if other["trial"] == line["trial"] and other["beside"] == QUIET
                if name in other["figures"]
            ]
            if quiet:
                found.append(Figure(line, name, value, statistics.median(quiet)))
    return found


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return what became of the trials, as a page."""
    own = judged(lines)
    loaded = [one for one in own if one.line["beside"] != QUIET]
    counting, near = [one for one in loaded if one.counts], [one for one in loaded if one.right]
    marked = [one for one in own if one.line["beside"] == QUIET and not one.counts]
    quiet = sum(line["beside"] == QUIET for line in lines)
    text = [
        "# Beside other work",
        "",
        "Written by `python -m campaigns.busy --page docs/busy.md`. The same small trials, quiet",
        "and beside other work on the same machine: a figure is right within 10 % (rate), 15 %",
        "(p50) or 30 % (p99) of the quiet median.",
        "",
        f"{len(lines)} trials, {quiet} of them quiet, load averages {_loads(lines)}.",
        "",
        f"- Loaded figures that count: {_share(counting, 'right')} (wanted: {COUNTING:.0%}).",
        f"- Loaded figures that are right: {_share(near, 'counts')} (wanted: {NEAR:.0%}).",
        f"- Quiet figures that do not count: {len(marked)} (wanted: 0).",
        "",
        "| trial | beside | trials | rate | p50, ms | p99, ms | counts: rate, p50, p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in TRIALS:
        for kind in KINDS:
            here = [one for one in lines if (one["trial"], one["beside"]) == (name, kind)]
            if here:
                text.append(f"| {name} | {kind} | {len(here)} | {' | '.join(_row(here))} |")
    return "\n".join([*text, ""])


def _loads(lines: Sequence[Mapping[str, Any]]) -> str:
    loads = [line["load"] for line in lines]
    return f"{min(loads):g} to {max(loads):g}" if loads else "none"


def _share(figures: Sequence[Figure], what: str) -> str:
    if not figures:
        return "unknown: no trial ran on a quiet machine to compare with"
    verb = {"right": "are right", "counts": "count"}[what]
    return f"{sum(getattr(one, what) for one in figures)} of {len(figures)} {verb}"


def _row(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counted = []
    for name in WITHIN:
        values = [line["figures"][name] for line in lines if name in line["figures"]]
        yield f"{statistics.median(values):.4g}" if values else ""
        own = [Figure(line, name, 1.0, 1.0) for line in lines if name in line["figures"]]
        counted.append(f"{sum(one.counts for one in own)} of {len(own)}")
    yield ", ".join(counted)


def main() -> int:
    """Rehearse what is missing, print and write the page."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.busy", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of each trial beside each; 5")
    parser.add_argument("--minutes", type=float, default=300, help="begin none after; 300")
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=KINDS, help="beside what")
    parser.add_argument("--trials", nargs="*", default=list(TRIALS), choices=list(TRIALS))
    parser.add_argument("--folder", type=Path, default=Path("target/busy"))
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "busy.jsonl"
    text = kept.read_text(encoding="utf-8") if kept.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    deadline = time.monotonic() + given.minutes * 60
    for repeat in range(given.repeats):
        for name in given.trials:
            for kind in given.only:
                done = sum((one["trial"], one["beside"]) == (name, kind) for one in lines)
                if done > repeat or time.monotonic() > deadline:
                    continue
                line = trial(name, kind, folder)
                lines.append(line)
                with kept.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")
                print(f"{name}, {kind}: {line['status']}, {sorted(line['spoiled'])}", flush=True)
    told = page(lines)
    print(told)
    if given.page:
        given.page.write_text(told, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
