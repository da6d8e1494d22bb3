"""Choosing the workload of a trial."""

from __future__ import annotations

from collections.abc import Callable

from disklab.spec import TrialSpec
from disklab.workloads.protocol import Workload
from disklab.workloads.rows import Rows
from disklab.workloads.sysbench import Sysbench
from disklab.workloads.tpcc import Tpcc

WORKLOADS: dict[str, Callable[[TrialSpec, int, int], Workload]] = {
    "rows": Rows,
    "sysbench": Sysbench,
    "tpcc": Tpcc,
}
"""By `workload.kind`. fio runs on a device, without a database."""


def workload_of(spec: TrialSpec, seed: int, time_dilation: int = 1) -> Workload:
    """Return the workload of a trial as it is run here; `seed` is the run's.

    `time_dilation`: seconds of this machine for each second of the load, in whose time it is asked
    and answers.

    Raises UserError for what it lacks on this machine.
    """
    return WORKLOADS[spec.workload.kind](spec, seed, time_dilation)
