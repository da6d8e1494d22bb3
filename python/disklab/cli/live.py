"""What a volume does, as a table: limits, credits, cache, operations."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from disklab.catalog.quantity import about_bytes, about_time, format_rate
from disklab.engine import LimitCounters, View, VolumeCounters


def view_table(view: View, before: View | None, seconds: float) -> RenderableType:
    """Return the table of a view; with an earlier one, rates over the seconds in between."""
    profile = view.profile
    title = Text.assemble(
        (profile.name, "bold"),
        f"  {len(profile.disks)} x {profile.disks[0].name}, "
        f"{about_bytes(profile.size_bytes)}, caching {profile.caching}",
    )
    parts: list[RenderableType] = [title, _operations(view, before, seconds), _limits(view)]
    if view.counters.cache is not None:
        parts.append(_cache(view.counters))
    parts.append(Text.assemble("waits now for: ", (binding(view.counters), "bold")))
    emulator = view.emulator
    late = emulator.late_replies / emulator.replies if emulator.replies else 0.0
    lateness = about_time(emulator.lateness_ns.p99)
    parts.append(f"emulator: {emulator.transport}, {late:.2%} of replies late, p99 by {lateness}")
    if view.failure is not None:
        parts.append(Text(f"failed: {view.failure}", "bold red"))
    if view.faults:
        faults = ", ".join(" ".join(str(part) for part in fault.values()) for fault in view.faults)
        parts.append(Text(f"faults: {faults}", "red"))
    return Group(*parts)


def binding(counters: VolumeCounters) -> str:
    """Return the limit that some I/O waits for now."""
    waited = [limit_name(limit) for limit in counters.limits if limit.binding]
    if waited:
        return ", ".join(waited)
    return "nothing" if not counters.queued else "a stall, the cache or a destage"


def limit_name(limit: LimitCounters) -> str:
    """Return a limit in words: `disk 0 IOPS`, `vm cached MB/s (reads)`."""
    scope = "" if limit.scope == "all" else f" ({limit.scope}s)"
    return f"{limit.place} {'IOPS' if limit.unit == 'ios' else 'MB/s'}{scope}"


def hit_ratio(counters: VolumeCounters) -> float | None:
    """Return the share of reads that the host cache served; None: there were none."""
    cache = counters.cache
    if cache is None or cache.hit_ios + cache.miss_ios == 0:
        return None
    return cache.hit_ios / (cache.hit_ios + cache.miss_ios)


def _operations(view: View, before: View | None, seconds: float) -> Table:
    table = Table("operation", box=None, pad_edge=False)
    for heading in ("I/Os", "data", "failed", "IOPS now", "MB/s now"):
        table.add_column(heading, justify="right")
    for kind, one in view.counters.operations.items():
        iops, rate = "", ""
        if before is not None and seconds > 0:
            earlier = before.counters.operations[kind]
            iops = f"{(one.ios - earlier.ios) / seconds:.0f}"
            rate = f"{(one.bytes - earlier.bytes) / seconds / 1e6:.1f}"
        failed = str(one.failed) if one.failed else ""
        table.add_row(kind, str(one.ios), about_bytes(one.bytes), failed, iops, rate)
    counters = view.counters
    table.caption = f"{counters.in_flight} in flight, {counters.queued} queued"
    table.caption_justify = "left"
    return table


def _limits(view: View) -> Table:
    table = Table("limit", box=None, pad_edge=False)
    for heading in ("a second", "granted", "delayed I/Os", "mean delay", "credits left", "binds"):
        table.add_column(heading, justify="right")
    for limit in view.counters.limits:
        ios = limit.unit == "ios"
        delay = limit.delayed_ns / limit.delayed_ios if limit.delayed_ios else 0
        table.add_row(
            limit_name(limit),
            str(limit.per_s) if ios else format_rate(limit.per_s),
            str(limit.granted) if ios else about_bytes(limit.granted),
            str(limit.delayed_ios),
            about_time(delay) if delay else "",
            _credits(limit),
            Text("now" if limit.binding else "", "yellow"),
        )
    return table


def _credits(limit: LimitCounters) -> str:
    if limit.credits is None:
        return ""
    left, capacity = limit.credits.left, limit.credits.capacity
    shown = str(left) if limit.unit == "ios" else about_bytes(left)
    return f"{shown} ({left / capacity:.0%})" if capacity else shown


def _cache(counters: VolumeCounters) -> str:
    cache, ratio = counters.cache, hit_ratio(counters)
    assert cache is not None  # asked by the caller
    served = "no reads yet" if ratio is None else f"{ratio:.1%} of reads hit"
    return (
        f"host cache: {served}, {about_bytes(cache.cached_bytes)} held, "
        f"{about_bytes(cache.dirty_bytes)} not yet on the disk, "
        f"{about_bytes(cache.evicted_bytes)} evicted"
    )
