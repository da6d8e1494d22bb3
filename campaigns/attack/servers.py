"""Servers that `observe` looks at, and that answer as no real one does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any

from disklab import spec
from disklab.cli.observe import finish, looked_at
from disklab.errors import UserError
from disklab.observation.file import Stated

from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.words import hostile_word
from tests.observation import rogue
from tests.observation.rogue import STATUS, VARIABLES, Rogue

WINDOW_S = 0.2
PASSWORD = "correct horse battery"
TITLE = "disklab observe"
FIGURES = (
    "nan",
    "-1",
    "1e400",
    "9" * 400,
    "0x10",
    "\u00b2",
    "1_000",
    "",
    " 7",
    str(1 << 64),
)
TABLE = ["shop.users", "1000000", "1000000000", "4"]


def _value(chance: random.Random, yard: Yard) -> str:
    return chance.choice((hostile_word(chance, yard.canary), chance.choice(FIGURES)))


def _server(chance: random.Random, yard: Yard) -> Rogue:
    """Return a server one or two of whose answers are hostile."""
    made = Rogue(rate_per_s=10.0 ** chance.uniform(0, 9))
    for _ in range(chance.randint(1, 2)):
        value = _value(chance, yard)
        match chance.randrange(6):
            case 0:
                made = replace(made, status={chance.choice([*STATUS]): value})
            case 1:
                made = replace(made, variables={chance.choice([*VARIABLES]): value})
            case 2:
                row: list[str | None] = [*TABLE]
                row[chance.randrange(len(row))] = chance.choice((value, None))
                made = replace(made, tables=[row[: chance.randint(1, 4)]] * chance.randint(1, 9))
            case 3:
                made = replace(made, mean=value)
            case 4:
                made = replace(made, without=(chance.choice([*STATUS]),))
            case _:
                made = replace(made, mode="clear")
    return made


def _look(server: Rogue, yard: Yard) -> None:
    out = yard.folder / "seen.yaml"
    out.unlink(missing_ok=True)
    with rogue.mysql(server) as address:
        target: dict[str, Any] = {
            "addresses": (address,),
            "user": "watch",
            "password": PASSWORD,
            "database": "shop",
            "tls": False,
            "ca_file": None,
            "sample": True,
        }
        try:
            found, _ = looked_at("mariadb", target, None, WINDOW_S)
            with redirect_stdout(StringIO()):
                finish(found, Stated(None, None, "None", None), out, as_json=True)
        finally:
            if any(PASSWORD.encode() in heard for heard in server.heard):
                raise HurtError("the password was sent in clear")
            with suppress(FileNotFoundError):
                _written(out.read_text(encoding="utf-8"))


def _written(text: str) -> None:
    try:
        (cell, *more) = spec.parse(text).cells
    except UserError as error:
        raise HurtError(f"what was written cannot be read: {error}") from None
    if more or cell.spec.database is None or cell.spec.database.engine != "mariadb":
        raise HurtError(f"an answer became a part of the file: {text!r}")


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield servers, each with an answer or two that no real one gives."""
    while True:
        server = _server(chance, yard)
        yield f"{server!r}"[:3000], partial(_look, server, yard)


KIND = Kind(
    "servers",
    "a server that speaks MySQL's protocol and that `observe` looks at: figures that count "
    "nothing, hostile words for settings, tables and rows, answers with parts missing, and a "
    "request for the password in clear. No answer becomes anything but a value, the password "
    "goes to nobody, and what is written can be read",
    tries,
)
