"""`--cluster`: who simulates the cells of a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from disklab.errors import Problem, UserError
from disklab.events import Emit

if TYPE_CHECKING:
    from disklab.engine.simulation import Workers

Cluster = Annotated[
    str | None,
    typer.Option(
        help="Simulate on a Ray cluster (ray://HOST) or hosts of ssh (HOST,USER@HOST).",
        metavar="WHERE",
    ),
]


@contextmanager
def workers_of(cluster: str | None, jobs: int | None, emit: Emit) -> Iterator[Workers]:
    """Yield who simulates: this machine's cores, or the machines that `--cluster` names."""
    if cluster is None:
        yield jobs
        return
    if jobs is not None:
        way_out = "leave --jobs out: each core of the cluster simulates a cell at a time"
        raise UserError(Problem("--jobs", str(jobs), "it is for this machine's cores", way_out))
    # Loaded here because it brings what speaks to other machines.
    from disklab.sweeps import cluster_of  # noqa: PLC0415

    with cluster_of(cluster, emit) as machines:
        yield machines
