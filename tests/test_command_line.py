"""What holds for the command line as a whole, and for values on it that nobody means."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.cli.app import ROOMS, app, exit_codes
from disklab.cli.run_progress import result_text
from disklab.events import TrialFinished
from typer.main import get_command
from typer.testing import CliRunner

from tests.in_process import disklab


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


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that does something."""
    if not hasattr(command, "list_commands"):
        yield words
        return
    for name in command.list_commands(None):
        yield from leaves(command.get_command(None, name), (*words, name))


def test_every_help_has_an_example_and_the_exit_codes() -> None:
    found = [*leaves(get_command(app))]
    assert len(found) > len(ROOMS)
    lacking = []
    for words in found:
        said = CliRunner().invoke(app, [*words, "--help"])
        assert said.exit_code == 0
        flat = " ".join(said.stdout.split())
        _, _, examples = flat.partition("Example")
        if f"disklab {' '.join(words)}" not in examples:
            lacking.append((*words, "example"))
        if exit_codes(" ".join(words)) not in flat:
            lacking.append((*words, "exit codes"))
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
