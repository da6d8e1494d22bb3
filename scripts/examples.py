"""Renders docs/examples from the runs that are kept there.

`.venv/bin/python scripts/examples.py [NAME...]` draws charts and tables of these examples, or of
all of them, again: after a change of colours or words. `--check` only tells what no longer fits its
run, without drawing. `--make NAME...` runs them first (rehearsals: as root, with nothing else
running), and keeps of each run what a report needs.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import vl_convert
from disklab.report import files
from disklab.report.html import vega_lite_version
from disklab.report.report import Report
from disklab.report.terminal import show
from disklab.results import Run
from disklab.terminal import SafeConsole

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
KEPT = ("run.json", "experiment.yaml", "trials.jsonl")
"""Of a run: results and the machine they were found on. A report asks for no more."""
MOST_BYTES = 100_000
"""Of a kept run: ten of them are as large as one page."""
WIDTH = 150
DRAWN_FROM = "<!-- drawn from sha256:{} -->\n"


@dataclass(frozen=True)
class Example:
    """A run that the documentation shows."""

    command: tuple[str, ...]
    """Of `disklab`, without where the run is written."""
    charts: tuple[str, ...]
    """Which of its charts are kept."""
    against: bool = False
    """Whether it stands beside what was published."""


def predicted(name: str, *charts: str, against: bool = False) -> Example:
    """Return a prediction: seconds on any machine, one seed."""
    file = f"experiments/{name}.yaml"
    words = ("predict", file, "--fidelity", "quick", "--repeat", "1")
    return Example(words, charts, against)


def rehearsed(name: str, options: str, *charts: str) -> Example:
    """Return a rehearsal: minutes on a machine on which nothing else runs."""
    words = ("rehearse", f"experiments/{name}.yaml", *options.split("|"))
    return Example(words, charts, against=True)


SHOWN = {
    "predicted/azure-queue-depths": predicted("azure-queue-depths", "rate", "latency-p50"),
    "predicted/azure-read-write-mix": predicted("azure-read-write-mix", "rate", "latency-p99"),
    "predicted/azure-local-disks": predicted(
        "azure-local-disks", "rate-profile-async", "percentiles-profile-sync", against=True
    ),
    "predicted/cassandra-cache-cliff": predicted("cassandra-cache-cliff", "rate", "latency-p95"),
    "predicted/postgresql-disk-types-quick": predicted(
        "postgresql-disk-types-quick", "rate-read", "rate-write"
    ),
    "predicted/cassandra-lost-local-disk": predicted(
        "cassandra-lost-local-disk", "faults-until-whole-again-copies-3"
    ),
    "predicted/cassandra-node-replacement": predicted(
        "cassandra-node-replacement", "faults-until-whole-again"
    ),
    "predicted/postgresql-failover-disks": predicted(
        "postgresql-failover-disks", "faults-until-whole-again-process-killed"
    ),
    "predicted/mariadb-which-disk": predicted("mariadb-which-disk", "rate"),
    "predicted/mysql-8-sysbench": predicted("mysql-8-sysbench", "rate"),
    "predicted/mariadb-doublewrite": predicted("mariadb-doublewrite", "rate"),
    "predicted/galera-local-or-attached": predicted(
        "galera-local-or-attached", "rate-on-each-disk"
    ),
    "cassandra-local-or-attached": rehearsed(
        "cassandra-local-or-attached",
        "--repeat|3",
        "latency-read",
        "rate-read",
        "rate-mixed",
        "rate-write",
    ),
    "cassandra-disk-caching-threads": rehearsed(
        "cassandra-disk-caching-threads",
        "--repeat|3",
        "rate",
        "latency-p95",
        "percentiles-256-threads",
    ),
    "cassandra-disk-caching-read-ahead": rehearsed(
        "cassandra-disk-caching-read-ahead",
        "--repeat|1",
        "rate-128-threads",
        "rate-256-threads",
        "latency-p95-128-threads",
    ),
    "postgresql-failover-disks": Example(
        ("rehearse", "experiments/postgresql-failover-disks.yaml", "--repeat", "1"),
        ("faults-until-whole-again-process-killed", "faults-until-whole-again-vm-lost"),
    ),
    "cassandra-node-replacement": Example(
        ("rehearse", "experiments/cassandra-node-replacement.yaml", "--repeat", "1"),
        ("faults-until-whole-again",),
    ),
    "cassandra-lost-local-disk": Example(
        (
            *("rehearse", "experiments/cassandra-lost-local-disk.yaml", "--repeat", "1"),
            *("--only", "copies=1,3"),
        ),
        ("faults-until-whole-again-copies-3",),
    ),
    "cassandra-cache-cliff": Example(
        ("rehearse", "experiments/cassandra-cache-cliff.yaml", "--repeat", "1"),
        ("rate", "latency-p95"),
    ),
    "azure-local-disks": rehearsed(
        "azure-local-disks", "--quick", "rate-profile-async", "percentiles-profile-sync"
    ),
    "cassandra-vm-types": rehearsed(
        "cassandra-vm-types",
        "--quick|--only|vm=L8s local,DS13_v2|--only|dataset.row=small",
        "rate-variable-read",
        "rate-variable-mixed",
        "latency-fixed-read",
    ),
    "mariadb-which-disk": Example(
        ("rehearse", "experiments/mariadb-which-disk.yaml", "--quick", "--repeat", "3"), ("rate",)
    ),
    "mariadb-doublewrite": Example(
        ("rehearse", "experiments/mariadb-doublewrite.yaml", "--quick", "--repeat", "3"), ("rate",)
    ),
    "galera-local-or-attached": Example(
        ("rehearse", "experiments/galera-local-or-attached.yaml", "--quick", "--repeat", "3"),
        ("rate-on-each-disk", "rate-in-each-memory"),
    ),
    "redis-fsync": Example(
        ("rehearse", "experiments/redis-fsync.yaml", "--quick", "--repeat", "3"),
        ("percentiles-everysec", "percentiles-always"),
    ),
    "nats-sync-interval": Example(
        ("rehearse", "experiments/nats-sync-interval.yaml", "--quick"),
        ("faults-until-whole-again-1-of-1",),
    ),
    "valkey-appendfsync": Example(
        ("rehearse", "experiments/valkey-appendfsync.yaml", "--quick"), ()
    ),
    "beanstalkd-fsync": Example(("rehearse", "experiments/beanstalkd-fsync.yaml", "--quick"), ()),
    "kafka-disks-and-copies": Example(
        ("rehearse", "experiments/kafka-disks-and-copies.yaml", "--quick"), ()
    ),
    "opensearch-durability": Example(
        (
            *("rehearse", "experiments/opensearch-durability.yaml", "--quick"),
            *("--only", "event=host lost"),
        ),
        (),
    ),
    "mysql-8-sysbench": Example(("rehearse", "experiments/mysql-8-sysbench.yaml", "--quick"), ()),
    "myrocks-sysbench": Example(("rehearse", "experiments/myrocks-sysbench.yaml", "--quick"), ()),
    "yugabytedb-disk-types": rehearsed(
        "yugabytedb-disk-types",
        "--quick",
        "rate-sysbench-read-20-tables",
        "rate-sysbench-read-30-tables",
    ),
}


def main() -> None:
    """Render, check or make."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *SHOWN], metavar="NAME")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="only tell what no longer fits its run")
    what.add_argument("--make", action="store_true", help="run them first, and keep the runs")
    asked = parser.parse_args()
    if asked.make and not asked.names:
        parser.error(f"name what to run: {', '.join(SHOWN)}")
    names = asked.names or list(SHOWN)
    wrong = []
    for name in names:
        if asked.make:
            make(SHOWN[name], EXAMPLES / name)
        if not (EXAMPLES / name / "run").is_dir():
            print(f"{name}: its run is not kept: scripts/examples.py --make {name}")
            continue
        wrong += [f"{name}: {one}" for one in rendered(name, write=not asked.check)]
    mended = "" if asked.check else " (written again)"
    print(*(f"{one}{mended}\n" for one in wrong), sep="", end="")
    if wrong and asked.check:
        sys.exit("run scripts/examples.py, and look at what changed")


