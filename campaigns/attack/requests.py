"""Requests to root's part, as a caller's part that was taken over would send them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from disklab import spec
from disklab.catalog import VolumeRequest, load_catalog
from disklab.hosts.attach import AttachRequest
from disklab.privilege import for_command, probing, requests, volumes
from disklab.probe.cells import ENGINES, MIB, Cell, Direction, Plan, Profile
from disklab.probe.emulated import At, Emulated
from disklab.probe.known import Disk
from disklab.procedures.jobs import QUICK
from disklab.procedures.plan import order

from campaigns.attack.files import EXPERIMENTS
from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.words import hostile_word
from campaigns.fuzz.mutation import changed_value

Reader = Callable[[dict[str, Any]], tuple[str, Any]]
UNKNOWN = "command_of_mine"
OPEN = ("catalog", "factors", "volumes", "settings")
"""Mappings whose keys are names: of factors, of volumes, of settings, and of what there is."""
ENGINES_OF_FIO = ("filedelete", "exec", "net", "http", "external:/tmp/x.so", "mmap", "null")


def _messages() -> list[tuple[Reader, dict[str, Any]]]:
    """Return one request of each kind that has parts, as it is sent."""
    plan = Plan((Cell(Profile.SYNC, Direction.RANDREAD, 4096),), 1.0, MIB)
    disk = Disk("azure/P30", None, "None", None)
    wish = AttachRequest(VolumeRequest("azure/P30"), mount_point=Path("/nonexistent"))
    (turn, *_) = order(spec.load(EXPERIMENTS[0]).trials("rehearse"), 1, 1, QUICK, frozenset())
    probe, volume, command = probing.FORMS, volumes.FORMS, for_command.FORMS
    make = for_command.Make(
        VolumeRequest("azure/P30"), None, "xfs", None, False, load_catalog(), None
    )
    found: list[tuple[Reader, dict[str, Any]]] = [
        (probe.request_of, probe.asked(probing.ProbeAt(At(Path("/nonexistent"), plan)))),
        (probe.request_of, probe.asked(probing.ProbeEmulated(Emulated(disk, "d", plan)))),
        (volume.request_of, volume.asked(volumes.Show("v"))),
        (volume.request_of, volume.asked(volumes.Fail("v", None, "stall", None, None))),
        (volume.request_of, volume.asked(volumes.Detach("v", None, False))),
        (volume.request_of, volume.asked(volumes.Attach(wish, load_catalog()))),
        (command.request_of, command.asked(make)),
        (command.request_of, command.asked(for_command.RunCommand(["true"]))),
        (
            requests.request_of,
            requests.FORMS.asked(requests.TakeTurn(requests.without_wishes(turn))),
        ),
    ]
    for _, message in found:
        # The catalogue is half a million letters, and nothing is looked up by it here.
        if "wish" in message.get("with", {}):
            message["with"]["wish"] = message["with"].pop("wish")
    return found


def _with_unknown(value: Any, chance: random.Random) -> Any:
    """Return a message with a key more than it has, somewhere in it."""
    made = copy.deepcopy(value)
    at, deeper = made, made
    while isinstance(deeper, dict) and deeper:
        at = deeper
        inner = [one for key, one in at.items() if isinstance(one, dict) and key not in OPEN]
        if not inner or chance.random() < 0.3:
            break
        deeper = chance.choice(inner)
    at[UNKNOWN] = "id"
    return made


def _with_word(value: Any, chance: random.Random, there: Path) -> Any:
    if isinstance(value, dict) and value:
        key = chance.choice([key for key in value if key != "catalog"] or [None])
        if key is None:
            return value
        return {**value, key: _with_word(value[key], chance, there)}
    if isinstance(value, list) and value:
        at = chance.randrange(len(value))
        return [*value[:at], _with_word(value[at], chance, there), *value[at + 1 :]]
    return chance.choice((hostile_word(chance, there), chance.choice(ENGINES_OF_FIO)))


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield requests that are changed: words, types, keys more or less."""
    messages = _messages()
    while True:
        read, message = chance.choice(messages)
        inside = message["with"]
        unknown = chance.random() < 0.3
        if unknown:
            changed = _with_unknown(inside, chance)
        elif chance.random() < 0.6:
            changed = _with_word(inside, chance, yard.canary)
        else:
            kept = {key: part for key, part in inside.items() if key != "catalog"}
            changed = changed_value(kept, chance)
            if isinstance(changed, dict) and "catalog" in inside:
                changed = {**changed, "catalog": inside["catalog"]}
        asked = {**message, "with": changed}
        shown = (
            {k: v for k, v in changed.items() if k != "catalog"}
            if isinstance(changed, dict)
            else changed
        )
        yield f"{message['ask']}: {shown!r}"[:3000], partial(_attempt, read, asked, unknown)


def _attempt(read: Reader, asked: dict[str, Any], unknown: bool) -> None:
    _, request = read(asked)
    if unknown:
        raise HurtError("a key that no request has was taken")
    plan = getattr(getattr(request, "wanted", None), "plan", None)
    if plan is not None and plan.engine not in ENGINES:
        raise HurtError(f"fio would run the engine {plan.engine!r}")


KIND = Kind(
    "requests",
    "a request to root's part (`probe`, `disk`, `run`, `rehearse`) with a key more, another "
    "engine of fio's, other types and hostile words. Anything else than a proper request is "
    "refused, and so is any unknown key",
    tries,
)
