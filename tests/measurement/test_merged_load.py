"""What several generators say, added up; and when their clocks or cores spoil a result."""

from __future__ import annotations

from disklab.engine.load import LoadDone, LoadProgress
from disklab.measurement import clients
from disklab.results import Histogram, decode, encode, merged
from hypothesis import given
from hypothesis import strategies as st

LATENCIES = st.lists(st.integers(1_000, 10_000_000_000), min_size=1, max_size=60)


def done_of(latencies: list[int], elapsed_s: float, failed: int = 0) -> LoadDone:
    text = encode(Histogram.of(latencies))
    return LoadDone.model_validate(
        {
            "elapsed_s": elapsed_s,
            "ops_per_s": len(latencies) / elapsed_s,
            "operations": {
                "read": {
                    "count": len(latencies),
                    "failed": failed,
                    "ops_per_s": len(latencies) / elapsed_s,
                    **{f"{name}_ms": 0.0 for name in ("mean", "p50", "p95", "p99", "p99.9", "max")},
                }
            },
            "response": {"read": text},
            "service": {"read": text},
            "lateness": text,
            "unsent": 1,
            "abandoned": 0,
            "errors": {"timeout": failed},
            "last_error": None,
            "wrong_rows": 0,
            "missing_rows": 0,
            "cpu_ns": 5,
            "started_unix_ns": 7,
            "interrupted": False,
        }
    )


@given(LATENCIES, LATENCIES)
def test_histograms_of_two_clients_are_those_of_one_that_saw_all(
    first: list[int], second: list[int]
) -> None:
    both = clients.merged_done([done_of(first, 2.0, failed=1), done_of(second, 4.0, failed=2)])
    alone = Histogram.of([*first, *second])
    for text in (both.response["read"], both.service["read"], str(both.lateness)):
        assert (decode(text).counts == alone.counts).all()
    read = both.operations["read"]
    assert (read.count, read.failed) == (len(first) + len(second), 3)
    assert both.errors == {"timeout": 3}
    assert both.elapsed_s == 4.0
    assert both.ops_per_s == read.ops_per_s == read.count / 4.0
    assert read.p99_ms == alone.summary_ms()["p99"]
    assert (both.unsent, both.cpu_ns) == (2, 10)


def progress_of(t_s: float, total: int, latencies: list[int]) -> LoadProgress:
    return LoadProgress.model_validate(
        {
            "t_s": t_s,
            "operations": total,
            "errors": 1,
            "ops_per_s": len(latencies),
            "p50_ms": None,
            "p99_ms": None,
            "late_ns_p99": int(t_s),
            "in_flight": 2,
            "cpu_ns": 10,
            "last_error": None,
            "histograms": {"read": encode(Histogram.of(latencies))},
        }
    )


def test_totals_of_a_client_that_has_ended_still_count() -> None:
    now = progress_of(3.0, 50, [2_000_000])
    also = progress_of(3.1, 40, [8_000_000])
    gone = progress_of(2.0, 30, [1_000])
    both = clients.progress([now, also], [gone])
    assert (both.operations, both.errors, both.cpu_ns) == (120, 3, 30)
    # What it did in its own last second is not this second's.
    assert both.ops_per_s == 2
    assert both.in_flight == 4
    expected = merged([Histogram.of([2_000_000]), Histogram.of([8_000_000])])
    assert (decode(both.histograms["read"]).counts == expected.counts).all()
    assert both.p99_ms == expected.percentile(99) / 1e6


def one(ahead_ms: float, error_ms: float = 0.2, cores: float = 0.3) -> list[dict[str, object]]:
    return [{"host": "c1", "clock": {"ahead_ms": ahead_ms, "error_ms": error_ms}, "cores": cores}]


def test_an_open_loop_is_invalid_when_a_clock_is_off() -> None:
    assert clients.judged(one(4.0), is_open=True) == ([], [])
    (reason,), doubts = clients.judged(one(-5.5), is_open=True)
    assert "the clock of c1 is 5.5 ms off" in reason
    assert doubts == []
    # A closed loop has no arrivals that a clock could spoil.
    assert clients.judged(one(900.0), is_open=False) == ([], [])


def test_a_clock_that_is_not_known_well_enough_is_a_doubt() -> None:
    invalid, (doubt,) = clients.judged(one(1.0, error_ms=9.0), is_open=True)
    assert invalid == []
    assert "known to 9.0 ms only" in doubt


def test_a_client_without_a_free_core_is_named() -> None:
    (reason,), _ = clients.judged(one(0.0, cores=0.97), is_open=False)
    assert "c1 used 0.97 cores" in reason


def began(after_ms: float, error_ms: float = 0.2) -> list[dict[str, object]]:
    clock = {"ahead_ms": 0.0, "error_ms": error_ms}
    first = {"host": "c1", "clock": clock, "cores": 0.3, "began_after_ms": 0.0}
    return [first, {**first, "host": "c2", "began_after_ms": after_ms}]


def test_generators_that_did_not_begin_together_are_a_doubt() -> None:
    for is_open in (False, True):
        assert clients.judged(began(3.0), is_open=is_open) == ([], [])
        _, (doubt,) = clients.judged(began(480.0), is_open=is_open)
        assert "the load of c2 began 480 ms after that of c1" in doubt
    # Clocks that are known no better cannot tell.
    assert clients.judged(began(60.0, error_ms=20.0), is_open=False) == ([], [])