def make(example: Example, folder: Path) -> None:
    """Run an example, and keep of its run what a report needs. Raises SystemExit when it fails."""
    with tempfile.TemporaryDirectory(prefix="disklab-example-") as out:
        program = Path(sys.executable).with_name("disklab")
        words = [str(program), *example.command, "--out", out]
        # 1: something did not go as wished, and the report says so.
        if subprocess.run(words, cwd=ROOT, check=False).returncode not in (0, 1):
            raise SystemExit(f"{' '.join(example.command)} failed")
        (run,) = (path for path in Path(out).iterdir() if (path / "run.json").is_file())
        keep(run, folder / "run")


def keep(run: Path, folder: Path) -> None:
    """Copy what a report needs of a run; where the run was written is nobody's business."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        (folder / name).write_bytes((run / name).read_bytes())
    info = json.loads((folder / "run.json").read_text())
    words = info["command"]
    if "--out" in words:
        at = words.index("--out")
        info["command"] = [*words[:at], *words[at + 2 :]]
    (folder / "run.json").write_text(json.dumps(info, indent=1) + "\n")


def rendered(name: str, *, write: bool) -> Iterator[str]:
    """Yield what differed from the run: charts and table; `write` draws it again."""
    example, folder = SHOWN[name], EXAMPLES / name
    size = sum((folder / "run" / one).stat().st_size for one in KEPT)
    if size > MOST_BYTES:
        yield f"the kept run has {size} bytes, the most is {MOST_BYTES}: choose fewer cells"
    run = Run.open(folder / "run")
    report = Report.of([run, *files.references([run], example.against)])
    texts = {f"{chart}.svg": spec for chart, spec, _ in files.pictures(report)}
    if missing := [chart for chart in example.charts if f"{chart}.svg" not in texts]:
        yield f"there is no chart {', '.join(missing)}; there are {', '.join(sorted(texts))}"
    for chart in example.charts:
        yield from drawn(folder / f"{chart}.svg", texts.get(f"{chart}.svg"), write=write)
    yield from told(folder / "report.txt", table_of(report), write=write)


def drawn(path: Path, spec: str | None, *, write: bool) -> Iterator[str]:
    """Yield that a chart is not of this specification, which it names in its last line."""
    if spec is None:
        return
    mark = DRAWN_FROM.format(hashlib.sha256(spec.encode()).hexdigest())
    if path.is_file() and path.read_text().endswith(mark):
        return
    yield f"{path.name} does not show its run as it is drawn now"
    if write:
        drawing = vl_convert.vegalite_to_svg(spec, vl_version=vega_lite_version())
        path.write_text(drawing.rstrip() + "\n" + mark)


def table_of(report: Report) -> str:
    """Return what the terminal shows."""
    text = io.StringIO()
    show(report, SafeConsole(file=text, width=WIDTH))
    return re.sub(r" +$", "", text.getvalue(), flags=re.MULTILINE)


def told(path: Path, text: str, *, write: bool) -> Iterator[str]:
    """Yield that a table is not what the terminal shows today."""
    if path.is_file() and path.read_text() == text:
        return
    yield f"{path.name} does not say what the terminal says now"
    if write:
        path.write_text(text)


if __name__ == "__main__":
    main()
