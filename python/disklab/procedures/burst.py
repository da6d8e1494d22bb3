"""When burst credits ran out in a measurement: the second, the rates, the next size's price.

Credits are seen once a second; between two looks they are followed along a line. Rates are those
of the load's own intervals. Both are on one clock, so that each pass of a series tells for itself.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

from disklab.catalog import Catalog, parse_disks
from disklab.catalog.price import Price, volume_price
from disklab.catalog.provisioning import Terms, provision
from disklab.engine import View
from disklab.errors import UserError
from disklab.results import CreditsGone, NextSize
from disklab.spec import Trial
from disklab.telemetry.sources import limit_name, node_suffix

METRIC = "credits_ratio "
SOURCE = "emulator "
# A bucket that is used as fast as it is filled holds what one window of 50 ms brings.
GONE_RATIO = 0.01


@dataclass
class Pass:
    """What was seen of credits and rates in one pass; times are of the described system."""

    credits: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """By volume and limit: when, and the share that was left."""
    rates: list[tuple[float, float, float]] = field(default_factory=list)
    """Intervals of the load: begin, end, operations a second."""
    begun_s: float | None = None
    """When the load began."""


@dataclass
class CreditsCourse:
    """Collects the passes of a measurement."""

    passes: list[Pass] = field(default_factory=list)
    time_dilation: int = 1
    """Seconds of this machine for each second of the described system."""

    def _now_s(self) -> float:
        return time.monotonic() / self.time_dilation

    def begin_pass(self, views: Mapping[tuple[str, str], View]) -> None:
        """Begin a pass: from now on what is seen belongs to it.

        `views` by host and volume tell what is there to begin with; hosts in the order of nodes.
        """
        begun = Pass()
        hosts = list(dict.fromkeys(host for host, _ in views))
        for (host, volume), view in views.items():
            name = f"{volume}{node_suffix(hosts.index(host) + 1)}"
            for limit in view.counters.limits:
                if limit.credits is not None and limit.credits.capacity:
                    left = limit.credits.left / limit.credits.capacity
                    begun.credits[name, limit_name(limit)] = [(self._now_s(), left)]
        self.passes.append(begun)

    def saw(self, source: str, metric: str, value: float) -> None:
        """Take a row of the telemetry, of whatever kind."""
        if self.passes and metric.startswith(METRIC) and source.startswith(SOURCE):
            key = (source.removeprefix(SOURCE), metric.removeprefix(METRIC))
            self.passes[-1].credits.setdefault(key, []).append((self._now_s(), value))

    def interval(self, t_s: float, ops_per_s: float) -> None:
        """Take an interval of the load that has just ended, `t_s` after the load began."""
        now = self._now_s()
        last = self.passes[-1]
        if last.begun_s is None:
            last.begun_s = now - t_s
        begin = last.rates[-1][1] if last.rates else last.begun_s
        last.rates.append((begin, now, ops_per_s))


def gone(course: CreditsCourse, trial: Trial, catalog: Catalog) -> list[CreditsGone]:
    """Return the limits whose credits ran out while the load went on, the earliest first."""
    found = []
    keys = dict.fromkeys(key for one in course.passes for key in one.credits)
    for volume, limit in keys:
        seen = [
            told for one in course.passes if (told := _in_pass(one, (volume, limit))) is not None
        ]
        if not seen:
            continue
        at_s = median(one[0] for one in seen)
        found.append(
            CreditsGone(
                volume=volume,
                limit=limit,
                at_s=round(at_s, 1),
                # Rates are real and credits are scaled: they last as much longer as there are more.
                full_at_s=round(at_s / float(trial.share.scale), 1),
                passes=len(seen),
                ops_per_s_before=round(fmean(one[1] for one in seen), 1),
                ops_per_s_after=round(fmean(one[2] for one in seen), 1),
                next_size=next_size(trial, volume.partition(" ")[0], catalog),
            )
        )
    return sorted(found, key=lambda one: one.at_s)


def in_words(one: CreditsGone) -> str:
    """Return one line for a reader: when, the rates, the next size with its price."""
    told = (
        f"{one.volume}: the burst credits of {one.limit} ran out {one.at_s:g} s into the load"
        f" ({_minutes(one.full_at_s)} on the full system): {one.ops_per_s_before:,.0f} ops/s "
        f"before, {one.ops_per_s_after:,.0f} after"
    )
    size = one.next_size
    if size is None:
        return told
    cost = (
        "no price known"
        if size.more_usd_per_month is None
        else f"{size.more_usd_per_month:,.2f} USD a month more for the cluster"
    )
    return f"{told}; the next size, {size.disks}, has {size.iops:,} IOPS all the time: {cost}"


def next_size(trial: Trial, volume: str, catalog: Catalog) -> NextSize | None:
    """Return the next larger disk of the same family in place of a volume's disks.

    None: there is none, or its size and speed are chosen freely.
    """
    cluster = trial.spec.cluster
    if cluster is None or volume not in cluster.volumes:
        return None
    disks = parse_disks(cluster.volumes[volume].disks)
    entry = catalog.disks.get(disks.name)
    if entry is None:
        return None
    tiers = catalog.tiers(entry.family_name)
    names = [tier.name for tier in tiers]
    if entry.name not in names or names.index(entry.name) + 1 >= len(tiers):
        return None
    larger = tiers[names.index(entry.name) + 1]
    text = larger.name if disks.count == 1 else f"{disks.count} x {larger.name}"
    try:
        now, then = volume_price(catalog, disks), volume_price(catalog, text)
        one = provision(catalog, parse_disks(larger.name), Terms(size_bytes=None))
    except UserError:
        return None
    more = None
    if isinstance(now, Price) and isinstance(then, Price):
        more = round((then.usd_per_month - now.usd_per_month) * cluster.nodes, 2)
    return NextSize(disks=text, iops=(one.iops or 0) * disks.count, more_usd_per_month=more)


def _in_pass(one: Pass, key: tuple[str, str]) -> tuple[float, float, float] | None:
    """Return when the credits ran out, after the load began, and the rates before and after."""
    samples = one.credits.get(key, [])
    at = _ran_out(samples)
    if at is None or one.begun_s is None:
        return None
    before = [rate for _, end, rate in one.rates if end <= at]
    after = [rate for begin, _, rate in one.rates if begin >= at]
    if not before or not after:
        # Gone before the load began, or at its very end: there is nothing to compare.
        return None
    return at - one.begun_s, fmean(before), fmean(after)


def _ran_out(samples: list[tuple[float, float]]) -> float | None:
    """Return when the last credits went; None: they never did, or were gone from the start."""
    if not samples or samples[0][1] <= GONE_RATIO:
        return None
    for (t0, left0), (t1, left1), slope in _steps(samples):
        if left1 <= GONE_RATIO < left0:
            # At the pace of the second before; at the latest when it was seen.
            return t1 if slope <= 0 else min(t0 + left0 / slope, t1)
    return None


def _steps(
    samples: list[tuple[float, float]],
) -> Iterator[tuple[tuple[float, float], tuple[float, float], float]]:
    """Yield neighbouring samples, and how fast credits went before them, a second."""
    slope = 0.0
    for first, second in itertools.pairwise(samples):
        yield first, second, slope
        if second[0] > first[0]:
            slope = (first[1] - second[1]) / (second[0] - first[0])


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
