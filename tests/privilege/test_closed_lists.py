"""Each command's root's part answers its own few requests, and none of another command's."""

from __future__ import annotations

import socket

import pytest
from disklab.cli.root_part import _part_of
from disklab.errors import MachineError
from disklab.privilege.talk import Link, Serving

COMMANDS = ("disk", "run", "probe", "calibrate", "observe", "rehearse")
SHARED = {
    # `calibrate --here` is a rehearsal, with the probe of its disk.
    ("rehearse", "calibrate"): {"check", "begin", "turn", "close"},
    ("calibrate", "rehearse"): {"check", "begin", "turn", "close"},
    ("probe", "calibrate"): {"emulated"},
    ("calibrate", "probe"): {"emulated"},
}


def part(command: str) -> Serving:
    ours, theirs = socket.socketpair()
    theirs.close()
    return _part_of(command, Link(ours))


@pytest.mark.parametrize("asked", COMMANDS)
@pytest.mark.parametrize("other", COMMANDS)
def test_requests_of_another_command_are_refused(asked: str, other: str) -> None:
    if asked == other:
        return
    root = part(asked)
    foreign = set(part(other).forms.requests) - SHARED.get((other, asked), set())
    assert foreign or (other, asked) in SHARED
    for name in foreign:
        with pytest.raises(MachineError, match=r"is not a request; there are"):
            root.request_of({"ask": name, "with": {}})


def test_no_request_of_run_names_a_host_or_a_path() -> None:
    for name, form in part("run").forms.requests.items():
        schema = form.json_schema(mode="serialization")
        assert "'format': 'path'" not in str(schema), name
        assert not {"host", "mount_point", "owner"} & set(schema.get("properties", {})), name


WELL_FORMED = {"at_s": 1.0, "lasts_s": 2.0, "times": 3.0, "shared": False}


@pytest.mark.parametrize(
    "spells",
    [
        [WELL_FORMED] * 41,
        [WELL_FORMED | {"at_s": -1.0}],
        [WELL_FORMED | {"lasts_s": 1e9}],
        [WELL_FORMED | {"times": 0.0}],
        [WELL_FORMED | {"volume": "data"}],
        [{"at_s": 1.0}],
    ],
)
def test_the_weather_of_a_command_is_bounded(spells: list[dict[str, object]]) -> None:
    root = part("run")
    _, request = root.request_of(
        {"ask": "run", "with": {"words": ["true"], "weather": [WELL_FORMED]}}
    )
    assert request.weather[0].times == 3
    with pytest.raises(MachineError, match="refused"):
        root.request_of({"ask": "run", "with": {"words": ["true"], "weather": spells}})
