"""What bound a trial: a limit, the machine's CPU, or the latency of a disk."""

from __future__ import annotations

from disklab.procedures.outcome import binding
from disklab.results.records import LimitWait


def limit(utilisation: float | None) -> LimitWait:
    return LimitWait(
        limit="disk 0 1100 IOPS",
        volume="data",
        delayed_ios=1200,
        delayed_ms=13_000.0,
        utilisation=utilisation,
    )


def resource(*seen: object) -> str | None:
    found = binding(*seen)  # type: ignore[arg-type]
    return found.resource if found else None


def test_a_limit_at_which_ios_wait_binds() -> None:
    assert resource(limit(1.0), 0.4, 0.3, {"data": 0.9}) == "data disk 0 1100 IOPS"
    # With bursts between pauses its mean use says little.
    assert resource(limit(0.4), 0.4, 0.3, {"data": 0.9}) == "data disk 0 1100 IOPS"
    assert resource(limit(None), 0.4, 0.99, {}) == "data disk 0 1100 IOPS"


def test_a_full_machine_binds_where_a_limit_has_room() -> None:
    assert resource(limit(0.32), 0.2, 0.91, {}) == "this machine's CPU"
    assert resource(limit(0.97), 0.2, 0.91, {}) == "data disk 0 1100 IOPS"
    assert resource(None, 0.0, 0.95, {"data": 0.6}) == "this machine's CPU"


def test_a_disk_in_which_operations_spend_their_time_binds_by_its_latency() -> None:
    assert resource(limit(0.9), 0.04, 0.5, {"data": 0.7, "log": 0.2}) == "data latency"
    assert resource(limit(0.9), 0.04, 0.5, {"data": 0.4}) is None
    assert resource(None, 0.0, 0.5, {}) is None
