"""What every database does, whichever it is: the tests of each one inherit these.

A database is trusted with figures once its rows are read back and nothing that it acknowledged is
lost by a kill, trials begin alike, nobody else is let in, and it tells what it does.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from disklab.databases import Breakable, Conditions, Database, NodePlace, provision
from disklab.databases.protocol import Request, Sizes
from disklab.engine.load import (
    KnownVersions,
    LoadDone,
    LoadProgress,
    LoadRun,
    RowSize,
    Stop,
    load_target,
)
from disklab.errors import MachineError, UserError

from tests.databases.servers import COLUMN_BYTES, GIB, ROWS, done, fill, job

FOLDER = Path("/nonexistent")
NOWHERE = NodePlace("n1", "127.0.0.1", {"data": FOLDER}, FOLDER, FOLDER)
KINDS = {"read": 0.4, "write": 0.4, "update": 0.2}
NOTICED_WITHIN_S = 5.0
FILLS = 20
"""At most, until something was counted: a JVM stops now and then."""


@dataclass(frozen=True)
class Traits:
    """What one database has that another has not."""

    engine: str
    title: str
    """As `versions` have it."""
    grows: str
    """A counter that grows with writes."""
    stranger: Mapping[str, str | None]
    """What of a load's target is another one for somebody whom it does not know; None: nothing."""
    turned_away: str
    """What such a load is told."""
    own_setting: str
    """A setting that no experiment may make."""
    kinds: Mapping[str, float] = field(default_factory=lambda: KINDS)
    """Operations that it has."""
    columns: int = 3
    way: str = "restart"
    """How its page cache gets cold."""
    is_all_read: bool = False
    """Whether it reads all of its data when it starts."""


