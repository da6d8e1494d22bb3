"""What a timetable of faults did to a load: the steps, the time to come back, the rows lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from disklab.results.records import Rebuild, Recovery, StepTaken, Yearly

BACK_RATIO = 0.95
"""Back is who does so much of the rate before, on the mean of `BACK_INTERVALS` intervals: one alone
strays by more than that."""
BACK_INTERVALS = 3
WHOLE_AFTER = ("start", "restart", "replace", "add", "decommission", "migrate", "move", "repair")
"""Steps that end when a node has all its data, or the others have those of one that left."""
MENDING = (*WHOLE_AFTER, "promote", "mend", "join")
"""Steps that end an outage, which lasts longer where they begin late."""
Span = tuple[float, float]
"""From when to when, in seconds of the described system."""
FULL_MACHINE_RATIO = 0.95
"""A machine with less than 5 % idle has no core free when something becomes ready."""
MOST_DEVIATIONS = 3.0
"""Of Poisson arrivals, whose number strays by its square root: one mean of 700 is further off."""


def recovery_of(
    steps: Sequence[StepTaken],
    ends_s: Sequence[float],
    rates: Sequence[float],
    failed: int,
    own_s: Sequence[Span] = (),
) -> Recovery:
    """Return what is seen in the course of a pass: `rates` of the intervals that end at `ends_s`.

    Nothing of the course is told where no interval lies before or behind the first step.
    `own_s`: when disklab itself took hosts away. As far as a step that mends waited for that, it is
    left out of all times.
    """
    if not steps or not rates:
        return Recovery(steps=list(steps), failed_operations=failed)
    first_s = min(step.begun_s for step in steps)
    course = list(zip([0.0, *ends_s], ends_s, rates, strict=False))
    before = [rate for begin, end, rate in course[1:] if end <= first_s]
    behind = [one for one in course if one[0] >= first_s]
    mended = [step.ended_s for step in steps if step.kind in WHOLE_AFTER]
    held = _held(steps, own_s)
    whole_s = max(mended) - first_s - within(held, first_s, max(mended)) if mended else None
    found = Recovery(
        steps=list(steps),
        failed_operations=failed,
        held_s=round(within(held, first_s, math.inf), 3),
        whole_s=None if whole_s is None else round(whole_s, 3),
    )
    if not before or not behind:
        return found
    usual = fmean(before)
    return found.model_copy(
        update={
            "ops_per_s_before": usual,
            "lowest_ops_per_s": _lowest(behind),
            "unavailable_s": round(
                sum(
                    end - begin - within(held, begin, end)
                    for begin, end, rate in behind
                    if not rate
                ),
                3,
            ),
            "back_s": None
            if (back_s := _back_s(behind, first_s, usual)) is None
            else round(back_s - within(held, first_s, first_s + back_s), 3),
        }
    )


def _held(steps: Sequence[StepTaken], own_s: Sequence[Span]) -> list[Span]:
    """Return when a step that mends was due, or under way, and disklab at work itself.

    The spans of `own_s` follow each other, so what is cut from them overlaps nowhere once
    neighbours are joined.
    """
    cut = [
        (
            max(begin, step.at_s),
            min(end, step.ended_s if step.kind in WHOLE_AFTER else step.begun_s),
        )
        for step in steps
        if step.kind in MENDING
        for begin, end in own_s
    ]
    held: list[Span] = []
    for begin, end in sorted(span for span in cut if span[0] < span[1]):
        if held and begin <= held[-1][1]:
            held[-1] = held[-1][0], max(end, held[-1][1])
        else:
            held.append((begin, end))
    return held


def within(spans: Sequence[Span], begin: float, end: float) -> float:
    """Return how much of the time from `begin` to `end` lies in spans."""
    return sum(max(0.0, min(end, to) - max(begin, since)) for since, to in spans)


def _lowest(behind: Sequence[tuple[float, float, float]]) -> float:
    """Return the lowest mean of some intervals; of all where there are fewer."""
    rates = [rate for _, _, rate in behind]
    count = min(BACK_INTERVALS, len(rates))
    return min(fmean(rates[at : at + count]) for at in range(len(rates) - count + 1))


def _back_s(
    behind: Sequence[tuple[float, float, float]], first_s: float, usual: float
) -> float | None:
    """Return how long it took until every mean of some intervals was that of the rate before.

    0: it never fell below.
    """
    starts = range(len(behind) - BACK_INTERVALS + 1)
    if not starts:
        return None

    def is_low(start: int) -> bool:
        window = behind[start : start + BACK_INTERVALS]
        expected = usual * (window[-1][1] - window[0][0])
        done = sum(rate * (end - begin) for begin, end, rate in window)
        return done < min(BACK_RATIO * expected, expected - MOST_DEVIATIONS * math.sqrt(expected))

    low = [start for start in starts if is_low(start)]
    if not low:
        return 0.0
    next_ = low[-1] + 1
    if next_ not in starts:
        return None
    return round(behind[next_][0] - first_s, 3)


LONG_S = 600
HOURS_S = 5400
DAYS_S = 3 * 86_400
"""From these on times are told in minutes, in hours, and in days."""


def in_time(seconds: float) -> str:
    """Return a time in seconds, minutes, hours or days."""
    if math.isinf(seconds):
        return "never: there is no other copy"
    if seconds >= DAYS_S:
        return f"{seconds / 86_400:,.0f} days"
    if seconds >= HOURS_S:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= LONG_S else f"{seconds:.0f} s"


def recovery_time_s(found: Recovery | None) -> float | None:
    """Return the longest time until a lost node served again with all its data.

    Infinite: some rows had no other copy. None: nothing is known.
    """
    if found is None:
        return None
    year = found.yearly
    if found.rows_lost or (year is not None and not year.comes_back):
        return math.inf
    times = [found.whole_s, *((year.lost_s, year.disk_lost_s) if year else ())]
    return max((seconds for seconds in times if seconds is not None), default=None)


def year_in_words(found: Yearly) -> str:
    """Return what failures cost in a year, without the sentence's end."""
    parts = []
    if found.lost_s is not None:
        parts.append(f"a lost VM is away for {in_time(found.lost_s)}")
    if found.disk_lost_s is not None:
        parts.append(f"the node of a lost disk for {in_time(found.disk_lost_s)}")
    if found.restarted_s is not None:
        parts.append(f"one that restarts for {in_time(found.restarted_s)}")
    parts.append(f"some row cannot be served for {found.unavailable_min:.3g} min a year")
    parts.append(f"a given row for {found.row_unavailable_min:.3g}")
    parts.append(f"data are lost with a probability of {found.loss_probability:.2g} a year")
    return "; ".join(parts)


