"""What runs now, beside what advice found: what it does, whether to move, and what that saves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from disklab.advice.bounds import seconds_of, strength_of
from disklab.advice.candidates import Candidate, Disks, named, without_credits
from disklab.advice.levers import in_words
from disklab.advice.options import Option, short
from disklab.advice.question import Question
from disklab.catalog import (
    HostRequest,
    Places,
    VolumeRequest,
    find_vm,
    load_catalog,
    parse_disks,
    resolve,
)
from disklab.catalog.price import NoPrice, vm_price, volume_price
from disklab.errors import UserError
from disklab.results.required import Outcome, only_durability

JUDGED = {
    Outcome.MET: "meets the requirement",
    Outcome.MISSED: "misses the requirement",
    Outcome.CANNOT_TELL: "may meet the requirement",
    Outcome.CANNOT_SUSTAIN: "cannot sustain the rate",
}


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
    within: bool
    """Whether that is within what the file requires of every operation; True too where nothing was
    told."""
    simulated: Option | None = None
    """What the simulator makes of it under the required rate; None: `unknown` says why."""
    unknown: str = ""

    @property
    def keeps(self) -> bool:
        """Whether it keeps the promise.

        What its server told goes before a simulated latency; a rate that it does not have today
        is known from the simulation alone.
        """
        if self.simulated is None:
            return self.within
        outcome = self.simulated.kept.outcome
        if self.p99_ms is None:
            return outcome is Outcome.MET
        if only_durability(self.simulated.kept):
            return False
        return self.within and outcome is not Outcome.CANNOT_SUSTAIN

    def verdict(self, one: Option) -> str:
        """Return the beginning of the answer: whether to move to an option."""
        if one.candidate.hardware == self.hardware:
            turned = one.candidate.settings
            also = "".join(
                f"{' with ' if not number else ', '}{in_words(path, value)}"
                for number, (path, value) in enumerate(turned.items())
            )
            return (
                f"Stay on {self.name}{also}: it is the cheapest that surely meets the requirement"
            )
        saved = self.saved(one)
        if saved is not None and saved <= 0 and self.keeps:
            return (
                f"Stay on {self.name}, {self.usd_per_month:,.0f} USD a month: the cheapest option "
                f"that surely meets the requirement costs {-saved:,.0f} more. It is {one.name}"
            )
        return f"Move to {one.name}"

    def difference(self, one: Option) -> str:
        """Return what an option saves or costs beside what runs now, as a sentence."""
        if one.candidate.hardware == self.hardware:
            return ""
        saved = self.saved(one)
        if saved is None or self.usd_per_month is None:
            return f"The price of {self.name}, the current system, is not known."
        now = f"{self.name} for {self.usd_per_month:,.0f} USD a month, the current system"
        share = abs(saved) / self.usd_per_month * 100
        if saved > 0:
            return f"That saves {saved:,.0f} USD a month ({share:.0f} %) compared with {now}."
        why = ""
        if not self.within and self.p99_ms is not None:
            why = f" and answers with a p99 of {short(self.p99_ms)} ms, longer than is asked for"
        return f"That costs {-saved:,.0f} USD a month ({share:.0f} %) more than {now}{why}."

    def does(self, one: Option | None) -> str:
        """Return what it does by simulation, and what moving to an option changes."""
        now = self.simulated
        if now is None:
            return f"The current system, {self.name}, could not be simulated: {self.unknown}."
        meets = f"In the simulation {self.name}, the current system, {JUDGED[now.kept.outcome]}"
        doubt = now.kept.outcome in (Outcome.MISSED, Outcome.CANNOT_TELL)
        why = f"{str(now.kept).partition(': ')[2]}. It" if doubt else "it"
        meets += f": {why} carries {now.carries}"
        if latency := now.latency("p99"):
            meets += f", p99 {latency}"
        if self.p99_ms is not None:
            meets += f"; its own server reported a p99 of {short(self.p99_ms)} ms"
        return f"{meets}. {self._moving(now, one)}".rstrip()

    def _moving(self, now: Option, one: Option | None) -> str:
        """Return what becomes of latency and rate; empty: there is nowhere to move to."""
        if one is None or one.candidate.name == now.candidate.name:
            return ""
        parts = []
        if (before := now.latency("p99")) and (after := one.latency("p99")):
            parts.append(f"the p99 from {before} to {after}")
        if (had := most_per_s(now)) and (has := most_per_s(one)):
            parts.append(
                f"the rate at which its tightest limit is reached from {had:,.0f}/s to {has:,.0f}/s"
            )
        way = "Moving" if one.candidate.hardware != self.hardware else "These settings"
        verb = "takes" if way == "Moving" else "take"
        return f"{way} {verb} {' and '.join(parts)}." if parts else ""

    def saved(self, one: Option) -> float | None:
        """Return the USD a month that an option saves; below 0: it costs more."""
        if self.usd_per_month is None:
            return None
        return self.usd_per_month - one.candidate.usd_per_month

    def as_json(self, one: Option | None) -> dict[str, Any]:
        """Return it as JSON, with what the answer's option saves."""
        now = None if self.simulated is None else self.simulated.as_json()
        if now is not None:
            now["usd_per_month"] = self.usd_per_month
        return {
            "name": self.name,
            "usd_per_month": self.usd_per_month,
            "p99_ms": self.p99_ms,
            "keeps_promise": self.keeps,
            "saves_usd_per_month": None if one is None else self.saved(one),
            "simulated": now,
            "not_simulated": self.unknown,
        }


