"""etcd as the simulator is asked of it, and what is told of its answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.databases.calibration import package_calibration
from disklab.databases.etcd.simulated import SIMULATED

from tests.prediction.jobs import job, prepared, refused, simulated

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TEXT = (EXPERIMENTS / "etcd-which-disk.yaml").read_text()


def with_settings(settings: str) -> str:
    return TEXT.replace("engine: etcd,", f"engine: etcd, settings: {settings},", 1)


def test_a_job_has_the_times_that_etcd_has_without_a_setting() -> None:
    settings = job(TEXT)["database"]
    assert settings["heartbeat_ns"] == 100_000_000
    assert settings["election_ns"] == 1_000_000_000
    assert settings["batch_interval_ns"] == 100_000_000
    assert settings["batch_puts"] == 10_000
    assert settings["snapshot_entries"] == 100_000
    assert settings["journal_writes"] == 2, "ext4"


def test_settings_of_the_file_are_followed() -> None:
    text = with_settings(
        "{heartbeat-interval: 250, election-timeout: 2500, backend-batch-interval: 1s,"
        " backend-batch-limit: 0, snapshot-count: 7, quota-backend-bytes: 1}"
    )
    settings = job(text)["database"]
    assert settings["heartbeat_ns"] == 250_000_000
    assert settings["election_ns"] == 2_500_000_000
    assert settings["batch_interval_ns"] == 1_000_000_000
    assert settings["batch_puts"] == 10_000, "etcd takes its default for zero"
    assert settings["snapshot_entries"] == 7
    (unread,) = [note for note in prepared(text).warnings if "not modelled" in note]
    assert unread.endswith("quota-backend-bytes")


def test_the_log_may_lie_on_a_volume_of_its_own() -> None:
    old = "volumes: {data: {disks: azure/P10, caching: None, filesystem: ext4}}"
    assert old in TEXT
    new = old[:-1] + ", wal: {disks: azure/P10, caching: None, filesystem: xfs}}"
    without_factors = TEXT[: TEXT.index("factors:")] + TEXT[TEXT.index("rehearse:") :]
    cell = job(without_factors.replace(old, new, 1))
    assert cell["cluster"]["commitlog_volume"] == "wal"
    assert cell["database"]["journal_writes"] == 1, "XFS"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"nodes: 3\n": "nodes: 4\n", "factor: 3": "factor: 4"}, "an odd number of members"),
        ({"factor: 3": "factor: 2"}, "holds all keys"),
        ({"row: 1 x 2300B": "row: 1 x 50% 100B + 50% 1000B"}, "one size"),
        (
            {
                "nodes: 3\n": "nodes: 3\n  network: azure/standard\n",
                "stop: {duration: 60s}": "stop: {duration: 60s}\nevents: [{at: 9s, cut: n2}]",
            },
            "of a timetable kill, lose",
        ),
    ],
)
def test_what_is_not_modelled_is_refused_with_the_reason(
    changes: dict[str, str], rule: str
) -> None:
    text = TEXT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    refused(text, rule)


def test_an_answer_is_held_against_etcds_own_rules() -> None:
    answer = simulated(etcd=job(TEXT))
    fsync, commit = SIMULATED.rules(answer)
    assert fsync.what == "99th percentile of WAL fsync"
    assert (fsync.below_ms, commit.below_ms) == (10.0, 25.0)
    # Standard HDD of Azure: it writes in 5 ms at best.
    assert fsync.found_ms > 10.0
    assert not fsync.kept
    assert answer["log"]["elections_per_hour"] == 0


def test_its_calibration_says_where_each_figure_is_from() -> None:
    calibration = package_calibration("etcd")
    assert calibration.engine == "etcd"
    assert all(parameter.because for parameter in calibration.parameters.values())
