"""Our role in the place of the well-known one, beside nodes that do not know each other yet."""

from __future__ import annotations

import pytest
from disklab.databases.cassandra.access import NOT_NORMAL, replace_well_known
from disklab.engine import CqlLogin, QueryError
from disklab.errors import MachineError

OURS = CqlLogin("disklab", "secret")


class Refusing:
    """A node that refuses a new replication at first, as one does that misses another's tokens."""

    def __init__(self, times: int, error: str = f"Cannot alter RF: {NOT_NORMAL}") -> None:
        self.left = times
        self.error = error
        self.asked: list[str] = []

    def log_in(self, login: CqlLogin) -> None:
        self.asked.append(f"as {login.user}")

    def ask(self, statement: str) -> list[dict[str, object]]:
        word = statement.split(" ", 1)[0]
        if word == "ALTER" and self.left:
            self.left -= 1
            raise QueryError(self.error)
        self.asked.append(word)
        return []


def replaced(node: Refusing, seconds: float = 30.0) -> list[str]:
    replace_well_known(node, OURS, 3, seconds, lambda: None)  # type: ignore[arg-type]
    return node.asked


def test_a_replication_is_asked_for_until_all_tokens_are_known() -> None:
    said = ["as cassandra", "SELECT", "ALTER", "CREATE", "as disklab", "DROP"]
    assert replaced(Refusing(2)) == said


def test_it_is_not_asked_for_for_ever_nor_after_another_error() -> None:
    with pytest.raises(MachineError, match=f"still refused after 0 s: .*{NOT_NORMAL}"):
        replaced(Refusing(9), seconds=0.0)
    never = Refusing(1, "no such keyspace")
    with pytest.raises(MachineError, match=r"the new node refused: .*no such keyspace"):
        replaced(never)
    assert never.left == 0