def how_in_words(found: Yearly) -> str:
    """Return how what a year costs is known, and what would make a rebuild shorter."""
    if not found.bound:
        return "closed form"
    bound = "no limit" if found.bound == "latency" else found.bound
    return f"closed form; the rebuild is limited by {bound}: {found.lever}"


def _full_machine(found: Recovery) -> str:
    """Return that this machine's processors bound the last step, if they did."""
    mended = [step for step in found.steps if step.kind in WHOLE_AFTER]
    last = max(mended, key=lambda step: step.ended_s)
    if last.cpu_ratio is None or last.cpu_ratio < FULL_MACHINE_RATIO:
        return ""
    return f", limited by this machine's processors ({last.cpu_ratio:.0%} used)"


def _onward(found: Recovery) -> str:
    return " (beyond the load, at the rate seen in it)" if found.extrapolated else ""


def _rebuild_in_words(one: Rebuild) -> str:
    """Return what came back how fast, what bound it and what would make it faster."""
    bound = one.bound.resource
    used = "" if one.bound.utilisation is None else f" ({one.bound.utilisation:.0%} used)"
    limit = f"limited by {bound}{used}" if bound != "latency" else "no limit reached"
    done = {"stream": "are streamed", "replay": "of log are replayed", "validation": "are compared"}
    return (
        f"{one.size_bytes / 1e9:.3g} GB {done[one.kind]} at {one.bytes_per_s / 1e6:.0f} MB/s in "
        f"{in_time(one.seconds)}, {limit}: {one.lever}"
    )


def _is_told(one: Rebuild) -> bool:
    """Return whether it matters: a log's replay only where something is full meanwhile."""
    return one.kind != "replay" or one.bound.resource != "latency"


def steps_in_words(found: Recovery) -> str:
    """Return what was done to which node and when, as one sentence without its end."""
    return ", ".join(_step_in_words(step) for step in found.steps)


def _step_in_words(step: StepTaken) -> str:
    parts = [f"{part} {in_time(took)}" for part, took in step.parts_s.items() if took >= 1]
    told = f" ({', '.join(parts)})" if parts else ""
    return f"{step.kind} {step.node} at {step.begun_s:.0f} s{told}"


def in_words(found: Recovery) -> str:
    """Return what the steps cost, as one sentence without its end."""
    parts = [f"{found.unavailable_s:.0f} s without any success"]
    if found.ops_per_s_before and found.lowest_ops_per_s is not None:
        share = found.lowest_ops_per_s / found.ops_per_s_before
        parts.append(f"at worst {share:.0%} of {found.ops_per_s_before:.0f} operations a second")
        back = "not back at 95 % before the end"
        if found.back_s is not None:
            back = f"back at 95 % after {found.back_s:.0f} s"
        parts.append(back)
    if found.whole_s is not None:
        parts.append(
            f"whole again after {in_time(found.whole_s)}{_onward(found)}{_full_machine(found)}"
        )
        parts += [_rebuild_in_words(one) for one in found.rebuilds if _is_told(one)]
    parts += _counts_in_words(found)
    return "; ".join(parts)


def counts_in_words(found: Recovery) -> str:
    """Return what was lost, failed and stale, without a time, as one sentence without its end.

    Rows are counted after the load, each against the version that was acknowledged, so they hold
    for a trial whose disks were late too; its times and rates do not.
    """
    return "; ".join(_counts_in_words(found))


def _counts_in_words(found: Recovery) -> list[str]:
    parts = [f"{found.failed_operations} operations failed"]
    if found.rows_lost is not None:
        parts.append(f"{found.rows_lost} of {found.rows_checked} acknowledged rows lost")
    if found.updates_lost is not None:
        parts.append(f"{found.updates_lost} acknowledged updates lost")
    if found.reads_stale is not None:
        level = f" at {found.consistency}" if found.consistency else ""
        parts.append(f"{found.reads_stale} of {found.reads_judged} reads stale{level}")
    if found.at_all is not None:
        seen = found.at_all
        bad = seen.rows_lost + seen.rows_wrong + seen.rows_unread + (seen.updates_lost or 0)
        parts.append(f"read back at ALL when it was whole: {bad or 'no'} rows lost, old or unread")
    if found.rows_wrong:
        parts.append(f"{found.rows_wrong} rows wrong")
    if found.rows_unread:
        parts.append(f"{found.rows_unread} rows could not be read back")
    return parts
