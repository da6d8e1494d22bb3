"""When compactions have ended: by what runs and grows, whatever Cassandra estimates."""

from __future__ import annotations

from typing import cast

from disklab.databases.cassandra.compactions import (
    QUIET_SECONDS,
    STALE_SECONDS,
    Activity,
    Calm,
    activity,
)
from disklab.databases.cassandra.jolokia import Jolokia


class FakeAgent:
    """Answers as a node's agent does; its estimate is renewed by nobody."""

    def __init__(self, pending: int) -> None:
        self.pending = pending
        self.done = 0
        self.tasks: list[dict[str, str]] = []

    def read(self, *wanted: tuple[str, str]) -> list[object]:
        assert len(wanted) == 4
        return [self.tasks, self.pending, self.done, self.done * 1000]


def ends_after(calm: Calm, agent: FakeAgent, begun: float, most_s: float) -> float | None:
    """Return after which time the compactions are said to have ended; None: not in that time."""
    nodes = [("n1", cast(Jolokia, agent))]
    looks = int(most_s * 2) + 1
    times = (half / 2 for half in range(looks))
    return next((at for at in times if calm.saw(activity(nodes), begun + at)), None)


def test_a_stale_estimate_is_not_waited_for() -> None:
    assert ends_after(Calm(), FakeAgent(pending=3), 100.0, 300.0) == STALE_SECONDS


def test_nothing_pending_is_enough_after_a_moment() -> None:
    assert ends_after(Calm(), FakeAgent(pending=0), 100.0, 300.0) == QUIET_SECONDS


def test_what_runs_or_grows_is_waited_for() -> None:
    calm, agent = Calm(), FakeAgent(pending=1)
    agent.tasks = [
        {"keyspace": "disklab", "columnfamily": "rows", "completed": "12", "total": "40"}
    ]
    assert ends_after(calm, agent, 0.0, 300.0) is None
    # The next one begins between two looks: only what was done has grown.
    agent.tasks = []
    for second in range(1, 20):
        agent.done += 1
        assert ends_after(calm, agent, 300.0 + second, 0.0) is None
    assert ends_after(calm, agent, 320.0, 300.0) == STALE_SECONDS - 1


def test_it_says_what_runs_where() -> None:
    state = Activity(("disklab.rows on n1: 12 of 40",), 2, ((0, 0),))
    assert str(state) == "2 pending, running: disklab.rows on n1: 12 of 40"
