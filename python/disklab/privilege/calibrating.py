"""`disklab calibrate --here` under sudo: root's part has the beds and the disk that is probed."""

from __future__ import annotations

from typing import Any

from disklab.privilege import probing, requests
from disklab.privilege.root import RootPart
from disklab.privilege.talk import Forms

PROBE = "emulated"
"""The one request beside a rehearsal's: the disk is probed on which the cells are measured."""

FORMS = Forms(
    requests={**requests.FORMS.requests, PROBE: probing.FORMS.requests[PROBE]},
    names={**requests.FORMS.names, probing.ProbeEmulated: PROBE},
    told={**requests.FORMS.told, **probing.FORMS.told},
    answers={**requests.FORMS.answers, PROBE: probing.FORMS.answers[PROBE]},
)


class CalibratePart(RootPart):
    """Root's part of `disklab calibrate --here`."""

    forms = FORMS

    def request_of(self, message: dict[str, Any]) -> tuple[str, Any]:
        """Return what a message asks; turns are looked at as a rehearsal's are."""
        if message.get("ask") == PROBE:
            return FORMS.request_of(message)
        return super().request_of(message)

    def done(self, request: Any) -> object:
        """Do what a request asks."""
        if isinstance(request, probing.ProbeEmulated):
            return probing.probed(request, self.tell)
        return super().done(request)
