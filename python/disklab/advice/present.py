"""What runs now, beside what advice found: whether to move, and what that saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disklab.advice.candidates import Disks, named
from disklab.advice.options import Option, short
from disklab.advice.question import Question
from disklab.catalog import load_catalog
from disklab.catalog.price import NoPrice, vm_price, volume_price


@dataclass(frozen=True)
class Present:
    """The VMs and disks of an observed file, where somebody stated them."""

    name: str
    """As options are named: `3 x E16s_v5 with 4 x P30`."""
    hardware: str
    usd_per_month: float | None
    """All nodes; None: a price is not known."""
    p99_ms: float | None
    """As its own server told it."""
    keeps: bool
    """Whether that is within what the file requires of every operation."""

    def verdict(self, one: Option) -> str:
        """Return the beginning of the answer: whether to move to an option."""
        if one.candidate.hardware == self.hardware:
            return f"Stay on {self.name}: it is the cheapest that surely keeps the promise"
        saved = self.saved(one)
        if saved is not None and saved <= 0 and self.keeps:
            return (
                f"Stay on {self.name}, {self.usd_per_month:,.0f} USD a month: the cheapest option "
                f"that surely keeps the promise costs {-saved:,.0f} more. It is {one.name}"
            )
        return f"Move to {one.name}"

    def difference(self, one: Option) -> str:
        """Return what an option saves or costs beside what runs now, as a sentence."""
        if one.candidate.hardware == self.hardware:
            return ""
        saved = self.saved(one)
        if saved is None or self.usd_per_month is None:
            return f"The price of {self.name}, which runs now, is not known."
        now = f"{self.name} for {self.usd_per_month:,.0f} USD a month, which runs now"
        share = abs(saved) / self.usd_per_month * 100
        if saved > 0:
            return f"That saves {saved:,.0f} USD a month ({share:.0f} %) against {now}."
        why = ""
        if not self.keeps and self.p99_ms is not None:
            why = f" and answers with a p99 of {short(self.p99_ms)} ms, longer than is asked for"
        return f"That costs {-saved:,.0f} USD a month ({share:.0f} %) more than {now}{why}."

    def saved(self, one: Option) -> float | None:
        """Return the USD a month that an option saves; below 0: it costs more."""
        if self.usd_per_month is None:
            return None
        return self.usd_per_month - one.candidate.usd_per_month

    def as_json(self, one: Option | None) -> dict[str, Any]:
        """Return it as JSON, with what the answer's option saves."""
        return {
            "name": self.name,
            "usd_per_month": self.usd_per_month,
            "p99_ms": self.p99_ms,
            "keeps_promise": self.keeps,
            "saves_usd_per_month": None if one is None else self.saved(one),
        }


def present_of(question: Question) -> Present | None:
    """Return what runs now; None: the file was not observed, or nobody stated its hardware."""
    observed, cluster = question.observed, question.spec.cluster
    if observed is None or observed.hardware == "assumed" or cluster is None:
        return None
    catalog, region, terms = load_catalog(), question.region, question.terms
    prices = [vm_price(catalog, cluster.vm, region=region, terms=terms)]
    prices += [
        volume_price(catalog, one.disks, region=region, terms=terms)
        for one in cluster.volumes.values()
    ]
    usd = 0.0
    for price in prices:
        if isinstance(price, NoPrice):
            usd = -1.0
            break
        usd += price.usd_per_month
    data = cluster.volumes["data"]
    hardware = named(cluster.vm, Disks(data.disks, "", data.caching))
    bounds = [one["p99"] for one in question.require.latencies().values() if "p99" in one]
    keeps = observed.p99_ms is None or observed.p99_ms <= min(bounds, default=observed.p99_ms)
    return Present(
        f"{cluster.nodes} x {hardware}",
        hardware,
        None if usd < 0 else round(usd * cluster.nodes, 2),
        observed.p99_ms,
        keeps,
    )
