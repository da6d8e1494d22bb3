"""What `disklab observe` costs a database: its rate with and without, in turns.

Clients read as fast as they are answered, so that whatever the server does beside is seen. A run
is observed with a reading at its beginning, one every ten seconds (the shortest that the command
has) and one at its end, over connections that stand before; with a block trace, the I/Os of the
disk below are recorded for the whole run. Each round has one run of every kind, and the ratio is
of the same round: what the machine does meanwhile meets all kinds alike.

Server, clients and observer share this machine. Readings and recording take processor time of
their own, which a user has on another machine or not at all; so this is the most that it costs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from disklab.database_facts import facts_of
from disklab.databases import Database, Request, Sizes
from disklab.databases.observing import Target
from disklab.databases.registry import record_of
from disklab.engine.load import ClosedLoop, Stop, load_target
from disklab.machines.local import LocalMachine
from disklab.observation import tracing
from disklab.observation.blocks import leaves
from disklab.observation.machine import disk_of, watch

from benches import sql
from benches.runs import Rows, run
from benches.servers import GIB, served
from benches.summary import Row, interleave, summarise

COLUMN_BYTES = 120
ROWS = 20_000
CLIENTS = 16
LEAST_RATIO = 0.99
"""What is asked for: less than a hundredth of the throughput."""
COMPILED_S = 40.0
"""By then a Java server that is read by its key has stopped getting faster from run to run
(assumed: its compilers' threads sleep by then)."""


def bench(repeats: int, seconds: float) -> list[Row]:
    """Measure it on PostgreSQL; in larger sizes on Cassandra too, which takes a minute to start."""
    rows: list[Row] = []
    with sql.server(tls=False) as server:
        rows += observed("PostgreSQL", server, "disklab", repeats, seconds)
    if repeats > 1:
        with served(Request("cassandra", Sizes(64 * GIB, Fraction(1, 40)), columns=1)) as server:
            rows += observed("Cassandra", server, "postgres", repeats, seconds)
    return rows


def observed(
    title: str, server: Database, name: str, repeats: int, seconds: float
) -> Iterator[Row]:
    """Yield the rates of each kind of run, and the ratios by rounds."""
    rows = Rows(load_target(server.target), ROWS, 1, COLUMN_BYTES)
    rows.fill(threads=8)
    points = server.target["contact_points"]
    assert isinstance(points, list)
    secret, user = (str(server.target[one]) for one in ("password", "user"))
    connect = record_of(title.lower()).observe
    assert connect is not None
    observer = connect(Target(tuple(points), user, secret, name, sample=False))
    folders = {one.address: one.folders for one in observer.shape(()).nodes}
    machine = LocalMachine("this machine", "127.0.0.1")
    disks = [
        disk
        for node, some in folders.items()
        for one in some
        if (disk := disk_of(node, machine, one))
    ]

    def reads(duration_s: float) -> float:
        asked = rows.reads(ClosedLoop(threads=CLIENTS), Stop(duration_s=duration_s))
        return run(asked).ops_per_s

    def alone() -> float:
        return reads(seconds)

    def beside(work: Callable[[threading.Event], Any]) -> Callable[[], float]:
        def once() -> float:
            stop = threading.Event()
            thread = threading.Thread(target=work, args=(stop,))
            thread.start()
            try:
                return alone()
            finally:
                stop.set()
                thread.join()

        return once

    def readings(stop: threading.Event) -> None:
        watch(observer, disks, seconds + 60.0, stop, lambda _: None)

    def trace(stop: threading.Event) -> None:
        numbers = sorted({leaf.number for disk in disks for leaf in leaves(disk.number)})
        parts: list[bytes] = []
        tracing.record(numbers, seconds + 60.0, stop.is_set, parts.append)

    kinds = [("alone", alone), ("observed", beside(readings))]
    if disks:
        kinds.append(("block trace", beside(trace)))
    try:
        # What starts cold, or compiles itself, is faster in each turn than in the one before.
        reads(COMPILED_S if repeats > 1 and facts_of(title.lower()).compiles else 1.0)
        values = interleave(repeats, kinds)
    finally:
        observer.close()
    case = f"{title}, {CLIENTS} clients that read"
    for kind, _ in kinds:
        yield summarise("observe", case, kind, "ops/s", values[kind])
    for kind, _ in kinds[1:]:
        ratios = [a / b for a, b in zip(values[kind], values["alone"], strict=True)]
        yield summarise("observe", f"{case}: {kind} / alone", "disklab", "", ratios, 1.0)
