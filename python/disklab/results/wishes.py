"""What somebody beside a run wants of it: to pause or to stop after the trial under way.

A wish is a small file in the run's folder, which the run reads between two trials. No signal, no
address: who may write to the folder may ask.
"""

from __future__ import annotations

import enum
from pathlib import Path

from disklab import reading
from disklab.errors import UserError
from disklab.folders import Inside
from disklab.results import durable

WISH = "after-trial"


class Wish(enum.Enum):
    """What becomes of a run after the trial under way."""

    GO_ON = "go-on"
    PAUSE = "pause"
    STOP = "stop"
    """As Ctrl-C between two trials: everything is stored, `--resume` goes on."""


def wish_of(folder: Path) -> Wish:
    """Return what is wanted of a run; what cannot be read wants nothing."""
    try:
        return Wish(reading.contents(Inside(folder, WISH), reading.WISH).decode("ascii").strip())
    except (UserError, ValueError):
        return Wish.GO_ON


def wish(folder: Path, wanted: Wish) -> None:
    """Leave word for a run. Raises OSError when its folder cannot be written."""
    if wanted is Wish.GO_ON:
        Inside(folder, WISH).remove()
    else:
        durable.write_whole(Inside(folder, WISH), wanted.value + "\n")
