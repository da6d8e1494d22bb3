"""How operations are offered, and how a trial is measured.

A procedure has its keys, its scaling and its checks here, and its loop in `disklab.procedures`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, computed_field, model_validator

from disklab.errors import Problem
from disklab.spec.amounts import Milliseconds, Part, Pending, Rate, Threads, Unreadable
from disklab.spec.located import Site


@dataclass(frozen=True)
class Here:
    """What this machine does of a trial's load."""

    threads: int | None
    rate_per_s: float | None
    nodes_ratio: float
    """Nodes here / nodes of the cluster."""


class Load(Part):
    """How operations are offered: a closed loop of threads, or an open loop at a rate."""

    threads: Threads | None = Field(default=None, examples=[128])
    """Closed loop: operations in flight, all generators together."""
    at_most_per_s: Rate | None = Field(default=None, alias="at_most", examples=["10000/s"])
    """Closed loop: the number of operations a second beyond which threads wait; all generators
    together."""
    rate_per_s: Rate | None = Field(default=None, alias="rate", examples=["20000/s"])
    """Open loop: operations a second, all generators together."""
    arrivals: Literal["poisson", "even"] = Field(default="poisson", examples=["even"])
    """Open loop: how the intended start times are distributed."""

    @model_validator(mode="after")
    def _one(self) -> Load:
        if (self.threads is None) == (self.rate_per_s is None):
            rule = "a load is either threads (closed loop) or rate (open loop)"
            raise Unreadable(rule, "write {threads: 128} or {rate: 20000/s}")
        if self.at_most_per_s is not None and self.threads is None:
            rule = "at_most is the ceiling of a closed loop: threads that wait for each other"
            raise Unreadable(rule, "write {threads: 128, at_most: 20000/s} or {rate: 20000/s}")
        return self

    @property
    def scheduled_per_s(self) -> float | None:
        """The rate of an open loop or the ceiling of a closed one: no run does more."""
        return self.rate_per_s if self.threads is None else self.at_most_per_s

    def closed(self) -> dict[str, Any]:
        """Return a closed loop as results tell of it."""
        pace = {} if self.at_most_per_s is None else {"at_most_per_s": self.at_most_per_s}
        return {"kind": "closed", "threads": self.threads, **pace}


class ThreadSteps(Part):
    """How the number of threads is raised."""

    start: Threads = Field(default=8, examples=[8])
    """Threads of the first step."""
    factor: Annotated[float, Field(gt=1, le=10)] = Field(default=1.5, examples=[1.5])
    """Each step has this many times the threads of the one before."""
    most: Threads = Field(default=1024, examples=[512])
    """No step has more."""

    def each(self) -> list[int]:
        """Return the threads of each step, fewest first; a step has at least one more."""
        steps = [min(self.start, self.most)]
        while steps[-1] < self.most:
            steps.append(min(self.most, max(steps[-1] + 1, round(steps[-1] * self.factor))))
        return steps


class _Way(Part):
    """What a procedure does that has nothing of its own to say."""

    searches: ClassVar[bool] = False
    """Whether it tries several loads, of which the last is measured."""

    def first_threads(self) -> int | None:
        """Return the threads that it begins with; None: they are the load's."""
        return None

    def most_threads(self) -> int | None:
        """Return the most threads that it comes to; None: they are the load's."""
        return None

    def own_load(self) -> Load | None:
        """Return the load that it decides by itself; None: the file has one, or it searches."""
        return None


class ClosedLoop(_Way):
    """The threads of the load, until it stops."""

    def scaled_down(self, here: Here) -> ClosedLoop:
        """Return it as it is: nothing in it has a size."""
        del here
        return self

    def load_problems(self, load: Load | None, site: Site) -> list[Problem]:
        """Return what keeps a load from being its threads."""
        if load is None:
            return [_missing(site)]
        if load.rate_per_s is None:
            return []
        rule = "a closed loop has threads, not a rate"
        at = site.place(("procedure", "closed_loop"))
        return [Problem(at, "closed_loop", rule, "write {fixed: {rate: ...}}, or threads")]


