"""The command line as a whole: exit codes as each help says, values that nobody means, words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer
from disklab import spec
from disklab.cli import clean, doctor, probe, reproduce
from disklab.cli.app import NOT_DONE, ROOMS, app, exit_codes
from disklab.cli.output import code_of, notes
from disklab.cli.rehearsing import follow
from disklab.cli.run_progress import result_text
from disklab.events import TrialFinished
from disklab.hosts import doctor as examination
from disklab.hosts.cleaning import Kept
from disklab.hosts.doctor import Check
from disklab.hosts.left_databases import Removed
from disklab.probe import verdict
from disklab.results import Reason, Run
from disklab.results.required import Outcome
from typer.main import get_command
from typer.testing import CliRunner

from tests.in_process import disklab
from tests.report.synthetic import Made, make_run


def test_the_release_is_said() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert said.exit_code == 0
    assert said.stdout == f"disklab {metadata.version('disklab')}\n"


def test_a_slow_trial_is_told_as_well_as_a_fast_one() -> None:
    def told(ops_per_s: float, p50: float) -> str:
        latency = {"p50": p50, "p99": 3 * p50}
        result = {"factors": {"workload": "TPC-C"}, "ops_per_s": ops_per_s, "latency_ms": latency}
        finished = TrialFinished(trial=1, repeat=0, status="ok", duration_s=1.0, result=result)
        return result_text(finished).plain.replace("\N{NO-BREAK SPACE}", " ")

    assert "0.834 ops/s, p50 17.7 ms, p99 53.1 ms" in told(0.83399, 17.694)
    assert "47,400 ops/s, p50 270 us, p99 810 us" in told(47_432.0, 0.27)


@pytest.mark.parametrize("name", ROOMS)
def test_every_command_is_found_by_its_name(name: str) -> None:
    said = CliRunner().invoke(app, [name, "--help"])
    assert said.exit_code == 0
    assert f" {name} " in said.stdout


def test_a_mistyped_command_is_told_from_what_there_is() -> None:
    said = CliRunner().invoke(app, ["prodict"])
    assert said.exit_code == 2
    assert "'predict'" in said.output


@pytest.mark.parametrize(
    ("commands", "unneeded"),
    [
        # What `--version` and completion in a shell load.
        ([], {"disklab.catalog", "disklab.engine", "disklab.spec"}),
        (["disk", "clean"], {"numpy", "polars", "disklab.spec.model", "disklab.results"}),
        (["predict", "rehearse", "measure", "probe"], {"scipy", "altair"}),
    ],
)
def test_commands_do_not_wait_for_what_they_have_no_use_for(
    commands: list[str], unneeded: set[str]
) -> None:
    script = (
        "import sys; from disklab.cli.app import app; from typer.testing import CliRunner\n"
        f"for command in {commands}:\n"
        "    assert CliRunner().invoke(app, [command, '--help']).exit_code == 0\n"
        f"print(sorted({unneeded} & sys.modules.keys()))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout == "[]\n"


def test_every_help_has_an_example_and_the_exit_codes() -> None:
    found = [*leaves(get_command(app))]
    assert len(found) > len(ROOMS)
    lacking = []
    for name in found:
        said = CliRunner().invoke(app, [*name.split(), "--help"])
        assert said.exit_code == 0
        flat = " ".join(said.stdout.split())
        _, _, examples = flat.partition("Example")
        if f"disklab {name}" not in examples:
            lacking.append((name, "example"))
        if exit_codes(name) not in flat:
            lacking.append((name, "exit codes"))
    assert lacking == []


HUGE = "9" * 23
NOT_TEXT = "\udcff"
"""A byte that no UTF-8 text has, as Python hands it on."""


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("predict", "cassandra-host-caching-quick", "--seed", HUGE), "--seed"),
        (("rehearse", "redis-fsync", "--seed", "-5"), "--seed"),
        (("rehearse", "redis-fsync", "--scale", "\u0663/\u0664"), "--scale"),
        (("experiment", "show", "etcd-which-disk", "--scale", "-1"), "--scale"),
        (("disk", "attach", "azure/P10", "--scale", "-1"), "--scale"),
        (("disk", "attach", "azure/P10", "--scale", "0"), "--scale"),
        (("disk", "attach", "azure/P10", "--mount", f"/tmp/{NOT_TEXT}"), "--mount"),
        (("disk", "show", NOT_TEXT), "VOLUME"),
        (("disk", "detach", NOT_TEXT), "VOLUME"),
        (("run", "--disk", "azure/P10", "--credits", "nan%", "--", "true"), "--credits"),
        (("run", "--disk", "azure/P10", "--budget", "fsyncs <= \u0663", "--", "true"), "--budget"),
        (("run", "--disk", "azure/P10", "--budget", "ios <= 1_000", "--", "true"), "--budget"),
        (("observe", "mariadb", "--address", "127.0.0.1:99999", "--user", "u"), "--address"),
        (("observe", "mariadb", "--address", "[::1]:\u00b2", "--user", "u"), "--address"),
        (("observe", "postgresql", "--address", "here:\u0663", "--user", "u"), "--address"),
    ],
)
def test_it_is_refused_in_words(words: tuple[str, ...], place: str) -> None:
    ran = disklab(*words)
    assert ran.returncode == 2, ran.stderr
    assert place in ran.stderr
    assert "Traceback" not in ran.stderr


def test_measure_takes_an_example_by_its_name(tmp_path: Path) -> None:
    """It said that there is no etcd-which-disk, and asked for etcd-which-disk."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("hosts: 5\n")
    ran = disklab("measure", "etcd-which-disk", "--hosts", str(hosts))
    assert ran.returncode == 2
    assert "etcd-which-disk" not in ran.stderr
    assert "hosts.yaml:1" in ran.stderr


