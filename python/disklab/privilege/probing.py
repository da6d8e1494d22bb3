"""`disklab probe` under sudo: root's part has the devices, the caller's part reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from disklab.errors import MachineError
from disklab.events import PhaseStarted, Progress
from disklab.observation import tracing
from disklab.observation.blocks import Recorder
from disklab.observation.tracing import MOST_DEVICES, Ended
from disklab.privilege import requests
from disklab.privilege.root import RootPart
from disklab.privilege.talk import Forms, Link, Serving, Talk
from disklab.privilege.volumes import STRICT
from disklab.probe.emulated import At, Emulated, Look, Probed, Wanted, look_here
from disklab.probe.run import CellEnded, Listener

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
    told={kind.__name__: TypeAdapter(kind) for kind in (PhaseStarted, Progress, CellEnded)},
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


# `disklab calibrate --here` under sudo: root's part has the beds and the disk that is probed.

PROBE = "emulated"
"""The one request beside a rehearsal's: the disk is probed on which the cells are measured."""

CALIBRATING_FORMS = Forms(
    requests={**requests.FORMS.requests, PROBE: FORMS.requests[PROBE]},
    names={**requests.FORMS.names, ProbeEmulated: PROBE},
    told={**requests.FORMS.told, **FORMS.told},
    answers={**requests.FORMS.answers, PROBE: FORMS.answers[PROBE]},
)


class CalibratePart(RootPart):
    """Root's part of `disklab calibrate --here`."""

    forms = CALIBRATING_FORMS

    def request_of(self, message: dict[str, Any]) -> tuple[str, Any]:
        """Return what a message asks; turns are looked at as a rehearsal's are."""
        if message.get("ask") == PROBE:
            return CALIBRATING_FORMS.request_of(message)
        return super().request_of(message)

    def done(self, request: Any) -> object:
        """Do what a request asks."""
        if isinstance(request, ProbeEmulated):
            return probed(request, self.tell)
        return super().done(request)


# `disklab observe --block-trace` under sudo: root's part records, the caller's part reads it.

LONGEST_S = 600.0


@checked(config=STRICT)
class Record:
    """Record the I/Os of block devices, by their numbers."""

    devices: Annotated[list[Annotated[str, Field(max_length=16)]], Field(max_length=MOST_DEVICES)]
    seconds: Annotated[float, Field(gt=0, le=LONGEST_S)]


@checked(config=STRICT)
class Part:
    """Some of the kernel's text."""

    text: str


TRACING_FORMS = Forms(
    requests={"record": TypeAdapter(Record)},
    names={Record: "record"},
    told={"Part": TypeAdapter(Part)},
    answers={"record": TypeAdapter(Ended)},
)


def recorder_by(link: Link | None) -> Recorder:
    """Return who records: root's part, where there is one."""
    if link is None:
        return tracing.record
    talk = Talk(link, TRACING_FORMS)

    def record(
        devices: list[str],
        seconds: float,
        _stop: Callable[[], bool],
        took: Callable[[bytes], None],
    ) -> Ended:
        # Ctrl-C ends the request, and the command with it.
        ended: Ended = talk.ask(
            Record(devices, seconds), lambda part: took(part.text.encode("latin-1"))
        )
        return ended

    return record


class TracePart(Serving):
    """Root's part of `disklab observe --block-trace`."""

    forms = TRACING_FORMS

    def done(self, request: Any) -> object:
        """Record, and tell the text as it comes."""
        return tracing.record(
            request.devices,
            request.seconds,
            lambda: False,
            lambda part: self.tell(Part(part.decode("latin-1"))),
        )