class DatabaseSuite:
    """A subclass stands in a module with a fixture `served`, the running database."""

    traits: Traits

    def name_of_node(self, _: Database) -> str:
        """Return the node that is killed."""
        return "n1"

    def fill(self, served: Database) -> None:
        """Write all rows."""
        fill(served, columns=self.traits.columns)

    def reads(self, served: Database, count: int, **changed: Any) -> LoadDone:
        """Read so many rows."""
        stop = Stop(operations=count, give_up_s=changed.pop("give_up_s", 30.0))
        return done(job(served, {"read": 1.0}, stop, columns=self.traits.columns, **changed))

    def test_rows_are_read_back_as_they_were_written(self, served: Database) -> None:
        self.fill(served)
        asked = job(
            served, dict(self.traits.kinds), Stop(operations=2_000), columns=self.traits.columns
        )
        ran = done(asked)
        assert (ran.errors, ran.wrong_rows, ran.missing_rows) == ({}, 0, 0), ran.last_error
        counts = {name: kind.count for name, kind in ran.operations.items()}
        assert counts.keys() == self.traits.kinds.keys()
        assert sum(counts.values()) == 2_000

    def test_other_rows_are_wrong_and_those_never_written_missing(self, served: Database) -> None:
        self.fill(served)
        assert self.reads(served, 100, content_seed=4).wrong_rows == 100
        assert self.reads(served, 100, rows=100 * ROWS).missing_rows > 70

    def test_rows_of_several_sizes_are_read_back_whole(self, served: Database) -> None:
        sizes = [RowSize(column_bytes=16, share_ppm=600_000)]
        sizes += [RowSize(column_bytes=1400, share_ppm=400_000)]
        whole = job(served, {"write": 1.0}, Stop(operations=ROWS), columns=self.traits.columns)
        several = whole.workload.model_copy(update={"sizes": sizes})
        try:
            assert done(whole.model_copy(update={"workload": several})).errors == {}
            reads = several.model_copy(update={"operations": {"read": 1.0}})
            read = done(whole.model_copy(update={"workload": reads}))
            assert (read.errors, read.operations["read"].count) == ({}, ROWS), read.last_error
            assert self.reads(served, 200).wrong_rows == 200, "those of one size are other ones"
        finally:
            self.fill(served)

    def test_a_kill_loses_nothing_that_was_acknowledged(self, served: Database) -> None:
        assert isinstance(served, Breakable)
        self.fill(served)
        stop, known = Stop(duration_s=1.5), KnownVersions()
        asked = job(served, {"write": 1.0}, stop, versions=known, columns=self.traits.columns)
        with LoadRun(asked) as run:
            events = iter(run)
            for event in events:
                if isinstance(event, LoadProgress) and event.operations > 100:
                    break
            served.kill_node(self.name_of_node(served))
            assert served.observe().pids == ()
            served.start_node(self.name_of_node(served))
            *_, last = events
        assert isinstance(last, LoadDone)
        assert last.errors
        back = self.reads(served, 4 * ROWS, versions=last.versions.known)
        assert back.errors == {}, back.last_error
        assert back.versions.judged_reads > ROWS
        assert back.versions.stale_reads == 0

    def test_a_trial_begins_clean_and_cold_and_an_emptied_table_is_empty(
        self, served: Database
    ) -> None:
        self.fill(served)
        served.settle(Conditions())
        cold = served.make_cold()
        assert cold.way == self.traits.way
        assert cold.data_bytes > ROWS * self.traits.columns * COLUMN_BYTES
        if self.traits.is_all_read:
            assert any(re.search("reads (all of it|its whole)", note) for note in served.notes)
        else:
            assert cold.left_ratio < 0.1
        read = self.reads(served, ROWS)
        assert read.errors == {}, read.last_error
        served.settle(Conditions(empty=True, flushed=False, compacted=False))
        assert self.reads(served, 50, give_up_s=1.0).missing_rows == 50

    def test_what_it_did_is_counted_and_its_version_is_told(self, served: Database) -> None:
        before = after = served.observe()
        for _ in range(FILLS):
            self.fill(served)
            after = served.observe()
            if after.counters[self.traits.grows] > before.counters[self.traits.grows]:
                break
        assert after.pids
        assert after.counters.keys() == before.counters.keys()
        grown = {name: after.counters[name] - before.counters[name] for name in before.counters}
        assert min(grown.values()) >= 0, grown
        assert grown[self.traits.grows] > 0, grown
        assert served.versions[self.traits.title].split(".")[0].isdecimal()

    def test_strangers_are_turned_away(self, served: Database) -> None:
        asked = job(served, {"read": 1.0}, Stop(operations=10))
        secret = str(served.target.get("password", "PRIVATE KEY"))
        assert secret not in repr(asked)
        told = {**served.target, **self.traits.stranger}
        target = {name: value for name, value in told.items() if value is not None}
        with pytest.raises(UserError, match=self.traits.turned_away):
            done(asked.model_copy(update={"target": load_target(target)}))

    def test_what_disklab_sets_itself_no_experiment_does(self, served: Database) -> None:
        del served
        asked = Request(self.traits.engine, Sizes(GIB), settings={self.traits.own_setting: "/etc"})
        with pytest.raises(UserError, match="disklab sets this itself"):
            provision(asked, [NOWHERE])

    def test_a_server_that_dies_is_the_end_and_starts_again(self, served: Database) -> None:
        self.fill(served)
        os.kill(self.pid_of(served), signal.SIGKILL)
        deadline = time.monotonic() + NOTICED_WITHIN_S
        with pytest.raises(MachineError, match="was killed by SIGKILL"):  # noqa: PT012 - soon
            while time.monotonic() < deadline:
                served.observe()
        served.stop()
        assert served.observe().pids == ()
        served.start()
        assert served.observe().pids
        read = self.reads(served, ROWS)
        assert (read.errors, read.missing_rows) == ({}, 0), read.last_error

    def pid_of(self, served: Any) -> int:
        """Return the server's process."""
        pid: int = served.primary.process.pid
        return pid
