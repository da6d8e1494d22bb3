"""Simulates cells on other machines: a Ray cluster, or hosts that are reached over SSH.

Neither needs disklab: the engine is sent, and a job has the same answer wherever it runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from disklab.engine.process import Cluster
from disklab.errors import Problem, UserError
from disklab.events import Emit
from disklab.sweeps.ray_cluster import ray_cluster
from disklab.sweeps.ssh_hosts import ssh_hosts

RAY = "ray://"


@contextmanager
def cluster_of(text: str, emit: Emit) -> Iterator[Cluster]:
    """Yield the machines that `--cluster` names, connected: `ray://HOST[:PORT]`, `HOST,USER@HOST`.

    `emit` hears of lost machines. Raises UserError: neither form; MachineError: not to be reached.
    """
    if text.startswith(RAY):
        with ray_cluster(text, emit) as cluster:
            yield cluster
        return
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise UserError(
            Problem(
                "--cluster",
                text,
                "it names no machine, or one twice",
                "give ray://HOST[:PORT] of a Ray cluster, or hosts of ssh as HOST,USER@HOST",
            )
        )
    with ssh_hosts(names, emit) as hosts:
        yield hosts


__all__ = ["cluster_of"]
