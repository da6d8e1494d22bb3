"""`disklab observe --block-trace` under sudo: root's part records, the caller's part reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from disklab.observation import tracing
from disklab.observation.blocks import Recorder
from disklab.observation.tracing import MOST_DEVICES, Ended
from disklab.privilege.serving import Serving
from disklab.privilege.talk import Forms, Talk
from disklab.privilege.volumes import STRICT
from disklab.privilege.wire import Link

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


FORMS = Forms(
    requests={"record": TypeAdapter(Record)},
    names={Record: "record"},
    told={"Part": TypeAdapter(Part)},
    answers={"record": TypeAdapter(Ended)},
)


def recorder_by(link: Link | None) -> Recorder:
    """Return who records: root's part, where there is one."""
    if link is None:
        return tracing.record
    talk = Talk(link, FORMS)

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

    forms = FORMS

    def done(self, request: Any) -> object:
        """Record, and tell the text as it comes."""
        return tracing.record(
            request.devices,
            request.seconds,
            lambda: False,
            lambda part: self.tell(Part(part.decode("latin-1"))),
        )
