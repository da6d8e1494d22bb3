"""Text from files never steers the terminal, and all of it passes one console."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from disklab import terminal
from disklab.cli import main, output
from disklab.kits import shipped
from disklab.reading import UNSAFE
from disklab.report.report import Report, content
from disklab.results import Run
from rich.table import Table
from rich.text import Text

from tests.report import synthetic

PACKAGE = Path(terminal.__file__).parent
HOSTILE = "x\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\u202eevil\r[/bold][link=file:///]y[/link] :bomb:"

EXPERIMENT = """\
title: TITLE
device: {vm: azure/Standard_DS14_v2, volume: {disks: azure/P30}}
workload: {fio: {pattern: randread, block: 4KiB, depth: 1}}
"""
CATALOGUE = """\
sources: {bench: {at: TITLE, date: '2026-11-01'}}
latencies:
  array: {LATENCY}
families:
  mine/arrays:
    title: TITLE
    provenance: {default: {source: bench}}
    latency: {default: array}
    disks: {NAME: {size_gib: 100, iops: 9000, mb_per_s: 400}}
""".replace(
    "LATENCY",
    ", ".join(
        f"{what}: {{status: assumed, source: bench, constant_us: 9}}"
        for what in ("read", "write", "flush")
    ),
)


@pytest.fixture
def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return what prints a command's answer on both streams, which must be harmless."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["disklab", *arguments])
        with pytest.raises(SystemExit):
            main()
        told = "".join(capsys.readouterr())
        assert UNSAFE.search(told) is None, ascii(told)
        return told

    return run


def test_the_console_shows_and_never_sends(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(HOSTILE)
    table.add_row(HOSTILE, Text(HOSTILE, style="bold"))
    for color in (None, "truecolor"):
        console = terminal.SafeConsole(width=300, color_system=color)
        console.print(HOSTILE, Text(HOSTILE), table)
        console.rule(HOSTILE)
    # Rich's own colours, which are no text.
    told = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert UNSAFE.search(told) is None
    assert "[link=file:///]y[/link] :bomb:" in told


def test_tables_are_as_wide_as_columns_says_and_wide_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output.console().width == terminal.PIPE_WIDTH
    monkeypatch.setenv("COLUMNS", "72")
    assert output.console().width == 72


def test_no_name_is_broken_for_a_program_that_reads_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    line = f"next: disklab predict /{'a' * 60}/mine.yaml"
    output.console().print(line)
    output.console().print(Text(line))
    assert capsys.readouterr().out == f"{line}\n{line}\n"


def test_json_lines_are_harmless_and_say_the_same() -> None:
    line = terminal.json_line({"title": HOSTILE})
    assert UNSAFE.search(line) is None
    assert json.loads(line) == {"title": HOSTILE}


def test_a_run_with_hostile_titles(tmp_path: Path, shown: Callable[..., str]) -> None:
    made = [synthetic.Made({HOSTILE: level}, 100.0, bound_by=HOSTILE) for level in (HOSTILE, "b")]
    run = synthetic.make_run(tmp_path, made, title=HOSTILE, repeats=1, seconds=3)
    told = shown("report", str(run.folder))
    assert "evil" in told
    assert content(Report.of([Run.open(run.folder)]))["title"] == HOSTILE
    assert "evil" in shown("report", str(run.folder), "--json")


@pytest.mark.parametrize("code", ["\\e]52;c;aGk=\\a", "\\ud800", "\\u202e", "\\u009b"])
def test_an_experiment_holds_no_control_characters(
    tmp_path: Path, shown: Callable[..., str], code: str
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT.replace("TITLE", f'"evil {code}"'), encoding="utf-8")
    told = shown("experiment", "check", str(file))
    assert "control characters" in told or "Unicode" in told, told


def test_a_catalogue_with_hostile_names(
    tmp_path: Path, shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = json.dumps(HOSTILE).replace("\\u009b", "\\x9b")
    file = tmp_path / "mine.yaml"
    text = CATALOGUE.replace("TITLE", hostile).replace("NAME", hostile.replace("/", ""))
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("DISKLAB_CATALOG", str(file))
    shown("catalog")
    assert "evil" in shown("catalog", "evil") + shown("catalog", "mine")
    assert "evil" in shown("catalog", "--json")


def test_no_other_module_prints() -> None:
    """`disklab serve` and reports write files; what a terminal gets comes from one module."""
    allowed = {
        "terminal.py": "the one place",
        "cli/output.py": "writes json_line to standard output",
        "cli/app.py": "prints our own version",
        "cli/experiment.py": "prints our own schema",
        "kits/harness.py": "of load programs, whose results a kit reads from their output",
    }
    # A kit's program is one of its own, whose output is read.
    allowed |= {f"kits/{kit}/load.py": "" for kit in shipped()}
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in {"print", "Console", "typer.echo", "click.echo", "sys.stdout.write",
                              "sys.stderr.write", "rich.print"}:  # fmt: skip
                    found.add(str(file.relative_to(PACKAGE)))
    assert found <= set(allowed), found - set(allowed)


def test_a_warning_that_never_changes_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for free in ("72.5", "71"):
        output.warn_once(f"/var/lib/disklab has {free} GiB free: writing more than that fails")
    output.warn_once("the out-of-memory killer may choose this process")
    told = capsys.readouterr().err
    assert told.count("warning: ") == 2
    assert "72.5 GiB free" in told
    (tmp_path / "disklab/warnings-told.txt").unlink()
    (tmp_path / "disklab/warnings-told.txt").mkdir()
    output.warn_once("the out-of-memory killer may choose this process")
    assert "out-of-memory" in capsys.readouterr().err
