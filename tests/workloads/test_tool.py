"""A load tool of a kit: what becomes of what it has written."""

from __future__ import annotations

from typing import Literal

import pytest
from disklab.engine.load import LoadDone, LoadReady
from disklab.kits.results import Reader
from disklab.kits.schema import Result, Tool
from disklab.results import decode
from disklab.results.histogram import encode
from disklab.workloads.program import histogram_of
from disklab.workloads.tool import ToolRun, _paced, read_histogram

RESULT = Result(
    line=r"^(\d+) done, (\S+) ms, (\S+) ms, (\S+) ms$", figures=("count", "p50", "p95", "p99")
)


@pytest.mark.parametrize(("loop", "has_service"), [("closed", True), ("open", False)])
def test_only_a_closed_loop_has_times_of_service(
    loop: Literal["closed", "open"], has_service: bool
) -> None:
    tool = Tool(run=("bench",), loop=loop, results=(RESULT,))
    words = ["sh", "-c", "echo 1000 done, 1 ms, 2 ms, 3 ms"]
    with ToolRun("bench", tool, words, 20.0, []) as run:
        ready, *_, done = run
    assert isinstance(ready, LoadReady)
    assert ready.loop == loop
    assert isinstance(done, LoadDone)
    assert decode(done.response["operation"]).total == 1000
    assert ("operation" in done.service) == has_service


def test_a_histogram_of_all_latencies_is_taken_as_it_is_but_in_slow_motion() -> None:
    """There its steps would be of the tool's time: the percentiles are divided instead."""
    known = histogram_of([(2.0, 90), (60.0, 10)])
    told = Reader((), "", {"p50": 2.0, "p95": 9.0, "p99": 20.0}, hdr=encode(known))
    here, slowed = read_histogram(told, 1, 100), read_histogram(told, 10, 100)
    assert here.summary_ms()["p95"] == pytest.approx(60.0, rel=0.02)
    assert slowed.summary_ms()["p95"] == pytest.approx(0.9, rel=0.02)


def test_a_tool_is_given_the_words_of_its_pace() -> None:
    tool = Tool(run=("bench", "{pace}", "x"), at_rate=("-r", "{rate}"), unlimited=("-max",))
    assert _paced(tool, 5) == ["bench", "-r", "{rate}", "x"]
    assert _paced(tool, None) == ["bench", "-max", "x"]
