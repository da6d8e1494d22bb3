"""What is asked: a workload, a promise, and among what to choose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import yaml

from disklab.catalog import load_catalog
from disklab.catalog.facts import PriceTerms
from disklab.catalog.price import DEFAULT_REGION, DEFAULT_TERMS, REGIONS
from disklab.catalog.quantity import plain_number
from disklab.catalog.suggest import did_you_mean
from disklab.database_facts import advised, facts_of
from disklab.databases.simulating import OTHERWISE
from disklab.errors import Problem, UserError, refuse
from disklab.prediction.cells import model_of
from disklab.prediction.outcome import NEW_ORDERS_PER_MINUTE
from disklab.spec import ClusterTrial, Experiment, TrialSpec, parse
from disklab.spec.amounts import only
from disklab.spec.model import Observed
from disklab.spec.require import Require

FACTOR = "option"
"""The one factor of the experiment that advice writes."""

STEADY = {"page_cache": "warm", "host_cache": "warm", "credits": "0%"}
"""The state that a system is in all day."""

GROWTH = 0.3
"""Of data, on disks that are bought. **Assumed:** a year's."""

HEAD_ROOM = 0.3
"""That is bought where the file names none. **Assumed:** as much growth of the load."""

# Long enough for flushes, compactions and pauses to show in the 99th percentile.
DURATION = "60s"

OF_TERMINALS = 0.7
"""Of the new orders that TPC-C's keying and think times allow at most, what must be done where a
file names no rate. **Assumed:** 9 a minute of 12.86, the least of results that may be published."""

LOOK_S = 20
"""Of a cell at most, but for those that prove an answer, which last as long as the file says."""


@dataclass(frozen=True)
class Question:
    """A checked question."""

    path: Path
    tree: dict[str, Any]
    """The experiment file without its factors, with what advice decides added."""
    spec: ClusterTrial
    require: Require
    wanted: tuple[str, ...] = ()
    """Parts of names of disks and VM sizes to choose among; empty: the whole catalogue."""
    region: str = DEFAULT_REGION
    terms: PriceTerms = DEFAULT_TERMS
    notes: tuple[str, ...] = ()
    growth_ratio: float = 0.0
    """By what ratio data grow on the disks that are bought."""
    more_nodes: bool = False
    """Whether more nodes than the file's may be the answer."""
    nodes_asked: bool = False
    """Whether a command asked for just its nodes, where it may ask for more."""
    observed: Observed | None = None
    """What was seen of the database that runs, if the file is of one."""

    @property
    def rate_per_s(self) -> float:
        """The operations a second that are asked for; 0: threads are."""
        return self.require.rate_per_s or 0.0

    @property
    def raised_per_s(self) -> float:
        """The same with the head-room on top."""
        return self.rate_per_s * (1 + self.require.head_room_ratio)

    @property
    def raised(self) -> Question:
        """The question whose cells are offered the head-room too, in which the search looks."""
        return self.offering(self.raised_per_s)

    @property
    def asked(self) -> Question:
        """The question whose cells are offered what is asked for."""
        return self.offering(self.rate_per_s)

    def lasting(self, most_s: float) -> Question:
        """Return the question whose cells last so long at most, where nothing counts their time."""
        spec = self.spec
        stop = spec.workload.stop
        if stop is None or not stop.duration_s or stop.operations is not None:
            return self
        if spec.events or spec.failures is not None or spec.workload.warm_up_s:
            return self
        seconds = plain_number(min(most_s, stop.duration_s))
        work = self.tree["workload"] | {"stop": {"duration": f"{seconds}s"}}
        return replace(self, tree=self.tree | {"workload": work})

    @property
    def brief(self) -> Question:
        """The question in whose cells the search looks."""
        return self.lasting(LOOK_S)

    @property
    def whole(self) -> Question:
        """The question whose cells last as long as it says."""
        return self.lasting(float("inf"))

    @property
    def lasts(self) -> bool:
        """Whether its cells last as long as it says."""
        return self.tree == self.whole.tree

    def offering(self, rate_per_s: float) -> Question:
        """Return the question whose cells are offered another rate; TPC-C's by its warehouses.

        A loop without rests is offered what it takes, and has to do the rate and the head-room.
        """
        tpcc = self.spec.workload.tpcc
        if tpcc is not None:
            times = rate_per_s / self.rate_per_s if tpcc.rests else 1.0
            sizes = self.tree["workload"]["tpcc"] | {"warehouses": ceil(tpcc.warehouses * times)}
            return replace(
                self, tree=self.tree | {"workload": self.tree["workload"] | {"tpcc": sizes}}
            )
        work = self.tree["workload"] | {"load": {"rate": f"{plain_number(rate_per_s)}/s"}}
        return replace(self, tree=self.tree | {"workload": work})

    def experiment(self, levels: dict[str, dict[str, Any]]) -> Experiment:
        """Return the experiment that compares these options; each has what it changes."""
        return parse(self.text(levels), self.path)

    def text(self, levels: dict[str, dict[str, Any]]) -> str:
        """Return that experiment as a file."""
        whole = {**self.tree, "factors": {FACTOR: levels}} if levels else self.tree
        return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=120)


