"""`disklab observe` as a user starts it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.programs import ended

DISKLAB = Path(sys.executable).with_name("disklab")
VARIABLE = "OBSERVED_PASSWORD"
SECONDS = 240


class Known(Protocol):
    """Where a database is, and who asks it."""

    @property
    def target(self) -> Mapping[str, object]:
        """As a load job has it."""
        ...


class AsRole:
    """A database as another role reaches it."""

    def __init__(self, database: Known, user: str, password: str) -> None:
        """Keep address and schema."""
        self.target = {**database.target, "user": user, "password": password}


def command(engine: str, database: Known, out: Path, *options: str) -> list[str]:
    """Return the command that looks at a database."""
    points = database.target["contact_points"]
    assert isinstance(points, list)
    who = ("--user", str(database.target["user"]), "--password-variable", VARIABLE)
    asked = ("--address", points[0], *who, "--out", str(out), "--json")
    return [str(DISKLAB), "observe", engine, *asked, *options]


def variables(database: Known) -> dict[str, str]:
    """Return the environment with the password."""
    return {**os.environ, VARIABLE: str(database.target["password"])}


def observed(engine: str, database: Known, out: Path, *options: str) -> dict[str, Any]:
    """Return what it says of a database."""
    ran = ended(
        command(engine, database, out, *options), most_s=SECONDS, env=variables(database), code=0
    )
    assert str(database.target["password"]) not in ran.stdout + ran.stderr + out.read_text()
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
