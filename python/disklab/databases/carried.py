"""CPU times on VMs other than those that they were measured on: by the speed of a vCPU.

A calibration names the VM series whose vCPU the server's times are of, and the client's; see
`catalog/processor.py` for what a vCPU's speed is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from disklab.catalog import Catalog, Speed, cpu_speed
from disklab.databases.calibration import Calibration
from disklab.spec import TrialSpec

CLIENT = "client_"
"""Beginning of the names of a client's times; the others are a node's."""
TIMES = ("_cpu_ns", "_byte_ps")
"""Ends of the names of times that are a processor's."""


def is_cpu_time(name: str, *, of_client: bool) -> bool:
    """Return whether a parameter is CPU time, of the client or of a node."""
    return name.endswith(TIMES) and name.startswith(CLIENT) == of_client


def cpu_costs(costs: Mapping[str, int]) -> dict[str, int]:
    """Return the CPU times among costs, as they are on the machines that they were measured on."""
    return {name: value for name, value in costs.items() if name.endswith(TIMES)}


def carried(
    costs: Mapping[str, int], spec: TrialSpec, catalog: Catalog, calibration: Calibration
) -> dict[str, int]:
    """Return costs as the trial's VMs have them."""
    scaled = dict(costs)
    for of_client, measured_on, vm in _machines(spec, calibration):
        slower = cpu_speed(catalog, measured_on).over(cpu_speed(catalog, vm))
        for name in costs:
            if is_cpu_time(name, of_client=of_client):
                scaled[name] = round(costs[name] * slower)
    return scaled


def ways(
    spec: TrialSpec, catalog: Catalog, calibration: Calibration
) -> Iterator[tuple[bool, Speed, Speed]]:
    """Yield how times are carried: whether the client's, the speed measured and the trial's.

    Where both are VMs of one series nothing is carried.
    """
    for of_client, measured_on, vm in _machines(spec, calibration):
        if catalog.vms[vm].series_name != measured_on:
            yield of_client, cpu_speed(catalog, measured_on), cpu_speed(catalog, vm)


def unmeasured(spec: TrialSpec, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    """Yield whose vCPUs nobody has measured, in words, with what they are taken for."""
    vms = {spec.cluster.vm, spec.client.vm or spec.cluster.vm} if spec.cluster else set()
    if calibration.server_vm is None:
        return
    for name in sorted({catalog.vms[vm].series_name for vm in vms}):
        speed = cpu_speed(catalog, name)
        if speed.assumed:
            yield f"the speed of a vCPU of {name} ({speed.note})"


def _machines(spec: TrialSpec, calibration: Calibration) -> Iterator[tuple[bool, str, str]]:
    """Yield whether a machine is the client's, the series that times are of, and the trial's VM."""
    if calibration.server_vm is not None:
        yield False, calibration.server_vm, spec.the_cluster.vm
    if calibration.client_vm is not None:
        yield True, calibration.client_vm, spec.client.vm or spec.the_cluster.vm