@pytest.mark.parametrize("name", ["etcd-which-disk", "etcd-which-disk.yaml"])
def test_an_example_is_read_by_its_name(name: str) -> None:
    assert spec.load(name).cells


EXPERIMENT = Path(__file__).parents[1] / "experiments/azure-local-disks.yaml"
# No disk of these holds what each node would have.
TOO_LARGE = """
title: Does more fit on a disk than it has?
cluster: {nodes: 3, vm: azure/Standard_DS14_v2, volumes: {data: {disks: azure/P10}}}
client: {nodes: 1, vm: azure/Standard_DS14_v2}
database: {engine: cassandra, replication_factor: 3, consistency: ONE}
dataset: {rows: 9G, row: 5 x 200B}
workload: {operations: {read: 100%}, keys: uniform, load: {threads: 8}, stop: {operations: 1k}}
before: {page_cache: cold, host_cache: written}
factors:
  cluster.volumes.data.disks: [azure/P10, azure/P15]
"""
DONE = {
    "catalog": ["P30"],
    "cloud template": ["azure-local-disks", "--only", "profile=sync"],
    "kubernetes manifest": ["azure-local-disks", "--class", "a", "--image", "b"],
    "reproduce": [],
    "disk list": [],
    "experiment new": ["mine.yaml"],
    "experiment check": [str(EXPERIMENT)],
    "experiment show": [str(EXPERIMENT)],
    "experiment schema": [],
}
MISTAKEN = {
    "catalog": ["nothing-has-this-name"],
    "predict": ["absent.yaml"],
    "observe": ["cassandra", "--address", "127.0.0.1", "--for", "never"],
    "advise": [],
    "prices": ["absent.json"],
    "calibrate": ["absent.yaml"],
    "probe": ["/absent/folder"],
    "rehearse": ["absent.yaml"],
    "measure": ["absent.yaml", "--hosts", "absent-too.yaml"],
    "cloud template": ["absent.yaml"],
    "kubernetes manifest": ["azure-local-disks", "--class", "A B", "--image", "b"],
    "reproduce": ["no-such-study"],
    "report": ["no-such-run"],
    "serve": ["/absent/folder"],
    "import": ["absent.yaml", "absent.json"],
    "disk attach": ["azure/P31"],
    "disk show": ["absent"],
    "disk set": ["absent", "--iops", "500"],
    "disk fail": ["absent", "slow", "10x"],
    "disk detach": ["absent"],
    "disk cache warm": ["absent"],
    "disk cache drop": ["absent"],
    "experiment new": [str(EXPERIMENT)],
    "experiment check": ["absent.yaml"],
    "experiment show": ["absent.yaml"],
}


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every command that does something."""
    if not hasattr(command, "list_commands"):
        yield " ".join(words)
        return
    for name in command.list_commands(None):
        yield from leaves(command.get_command(None, name), (*words, name))


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISKLAB_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("DISKLAB_DATA_DIR", str(tmp_path / "data"))


def test_an_option_that_no_command_has_is_a_mistake() -> None:
    known = [*leaves(get_command(app))]
    assert {*NOT_DONE, *DONE, *MISTAKEN} <= {*known}
    codes = {name: disklab(*name.split(), "--no-such-option").returncode for name in known}
    assert codes == dict.fromkeys(known, 2)


def test_done_is_0() -> None:
    codes = {name: disklab(*name.split(), *words).returncode for name, words in DONE.items()}
    assert codes == dict.fromkeys(DONE, 0)


def test_a_mistake_is_2() -> None:
    codes = {name: disklab(*name.split(), *words).returncode for name, words in MISTAKEN.items()}
    assert codes == dict.fromkeys(MISTAKEN, 2)


def test_no_usable_figures_are_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.yaml").write_text(TOO_LARGE, encoding="utf-8")
    disklab("predict", "large.yaml", code=1)
    assert disklab("experiment", "check", "large.yaml").returncode == 1
    refused = {
        "status": "refused",
        "reasons": [Reason(place="a", value="b", rule="c", way_out="d")],
    }
    run = make_run(tmp_path / "runs", [Made({"disk": "a"}, more=refused)], title="Nothing")
    usable = make_run(
        tmp_path / "runs", [Made({"disk": "a"})], title="Something", run_id="another", seconds=2
    )
    for made, code in ((run, 1), (usable, 0)):

        def done(*_: object, made: Run = made) -> Run:
            return made

        # What rehearse and measure end with.
        assert follow(done, notes(), as_json=True) == code
        monkeypatch.setattr(reproduce, "predicted", done)
        assert disklab("reproduce", "vm-types", "--json").returncode == code


PROMISE = """
title: Is a P10 quick enough?
device: {vm: azure/Standard_D8s_v3, volume: {disks: azure/P10}}
workload: {fio: {rw: randread, bs: 4k, depth: 1, jobs: 1}, stop: {duration: 5s}}
"""


@pytest.mark.parametrize(
    ("require", "code"), [("p99: 100ms", 0), ("p50: 1us", 3), ("p99: 100ms, p50: 1us", 3)]
)
def test_with_check_a_prediction_says_whether_it_was_kept(
    tmp_path: Path, require: str, code: int
) -> None:
    text = f"{PROMISE}require: {{all: {{{require}}}}}\n"
    (tmp_path / "promise.yaml").write_text(text, encoding="utf-8")
    command = ("predict", "promise.yaml", "--fidelity", "quick", "--no-bands")
    assert disklab(*command).returncode == 0
    disklab(*command, "--check", code=code)


def test_check_needs_a_promise(tmp_path: Path) -> None:
    (tmp_path / "silent.yaml").write_text(PROMISE, encoding="utf-8")
    for name in ("predict", "rehearse"):
        said = disklab(name, "silent.yaml", "--check")
        assert (said.returncode, "silent.yaml: the experiment requires" in said.stderr) == (2, True)
    assert not (tmp_path / "disklab-results").exists()


def test_codes_of_judgements() -> None:
    met, missed = Outcome.MET, Outcome.MISSED
    tries = {(met,): 0, (met, missed, None): 3, (met, None): 4, (Outcome.CANNOT_TELL,): 4, (): 4}
    assert {outcomes: code_of(outcomes) for outcomes in tries} == tries
    assert code_of([Outcome.CANNOT_SUSTAIN, Outcome.CANNOT_TELL]) == 3


@pytest.mark.parametrize(
    ("outcomes", "code"), [(["met", "above"], 0), (["met", "short"], 3), (["met", None], 4)]
)
def test_with_check_a_probe_says_whether_promises_were_kept(
    outcomes: list[str | None], code: int
) -> None:
    results = [
        Mock(invalid=(), verdict=name and Mock(outcome=verdict.Outcome(name))) for name in outcomes
    ]
    invalid = Mock(invalid=("late",), verdict=Mock(outcome=verdict.Outcome.MET))
    for measured, check, expected in (
        (results, True, code),
        (results, False, 0),
        ([*results, invalid], True, code or 4),
    ):
        with pytest.raises(typer.Exit) as ended:
            probe.end(measured, check=check)
        assert ended.value.exit_code == expected


def test_a_machine_that_can_attach_nothing_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    for ok, code in ((True, 0), (False, 1)):
        check = Check("FUSE", "found", ok, required=True)
        monkeypatch.setattr(examination, "checks", lambda _, check=check: [check])
        monkeypatch.setattr(doctor, "records", list)
        assert disklab("doctor", "--no-measure").returncode == code


def test_something_left_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    for here, on_hosts, code in ((True, True, 0), (False, True, 1), (True, False, 1)):
        left = [Removed("mount", "/mnt/x", "data", here)]
        monkeypatch.setattr(clean, "remove", lambda *_, left=left: (left, Kept([], [])))
        told = [("a folder on host b", on_hosts)]
        monkeypatch.setattr(clean, "clean_measurements", lambda told=told, **_: told)
        monkeypatch.setattr(clean, "clean_traces", lambda **_: [])
        assert disklab("clean").returncode == code


def test_what_fails_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLAB_ENGINE", "/absent/disklab-engine")
    said = disklab("predict", str(EXPERIMENT), "--fidelity", "quick", "--no-bands")
    assert (said.returncode, "/absent/disklab-engine" in said.stderr) == (1, True)


def test_the_help_says_what_1_means() -> None:
    for name, why in NOT_DONE.items():
        assert f"1 it failed, or {why}" in exit_codes(name)
    assert "1 it failed; 2" in exit_codes("report")
    assert "with --check 3 a requirement is missed" in exit_codes("advise")
