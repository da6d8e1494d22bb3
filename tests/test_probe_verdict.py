"""How a measurement is held against a promise, with figures of published runs."""

from __future__ import annotations

import pytest
from disklab.engine.messages import Envelope, View
from disklab.probe.cells import KIB, MIB, PERCENTILES, Cell, Direction, Profile
from disklab.probe.fio import Latency, Measurement, Side
from disklab.probe.promise import Promise, owed_now
from disklab.probe.verdict import (
    Outcome,
    invalid_reasons,
    judge,
    spoiled,
    telemetry,
    throttling,
)

ASYNC_4K = Cell(Profile.ASYNC, Direction.RANDREAD, 4 * KIB)
ASYNC_1M = Cell(Profile.ASYNC, Direction.RANDREAD, MIB)
SYNC_4K = Cell(Profile.SYNC, Direction.RANDREAD, 4 * KIB)
MS = 1_000_000


def measured(cell: Cell, iops: float, p50_ns: int = MS, p99_ns: int = 2 * MS) -> Measurement:
    percentiles = {p: p50_ns if p < 99 else p99_ns for p in PERCENTILES}
    latency = Latency(float(p50_ns), p50_ns, p99_ns, percentiles)
    ios = round(iops * 60)
    (side,) = cell.direction.shares
    sides = {side: Side(ios, ios * cell.block_bytes, latency)}
    return Measurement(cell, sides, latency, 60.0, "fio-3.33", ())


def rate(cell: Cell, iops: float, bound_by: str) -> Promise:
    return Promise(iops, iops * cell.block_bytes, bound_by, None, None)


def shown(
    delays: dict[str, int], *, reads: int = 0, hits: int = 0, misses: int = 0, late: int = 0
) -> View:
    """The `show` answer of the control socket, as docs/contracts/3-control-socket.md fixes it."""
    limits = [
        {
            "place": place,
            "unit": "ios",
            "scope": "all",
            "per_s": 5000,
            "granted": 0,
            "delayed_ios": 1 if delayed_ns else 0,
            "delayed_ns": delayed_ns,
            "credits": None,
            "binding": False,
        }
        for place, delayed_ns in delays.items()
    ]
    cache = {"hit_ios": hits, "miss_ios": misses, "hit_bytes": 0, "miss_bytes": 0, "write_ios": 0}
    cache |= {"destaged_bytes": 0, "evicted_bytes": 0, "dirty_bytes": 0, "cached_bytes": 0}
    idle = {"ios": 0, "bytes": 0, "failed": 0}
    read = {"ios": reads, "bytes": reads * 4 * KIB, "failed": 0}
    return View.model_validate(
        {
            "profile": {
                "name": "data",
                "size_bytes": 1 << 30,
                "caching": "ReadOnly",
                "chunk_bytes": None,
                "disks": [{"name": "d", "medium": "remote", "limits": [], "latency": LATENCY}],
            },
            "counters": {
                "operations": {"read": read, "write": idle, "flush": idle, "discard": idle},
                "in_flight": 0,
                "queued": 0,
                "cache": cache,
                "limits": limits,
            },
            "emulator": {
                "transport": "fuse",
                "replies": 100_000 if late else 0,
                "late_replies": late,
                "lateness_ns": {
                    "p50": 0,
                    "p99": 250_000,
                    "max": 250_000,
                    "buckets": [(250_000, late)] if late else [],
                },
                "overhead_ns": 0,
                "backing_read_ios": 0,
                "backing_write_ios": 0,
            },
            "faults": [],
        }
    )


NOTHING = {"quantiles_ppm_ns": [[1_000_000, 0]]}
LATENCY = {"read": NOTHING, "write": NOTHING, "flush": NOTHING}


# Six equal VMs with four P30 each (20000 IOPS), Azure Samples Cassandra study, 2019.
@pytest.mark.parametrize(
    ("iops", "outcome", "words"),
    [
        (20400, Outcome.MET, "met (+2%)"),
        (19400, Outcome.MET, "met (-3%)"),
        (3063, Outcome.SHORT, "short by 85%"),
        (8043, Outcome.SHORT, "short by 60%"),
        (14500, Outcome.SHORT, "short by 28%"),
        (26000, Outcome.ABOVE, "above by 30%"),
    ],
)
def test_the_good_and_the_bad_hosts_of_a_published_study(
    iops: float, outcome: Outcome, words: str
) -> None:
    verdict = judge(measured(ASYNC_4K, iops), rate(ASYNC_4K, 20000, "disk 20000 IOPS"), None, None)
    assert verdict.outcome is outcome
    assert str(verdict).startswith(words)


def test_a_short_host_without_any_waiting_is_named_slow() -> None:
    owed = rate(ASYNC_4K, 20000, "disk 20000 IOPS")
    verdict = judge(measured(ASYNC_4K, 3063), owed, None, None)
    assert verdict.held_back_by == "no limit explains it: the host itself is slow"


