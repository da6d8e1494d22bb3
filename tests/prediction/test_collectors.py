"""Which JVM a job has: heap, young generation, threads, and whose pauses."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from disklab import spec
from disklab.catalog import cpu_speed, load_catalog
from disklab.databases.calibration import Calibration, calibration_for
from disklab.databases.cassandra.configuration import collector_options
from disklab.databases.cassandra.provider import check
from disklab.databases.cassandra.simulated_settings import (
    collector_of,
    new_keys_permille,
    threads_on,
)
from disklab.databases.cassandra.sizing import plan_memory
from disklab.databases.protocol import Request, Sizes
from disklab.errors import UserError
from disklab.prediction.cells import prepare
from disklab.prediction.counted import prepare_rehearsed
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


def part(one: Trial) -> dict[str, dict[str, int]]:
    found = prepare(one, load_catalog(), calibration_for("cassandra"), "x.yaml").job["database"]
    return {"collector": found["cluster"]["collector"], "parameters": found["parameters"]}


def unknowns(one: Trial) -> set[str]:
    calibration = calibration_for("cassandra").of_version(
        one.spec.database.version if one.spec.database else None
    )
    job = prepare(one, load_catalog(), calibration_for("cassandra"), "x.yaml").job
    return {found.key[1] for found in Uncertain(one, calibration, job, "x.yaml").unknowns()}


def test_the_calibrated_jvm_is_the_one_of_the_study() -> None:
    told = part(trial())
    values = calibration_for("cassandra").values()
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


def jvm(text: str, vm: str = "azure/Standard_DS14_v2") -> Trial:
    """Return the trial with a JVM of the file's own."""
    said = TEXT.format(vm=vm, version=f', version: "5.0", jvm: {text}', row="5 x 818B")
    return spec.parse(said, "x.yaml").trials("predict")[0]


def test_zgc_stops_shortly_whatever_the_cores_and_takes_processor_time() -> None:
    usual = part(trial(version="5.0"))
    for vm in ("azure/Standard_DS14_v2", "azure/Standard_DS3_v2"):
        told = part(jvm("{collector: zgc}", vm))
        costs = told["parameters"]
        assert costs["read_pause_ns"] == costs["write_pause_ns"] < 1_000_000
        assert costs["read_moved_permille"] == 0
        assert told["collector"]["threads"] == costs["at_collector_threads"]
        for name in ("read_cpu_ns", "write_byte_ps"):
            assert costs[name] == usual["parameters"][name] * 1150 // 1000
        assert costs["client_read_cpu_ns"] == usual["parameters"]["client_read_cpu_ns"]


def test_bands_move_the_stops_of_zgc_and_not_those_of_g1() -> None:
    one = jvm("{collector: zgc}")
    calibration = calibration_for("cassandra").newest().with_collector("zgc")
    job = prepare(one, load_catalog(), calibration_for("cassandra"), "x.yaml").job
    moved = Uncertain(one, calibration, job, "x.yaml").moved({("parameter", "read_pause_ns"): 0.5})
    stop = calibration.parameters["read_pause_ns"].value
    assert moved["database"]["parameters"]["read_pause_ns"] == round(stop * math.exp(0.5))


def test_a_heap_of_the_file_s_own_moves_young_generation_and_page_cache() -> None:
    small, large = (
        prepare(jvm(text), load_catalog(), calibration_for("cassandra"), "x.yaml").job
        for text in ("{heap: 8GiB}", "{heap: 24GiB}")
    )
    at, then = small["database"]["cluster"], large["database"]["cluster"]
    usual = part(trial(version="5.0"))["collector"]
    assert at["collector"]["young_bytes"] == usual["young_bytes"]
    assert then["collector"]["young_bytes"] == 3 * at["collector"]["young_bytes"]
    assert at["page_cache_bytes"] - then["page_cache_bytes"] == 16 * GIB
    assert large["database"]["database"]["memtable_bytes"] == 2 * GIB


@pytest.mark.parametrize("name", ["parnew", "cms"])
def test_parnew_may_be_had_with_later_versions_too(name: str) -> None:
    assert part(jvm(f"{{collector: {name}}}"))["collector"]["young_bytes"] == 1280 * MIB


def test_what_is_not_calibrated_is_refused() -> None:
    reasons = prepare(
        jvm("{collector: shenandoah}"), load_catalog(), calibration_for("cassandra"), "x.yaml"
    ).reasons
    assert any("not calibrated" in one.rule for one in reasons)


@pytest.mark.parametrize(
    ("database", "words"),
    [
        ("engine: postgresql, jvm: {collector: zgc}", "does not run in a Java virtual machine"),
        ('engine: cassandra, version: "3.11", jvm: {collector: zgc}', "Java 8"),
        ("engine: cassandra, jvm: {heap: 80GiB}", "at most half"),
        ("engine: cassandra, jvm: {collector: zgcc}", "jvm.collector"),
    ],
)
def test_a_jvm_that_cannot_be_is_refused_with_its_place(database: str, words: str) -> None:
    text = TEXT.format(vm="azure/Standard_DS14_v2", version="", row="5 x 818B")
    with pytest.raises(UserError, match=words):
        spec.parse(text.replace("engine: cassandra", database, 1), "x.yaml")


