"""What the user asks of a system: latencies, a rate, durability, a budget."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from disklab.spec.amounts import Milliseconds, Part, Rate, Ratio, Seconds, Unreadable

_BUDGET = re.compile(r"(\d{1,12}(?:\.\d{1,2})?)\s*USD\s*/\s*month", re.ASCII)


def _budget(value: Any) -> float:
    found = _BUDGET.fullmatch(str(value).strip())
    if found is None or float(found[1]) <= 0:
        rule = "a budget is an amount of USD a month, as the catalogue's prices are"
        raise Unreadable(rule, "write for example 5000 USD/month")
    return float(found[1])


Budget = Annotated[
    float,
    BeforeValidator(_budget),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\d+(\.\d+)?\s*USD\s*/\s*month$", "title": "money"}
    ),
]


class Latencies(Part):
    """Bounds on the response time of operations, intended start to completion."""

    mean_ms: Milliseconds | None = Field(default=None, alias="mean", examples=["3ms"])
    """The mean is at most this."""
    p50_ms: Milliseconds | None = Field(default=None, alias="p50", examples=["2ms"])
    """The median is at most this."""
    p95_ms: Milliseconds | None = Field(default=None, alias="p95", examples=["5ms"])
    """Of a hundred operations 95 take at most this."""
    p99_ms: Milliseconds | None = Field(default=None, alias="p99", examples=["10ms"])
    """Of a hundred operations 99 take at most this."""
    p999_ms: Milliseconds | None = Field(default=None, alias="p99.9", examples=["50ms"])
    """Of a thousand operations 999 take at most this."""

    of_time_ratio: Ratio | None = Field(default=None, alias="of_time", examples=["99.9%"])
    """The share of a year's minutes whose own percentiles keep these bounds: predictions draw a
    year of disk weather for it. None: a quiet hour counts."""

    @model_validator(mode="after")
    def _some(self) -> Latencies:
        if not self.bounds():
            raise Unreadable("a latency has a percentile", "write for example {p99: 10ms}")
        if not all(self.bounds().values()):
            raise Unreadable("no operation takes 0 ms", "write for example {p99: 10ms}")
        if self.of_time_ratio is not None and not 0 < self.of_time_ratio <= 1:
            raise Unreadable("a share of time is above 0 % and at most 100 %", "write 99.9%")
        return self

    def bounds(self) -> dict[str, float]:
        """Return the bounds in milliseconds by the names that results have."""
        told = {
            "mean": self.mean_ms,
            "p50": self.p50_ms,
            "p95": self.p95_ms,
            "p99": self.p99_ms,
            "p99.9": self.p999_ms,
        }
        return {name: bound for name, bound in told.items() if bound is not None}


class Require(Part):
    """The promise that a system must keep; every cell is judged by it."""

    all: Latencies | None = Field(default=None, examples=[{"p99": "20ms"}])
    """Bounds on all operations together."""
    read: Latencies | None = Field(default=None, examples=[{"p99": "10ms"}])
    """Bounds on reads of rows."""
    write: Latencies | None = Field(default=None, examples=[{"p99": "10ms"}])
    """Bounds on writes of rows."""
    storage_p99_ms: Milliseconds | None = Field(default=None, alias="storage_p99", examples=["2ms"])
    """Of p99 of all operations, storage takes at most this: the disks' service, queues at limits,
    and what waits behind both; predicted without JVM pauses, and not measured."""
    rate_per_s: Rate | None = Field(default=None, alias="rate", examples=["25000/s"])
    """Operations a second that the whole cluster carries. Without it, in an open loop: the offered
    rate."""
    head_room_ratio: Ratio = Field(
        default="0%", validate_default=True, alias="head_room", examples=["20%"]
    )
    """How much more than the rate must be possible."""
    durability: Literal["survives a lost VM", "survives deallocation", "may be lost"] = Field(
        default="survives a lost VM", examples=["survives deallocation"]
    )
    """survives a lost VM: no data are gone with one VM, so what lies on its own disks, or in a
    ReadWrite cache, has another copy on other nodes. survives deallocation: nothing is gone with
    all of them stopped at once, so data lie on attached disks, and no write waits in a ReadWrite
    cache. may be lost: anything goes."""
    recovery_s: Seconds | None = Field(default=None, alias="recovery", examples=["4h"])
    """A lost node serves again with all its data within this time: of the timetable's nodes from
    its first event, of `failures` from the loss of a VM or disk."""
    budget_usd_per_month: Budget | None = Field(
        default=None, alias="budget", examples=["5000 USD/month"]
    )
    """What VMs and disks of all nodes cost at most, at list prices."""

    @model_validator(mode="after")
    def _some(self) -> Require:
        if not self.model_fields_set:
            way_out = "write for example {read: {p99: 10ms}, rate: 25000/s}"
            raise Unreadable("a requirement asks for something", way_out)
        if self.storage_p99_ms == 0:
            raise Unreadable("no storage takes 0 ms", "write for example storage_p99: 2ms")
        return self

    @property
    def of_time_ratio(self) -> float | None:
        """The largest share of time that any bound is to be kept for; None: none says."""
        parts = (self.all, self.read, self.write)
        ratios = [part.of_time_ratio for part in parts if part and part.of_time_ratio]
        return max(ratios, default=None)

    def latencies(self) -> dict[str, dict[str, float]]:
        """Return the bounds in milliseconds by operation; `all`: all of them together."""
        told = {"all": self.all, "read": self.read, "write": self.write}
        return {name: one.bounds() for name, one in told.items() if one is not None}