def test_an_emulated_disk_that_nothing_delayed_is_beyond_this_machine() -> None:
    owed = rate(ASYNC_4K, 20000, "disk 20000 IOPS")
    seen = telemetry(shown({"disk 0": 0}), shown({"disk 0": 0}), ASYNC_4K)
    verdict = judge(measured(ASYNC_4K, 3063), owed, seen, None)
    assert verdict.outcome is Outcome.BEYOND_MACHINE
    assert "short by 85%, and this machine is why" in str(verdict)


def test_a_loop_device_that_waited_for_flushes_is_beyond_this_machine() -> None:
    owed = rate(ASYNC_4K, 20000, "disk 20000 IOPS")
    delayed = shown({"vm cached": 30 * 10**9})
    verdict = judge(
        measured(ASYNC_4K, 9000), owed, telemetry(shown({}), delayed, ASYNC_4K, 0.3), None
    )
    assert verdict.outcome is Outcome.BEYOND_MACHINE
    assert "a FLUSH was under way 30% of the time" in str(verdict)
    verdict = judge(
        measured(ASYNC_4K, 9000), owed, telemetry(shown({}), delayed, ASYNC_4K, 0.03), None
    )
    assert verdict.outcome is Outcome.SHORT


def test_an_injected_fault_is_named() -> None:
    owed = rate(ASYNC_4K, 20000, "disk 20000 IOPS")
    broken = shown({}).model_copy(update={"faults": [{"kind": "slow", "permille": 10_000}]})
    verdict = judge(measured(ASYNC_4K, 3063), owed, telemetry(shown({}), broken, ASYNC_4K), None)
    assert verdict.held_back_by == "a fault is injected: slow"


def test_the_limit_that_delayed_most_is_named() -> None:
    before = shown({"disk 0": 5, "vm cached": 0, "vm uncached": 0})
    after = shown({"disk 0": 10 * MS, "vm cached": 0, "vm uncached": 90_000 * MS})
    seen = telemetry(before, after, ASYNC_4K)
    owed = rate(ASYNC_4K, 5000, "disk 0 5000 IOPS")
    verdict = judge(measured(ASYNC_4K, 4000, p50_ns=10 * MS), owed, seen, None)
    assert verdict.outcome is Outcome.SHORT
    assert verdict.held_back_by == "throttled by vm uncached 5000 IOPS"


def test_what_waits_longer_than_all_of_fios_own_is_the_destage_behind_them() -> None:
    one_job = measured(SYNC_4K, 1000)
    s = 10**9
    destage = telemetry(shown({}), shown({"disk 0": 32 * 60 * s, "vm cached": 30 * s}), SYNC_4K)
    assert throttling(one_job, destage).limit == "vm cached 5000 IOPS"
    alone = telemetry(shown({}), shown({"disk 0": 32 * 60 * s, "vm cached": 0}), SYNC_4K)
    assert throttling(one_job, alone) is None


def test_a_byte_cap_is_judged_in_bytes() -> None:
    owed = rate(ASYNC_1M, 200e6 / MIB, "disk 0 200 MB/s")
    verdict = judge(measured(ASYNC_1M, 100), owed, None, None)
    assert verdict.quantity == "MB/s"
    assert verdict.measured == pytest.approx(100 * MIB)


def test_a_long_median_and_a_long_tail_are_short() -> None:
    owed = Promise(500, 500 * 4096, "latency", {"read": dict.fromkeys(PERCENTILES, 2 * MS)}, None)
    fine = judge(measured(SYNC_4K, 490, p50_ns=2 * MS), owed, None, None)
    assert fine.outcome is Outcome.MET
    slow = judge(measured(SYNC_4K, 490, p50_ns=3 * MS), owed, None, None)
    assert (slow.outcome, slow.quantity) == (Outcome.SHORT, "p50")
    tail = judge(measured(SYNC_4K, 490, p50_ns=2 * MS, p99_ns=9 * MS), owed, None, None)
    assert (tail.outcome, tail.quantity) == (Outcome.SHORT, "p99")


def test_a_tail_of_few_samples_is_not_judged() -> None:
    owed = Promise(50, 50 * 4096, "latency", {"read": dict.fromkeys(PERCENTILES, 2 * MS)}, None)
    # 50/s for 60 s are 3000 samples, 30 of them beyond p99.
    few = judge(measured(SYNC_4K, 50, p50_ns=2 * MS, p99_ns=9 * MS), owed, None, None)
    assert few.outcome is Outcome.MET


ENVELOPE = Envelope(p50_ns=60_000, p99_ns=150_000, iops=170_000, bytes_per_s=3 * 10**9)


