"""disklab: which disks should my distributed database live on?

```python
import disklab
run = disklab.open("disklab-runs/RUN")
run.frame()                    # a row for each repeat: factors, ops/s, latencies, bottleneck
disklab.published("how many client threads")
```
"""

from __future__ import annotations

# Nothing is imported here: no command is to wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from disklab.results import Run

__all__ = ["open", "published"]


def open(name: str | Path, out: str | Path = "disklab-runs") -> Run:  # noqa: A001 - as a file
    """Return a stored run by its folder, its id, or an unambiguous beginning of the id in `out`.

    `frame()` is a table with a row for each repeat, `results()` everything that is known of each,
    `course(trial, repeat)` its seconds and `telemetry(trial, repeat)` its counters. Raises
    `disklab.errors.UserError` when there is no such run.
    """
    from pathlib import Path  # noqa: PLC0415

    from disklab.results import Run  # noqa: PLC0415 - polars: no command is to wait for it

    return Run.open(name, Path(out))


def published(title: str) -> pl.DataFrame:
    """Return what was published of an experiment, as the same table as of a run.

    `title`: the experiment's title or a part of it, in small or capital letters. Raises
    `disklab.errors.UserError` when no published experiment has it, or several have.
    """
    from disklab.errors import Problem, UserError  # noqa: PLC0415
    from disklab.results import reference_runs  # noqa: PLC0415

    known = list(reference_runs())
    found = [run for run in known if title.lower() in run.info.experiment.title.lower()]
    if len(found) != 1:
        rule = "belongs to no published experiment" if not found else "belongs to several"
        way_out = "known are: " + "; ".join(run.info.experiment.title for run in found or known)
        raise UserError(Problem("title", title, rule, way_out))
    return found[0].frame()
