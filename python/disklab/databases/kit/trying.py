"""A kit tried where it is written: on a plain folder, for a few seconds of its load."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from disklab import spec
from disklab.databases.kit.cluster import KitCluster, provision
from disklab.databases.protocol import NodePlace, Progress, Request, Sizes
from disklab.engine.load import LoadDone, Stop
from disklab.hosts.addresses import free_addresses
from disklab.kits import engine_of
from disklab.kits.schema import Kit
from disklab.spec.amounts import only
from disklab.workloads.protocol import Asked
from disklab.workloads.tool import Tool

MEMORY_BYTES = 2 << 30  # of each node: what a small VM has


def tried(kit: Kit, nodes: int, load: str | None, seconds: int, say: Progress) -> dict[str, Any]:
    """Start a kit, run a load of it, or its first one, stop it; return what was read."""
    load, figures = load or next(iter(kit.loads), None), {}
    tool = None if load is None else _tool(kit, load, seconds)
    with _cluster(kit, nodes, say) as cluster:
        begun = time.monotonic()
        cluster.start()
        say(f"ready after {time.monotonic() - begun:.1f} s")
        if load is not None and tool is not None:
            with tool.run(cluster.target, Asked(Stop(duration_s=seconds), 1))() as run:
                *_, whole = run
            assert isinstance(whole, LoadDone), "a load ends with its result"
            (operation,) = whole.operations.values()
            figures = {"load": load, "loop": kit.loads[load].loop, "operations": operation.count}
            figures |= operation.model_dump(by_alias=True, exclude_none=True, exclude={"count"})
        observed = cluster.observe()
        cluster.stop()
    none = dict.fromkeys(counter.name for counter in kit.counters)
    return figures | {"counters": none | {**observed.metrics, **observed.counters}}


def _tool(kit: Kit, load: str, seconds: int) -> Tool:
    """Return a load as a trial of an experiment file would have it. Raises UserError."""
    volumes = {name: {"disks": "azure/P10"} for name in kit.volumes}
    text = {
        "title": "kit try",
        "cluster": {"nodes": 1, "vm": "azure/Standard_D4s_v5", "volumes": volumes},
        "database": {"engine": "kit", "kit": kit.kit},
        "workload": {"tool": {"load": load}, "stop": {"duration": f"{seconds}s"}},
    }
    (trial,) = spec.parse(json.dumps(text), "--load").trials("rehearse")
    return Tool(only(spec.ClusterTrial, trial.spec), 1)


@contextmanager
def _cluster(kit: Kit, nodes: int, say: Progress) -> Iterator[KitCluster]:
    """Yield a cluster in a folder that goes with it; nothing runs yet. What fails ends all of it.

    The last lines of each node's logs are told then.
    """
    with tempfile.TemporaryDirectory(prefix="disklab-kit-", ignore_cleanup_errors=True) as name:
        places = []
        for number, address in enumerate(free_addresses(nodes, tuple(kit.ports.values())), 1):
            parts = {part: Path(name, f"n{number}", part) for part in ("data", "run", "log")}
            for part in parts.values():
                part.mkdir(parents=True)
            volumes = {"data": parts["data"]}
            places.append(NodePlace(f"n{number}", address, volumes, parts["run"], parts["log"]))
        for folder in (Path(name), *Path(name).rglob("*")):
            folder.chmod(0o711)
        sizes = Sizes(MEMORY_BYTES, Fraction(1), nodes)
        request = Request(engine=engine_of(kit.kit), sizes=sizes, replication_factor=nodes)
        cluster = provision(request, places, say)
        try:
            yield cluster
        except Exception:
            for log in sorted(Path(name).glob("*/log/*.log")):
                for line in log.read_text(errors="replace").splitlines()[-20:]:
                    say(f"{log.stem}: {line[:400]}")
            raise
        finally:
            for node in cluster.nodes:
                node.kill()