def _of_time(require: dict[str, Any], of_time: str) -> dict[str, Any]:
    """Return a promise whose bounds are to be kept for a share of a year's minutes."""
    if not of_time:
        return require
    named = {name: bounds for name in ("all", "read", "write") if (bounds := require.get(name))}
    if not named:
        way_out = "add for example require: {all: {p99: 10ms}}, or --p99 10"
        raise UserError(Problem("--of-time", of_time, "no latency is required", way_out))
    return require | {name: {**bounds, "of_time": of_time} for name, bounds in named.items()}


def question_of(  # noqa: PLR0913 - each is asked for by an option of its own
    experiment: Experiment,
    wanted: tuple[str, ...] = (),
    region: str = DEFAULT_REGION,
    terms: PriceTerms = DEFAULT_TERMS,
    *,
    growth_ratio: float = GROWTH,
    more_nodes: bool = False,
    of_time: str = "",
    nodes_asked: bool = False,
) -> Question:
    """Return the question of an experiment file. Raises UserError when it asks nothing.

    What advice decides where the file is silent: the load is the required rate, caches are warm
    and burst credits are spent (what is bought must do its rate all day), and a cell runs for a
    minute.
    """
    document = experiment.document
    refuse([*unknown_words(wanted, experiment), *unknown_region(region, experiment)])
    tree = {key: value for key, value in document.root.plain().items() if key != "factors"}
    spec = experiment.cells[0].spec
    require = spec.require
    problems = [*_unasked(spec, document.path)]
    if problems or require is None:
        raise UserError(*problems)
    work = dict(tree["workload"])
    tree["require"] = {"head_room": f"{HEAD_ROOM:.0%}"} | _of_time(tree["require"], of_time)
    rate = asked_per_s(spec)
    tree["require"]["rate"] = f"{plain_number(rate)}/s"
    if spec.workload.tpcc is None:
        work["load"] = {"rate": f"{plain_number(rate)}/s"}
    tree.pop("procedure", None)
    work.setdefault("stop", {"duration": DURATION})
    before = STEADY | (tree.get("before") or {})
    # The load generators stay the same whatever the nodes are.
    client = {"vm": spec.client.vm, **(tree.get("client") or {})}
    tree |= {"workload": work, "before": before, "client": client}
    notes = []
    if experiment.factors:
        notes.append("the file's factors are ignored: advice varies VM sizes, disks and caching")
    made = parse(yaml.safe_dump(tree, sort_keys=False), document.path)
    spec = only(ClusterTrial, made.cells[0].spec)
    if (model := model_of(spec)) is not None:
        refuse([*model.unmodelled(spec, str(document.path))])
    require = spec.require or require
    if spec.before.credits_ratio > 0:
        notes.append(
            f"the file begins with {spec.before.credits_ratio:.0%} of the burst credits, so the "
            f"recommended "
            "hardware may reach its rate only while they last; write before: {credits: 0%}"
        )
    return Question(
        document.path,
        tree,
        spec,
        require,
        wanted,
        region,
        terms,
        tuple(notes),
        growth_ratio,
        more_nodes,
        nodes_asked,
        experiment.observed,
    )


