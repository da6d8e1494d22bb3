"""A run folder from elsewhere, damaged or hostile: nothing in it leads out or holds anybody up."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from disklab.databases.place import open_log
from disklab.errors import MachineError, UserError
from disklab.events import Warned
from disklab.folders import Inside, check_own
from disklab.measurement.preparation import resumed
from disklab.procedures import preparation
from disklab.report import files
from disklab.report.page import page
from disklab.report.report import Report, content
from disklab.report.terminal import show
from disklab.results import Run
from disklab.results.event_log import EVENTS, WISH, EventLog, Wish, wish
from disklab.spec import bundled
from rich.console import Console

from tests.in_process import disklab as in_process
from tests.programs import ended
from tests.report import synthetic
from tests.results import made

DISKLAB = Path(sys.executable).with_name("disklab")
SECRET = "of somebody else\n"
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside of the run, which is to stay as it is."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    trials = [synthetic.Made({"disk": disk}, 100.0) for disk in "ab"]
    return synthetic.make_run(out, trials, title="Mine?", repeats=1, seconds=3, run_id="run").folder


@pytest.fixture
def run(tmp_path: Path, whole: Path) -> Run:
    return Run.open(shutil.copytree(whole, tmp_path / whole.name))


def trap(place: Path, secret: Path, kind: str) -> None:
    """Put a way out of the folder in the place of a file."""
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    if kind == "link":
        place.symlink_to(secret)
    elif kind == "hard link":
        place.hardlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(secret.parent)


def append(run: Run) -> None:
    run.append(made.result(0, factors=dict(run.results()[0].factors)))


def log(run: Run) -> None:
    with EventLog(run.folder) as events:
        events(Warned("x"))


def write(run: Run) -> None:
    with run.writing():
        pass


def output(run: Run) -> None:
    os.close(open_log(run.folder / "logs/n1-output.log", None))


WRITERS: list[tuple[str, Callable[[Run], object]]] = [
    ("trials.jsonl", append),
    (EVENTS, log),
    ("lock", write),
    ("logs/n1-output.log", output),
    ("histograms", lambda run: run.record_seconds(7, 0).close()),
    ("telemetry", lambda run: run.record_telemetry(7, 0).close()),
    ("logs", lambda run: run.log_folder(1, 0)),
    ("logs", output),
]


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder link"])
@pytest.mark.parametrize(("name", "writer"), WRITERS)
def test_what_is_added_to_a_run_lands_nowhere_else(  # noqa: PLR0913, PLR0917 - fixtures
    tmp_path: Path, run: Run, secret: Path, name: str, writer: Callable[[Run], object], kind: str
) -> None:
    before = sorted(tmp_path.iterdir())
    trap(run.folder / name, secret, kind)
    with pytest.raises((OSError, UserError, MachineError)):
        writer(run)
    assert secret.read_text() == SECRET
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["run.json", WISH, "report.html"])
def test_what_is_written_whole_takes_the_place_of_a_link(
    tmp_path: Path, run: Run, secret: Path, name: str
) -> None:
    trap(run.folder / name, secret, "link")
    trap(run.folder / f".{name}.{os.getpid()}", secret, "link")
    trap(run.folder / f".{name}.part", secret, "link")
    run.end()
    wish(run.folder, Wish.STOP)
    files.write_page(Report.of([run]), run.inside("report.html"))
    assert secret.read_text() == SECRET


@pytest.mark.parametrize("kind", ["link", "pipe", "folder link"])
@pytest.mark.parametrize(
    "name", ["run.json", "trials.jsonl", "histograms/0-0.jsonl", "telemetry/0-0.parquet"]
)
def test_a_link_or_pipe_in_a_run_is_an_error_with_a_place_and_not_read(
    run: Run, secret: Path, name: str, kind: str
) -> None:
    trap(run.folder / name, secret, kind)
    with pytest.raises(UserError) as caught:
        read_all(run.folder)
    assert name in str(caught.value)
    assert SECRET.strip() not in str(caught.value)


def disklab(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(DISKLAB), *words]
    return ended(command)


def begun(tmp_path: Path, command: str) -> Run:
    """Return a rehearsal or measurement that could go on."""
    file = bundled.folder() / f"cassandra-local-or-attached{bundled.SUFFIX}"
    created = made.run(tmp_path / "out", run_id="begun")
    info = created.info.model_copy(update={"mode": command, command: {}})
    folder = created.folder
    Inside(folder, "run.json").replace(info.model_dump_json().encode())
    Inside(folder, "experiment.yaml").replace(file.read_bytes())
    return Run.open(folder)


def go_on(command: str, folder: Path) -> None:
    if command == "rehearse":
        preparation.resume(str(folder), folder.parent, print)
    else:
        resumed(str(folder), folder.parent, [])


@pytest.mark.parametrize("command", ["rehearse", "measure"])
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder link"])
def test_a_run_with_a_way_out_is_not_gone_on_with(
    tmp_path: Path, secret: Path, command: str, kind: str
) -> None:
    folder = begun(tmp_path, command).folder
    trap(folder / "logs/n1-output.log", secret, kind)
    before = {path: os.lstat(path).st_mtime_ns for path in [folder, *folder.rglob("*")]}
    with pytest.raises(UserError) as caught:
        go_on(command, folder)
    assert "n1-output.log" in str(caught.value)
    assert "can be reported, not gone on with" in str(caught.value)
    assert {path: os.lstat(path).st_mtime_ns for path in [folder, *folder.rglob("*")]} == before
    assert secret.read_text() == SECRET


@NEEDS_ROOT
@pytest.mark.parametrize("what", ["", "logs", "run.json"])
def test_another_users_run_is_not_gone_on_with(tmp_path: Path, what: str) -> None:
    folder = begun(tmp_path, "rehearse").folder
    os.chown(folder / what, 65534, 65534)
    with pytest.raises(UserError, match="belongs to uid 65534, and this runs as uid 0"):
        go_on("rehearse", folder)


@NEEDS_ROOT
def test_it_is_told_on_the_terminal(tmp_path: Path) -> None:
    folder = begun(tmp_path, "rehearse").folder
    os.chown(folder, 65534, 65534)
    ran = disklab("rehearse", "--resume", str(folder))
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith(f"error: --resume: {folder}: belongs to uid 65534")


@NEEDS_ROOT
def test_logs_of_the_servers_own_user_may_lie_in_a_run(tmp_path: Path) -> None:
    folder = begun(tmp_path, "rehearse").folder
    (folder / "logs/n1-system.log").write_text("x")
    os.chown(folder / "logs/n1-system.log", 65534, 65534)
    check_own(folder, "--resume", also=65534)
    os.chown(folder / "logs", 65534, 65534)
    with pytest.raises(UserError, match="belongs to uid 65534"):
        check_own(folder, "--resume", also=65534)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "a/../../secret", ""])
def test_a_name_never_leads_out_of_a_folder(tmp_path: Path, secret: Path, name: str) -> None:
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    with pytest.raises(OSError, match=r"not below|s a directory"):
        os.close(Inside(folder, name).opened())


def test_a_link_to_a_run_is_followed_where_the_user_named_it(tmp_path: Path, run: Run) -> None:
    (tmp_path / "latest").symlink_to(run.folder)
    assert Run.open("latest", tmp_path).folder == run.folder


def test_a_run_whose_id_is_a_path_is_refused(run: Run) -> None:
    info = run.inside("run.json")
    info.replace(info.path.read_bytes().replace(b'"run"', b'"../../x"', 1))
    with pytest.raises(UserError, match="without /"):
        Run.open(run.folder)


def test_a_bad_run_hides_no_other_in_a_report(tmp_path: Path, run: Run) -> None:
    bad = Run.open(shutil.copytree(run.folder, tmp_path / "bad"))
    (bad.folder / "resolved.json").write_text(
        '[{"trial": 0, "factors": {}, "spec": {"require": "x"}}]'
    )
    page = tmp_path / "page.html"
    ran = in_process("report", str(bad.folder), str(run.folder), "--html", str(page))
    assert ran.returncode == 2
    assert "Mine?" in ran.stdout
    assert page.exists()
    assert "resolved.json: 0.spec" in ran.stderr
    assert in_process("report", str(bad.folder)).returncode == 2


@pytest.mark.parametrize(
    "require",
    [
        "x",
        5,
        [1],
        {"read": 5},
        {"read": {"p99_ms": "x"}},
        {"rate_per_s": {}},
        {"rate_per_s": 1e300},
    ],
)
@pytest.mark.parametrize(
    "cluster", [None, "x", {"volumes": 5}, {"volumes": {"data": {"disks": 5}}}]
)
def test_a_stored_requirement_is_typed_when_it_is_read(
    run: Run, require: object, cluster: object
) -> None:
    """As told: `require` as text was a traceback."""
    spec = {"require": require, "cluster": cluster}
    plan = [{"trial": 0, "factors": {"disk": "a"}, "spec": spec}]
    run.inside("resolved.json").replace(json.dumps(plan).encode())
    with pytest.raises(UserError, match=r"resolved\.json: 0\.spec"):
        read_all(run.folder)


FILES = (
    "run.json",
    "resolved.json",
    "trials.jsonl",
    "histograms/0-0.jsonl",
    "telemetry/0-0.parquet",
)
VALUES = (
    "null", "true", "[]", "{}", '""', '"x"', "-1", "0", "1e-320", "-1e308", "1e308", "1e999", "NaN",
    "-Infinity", "9" * 30, "9" * 5000, '"\\ud800"', '"\\u0000"', '"9e999"', "[[[[]]]]",
    '{"a": {"b": 1}}', '"' + "9" * 400 + '"', "[" * 300,
)  # fmt: skip
TRIED_EACH = 15
"""Damages of each file and seed."""


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    trials = [
        synthetic.Made({"disk": disk, "threads": threads}, 100.0, hit_ratio=0.5, bound_by="vm",
                       price=9.0, credits_left=0.1)
        for disk, threads in (("a", 1), ("b", 1), ("b", 8))
    ]  # fmt: skip
    return synthetic.make_run(out, trials, title="Damaged?", repeats=1, seconds=10).folder


def bits(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data))
    return data[:start] + data[chance.randint(start, len(data)) :]


def value(data: bytes, chance: random.Random) -> bytes:
    """Replace one value of the JSON by another."""
    text = data.decode("utf-8", "replace")
    found = list(re.finditer(r'(?<=: )("[^"]*"|[-\d.e]+|\[[^\]]*\]|null)|(?<=":)("[^"]*"|[-\d.e]+|null)', text))  # fmt: skip  # noqa: E501
    if not found:
        return bits(data, chance)
    at = chance.choice(found)
    return (text[: at.start()] + chance.choice(VALUES) + text[at.end() :]).encode()


def key(data: bytes, chance: random.Random) -> bytes:
    """Rename a key, so that the one that is expected is missing."""
    text = data.decode("utf-8", "replace")
    found = list(re.finditer(r'"([a-z_0-9]+)"(?=:)', text))
    if not found:
        return cut(data, chance)
    at = chance.choice(found)
    return (text[: at.start()] + '"other"' + text[at.end() :]).encode()


def lines(data: bytes, chance: random.Random) -> bytes:
    kept = data.splitlines(keepends=True)
    chance.shuffle(kept)
    return b"".join(kept[: chance.randint(0, len(kept))] + kept[:1])


Damage = Callable[[bytes, random.Random], bytes]
DAMAGES: tuple[Damage, ...] = (bits, cut, value, value, value, key, lines)


def read_all(folder: Path) -> None:
    """Read a run in every way that a command does."""
    run = Run.open(folder)
    run.frame()
    for result in run.results():
        run.course(*result.key).response()
    report = Report.of([run])
    json.dumps(content(report), allow_nan=False).encode()
    page(report).encode()
    show(report, Console(file=StringIO(), width=120))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 9))]
)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_told_or_does_no_harm(
    tmp_path: Path, undamaged: Path, name: str, seed: int
) -> None:
    chance = random.Random(f"{name} {seed}")
    good = (undamaged / name).read_bytes()
    folder = tmp_path / undamaged.name
    shutil.copytree(undamaged, folder)
    for number in range(TRIED_EACH):
        damaged = chance.choice(DAMAGES)(good, chance)
        (folder / name).write_bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                read_all(folder)
        except UserError as error:
            for problem in error.problems:
                assert all((problem.place, problem.value, problem.rule, problem.way_out)), problem
                str(problem).encode()
        except BaseException as error:
            raise AssertionError(f"{name}, seed {seed}, damage {number}: {error!r}") from error
