"""Cells on a Ray cluster of two workers of one core, beside the engine's own two threads.

The cluster runs before, as a user's does; connecting to it is part of a sweep, and takes about 5 s
however many cells there are. Both sweep the same quick cells in turns. The head of the cluster, its
daemons and we share the cores with the workers, which on machines of their own they would not.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.engine.process import simulate
from disklab.prediction.cells import prepare
from disklab.sweeps import cluster_of

from benches.summary import Row, interleave, summarise

STUDY = Path(__file__).parent.parent / "experiments" / "cassandra-disk-caching-threads.yaml"
WORKERS = 2
CELLS_A_SECOND = 1_000
"""Cells of a run for each second that is asked for: 10,000 in the full size."""
SMALL_CELLS = 100
LEAST_RATIO = 0.9
"""What is asked of 10,000 cells: this share of the engine's own throughput."""
STORE = {"object_store_memory": 80 << 20, "include_dashboard": False}


def bench(repeats: int, seconds: float) -> list[Row]:
    """Measure cells a second of both, and their ratio by rounds; nothing where Ray is missing."""
    try:
        from ray import cluster_utils  # noqa: PLC0415 - an extra
    except ImportError:
        print("sweeps: Ray is not installed (pip install 'disklab[ray]')")
        return []
    jobs = cells(SMALL_CELLS if repeats == 1 else round(CELLS_A_SECOND * seconds))

    def rate(workers: Any, began: float) -> float:
        assert sum(1 for _ in simulate(jobs, workers=workers)) == len(jobs)
        return len(jobs) / (time.monotonic() - began)

    with ray_of(cluster_utils.Cluster) as url:

        def on_ray() -> float:
            began = time.monotonic()
            with cluster_of(url, print) as machines:
                return rate(machines, began)

        ways = [("engine", lambda: rate(WORKERS, time.monotonic())), ("Ray", on_ray)]
        values = interleave(repeats, ways)
    case = f"{len(jobs):,} quick cells, {WORKERS} workers"
    ratios = [a / b for a, b in zip(values["Ray"], values["engine"], strict=True)]
    return [
        *(summarise("sweeps", case, name, "cells/s", got) for name, got in values.items()),
        summarise("sweeps", f"{case}: Ray / engine", "disklab", "", ratios, 1.0),
    ]


def cells(count: int) -> list[dict[str, Any]]:
    """Return so many quick cells of a study, each with a seed of its own."""
    calibration, catalog = calibration_for("cassandra"), load_catalog()
    made = [
        prepare(trial, catalog, calibration, str(STUDY)).job
        for trial in spec.load(STUDY).trials("predict")
    ]
    jobs = [job for job in made if job is not None]
    return [
        {"cell": cell, "seed": cell, "fidelity": "quick", "ablate": [], **jobs[cell % len(jobs)]}
        for cell in range(count)
    ]


@contextmanager
def ray_of(make: Any) -> Iterator[str]:
    """Yield the address of a cluster: a head without a core, and two nodes of one."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    head = {"num_cpus": 0, "ray_client_server_port": port, **STORE}
    cluster = make(initialize_head=True, head_node_args=head)
    try:
        for _ in range(WORKERS):
            cluster.add_node(num_cpus=1, **STORE)
        yield f"ray://127.0.0.1:{port}"
    finally:
        cluster.shutdown()