def asked_per_s(spec: TrialSpec) -> float:
    """Return the operations a second that a file asks for, of TPC-C new orders; 0: none."""
    load, require, tpcc = spec.workload.load, spec.require, spec.workload.tpcc
    offered = load.rate_per_s if load is not None else None
    if tpcc is not None and tpcc.rests:
        offered = tpcc.warehouses * NEW_ORDERS_PER_MINUTE / 60 * OF_TERMINALS
    return (require.rate_per_s if require is not None else None) or offered or 0.0


def _unasked(spec: TrialSpec, path: Path) -> list[Problem]:
    """Return why a file asks nothing that advice can answer."""
    engine = spec.database.engine if spec.database is not None else None
    if engine is not None and not facts_of(engine).advised:
        rule = f"advice simulates {advised()} so far"
        way_out = f"rehearse the options that you have in mind{OTHERWISE}"
        return [Problem(f"{path}: database.engine", engine, rule, way_out)]
    found = []
    if spec.require is None:
        way_out = "add for example require: {read: {p99: 10ms}, rate: 25000/s}"
        found.append(
            Problem(
                f"{path}: require",
                "(missing)",
                "advice looks for the cheapest hardware that meets it",
                way_out,
            )
        )
    if spec.cluster is None or spec.workload.kind not in ("rows", "tpcc"):
        rule = "advice is about a cluster whose workload reads and writes rows, or is TPC-C"
        way_out = "predict the options that you have in mind"
        found.append(Problem(f"{path}: workload", spec.workload.kind, rule, way_out))
    if spec.client.on_server:
        rule = "advice keeps the load's machines the same, whatever the nodes are"
        way_out = "leave it out, or predict the options that you have in mind"
        found.append(Problem(f"{path}: client.on_server", "true", rule, way_out))
    if spec.require is not None and not asked_per_s(spec):
        rule = "what is bought must carry a rate"
        found.append(
            Problem(f"{path}: require.rate", "(missing)", rule, "add for example rate: 25000/s")
        )
    return found


def vendor_of(experiment: Experiment) -> str:
    """Return the cloud that a file is about."""
    cluster = experiment.cells[0].spec.cluster
    return cluster.vm.partition("/")[0] if cluster is not None else ""


def unknown_words(wanted: tuple[str, ...], experiment: Experiment) -> Iterator[Problem]:
    """Yield the words to choose among that no disk and no VM size of the cloud has in its name."""
    catalog, vendor = load_catalog(), vendor_of(experiment)
    names = {name for name, vm in catalog.vms.items() if vm.vendor == vendor}
    names |= {vm.series_name for vm in catalog.vms.values() if vm.vendor == vendor}
    disks = [disk for disk in catalog.disks.values() if disk.vendor == vendor]
    names |= {disk.name for disk in disks} | {disk.family_name for disk in disks} | {*LOCAL}
    for word in wanted:
        if not any(word.casefold() in name.casefold() for name in names):
            rule = f"no disk and no VM size of {vendor} has it in its name"
            otherwise = "`disklab catalog` lists them"
            yield Problem("--candidates", word, rule, did_you_mean(word, names, otherwise))


def unknown_region(region: str, experiment: Experiment) -> Iterator[Problem]:
    """Yield a region of which no price is known."""
    catalog, vendor = load_catalog(), vendor_of(experiment)
    # A list whose source states no region has a sentence instead; those of the cloud are one word.
    listed = {
        one.region for one in catalog.prices if one.region.isascii() and " " not in one.region
    }
    regions = listed | {DEFAULT_REGION, *REGIONS.values()}
    for vm in catalog.vms.values():
        if vm.vendor == vendor:
            regions |= {*vm.facts.usd_per_hour}
    if _plain(region) not in {_plain(one) for one in regions}:
        rule = "no price of this region is known"
        otherwise = (
            f"choose one of {', '.join(sorted(regions))}, or bring its prices (`disklab prices`)"
        )
        yield Problem("--region", region, rule, did_you_mean(region, regions, otherwise))


def _plain(region: str) -> str:
    """Return a region as it is compared: `East US` is eastus."""
    return region.replace(" ", "").casefold()


LOCAL = ("nvme", "local")
"""Kinds of disks whose data go with the VM."""
