"""Trials that leave their caches to the next one: which of them become one job, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from disklab.databases.simulating import AS_LEFT, Job
from disklab.procedures.plan import bed_of
from disklab.spec import Trial

Numbered = tuple[Trial, Job]
"""A trial and its job, with the number of its cell."""


def joined(cells: Sequence[Numbered]) -> list[Job]:
    """Return the jobs of trials in the order of the file, those of a sequence as one.

    Where a trial of a bed takes caches as they were left, all trials of that bed follow each other
    in the order of the file, as a sweep is published. **Divergence:** a rehearsal draws an order.
    """
    beds: dict[str, list[Numbered]] = {}
    for number, (trial, job) in enumerate(cells):
        # A timetable leaves nothing behind that the next trial could begin with.
        alone = "database" not in job or bool(trial.spec.events)
        name = f"cell {number}" if alone else bed_of(trial.spec)
        beds.setdefault(name, []).append((trial, job))
    found: list[Job] = []
    for members in beds.values():
        if any(takes_over(trial) for trial, _ in members):
            found.append(_sequence([job for _, job in members]))
        else:
            found += [job for _, job in members]
    return found


def takes_over(trial: Trial) -> bool:
    """Return whether a trial begins with caches as the one before it left them."""
    before = trial.spec.before
    return AS_LEFT in (before.page_cache, before.host_cache)


def _sequence(jobs: Sequence[Job]) -> Job:
    first, *others = jobs
    then: list[dict[str, Any]] = [
        {"cell": job["cell"], "database": job["database"]} for job in others
    ]
    return {**first, "then": then}
