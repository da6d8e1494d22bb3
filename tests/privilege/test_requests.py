"""What root's part answers, and what it refuses: each command's has a list of its own."""

from __future__ import annotations

import base64
import os
import socket
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.cli.root_part import _part_of
from disklab.errors import DisklabError, MachineError, Problem, UserError
from disklab.privilege.requests import (
    FORMS,
    REQUESTS,
    Begin,
    Check,
    Close,
    Columns,
    TakeTurn,
    columns_of,
    replay_of,
    request_of,
    without_wishes,
)
from disklab.privilege.root import RootPart
from disklab.privilege.stage import Root
from disklab.privilege.talk import Link, Serving, error_of, told
from disklab.procedures.jobs import QUICK
from disklab.procedures.plan import order
from disklab.procedures.turn import Turn

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))


@contextmanager
def root_part() -> Iterator[Link]:
    """Yield the caller's end of a socket to a process that is root's part."""
    theirs, ours = socket.socketpair()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            ours.close()
            RootPart(Link(theirs)).serve()
            code = 0
        finally:
            os._exit(code)
    theirs.close()
    link = Link(ours)
    try:
        yield link
    finally:
        link.close()
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def turns_of(file: Path) -> list[Turn]:
    turns = order(spec.load(file).trials("rehearse"), 2, 1, QUICK, frozenset())
    return [without_wishes(one) for one in turns]


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_a_turn_arrives_as_it_was_sent(file: Path) -> None:
    turns = turns_of(file)
    for turn in turns:
        replay = turn.trial.replay
        columns = None if replay is None else columns_of(replay)
        _, there = request_of(FORMS.asked(TakeTurn(turn, columns)))
        assert isinstance(there, TakeTurn)
        assert there.turn == turn
        assert there.turn.trial.replay == replay


def test_the_catalogue_arrives_as_it_was_sent() -> None:
    catalog = load_catalog()
    _, there = request_of(FORMS.asked(Begin(catalog, "title", "run", 1)))
    assert isinstance(there, Begin)
    assert there.catalog == catalog


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"ask": "run", "with": {"command": ["id"]}}, "'run' is not a request"),
        ({"ask": ["check"]}, "is not a request"),
        ({"ask": "close", "with": {"path": "/etc"}}, "Unexpected keyword argument"),
        ({"ask": "close"}, "not a request 'close'"),
        ({"ask": "turn", "with": {"turn": {"bed": "x"}}}, "not a request 'turn'"),
        ({"ask": "begin", "with": {"title": 1}}, "not a request 'begin'"),
        ({"ask": None}, "is not a request"),
    ],
)
def test_what_is_not_in_the_list_is_refused(message: dict[str, Any], said: str) -> None:
    with root_part() as link:
        link.send(message)
        answer = link.receive()
        assert answer["error"]["kind"] == "MachineError"
        assert answer["error"]["text"].startswith("refused: ")
        assert said in answer["error"]["text"]
        # It goes on with what is in the list.
        assert Root(link).ask(Close(), lambda _: None) is None


def test_a_turn_before_the_beginning_is_refused() -> None:
    turn = turns_of(EXPERIMENTS[0])[0]
    with (
        root_part() as link,
        pytest.raises(MachineError, match="refused: a rehearsal has to begin"),
    ):
        Root(link).ask(TakeTurn(turn), lambda _: None)


@pytest.mark.parametrize("name", ["../../etc", "/etc/cron.d", "data/../..", "", "a" * 65])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    file = next(one for one in EXPERIMENTS if one.stem == "cassandra-disk-caching-threads")
    turn = turns_of(file)[0]
    cluster = turn.trial.spec.cluster
    volumes = {**cluster.volumes, name: cluster.volumes["data"]}
    update = {"cluster": cluster.model_copy(update={"volumes": volumes})}
    changed = turn.trial.spec.model_copy(update=update)
    moved = replace(turn, trial=replace(turn.trial, spec=changed))
    request = Check([], [moved], load_catalog())
    with root_part() as link, pytest.raises(MachineError, match=r"cluster\.volumes"):
        Root(link).ask(request, lambda _: None)


def test_a_setting_that_names_a_command_is_refused() -> None:
    file = next(one for one in EXPERIMENTS if one.stem == "postgresql-lost-server")
    turn = turns_of(file)[0]
    database = turn.trial.spec.database
    update = {"database": database.model_copy(update={"settings": {"archive_command": "id"}})}
    changed = turn.trial.spec.model_copy(update=update)
    moved = replace(turn, trial=replace(turn.trial, spec=changed))
    with root_part() as link, pytest.raises(UserError, match="it names a command"):
        Root(link).ask(TakeTurn(moved), lambda _: None)


