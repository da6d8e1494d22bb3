"""What a load does when its burst credits are gone, beside what it does while they last.

A prediction of a minute sees a bucket that lasts for half an hour, one of a day sees the mean of
both. So a cell that spent credits is simulated once more without any, at quick fidelity; where its
credits ended within the run, also with endless ones, which tells when they did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disklab.databases.simulating import AS_LEFT, Job, with_credits
from disklab.procedures.plan import bed_of
from disklab.results import Bottleneck, CreditsGone, SteadyState, TrialResult
from disklab.spec import Trial

# Trials that leave their caches to the next one: which of them become one job, in which order.

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


Answer = Mapping[str, Any]
Change = Callable[[Job], Job]

MATTERS = 0.02
"""Rates closer than that are one rate."""
LONGEST_SPENDING_S = 30 * 86_400.0
"""A bucket that a load takes longer to empty decides nothing: no load is the same for a month, and
in its quiet hours the bucket fills again."""
LATER = 1.1
"""So many times the 99th percentile are worth a word where the rate stays."""


@dataclass(frozen=True)
class Spending:
    """The bucket of an answer that is empty first."""

    limit: str
    lasts_s: float
    """After the end of what was simulated."""

    @property
    def ran_out(self) -> bool:
        """Whether it ended within what was simulated: an empty bucket still holds what flows in."""
        return self.lasts_s < 1


def spending(trial: Trial, answer: Answer) -> Spending | None:
    """Return which credits a cell spends; None: none, or it is not one load in one state."""
    if trial.spec.events or takes_over(trial) or trial.spec.before.credits_ratio == 0:
        return None
    # What was simulated smaller has as many times fewer credits at the same rates.
    scale = float(answer.get("scale") or 1.0)
    found = [
        Spending(bucket["place"], bucket["lasts_s"] / scale)
        for bucket in answer["credits"]
        if bucket.get("lasts_s") is not None
    ]
    first = min(found, key=lambda bucket: bucket.lasts_s, default=None)
    return None if first is None or first.lasts_s > LONGEST_SPENDING_S else first


def without_credits(job: Job) -> Job:
    """Return a job whose hosts have none of their burst credits."""
    found: Job = _changed(job, lambda host: with_credits(host, 0.0))
    return found


def with_endless_credits(job: Job) -> Job:
    """Return a job whose hosts burst for ever."""

    def endless(host: Job) -> Job:
        found = with_credits(host, 1.0)
        disks = (disk for volume in found["volumes"] for disk in volume["disks"])
        for limits in (found["uncached"], found["cached"], *(disk["limits"] for disk in disks)):
            for burst in (limit["burst"] for limit in limits if limit["burst"] is not None):
                burst["credits"] = burst["start"] = None
        return found

    changed: Job = _changed(job, endless)
    return changed


def _changed(part: Any, change: Change) -> Any:
    """Return a part of a job with its hosts changed."""
    if isinstance(part, dict):
        if {"uncached", "cached", "volumes"} <= part.keys():
            return change(part)
        return {key: _changed(value, change) for key, value in part.items()}
    if isinstance(part, list) and part and isinstance(part[0], dict):
        return [_changed(value, change) for value in part]
    return part


def with_steady(
    result: TrialResult, answer: Answer, bucket: Spending, steady: Answer, endless: Answer | None
) -> TrialResult:
    """Return a result with its steady state, where that differs from what was predicted.

    `endless`: of the same load on endless credits, where the bucket ran out before the end.
    """
    mean, after = result.ops_per_s or 0.0, float(steady["ops_per_s"])
    before = mean if endless is None else max(float(endless["ops_per_s"]), mean)
    p99, later = result.latency_ms.get("p99", 0.0), float(steady["latency_ms"].get("p99", 0.0))
    if before <= 0 or (after > before * (1 - MATTERS) and later < p99 * LATER):
        return result
    elapsed_s = float(answer["elapsed_s"]) / float(answer.get("scale") or 1.0)
    at_s = elapsed_s + bucket.lasts_s
    if endless is not None:
        share = (mean - after) / (before - after) if before > after else 1.0
        at_s = elapsed_s * min(max(share, 0.0), 1.0)
    gone = CreditsGone(
        volume="",
        limit=bucket.limit,
        at_s=round(at_s, 1),
        full_at_s=round(at_s, 1),
        ops_per_s_before=round(before, 1),
        ops_per_s_after=round(after, 1),
    )
    found = SteadyState(
        ops_per_s=after,
        latency_ms=steady["latency_ms"],
        bottleneck=Bottleneck(
            resource=steady["bottleneck"]["resource"],
            utilisation=steady["bottleneck"]["utilisation"],
        ),
    )
    return result.model_copy(update={"credits_gone": [gone], "steady": found})