def most_per_s(option: Option) -> float | None:
    """Return the operations a second at which its fullest limit is full; None: nobody tells."""
    if option.kept.achieved_ratio is not None:
        return option.achieved_per_s
    room = option.head_room
    return None if room is None else option.achieved_per_s * (1 + room)


def present_of(
    question: Question, simulated: Option | None = None, unknown: str = ""
) -> Present | None:
    """Return what runs now; None: the file was not observed, or nobody stated its hardware."""
    observed, cluster = question.observed, question.spec.cluster
    if observed is None or observed.hardware == "assumed" or cluster is None:
        return None
    data = cluster.volumes["data"]
    hardware = named(cluster.vm, Disks(data.disks, "", data.caching))
    bounds = [one["p99"] for one in question.require.latencies().values() if "p99" in one]
    within = observed.p99_ms is None or observed.p99_ms <= min(bounds, default=observed.p99_ms)
    return Present(
        f"{cluster.nodes} x {hardware}",
        hardware,
        _price(question),
        observed.p99_ms,
        within,
        simulated,
        unknown,
    )


def _price(question: Question) -> float | None:
    """Return the USD a month of what runs now, all nodes; None: a price is not known."""
    cluster = question.spec.cluster
    catalog, region, terms = load_catalog(), question.region, question.terms
    prices = [vm_price(catalog, cluster.vm, region=region, terms=terms)]
    prices += [
        volume_price(catalog, one.disks, region=region, terms=terms)
        for one in cluster.volumes.values()
    ]
    usd = 0.0
    for price in prices:
        if isinstance(price, NoPrice):
            return None
        usd += price.usd_per_month
    return round(usd * cluster.nodes, 2)


def candidate_of(question: Question) -> Candidate | str:
    """Return what runs now as an option, or why the catalogue cannot make it one.

    Its price counts as nothing where none is known: `Present` says so.
    """
    spec, cluster = question.spec, question.spec.cluster
    data = cluster.volumes["data"]
    request = VolumeRequest(
        disks=data.disks,
        caching=data.caching,
        chunk_bytes=data.chunk_bytes if data.stripe_bytes else None,
        latency=None,
    )
    try:
        made = resolve(load_catalog(), HostRequest(vm=cluster.vm), request)
    except UserError as error:
        return str(error.problems[0])
    if spec.before.credits_ratio == 0:
        host = without_credits(made)
        made = replace(made, host=host, volume=host.volumes[0])
    vm = find_vm(load_catalog(), cluster.vm, Places())
    strength = strength_of(made, seconds_of(spec), vm)
    kind = parse_disks(data.disks).name
    disks = Disks(data.disks, kind, data.caching)
    return Candidate(cluster.vm, disks, _price(question) or 0.0, strength, made)
