"""CPU times of calibrations on the VMs of a trial, whatever the database."""

from __future__ import annotations

from dataclasses import replace

import pytest
from disklab import spec
from disklab.catalog import cpu_speed, load_catalog
from disklab.databases.calibration import calibration_for, is_cpu_time
from disklab.databases.registry import simulated_of
from disklab.prediction.cells import prepare
from disklab.prediction.counted import prepare_rehearsed
from disklab.prediction.uncertain import Uncertain
from disklab.spec import ClusterTrial, Trial
from disklab.spec.amounts import only

ROWS = "dataset: {rows: 1M, row: 10 x 100B}"
OF_ROWS = "{operations: {read: 50%, write: 50%}, load: {threads: 8}, stop: {duration: 60s}}"
SYSBENCH = (
    "{sysbench: {script: oltp_read, tables: 2, rows_per_table: 100k, threads: 24}, "
    "stop: {duration: 60s}}"
)
KEYS = {"postgresql": "postgresql", "mariadb": "mariadb", "yugabytedb": "sql"}
SLOW = "azure/Standard_E16s_v3"


def trial(engine: str, server: str, client: str, more: str = "") -> Trial:
    load = f"workload: {SYSBENCH}" if engine == "yugabytedb" else f"{ROWS}\nworkload: {OF_ROWS}"
    text = (
        "title: x\n"
        f"cluster: {{nodes: 1, vm: {server}, volumes: {{data: {{disks: azure/P30}}}}}}\n"
        f"client: {{nodes: 1, vm: {client}}}\n"
        f"database: {{engine: {engine}, replication_factor: 1}}\n{load}\n{more}"
    )
    return spec.parse(text, "x.yaml").trials("rehearse" if more else "predict")[0]


def costs(engine: str, of: Trial) -> dict[str, int]:
    job = prepare(of, load_catalog(), calibration_for(engine), "x.yaml").job
    parameters: dict[str, int] = job[KEYS[engine]]["parameters"]
    return parameters


@pytest.mark.parametrize("engine", KEYS)
def test_cpu_times_are_as_long_as_the_vms_make_them(engine: str) -> None:
    catalog, calibration = load_catalog(), calibration_for(engine)
    at_home = calibration.server_vm
    home = next(name for name, vm in catalog.vms.items() if vm.series_name == at_home)
    slower = cpu_speed(catalog, at_home).over(cpu_speed(catalog, SLOW))
    assert slower > 1
    for server, client in ((home, home), (SLOW, home), (home, SLOW)):
        carried = costs(engine, trial(engine, server, client))
        for name, value in calibration.values().items():
            factor = 1.0
            if is_cpu_time(name, of_client=False) and server == SLOW:
                factor = slower
            if is_cpu_time(name, of_client=True) and client == SLOW:
                factor = slower
            assert carried[name] == round(value * factor), name


@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
def test_a_rehearsal_has_the_times_of_the_machine_that_they_were_measured_on(engine: str) -> None:
    rehearse = "rehearse: {nodes: 1, scale: 1/40}\n"
    rehearsed = prepare_rehearsed(
        trial(engine, SLOW, SLOW, rehearse), load_catalog(), calibration_for(engine), "x.yaml"
    )
    assert rehearsed.job is not None, rehearsed.reasons
    parameters = rehearsed.job[KEYS[engine]]["parameters"]
    assert parameters["statement_cpu_ns"] == calibration_for(engine).values()["statement_cpu_ns"]


@pytest.mark.parametrize("engine", KEYS)
def test_a_vm_that_nobody_measured_is_named(engine: str) -> None:
    catalog = load_catalog()
    series = catalog.vms[SLOW].series_name
    others = {name: rows for name, rows in catalog.processors.items() if name != series}
    without = replace(catalog, processors=others)
    simulated = simulated_of(engine)
    for known, count in ((without, 1), (catalog, 0)):
        cell = only(ClusterTrial, trial(engine, SLOW, SLOW).spec)
        warnings = " ".join(simulated.warnings(cell, known, calibration_for(engine)))
        assert warnings.count(f"the speed of a vCPU of {series}") == count


def uncertain(vm: str) -> Uncertain:
    at = trial("postgresql", vm, vm)
    calibration = calibration_for("postgresql")
    job = prepare(at, load_catalog(), calibration, "x.yaml").job
    return Uncertain(at, calibration, job, "x.yaml")


def test_bands_are_wider_where_costs_are_carried() -> None:
    """By the range of both speeds, which move CPU times, and by waits and what is left."""
    home = next(name for name, vm in load_catalog().vms.items() if vm.series_name == "azure/Dasv6")
    at_home, abroad = uncertain(home), uncertain(SLOW)
    added = {one.key for one in abroad.unknowns()} - {one.key for one in at_home.unknowns()}
    speeds = {("speed of a vCPU", "server"), ("speed of a vCPU", "client")}
    assert added >= {*speeds, ("carried over", "times between processes")}
    assert at_home.residuals == calibration_for("postgresql").residuals
    small = abroad.calibration.model_copy(update={"residuals": {}}) if abroad.calibration else None
    assert replace(abroad, calibration=small).residuals["p99_ms"].within > 1.5
    moved = abroad.moved({("speed of a vCPU", "server"): -0.5})["postgresql"]["parameters"]
    usual = abroad.job["postgresql"]["parameters"]
    assert moved["statement_cpu_ns"] == pytest.approx(usual["statement_cpu_ns"] * 1.6487, rel=1e-3)
    assert moved["client_cpu_ns"] == usual["client_cpu_ns"]


def test_newer_versions_have_a_client_and_a_ring_of_their_own() -> None:
    """The Java driver of today, and token ranges that are allocated evenly."""
    text = """\
title: x
cluster: {nodes: 6, vm: azure/Standard_D8as_v6, volumes: {data: {disks: azure/P30}}}
client: {nodes: 1, vm: azure/Standard_D8as_v6}
database: {engine: cassandra%s}
dataset: {rows: 60M, row: 5 x 818B}
workload: {operations: {read: 50%%, write: 50%%}, load: {threads: 64}, stop: {duration: 60s}}
"""
    jobs = {}
    for version in ("", ', version: "5.0"'):
        (one,) = spec.parse(text % version, "x.yaml").trials("predict")
        jobs[version] = prepare(one, load_catalog(), calibration_for("cassandra"), "x.yaml").job[
            "database"
        ]
    older, newer = jobs.values()
    assert len(older["cluster"]["ownership_ppm"]) == 6
    assert "tokens_per_node" not in older["cluster"]
    assert "ownership_ppm" not in newer["cluster"]
    assert newer["cluster"]["tokens_per_node"] > 2_000
    known = calibration_for("cassandra").newest().values()
    assert newer["parameters"]["client_read_cpu_ns"] == known["client_read_cpu_ns"] < 100_000
