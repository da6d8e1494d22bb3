"""What cannot be asked of `disklab observe`, said before anything is."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.cli.app import app
from disklab.errors import UserError
from typer.testing import CliRunner

AT = ("--address", "127.63.1.1:9")


def refused(*options: str) -> str:
    """Return why a command is refused."""
    ran = CliRunner().invoke(app, ["observe", *options])
    assert isinstance(ran.exception, UserError), ran.output
    return str(ran.exception)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    out.write_text("title: mine\n")
    assert "exists already and is not overwritten" in refused("cassandra", *AT, "--out", str(out))
    assert out.read_text() == "title: mine\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--for", "300"), "a time is a number with"),
        (("--for", "10ms"), "a rate needs at least a second"),
        (("--vm", "azure/Standard_E16s_v55"), "--vm"),
        (("--disks", "4 x azure/P31"), "--disks"),
        (("--vm", "azure/Standard_E8ds_v4", "--disks", "64 x azure/P30"), "--disks"),
        (("--caching", "Some"), "is not a host caching"),
        (("--password-variable", "DISKLAB_NOBODY_SETS_THIS"), "has no such variable"),
        (("--password-file", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_what_cannot_be_is_said_with_its_option(
    options: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    out = ("--out", str(tmp_path / "o.yaml"))
    assert why in refused("cassandra", *AT, *out, *options)


def test_postgresql_asks_who_logs_in(tmp_path: Path) -> None:
    assert "--user" in refused("postgresql", *AT, "--out", str(tmp_path / "o.yaml"))
