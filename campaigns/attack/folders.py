"""Run folders from elsewhere: changed in their files and in what their files are."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from disklab.databases.place import open_log
from disklab.errors import DisklabError
from disklab.events import RunStarted, Warned
from disklab.procedures import preparation
from disklab.report import files
from disklab.report.page import page
from disklab.report.report import Report, content
from disklab.report.terminal import show
from disklab.results import Run
from disklab.results.event_log import EVENTS, WISH, EventLog, Wish, wish
from disklab.spec import bundled
from disklab.terminal import SafeConsole
from disklab.web.server import metrics
from disklab.web.state import Followed

from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.fuzz.mutation import changed_bytes, changed_value
from tests.report import synthetic

JSON = ("run.json", "resolved.json", "trials.jsonl", EVENTS, "histograms/0-0.jsonl")
NAMES = (*JSON, "telemetry/0-0.parquet", "experiment.yaml", WISH, "lock", "report.html")
PLACES = (*NAMES, "logs/n1-output.log", "histograms", "telemetry", "logs", "trials.jsonl.torn")
REQUIRE = {"read": {"p99_ms": 5.0}, "rate_per_s": 50.0, "recovery_s": 9.0, "durability": "yes"}
LARGE_BYTES = 1 << 43
TITLE = "Whose is this run?"


def whole(folder: Path) -> Path:
    """Return a rehearsal with every kind of file, which could go on."""
    trials = [
        synthetic.Made({"disk": disk, "threads": threads}, 100.0, hit_ratio=0.5, bound_by="vm",
                       price=9.0, credits_left=0.1)
        for disk, threads in (("a", 1), ("b", 8))
    ]  # fmt: skip
    run = synthetic.make_run(folder, trials, title=TITLE, repeats=1, seconds=5, run_id="run")
    plan = json.loads(run.inside("resolved.json").path.read_bytes())
    volumes = {"data": {"disks": "azure/P30", "caching": "ReadWrite"}}
    for trial in plan:
        trial["spec"] = {"require": REQUIRE, "cluster": {"volumes": volumes, "nodes": 3}}
    run.inside("resolved.json").replace(json.dumps(plan).encode())
    run.plan_again({"rehearse": {"scale": "1/100", "repeats": 1, "seed": 1}})
    example = bundled.folder() / f"cassandra-local-or-attached{bundled.SUFFIX}"
    run.inside("experiment.yaml").replace(example.read_bytes())
    with EventLog(run.folder) as log:
        log(RunStarted("run", run.folder, "rehearse", TITLE, 1, (), 0, 0))
        log(Warned("late"))
    return run.folder


def linked(place: Path, yard: Yard, chance: random.Random) -> None:
    """Put a way out of the folder in a file's place."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    match chance.randrange(7):
        case 0:
            place.symlink_to(yard.victim)
        case 1:
            place.hardlink_to(yard.victim)
        case 2:
            os.mkfifo(place)
        case 3:
            place.symlink_to(yard.folder)
        case 4:
            place.mkdir()
        case 5:
            with socket.socket(socket.AF_UNIX) as bound, suppress(OSError):
                bound.bind(str(place))
        case _:
            with place.open("wb") as file:
                file.truncate(LARGE_BYTES)


def damaged(place: Path, chance: random.Random) -> None:
    """Change what a file says."""
    if not place.is_file():
        return
    data = place.read_bytes()
    if place.suffix not in (".json", ".jsonl") or chance.random() < 0.3:
        place.write_bytes(changed_bytes(data, chance))
        return
    try:
        if place.suffix == ".json":
            changed = [json.dumps(changed_value(json.loads(data), chance))]
        else:
            values = [json.loads(line) for line in data.splitlines()]
            at = chance.randrange(len(values))
            values[at] = changed_value(values[at], chance)
            changed = [json.dumps(value) for value in values]
    except (ValueError, IndexError):
        return  # it is damaged already
    place.write_text("\n".join(changed) + "\n", encoding="utf-8")


def read(folder: Path) -> None:
    """Read a run as a report does. Raises DisklabError."""
    run = Run.open(folder)
    run.frame()
    for result in run.results():
        run.course(*result.key).response()
    made = Report.of([run])
    json.dumps(content(made), allow_nan=False).encode()
    page(made).encode()
    show(made, SafeConsole(file=io.StringIO(), width=120))
    files.write_page(made, run.inside("report.html"))


def follow(folder: Path) -> None:
    """Read a run as the live page does, which takes whatever is there."""
    run = Followed(folder)
    run.look()
    state = run.state()
    json.dumps(state, allow_nan=False).encode()
    metrics([state]).encode()


def resume(folder: Path) -> None:
    """Go on with a run as a rehearsal does before it makes anything. Raises DisklabError."""
    preparation.resume(str(folder), folder.parent, lambda _: None, look=lambda *_: {}, repeats=2)


def write(folder: Path) -> None:
    """Write to a run whose traps came after it was looked through."""
    try:
        run = Run.open(folder)
    except DisklabError:
        return
    for act in (
        lambda: EventLog(folder).__exit__(None, None, None),
        lambda: wish(folder, Wish.STOP),
        lambda: run.record_seconds(0, 0).close(),
        lambda: run.record_telemetry(0, 0).close(),
        lambda: run.log_folder(0, 0),
        lambda: os.close(open_log(folder / "logs/n1-output.log", None)),
        lambda: _append(run),
    ):
        with suppress(DisklabError, OSError):
            act()


def _append(run: Run) -> None:
    with run.writing():
        for result in run.results()[:1]:
            run.append(result)
        run.end()


ACTS: tuple[Callable[[Path], None], ...] = (read, follow, resume, write)


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield one run, changed in many ways."""
    base = yard.folder / "base"
    base.mkdir()
    source = whole(base)
    while True:
        folder = yard.folder / "runs" / "run"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(source, folder)
        words = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            if chance.random() < 0.4:
                name = chance.choice(PLACES)
                linked(folder / name, yard, chance)
                words.append(f"{name} replaced")
            else:
                name = chance.choice(NAMES)
                with suppress(OSError):
                    damaged(folder / name, chance)
                words.append(f"{name} damaged")
        for act in ACTS:
            yield f"{act.__name__}: {', '.join(words)}", partial(_attempt, act, folder, yard)


def _attempt(act: Callable[[Path], None], folder: Path, yard: Yard) -> None:
    before = sorted(yard.folder.iterdir())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            act(folder)
    finally:
        if sorted(yard.folder.iterdir()) != before:
            raise HurtError("a file was made outside of the run")


KIND = Kind(
    "folders",
    "a run with files that are changed, or that are links, hard links, pipes, sockets, folders or "
    "eight terabytes: reported, followed by the live page, gone on with, and written to as if it "
    "had become so in between. It is read or refused in words, and nothing outside of it changes",
    tries,
)