def test_what_is_no_message_ends_nothing_but_the_talk() -> None:
    with root_part() as link:
        link._end.sendall(b"\xff\xff\xff\xff")
        assert "larger than any of ours" in link.receive()["error"]["text"]
        assert link.receive() is None


@pytest.mark.parametrize(
    "error",
    [UserError(Problem("a", "b", "c", "d"), Problem("e", "f", "g", "h")), MachineError("x")],
)
def test_an_error_arrives_as_it_was_raised(error: DisklabError) -> None:
    there = error_of(told(error))
    assert type(there) is type(error)
    assert str(there) == str(error)


def numbers(*given: int) -> str:
    return base64.b64encode(array("q", given).tobytes()).decode()


GIB = 1 << 30


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"at_ns": numbers(0)}, "one length"),
        ({"at_ns": numbers(1, 0)}, "do not go back"),
        ({"is_write": base64.b64encode(b"\0\2").decode()}, "read or write"),
        ({"offset_bytes": numbers(0, 512)}, "whole sectors"),
        ({"offset_bytes": numbers(0, -4096)}, "whole sectors"),
        ({"offset_bytes": numbers(0, GIB)}, "whole sectors"),
        ({"offset_bytes": numbers(0, (1 << 63) - 4096)}, "whole sectors"),
        ({"length_bytes": numbers(4096, 0)}, "whole sectors"),
        ({"length_bytes": numbers(4096, 2 * GIB)}, "whole sectors"),
        ({"length_bytes": "AAAA"}, "64 bits"),
        ({"length_bytes": "../../etc/shadow"}, "base64"),
    ],
)
def test_columns_that_are_no_trace_on_the_volume_are_refused(
    changed: dict[str, Any], said: str
) -> None:
    both = base64.b64encode(b"\0\1").decode()
    columns = Columns(
        *("msr", "h,0", numbers(0, 5), numbers(0, 4096), numbers(4096, 4096), both),
        *({"flushes": 3}, 1, 0),
    )
    kept = replay_of(columns, GIB)
    assert [*kept.placed.trace.ios()] == [(0, 0, 4096, False), (5, 4096, 4096, True)]
    assert columns_of(kept) == columns
    with pytest.raises(MachineError, match=f"^refused: .*{said}"):
        replay_of(replace(columns, **changed), GIB)


def test_a_turn_has_the_columns_of_its_trace_and_no_others() -> None:
    trace, other = (
        next(turn for file in EXPERIMENTS if file.stem == stem for turn in turns_of(file))
        for stem in ("device-trace", "cassandra-disk-caching-threads")
    )
    columns = columns_of(trace.trial.replay)
    for request in (TakeTurn(trace), TakeTurn(other, columns)):
        with root_part() as link, pytest.raises(MachineError, match="refused: a turn that replays"):
            Root(link).ask(request, lambda _: None)


def test_no_request_has_a_path() -> None:
    """Where root works is root's own to say."""
    for name, form in REQUESTS.items():
        words = str(form.json_schema(mode="serialization"))
        assert "'format': 'path'" not in words, name


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


WISH = {"volume": {"disks": "azure/P30"}, "command": "id"}
PROBED = (
    {"ask": "emulated", "with": {"wanted": {"disk": "azure/P30", "command": "id"}}},
    {"ask": "at", "with": {"wanted": {"path": "/dev/sda"}}},
    {"ask": "attach", "with": {}},
)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("disk", {"ask": "attach", "with": {"wish": WISH}}),
        ("disk", {"ask": "fail", "with": {"volume": "data", "host": None, "fault": 7}}),
        ("disk", {"ask": "show", "with": {"volume": "x" * 5000}}),
        ("disk", {"ask": "cache", "with": {"volume": "data", "host": None, "action": "format"}}),
        ("disk", {"ask": "turn", "with": {}}),
        *((command, message) for command in ("probe", "calibrate") for message in PROBED),
    ],
)
def test_what_only_a_hostile_callers_part_asks_is_refused(
    command: str, message: dict[str, Any]
) -> None:
    with pytest.raises(MachineError, match=r"^refused: "):
        part(command).request_of(message)


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
