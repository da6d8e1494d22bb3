"""`disklab probe` under sudo: root's part has the devices, the caller's part reads and writes."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as checked

from disklab.errors import MachineError
from disklab.privilege.serving import Serving
from disklab.privilege.talk import Forms, Talk
from disklab.privilege.volumes import STRICT
from disklab.privilege.wire import Link
from disklab.probe.looking import At, Emulated, Look, Probed, Wanted, look_here
from disklab.probe.run import CellEnded, Listener, StepProgress, StepStarted

MOST_CELLS = 10_000


@checked(config=STRICT)
class ProbeEmulated:
    """Make a disk, probe it, remove it."""

    wanted: Emulated


@checked(config=STRICT)
class ProbeAt:
    """Probe what lies at a path: the one that the command line names."""

    wanted: At


FORMS = Forms(
    requests={"emulated": TypeAdapter(ProbeEmulated), "at": TypeAdapter(ProbeAt)},
    names={ProbeEmulated: "emulated", ProbeAt: "at"},
    told={kind.__name__: TypeAdapter(kind) for kind in (StepStarted, StepProgress, CellEnded)},
    answers={"emulated": TypeAdapter(Probed), "at": TypeAdapter(Probed)},
)


def look_by(link: Link | None) -> Look:
    """Return who probes: root's part, where there is one."""
    if link is None:
        return look_here
    talk = Talk(link, FORMS)

    def look(wanted: Wanted, tell: Listener) -> Probed:
        is_new = isinstance(wanted, Emulated)
        request = ProbeEmulated(wanted) if is_new else ProbeAt(wanted)  # type: ignore[arg-type]
        probed: Probed = talk.ask(request, tell)
        return probed

    return look


class ProbePart(Serving):
    """Root's part of `disklab probe`."""

    forms = FORMS

    def done(self, request: Any) -> object:
        """Probe, and tell of each step."""
        return probed(request, self.tell)


def probed(request: ProbeEmulated | ProbeAt, tell: Listener) -> Probed:
    """Probe in this process. Raises MachineError for what is no probe."""
    if len(request.wanted.plan.cells) > MOST_CELLS:
        raise MachineError(f"refused: a probe has at most {MOST_CELLS} cells")
    return look_here(request.wanted, tell)