class Fixed(_Way):
    """A fixed rate of operations: open loop."""

    rate_per_s: Rate = Field(alias="rate", examples=["500/s"])
    """Operations a second, all generators together."""

    def own_load(self) -> Load | None:
        """Return operations at its rate."""
        return Load.model_validate({"rate": f"{self.rate_per_s}/s"})

    def scaled_down(self, here: Here) -> Fixed:
        """Return it with the rate that this machine offers."""
        if here.rate_per_s is None:
            return self
        return self.model_copy(update={"rate_per_s": here.rate_per_s})

    def load_problems(self, load: Load | None, site: Site) -> list[Problem]:
        """Return what a load beside it is: none, or the same rate."""
        if load is None or load.rate_per_s == self.rate_per_s:
            return []
        return [_decides("fixed", load, site)]


class Variable(_Way):
    """More and more threads until the median latency is the one asked for."""

    searches: ClassVar[bool] = True

    median_latency_ms: Milliseconds = Field(alias="median_latency", examples=["10ms"])
    """The target."""
    pending_compactions: Pending = Field(default=20, examples=[20])
    """A step with more pending compactions counts as not sustained."""
    threads: ThreadSteps = Field(default=ThreadSteps(), examples=[{"start": 8}])
    """How the number of threads is raised."""

    def first_threads(self) -> int | None:
        """Return the threads of its first step."""
        return self.threads.start

    def most_threads(self) -> int | None:
        """Return the threads of the last step that there can be."""
        return self.threads.most

    def scaled_down(self, here: Here) -> Variable:
        """Return it with the steps that this machine takes."""
        if here.threads is None:
            return self
        most = max(here.threads, round(self.threads.most * here.nodes_ratio))
        steps = self.threads.model_copy(update={"start": here.threads, "most": most})
        return self.model_copy(update={"threads": steps})

    def load_problems(self, load: Load | None, site: Site) -> list[Problem]:
        """Return that it leaves no room for a load."""
        return [] if load is None else [_decides("variable", load, site)]


class Procedure(Part):
    """How a trial is measured."""

    closed_loop: ClosedLoop | None = None
    """The load's threads until it stops; the default for threads."""
    fixed: Fixed | None = None
    """A fixed rate; the default for a rate."""
    variable: Variable | None = None
    """The number of threads is raised until the median latency meets a target."""

    @model_validator(mode="after")
    def _one(self) -> Procedure:
        if sum(v is not None for v in (self.closed_loop, self.fixed, self.variable)) != 1:
            rule = "a procedure is exactly one of closed_loop, fixed and variable"
            raise Unreadable(rule, "write for example {fixed: {rate: 500/s}}")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kind(self) -> Literal["closed_loop", "fixed", "variable"]:
        """Which of the three it is."""
        if self.fixed is not None:
            return "fixed"
        return "variable" if self.variable is not None else "closed_loop"

    @property
    def chosen(self) -> ClosedLoop | Fixed | Variable:
        """The one that it is."""
        return self.fixed or self.variable or ClosedLoop()

    @property
    def searches(self) -> bool:
        """Whether it tries several loads."""
        return self.chosen.searches

    @classmethod
    def of(cls, load: Load | None) -> Procedure:
        """Return the procedure of a file that names none: its load says which."""
        rate = load.rate_per_s if load else None
        return cls.model_validate(
            {"closed_loop": {}} if rate is None else {"fixed": {"rate": f"{rate}/s"}}
        )

    def scaled_down(self, here: Here) -> Procedure:
        """Return it with what this machine does of it."""
        return self.model_copy(update={self.kind: self.chosen.scaled_down(here)})


def load_problems(procedure: Procedure | None, load: Load | None, site: Site) -> list[Problem]:
    """Return what load and procedure ask of each other."""
    if procedure is not None:
        return procedure.chosen.load_problems(load, site)
    return [_missing(site)] if load is None else []


def _missing(site: Site) -> Problem:
    rule = "is needed: threads (closed loop) or rate (open loop)"
    way_out = "add load: {threads: 128} or {rate: 20000/s}"
    return Problem(site.place(("workload", "load")), "(missing)", rule, way_out)


def _decides(kind: str, load: Load, site: Site) -> Problem:
    given = "threads" if load.threads is not None else "rate"
    key = ("workload", "load", given)
    rule = f"procedure {kind} decides the load, and the workload has {given} too"
    way_out = "leave workload.load out, or the procedure"
    return Problem(site.place(key), site.text(key), rule, way_out)
