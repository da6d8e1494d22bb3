"""Kits on emulated disks: what a lost host loses; every kit that comes along, in a folder."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from disklab.kits import kit_named, shipped

from tests.databases.servers import need
from tests.hosts.conftest import DISKLAB, Lab
from tests.programs import ended

EXPERIMENT = """
title: What does a lost host lose?
cluster:
  nodes: 1
  vm: azure/Standard_D4s_v5
  volumes: {data: {disks: azure/P10, caching: None, filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_D4s_v5}
database: {engine: kit, kit: KIT, replication_factor: 1}
workload:
  tool: {load: LOAD, threads: 2}
  load: {rate: 100/s}
  stop: {duration: 8s}
before: {page_cache: as-left}
events: [{at: 3s, lose: n1}, {at: 4s, start: n1}]
factors:
  level:
    lost: {database.settings: {SETTING: NEVER}}
    lost, always: {database.settings: {SETTING: always}}
    killed: {database.settings: {SETTING: NEVER}, events: [{at: 3s, kill: n1}, {at: 4s, start: n1}]}
rehearse: {scale: 1, time_dilation: 1}
"""
KITS = {
    "nats": {"LOAD": "publish", "SETTING": "sync_interval", "NEVER": "2m"},
    "valkey": {"LOAD": "set", "SETTING": "appendfsync", "NEVER": "'no'"},
}


@pytest.mark.machine
@pytest.mark.parametrize("kit", ["nats", pytest.param("valkey", marks=pytest.mark.long)])
def test_a_host_loses_what_no_setting_promised(lab: Lab, tmp_path: Path, kit: str) -> None:
    text = EXPERIMENT.replace("KIT", kit)
    for word, value in KITS[kit].items():
        text = text.replace(word, value)
    file = tmp_path / "lost.yaml"
    file.write_text(text, encoding="utf-8")
    out = tmp_path / "runs"
    said = ended(
        [str(DISKLAB), "rehearse", str(file), "--quick", "--json", "--out", str(out)],
        most_s=400,
        env=lab.environment(),
    )
    assert said.returncode in {0, 1}, said.stderr
    results = {one["factors"]["level"]: one for one in map(json.loads, said.stdout.splitlines())}
    assert len(results) == 3, said.stderr
    lost = {level: one["recovery"]["rows_lost"] for level, one in results.items()}
    for level, one in results.items():
        assert one["recovery"]["rows_checked"] > 100, (level, one)
        assert one["recovery"]["rows_wrong"] == 0, (level, one)
        assert any(KITS[kit]["SETTING"] in warning for warning in one["warnings"]), one["warnings"]
    assert lost["lost"] > 100
    assert lost["lost, always"] == 0
    # What a process has written outlives it, synced or not.
    assert lost["killed"] == 0
    assert lab.processes() == []


@pytest.mark.machine
def test_three_servers_are_tried_in_a_folder(lab: Lab) -> None:
    tried = lab.run("kit", "try", "nats", "--nodes", "3", "--json", "--seconds", "2")
    assert tried.returncode == 0, tried.stderr
    figures = json.loads(tried.stdout)
    assert figures["operations"] > 0
    assert figures["counters"]["messages"] >= figures["operations"]
    assert figures["p99_ms"] >= figures["p50_ms"] > 0
    assert lab.processes() == []


@pytest.mark.machine
def test_one_server_takes_either_load_in_a_folder(lab: Lab) -> None:
    need("redis")
    for load, parts in {"set": {"failed"}, "bench": {"p50_ms", "max_ms"}}.items():
        tried = lab.run("kit", "try", "valkey", "--load", load, "--json", "--seconds", "1")
        assert tried.returncode == 0, tried.stderr
        figures = json.loads(tried.stdout)
        assert figures["load"] == load
        assert figures["operations"] > 0
        assert parts <= figures.keys()
        # Of a command, asked once at least.
        assert figures["counters"]["log_bytes"] > 0
    assert lab.processes() == []


KAFKA = Path(__file__).parents[2] / "experiments" / "kafka-disks-and-copies.yaml"
MOST_MINUTES = 15


@pytest.mark.machine
@pytest.mark.long
@pytest.mark.parametrize("name", shipped())
def test_a_kit_starts_takes_its_load_and_stops(lab: Lab, name: str) -> None:
    tried = ended(
        [str(DISKLAB), "kit", "try", name, "--json", "--seconds", "3"],
        most_s=600,
        env=lab.environment(),
        code=0,
    )
    figures = json.loads(tried.stdout)
    kit = kit_named(name).kit
    assert set(figures["counters"]) == {counter.name for counter in kit.counters}
    # What does not answer is none.
    assert None not in figures["counters"].values()
    if kit.loads:
        assert figures["operations"] > 0
        assert figures["loop"] == kit.loads[figures["load"]].loop
    assert lab.processes() == []


@pytest.mark.machine
@pytest.mark.long
def test_kafka_says_which_disk_it_needs_and_what_is_lost(lab: Lab, tmp_path: Path) -> None:
    begun = time.monotonic()
    ran = ended(
        [str(DISKLAB), "rehearse", str(KAFKA), "--quick", "--json", "--out", str(tmp_path)],
        most_s=3600,
        env=lab.environment(),
    )
    minutes = (time.monotonic() - begun) / 60
    assert ran.returncode in {0, 1}, ran.stderr
    trials = list(map(json.loads, ran.stdout.splitlines()))
    cells = {(one["factors"]["case"], one["factors"]["flushes"]): one for one in trials}
    assert len(cells) == 8, ran.stderr
    for flushes in ("never (default)", "each record"):
        for disk in ("P10", "P30"):
            assert cells[disk, flushes]["ops_per_s"] > 0
        lost = {
            copies: cells[f"VM lost ({copies} local cop{'y' if copies == 1 else 'ies'})", flushes]
            for copies in (1, 3)
        }
        assert lost[3]["recovery"]["rows_lost"] == 0, lost[3]
        # No flush helps where the disk went with the VM.
        assert lost[1]["recovery"]["rows_lost"] > 0, lost[1]
    if all(one["valid"] for one in trials):
        # Beside other work it takes longer, and its figures do not count.
        assert minutes < MOST_MINUTES
