"""Which JVM a job has: heap, young generation, threads, and whose pauses."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import Calibration, calibration_for
from disklab.databases.cassandra.collectors import collector_of, new_keys_permille, threads_on
from disklab.prediction.cells import prepare
from disklab.prediction.rehearsed import prepare_rehearsed
from disklab.prediction.uncertain import Uncertain
from disklab.spec import Trial

GIB = 1 << 30
MIB = 1 << 20
TEXT = """\
title: x
cluster: {{nodes: 6, vm: {vm}, volumes: {{data: {{disks: 2 x azure/P30, caching: None}}}}}}
database: {{engine: cassandra{version}}}
dataset: {{rows: 60M, row: {row}}}
workload: {{operations: {{read: 50%, write: 50%}}, load: {{threads: 64}}, stop: {{duration: 60s}}}}
"""


def trial(vm: str = "azure/Standard_DS14_v2", version: str = "", row: str = "5 x 818B") -> Trial:
    said = f', version: "{version}"' if version else ""
    text = TEXT.format(vm=vm, version=said, row=row)
    return spec.parse(text, "x.yaml").trials("predict")[0]


def package() -> Calibration:
    found = calibration_for("cassandra")
    assert found is not None
    return found


def part(one: Trial) -> dict[str, dict[str, int]]:
    job = prepare(one, load_catalog(), package(), "x.yaml").job
    assert job is not None
    found = job["database"]
    return {"collector": found["cluster"]["collector"], "parameters": found["parameters"]}


def unknowns(one: Trial) -> set[str]:
    calibration = package().of_version(one.spec.database.version if one.spec.database else None)
    job = prepare(one, load_catalog(), package(), "x.yaml").job
    assert job is not None
    return {found.key[1] for found in Uncertain(one, calibration, job, "x.yaml").unknowns()}


def test_the_calibrated_jvm_is_the_one_of_the_study() -> None:
    told = part(trial())
    values = package().values()
    assert told["collector"]["young_bytes"] == values["at_young_bytes"]
    assert told["collector"]["threads"] == values["at_collector_threads"] == 13
    assert told["parameters"]["read_pause_ns"] == values["read_pause_ns"] == 8_516_363


def test_a_smaller_vm_has_a_smaller_heap_and_fewer_threads() -> None:
    # 14 GiB and 4 vCPUs: a quarter is heap.
    assert part(trial("azure/Standard_DS3_v2"))["collector"] == {
        "young_bytes": int(3.5 * GIB * 0.6),
        "threads": 4,
        "new_keys_permille": 1000,
    }


@pytest.mark.parametrize(("cores", "threads"), [(2, 2), (8, 8), (16, 13), (20, 15)])
def test_threads_are_those_that_hotspot_takes(cores: int, threads: int) -> None:
    assert threads_on(cores) == threads


def test_version_3_has_the_young_generation_of_parnew() -> None:
    # min(100 MB x 16, 8 GiB / 4), of which 8 of 10 parts are Eden.
    assert collector_of(8 * GIB, 16, "3.11").young_bytes == 1280 * MIB
    assert collector_of(4 * GIB, 16, "3.11").young_bytes == int(1024 * MIB * 0.8)
    assert part(trial(version="3.11"))["parameters"]["read_pause_ns"] == 8_516_363


def test_newer_versions_have_pauses_of_their_own_and_a_key_cache() -> None:
    told, newer = part(trial(version="4.1")), package().newer
    assert newer is not None
    assert told["parameters"]["read_pause_ns"] == newer.parameters["read_pause_ns"].value
    assert told["parameters"]["at_young_bytes"] == newer.physical["at_young_bytes"].value
    # 100 MiB of keys of 80 bytes, for 60 million rows x 1 copy on six nodes.
    known = 100 * MIB // 80
    assert told["collector"]["new_keys_permille"] == round(1000 * (1 - known / 10e6))


def test_keys_that_all_fit_are_not_new() -> None:
    assert new_keys_permille(1000, 900) == 0
    assert new_keys_permille(1000, 4000) == 750


def test_a_rehearsal_has_the_collector_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    text = TEXT.format(vm="azure/Standard_DS3_v2", version="", row="5 x 818B")
    text += "rehearse: {nodes: 1, scale: 1/40, time_dilation: 1}\n"
    (one,) = spec.parse(text, "x.yaml").trials("rehearse")
    job = prepare_rehearsed(one, load_catalog(), package(), "x.yaml").job
    assert job is not None
    # A fortieth of 3.5 GiB would be too small a heap: it has 1 GiB.
    collector = job["database"]["cluster"]["collector"]
    assert (collector["young_bytes"], collector["threads"]) == (int(GIB * 0.6), 2)
    newer = package().newest().values()
    assert job["database"]["parameters"]["read_pause_ns"] == newer["read_pause_ns"]


def test_bands_move_what_pauses_follow_from_where_it_counts() -> None:
    """Where rows and collector are the calibrated ones, nothing else than before is unknown."""
    of_rows = {"read_allocated_bytes", "write_allocated_bytes", "write_kept_bytes"}
    of_collector = {"at_young_bytes", "collector_alone_permille", "read_moved_permille"}
    assert not unknowns(trial()) & (of_rows | of_collector)
    assert unknowns(trial(row="1 x 200B")) & (of_rows | of_collector) == of_rows
    small = unknowns(trial("azure/Standard_DS3_v2"))
    assert small & (of_rows | of_collector) == of_collector
    assert "read_pause_ns" in unknowns(trial(version="4.1"))