def test_a_rehearsal_starts_the_collector_that_is_asked_for() -> None:
    assert "-XX:+UseG1GC" in collector_options(None)
    assert collector_options("zgc") == ("-XX:+UseZGC",)
    assert collector_options("shenandoah") == ("-XX:+UseShenandoahGC",)
    request = Request("cassandra", Sizes(8 * GIB), collector="cms")
    with pytest.raises(UserError, match="no CMS"):
        check(request, [])


def test_a_rehearsal_scales_the_heap_that_is_asked_for() -> None:
    plan = plan_memory(Sizes(64 * GIB, Fraction(1, 8), heap_bytes=16 * GIB), 64 * GIB)
    assert plan.heap == 2 * GIB
    assert plan.memtable == GIB // 2


def test_version_3_has_the_young_generation_of_parnew() -> None:
    # min(100 MB x 16, 8 GiB / 4), of which 8 of 10 parts are Eden.
    assert collector_of(8 * GIB, 16, "3.11").young_bytes == 1280 * MIB
    assert collector_of(4 * GIB, 16, "3.11").young_bytes == int(1024 * MIB * 0.8)
    assert part(trial(version="3.11"))["parameters"]["read_pause_ns"] == 8_516_363


def test_newer_versions_have_pauses_of_their_own_and_a_key_cache() -> None:
    told, newer = part(trial(version="4.1")), calibration_for("cassandra").newer
    assert told["parameters"]["read_pause_ns"] == newer.parameters["read_pause_ns"].value
    assert told["parameters"]["at_young_bytes"] == newer.physical["at_young_bytes"].value
    # 100 MiB of keys of 80 bytes, for 60 million rows x 1 copy on six nodes.
    known = 100 * MIB // 80
    assert told["collector"]["new_keys_permille"] == round(1000 * (1 - known / 10e6))


def test_cpu_times_go_to_other_vms_by_the_speed_of_their_vcpus() -> None:
    catalog, calibration, newer = (
        load_catalog(),
        calibration_for("cassandra"),
        calibration_for("cassandra").newest(),
    )
    slow, at_home = "azure/Standard_L8s_v2", "azure/Standard_DS14_v2"
    for version, known, measured_on in (
        ("3.11", calibration, "azure/DSv2"),
        ("5.0", newer, "azure/Dasv6"),
    ):
        factor = cpu_speed(catalog, measured_on).over(cpu_speed(catalog, slow))
        assert factor > 1
        costs = part(trial(slow, version=version))["parameters"]
        assert costs["read_cpu_ns"] == round(known.parameters["read_cpu_ns"].value * factor)
        assert costs["message_overhead_ns"] == known.parameters["message_overhead_ns"].value
    costs = part(trial(at_home))["parameters"]
    assert costs["write_cpu_ns"] == calibration.parameters["write_cpu_ns"].value


def test_a_calibration_that_names_no_vm_is_carried_nowhere() -> None:
    """As files are that `disklab calibrate` wrote before."""
    content = calibration_for("cassandra").model_dump(
        mode="json", exclude={"server_vm": True, "client_vm": True}
    )
    del content["newer"]["server_vm"], content["newer"]["client_vm"]
    older = Calibration.model_validate(content)
    slow = trial("azure/Standard_L8s_v2", version="5.0")
    job = prepare(slow, load_catalog(), older, "x.yaml").job
    costs, known = job["database"]["parameters"], older.newest().parameters
    for name in ("read_cpu_ns", "disk_read_cpu_ns", "client_read_cpu_ns"):
        assert costs[name] == known[name].value


def test_keys_that_all_fit_are_not_new() -> None:
    assert new_keys_permille(1000, 900) == 0
    assert new_keys_permille(1000, 4000) == 750


def test_a_rehearsal_has_the_collector_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    text = TEXT.format(vm="azure/Standard_DS3_v2", version="", row="5 x 818B")
    text += "rehearse: {nodes: 1, scale: 1/40, time_dilation: 1}\n"
    (one,) = spec.parse(text, "x.yaml").trials("rehearse")
    job = prepare_rehearsed(one, load_catalog(), calibration_for("cassandra"), "x.yaml").job
    # A fortieth of 3.5 GiB would be too small a heap: it has 1 GiB.
    collector = job["database"]["cluster"]["collector"]
    assert (collector["young_bytes"], collector["threads"]) == (int(GIB * 0.6), 2)
    newer = calibration_for("cassandra").newest().values()
    assert job["database"]["parameters"]["read_pause_ns"] == newer["read_pause_ns"]


def test_bands_move_what_pauses_follow_from_where_it_counts() -> None:
    """Where rows and collector are the calibrated ones, nothing else than before is unknown."""
    of_rows = {"read_allocated_bytes", "write_allocated_bytes", "write_kept_bytes"}
    of_collector = {"at_young_bytes", "collector_alone_permille", "read_moved_permille"}
    assert not unknowns(trial()) & (of_rows | of_collector)
    assert unknowns(trial(row="1 x 200B")) & (of_rows | of_collector) == of_rows
    assert unknowns(trial("azure/Standard_DS3_v2")) & (of_rows | of_collector) == of_collector
    assert "read_pause_ns" in unknowns(trial(version="4.1"))
