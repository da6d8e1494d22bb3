"""What holds for the command line as a whole."""

from __future__ import annotations

from importlib import metadata

from disklab.cli.app import app
from typer.testing import CliRunner


def test_the_release_is_said() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert said.exit_code == 0
    assert said.stdout == f"disklab {metadata.version('disklab')}\n"