def test_what_this_machine_cannot_reach_is_no_fault_of_the_disk() -> None:
    nvme = rate(ASYNC_4K, 261_000, "disk 0 261000 IOPS")
    verdict = judge(measured(ASYNC_4K, 150_000), nvme, None, ENVELOPE)
    assert verdict.outcome is Outcome.BEYOND_MACHINE
    assert "170000 IOPS here, 261000 are promised" in str(verdict)
    fast = Promise(
        20_000, 20_000 * 4096, "latency", {"read": dict.fromkeys(PERCENTILES, 43_000)}, None
    )
    latency = judge(measured(SYNC_4K, 12_000, p50_ns=80_000), fast, None, ENVELOPE)
    assert latency.outcome is Outcome.BEYOND_MACHINE
    assert "lowest p50 here is 60 us, 43 us is promised" in str(latency)


@pytest.mark.parametrize(
    ("late", "p50_ms", "p99_ms", "marked"),
    [
        (900, 1, 2, []),
        # Two replies in a hundred are 250 us late: a tail of 2 ms does not tell.
        (2000, 1, 2, []),
        (2000, 0.2, 0.5, ["tail"]),
        # 250 us are nothing to I/Os that take 100 ms, however many are late.
        (100_000, 50, 100, []),
        (100_000, 1, 2, ["rate", "median", "tail"]),
        (100_000, 2, 4, ["rate"]),
    ],
)
def test_late_replies_spoil_the_figures_that_they_reach(
    late: int, p50_ms: float, p99_ms: float, marked: list[str]
) -> None:
    """A cell is invalid as a whole where no figure is left."""
    ios = 100_000 / 60
    cell = measured(SYNC_4K, ios, p50_ns=round(p50_ms * MS), p99_ns=round(p99_ms * MS))
    seen = telemetry(shown({}), shown({}, late=late), SYNC_4K)
    assert list(spoiled(cell, seen)) == marked
    reasons = invalid_reasons(cell, seen)
    assert bool(reasons) == (len(marked) == 3)
    if reasons:
        assert "for replies that this machine made late" in reasons[0]


def test_the_hit_ratio_counts_the_cell_alone() -> None:
    before, after = shown({}, hits=100, misses=900), shown({}, hits=400, misses=1000)
    assert telemetry(before, after, ASYNC_4K).hit_ratio == pytest.approx(0.75)
    assert telemetry(before, before, ASYNC_4K).hit_ratio is None


def test_ios_that_the_kernel_split_are_not_judged_by_their_latency() -> None:
    # 100 I/Os of 4 KiB arrived where fio sent 1 MiB each: 256 pieces.
    assert telemetry(shown({}), shown({}, reads=100), ASYNC_1M).pieces == 256
    assert telemetry(shown({}), shown({}, reads=100), ASYNC_4K).pieces == 1
    owed = Promise(50, 50 * MIB, "latency", {"read": dict.fromkeys(PERCENTILES, 2 * MS)}, None, 2.0)
    verdict = judge(measured(SYNC_4K, 100), owed, None, None)
    assert verdict.outcome is Outcome.NOT_JUDGED
    assert str(verdict) == ("not judged; the kernel split each I/O into 2.0 on its way to the disk")


def test_a_mix_is_short_in_one_of_its_directions() -> None:
    cell = Cell(Profile.SYNC, Direction(random=True, read_percent=50), 4 * KIB)
    fast, slow = (Latency(float(ns), ns, ns, dict.fromkeys(PERCENTILES, ns)) for ns in (MS, 2 * MS))
    sides = {"read": Side(30_000, 30_000 * 4096, fast), "write": Side(30_000, 30_000 * 4096, slow)}
    got = Measurement(cell, sides, slow, 60.0, "fio-3.33", ())
    owed = {"read": dict.fromkeys(PERCENTILES, MS), "write": dict.fromkeys(PERCENTILES, MS)}
    verdict = judge(
        got, Promise(1000, 4_096_000, "latency at 1 outstanding", owed, None), None, None
    )
    assert (verdict.outcome, verdict.quantity) == (Outcome.SHORT, "p50 of writes")


BURSTING = rate(ASYNC_4K, 3500, "disk 0 3500 IOPS")
BASE = rate(ASYNC_4K, 500, "disk 0 500 IOPS")


@pytest.mark.parametrize(
    ("iops", "outcome", "words"),
    [
        (3480, Outcome.MET, None),
        (501, Outcome.MET, "the burst credits are spent (disk 0 3500 IOPS while they last)"),
        (1800, Outcome.MET, "credits ran out"),
        (300, Outcome.SHORT, "below even its base rate, disk 0 500 IOPS"),
        (42_000, Outcome.ABOVE, None),
    ],
)
def test_a_real_disk_that_gives_its_base_rate_keeps_its_promise(
    iops: float, outcome: Outcome, words: str | None
) -> None:
    verdict = judge(measured(ASYNC_4K, iops), owed_now(iops, BURSTING, BASE), None, None)
    assert verdict.outcome is outcome
    assert "no limit explains it" not in str(verdict)
    assert words is None or words in str(verdict)
