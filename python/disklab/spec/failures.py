"""How often machines and disks fail, as the experiment states it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from disklab.errors import Problem
from disklab.spec.amounts import Seconds, Unreadable
from disklab.spec.located import Site
from disklab.spec.part import Part

if TYPE_CHECKING:
    from disklab.spec.model import TrialSpec

MOST_YEARLY = 1000.0
"""Three a day: more are no failures of hosts but a way to run them."""

_YEARLY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(%)?", re.ASCII)


def _yearly(value: Any) -> float:
    found = _YEARLY.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if found is None:
        raise Unreadable("is not a number of failures a year", "write for example 8%, or 2")
    amount = float(found[1]) / (100 if found[2] else 1)
    if amount > MOST_YEARLY:
        raise Unreadable(f"lies between 0 and {MOST_YEARLY:.0f} a year", "write for example 8%")
    return amount


Yearly = Annotated[
    float,
    BeforeValidator(_yearly),
    WithJsonSchema({"type": ["string", "number"], "title": "a year", "examples": ["8%", 2]}),
]


class Failures(Part):
    """How often what fails, of each VM or disk; predictions of Cassandra tell what it costs."""

    vm_lost_per_year: Yearly = Field(default=0.0, examples=["8%"])
    """VMs whose host fails, or that are deallocated, as a share of all in a year: data on disks of
    the VM are lost, attached disks wait for the next VM."""
    vm_restarts_per_year: Yearly = Field(default=0.0, examples=[4])
    """Restarts of a VM in a year, planned ones too: no data are lost."""
    disk_lost_per_year: Yearly = Field(default=0.0, examples=["0.2%"])
    """Attached disks that lose their data, as a share of all in a year."""
    replaced_after_s: Seconds = Field(alias="replaced_after", examples=["15min"])
    """From the loss of a VM until another one runs in its place, on which the database starts."""
    restarted_after_s: Seconds = Field(
        default="0s", validate_default=True, alias="restarted_after", examples=["2min"]
    )
    """How long a VM that restarts takes to boot."""

    @model_validator(mode="after")
    def _some(self) -> Failures:
        if not (self.vm_lost_per_year or self.vm_restarts_per_year or self.disk_lost_per_year):
            raise Unreadable("nothing of it ever fails", "write for example vm_lost_per_year: 8%")
        return self


def failure_problems(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield what is wrong with the stated failures of a trial."""
    asked = spec.require is not None and spec.require.recovery_s is not None
    if asked and spec.failures is None and not spec.events:
        place = site.place(("require", "recovery"))
        shown = site.text(("require", "recovery"))
        rule = "nothing is lost that could recover"
        way_out = "state failures: {vm_lost_per_year: 8%, replaced_after: 15min}, or events"
        yield Problem(place, shown, rule, way_out)
    if spec.failures is None:
        return
    if spec.cluster is None or spec.database is None or spec.workload.kind != "rows":
        rule = "failures are those of a cluster under operations on rows"
        yield Problem(site.place(("failures",)), "failures", rule, "leave it out")
