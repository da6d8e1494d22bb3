"""A Ray cluster that simulates. Its workers need Ray alone; the engine is sent to them."""

from __future__ import annotations

import hashlib
import os
import socket
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from disklab.engine.process import HUGE_PAGES
from disklab.errors import EngineError, MachineError, Problem, UserError
from disklab.events import Emit, Warned
from disklab.machines import on_worker
from disklab.machines.binary import find_agent
from disklab.sweeps.batches import Batch, Batches

AHEAD = 2
"""Batches a core that are sent ahead: one runs, one waits, so that no core waits for us."""
LOOK_SECONDS = 5.0
"""How often the number of cores is asked for: clusters grow and shrink."""
PATIENCE_SECONDS = 300.0
"""A cluster without a core for so long is given up; a machine of a cloud starts in two minutes."""


CLIENT_PORT = 10001
"""Of Ray's server for clients, unless told otherwise."""
CONNECT_SECONDS = 10.0
NO_SERVER = "Starting Ray client server failed"


@contextmanager
def ray_cluster(address: str, emit: Emit) -> Iterator[RayCluster]:
    """Yield a cluster that is connected to. Raises UserError: no Ray here; MachineError: there."""
    try:
        import ray  # noqa: PLC0415 - an extra, and it takes a second
    except ImportError:
        way_out = "pip install 'disklab[ray]', of the version that the cluster runs"
        raise UserError(Problem("--cluster", address, "Ray is not installed", way_out)) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _await_listener(address)
        _connect(ray, address)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise MachineError(
            f"{address}: {' '.join(str(error).split())[:400]}; is it the address of a Ray cluster "
            "(`ray start --head` prints it; port 10001 unless told otherwise), with the Ray and "
            "Python of this machine?"
        ) from None
    try:
        yield RayCluster(ray, emit)
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Connect; once more where the cluster had no server for us within its 30 s.

    The first client of a cluster that has just started may wait in vain for one, and the next has
    one at once (Ray 2.60.0, seen on a cluster of three processes).
    """
    how = {"log_to_driver": False, "logging_level": "ERROR", "namespace": "disklab"}
    try:
        ray.init(address=address, **how)
    except (ConnectionError, RuntimeError) as error:
        if NO_SERVER not in str(error):
            raise
        ray.init(address=address, **how)


def _await_listener(address: str) -> None:
    """Raise OSError where nobody listens: Ray itself would try for half a minute, and warn."""
    found = urlsplit(address)
    host, port = found.hostname or "", found.port or CLIENT_PORT
    socket.create_connection((host, port), CONNECT_SECONDS).close()


class RayCluster:
    """Machines of Ray as a `Cluster`."""

    def __init__(self, ray: Any, emit: Emit) -> None:
        self._ray = ray
        self._emit = emit
        ray.cloudpickle.register_pickle_by_value(on_worker)
        # Tries are counted here, where a batch's name is known.
        self._run = ray.remote(num_cpus=1, max_retries=0)(on_worker.run_batch)
        program = find_agent().path.read_bytes()
        self._digest = hashlib.sha256(program).hexdigest()
        self._engine = ray.put(program)
        errors = ray.exceptions
        self._losses = (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,
            errors.LocalRayletDiedError,
            errors.TaskUnschedulableError,
            errors.RaySystemError,
        )

    def simulate(self, jobs: Iterable[dict[str, Any]]) -> Iterator[Any]:
        """See `Cluster.simulate`."""
        batches = Batches(jobs)
        running: dict[Any, Batch] = {}
        cores, looked, alone = self._cores(), time.monotonic(), None
        try:
            while True:
                while len(running) < max(1, AHEAD * cores):
                    batch = batches.take(cores)
                    if batch is None:
                        break
                    running[self._sent(batch)] = batch
                if not running:
                    return
                done, _ = self._ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
                for answered in done:
                    yield from self._answers(batches, running.pop(answered), answered)
                if time.monotonic() - looked > LOOK_SECONDS:
                    cores, looked = self._cores(), time.monotonic()
                    alone = None if cores else (alone or looked)
                    if alone is not None and looked - alone > PATIENCE_SECONDS:
                        raise EngineError(
                            f"the Ray cluster has had no core for {PATIENCE_SECONDS:.0f} s; what "
                            "was simulated before is in the run. Add a machine to it by `ray "
                            "start`, or leave --cluster out"
                        )
        except ConnectionError as error:
            raise EngineError(
                f"the connection to the Ray cluster is lost: {' '.join(str(error).split())[:300]}"
            ) from None
        finally:
            # Also when the caller was interrupted: what nobody waits for is not to be simulated.
            with suppress(Exception):
                for waiting in running:
                    self._ray.cancel(waiting, force=True)

    def _sent(self, batch: Batch) -> Any:
        batch.starts()
        variables = {name: value for name, value in HUGE_PAGES.items() if name not in os.environ}
        return self._run.remote(self._engine, self._digest, batch.lines, variables)

    def _answers(self, batches: Batches, batch: Batch, answered: Any) -> list[Any]:
        """Return the answers of a batch; none when it was lost, and then it is taken back."""
        try:
            packed, seconds = self._ray.get(answered)
        except self._losses as lost:
            self._take_back(batches, batch, type(lost).__name__)
            return []
        except self._ray.exceptions.RayTaskError as failed:
            cause = failed.cause
            # By name: a class that was sent by value comes back as another one.
            if type(cause).__name__ == on_worker.EngineKilledError.__name__:
                self._take_back(batches, batch, str(cause))
                return []
            raise EngineError(f"disklab-engine simulate ended early: {cause}") from None
        batches.took(batch, seconds)
        return batch.answers(zlib.decompress(packed))

    def _take_back(self, batches: Batches, batch: Batch, why: str) -> None:
        batches.again(batch, why)
        self._emit(Warned(f"a worker of Ray was lost ({why}): its {batch.jobs} cells run again"))

    def _cores(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))
