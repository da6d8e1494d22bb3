"""The same figures for Prometheus: OpenMetrics text.

Source: the OpenMetrics specification, version 1.0 (metric names with their units, `# EOF`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

FAMILIES = {
    "disklab_run": ("info", "What the run is."),
    "disklab_run_trials": ("gauge", "Trials by what became of them, and how many were planned."),
    "disklab_run_left_seconds": ("gauge", "How long the run still takes."),
    "disklab_run_operations_per_second": ("gauge", "Rate of the load under way."),
    "disklab_run_p99_seconds": ("gauge", "99th percentile of the last second."),
    "disklab_disk": ("gauge", "What a disk, limit or process did in the last second."),
}


def metrics(states: Iterable[dict[str, Any]]) -> str:
    """Return the text for these states of runs."""
    lines: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for state in states:
        for family, line in of_run(state):
            lines[family].append(line)
    shown = []
    for name, (kind, helps) in FAMILIES.items():
        if lines[name]:
            shown += [f"# TYPE {name} {kind}", f"# HELP {name} {helps}", *lines[name]]
    return "\n".join([*shown, "# EOF"]) + "\n"


def of_run(state: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield family and line of each figure of a run."""
    run = {"run": state["id"]}
    told = {**run, **{key: state[key] for key in ("title", "mode", "status")}}
    yield "disklab_run", f"disklab_run_info{labels(told)} 1"
    for status, count in {**state["counts"], "planned": state["planned"]}.items():
        given = labels({**run, "status": status})
        yield "disklab_run_trials", f"disklab_run_trials{given} {count}"
    if state["left_s"] is not None:
        left = f"disklab_run_left_seconds{labels(run)} {state['left_s']:.0f}"
        yield "disklab_run_left_seconds", left
    if state["status"] != "running":
        return
    load = state["now"].get("load") or {}
    if load.get("ops_per_s") is not None:
        name = "disklab_run_operations_per_second"
        yield name, f"{name}{labels(run)} {load['ops_per_s']:g}"
    if load.get("p99_ms") is not None:
        name = "disklab_run_p99_seconds"
        yield name, f"{name}{labels(run)} {load['p99_ms'] / 1000:g}"
    for key, value in state["seen"].items():
        source, _, metric = key.partition(": ")
        given = labels({**run, "source": source, "metric": metric})
        yield "disklab_disk", f"disklab_disk{given} {value:g}"


def labels(given: dict[str, Any]) -> str:
    """Return labels as OpenMetrics writes them."""
    shown = ",".join(f'{name}="{escaped(str(value))}"' for name, value in given.items())
    return f"{{{shown}}}"


def escaped(value: str) -> str:
    """Return a label's value with backslash, quote and line feed escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
