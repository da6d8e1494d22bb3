"""The address that pages of reports and advice link to: a configuration as the page has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from disklab import knob as page
from disklab import spec
from disklab.cli.app import app
from disklab.errors import MachineError
from disklab.report import what_if
from disklab.report.files import write_what_if
from disklab.report.page import what_if_link
from typer.testing import CliRunner

FILE = """
title: t
cluster:
  nodes: 3
  vm: azure/Standard_E16s_v3
  volumes: {data: {disks: DISKS, caching: ReadOnly, read_ahead: 8KiB}}
client: {nodes: 2, vm: azure/Standard_E32s_v3}
database: {engine: cassandra, replication_factor: 3, settings: {concurrent_reads: 128}}
dataset: {rows: 100M, row: 1 x 1000B}
workload: {operations: {read: 80%, write: 20%}, load: {rate: 4000/s}}
before: {page_cache: warm, host_cache: warm, credits: 0%}
"""


def specified(disks: str, text: str = FILE) -> dict[str, Any]:
    cell = spec.parse(text.replace("DISKS", disks), Path("t.yaml")).cells[0]
    return cell.spec.model_dump(mode="json")


def test_it_is_the_name_that_the_command_writes() -> None:
    assert page.HTML == what_if.PAGE


@pytest.mark.parametrize(
    ("disks", "chosen"),
    [
        ("4 x azure/P30", {"disk": "azure/P30", "count": "4", "size": "1024", "iops": "0"}),
        (
            '"azure/PremiumV2(555GiB, 9000 IOPS, 250 MB/s)"',
            {"disk": "azure/PremiumV2", "size": "555", "iops": "9000", "mbps": "250"},
        ),
    ],
)
def test_a_configuration_is_its_knobs(disks: str, chosen: dict[str, str]) -> None:
    text = FILE.replace("caching: ReadOnly, ", "") if "V2" in disks else FILE
    file, _, state = what_if.address([specified(disks, text)], 10).partition("#")
    assert file == what_if.PAGE
    knobs = {key: values[0] for key, values in parse_qs(state, keep_blank_values=True).items()}
    same = {"nodes": "3", "rate": "4000", "slots": "128", "credits": "0", "memory": "warm"}
    for key, value in (chosen | same).items():
        assert knobs[f"a.{key}"] == knobs[f"b.{key}"] == value
    assert knobs["promise"] == "10"


def test_what_the_page_has_no_knob_for_is_said() -> None:
    text = FILE.replace("database: {", "database: {jvm: {collector: zgc}, ")
    (link,) = what_if_link([specified("azure/P30", text)], "report.what-if.html")
    assert 'href="report.what-if.html#a.engine=cassandra' in link
    assert "It has no knob for the collector zgc." in link


def test_without_the_simulator_a_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(page.NAMED, str(tmp_path / "none.wasm"))
    specs = [specified("azure/P30")]
    assert write_what_if(specs, tmp_path / "report.html") is None
    assert list(tmp_path.iterdir()) == []
    (sentence,) = what_if_link(specs, None)
    assert "run `disklab knob` once" in sentence
    assert "href" not in sentence
    ended = CliRunner().invoke(app, ["knob", str(tmp_path / "knob.html")])
    assert isinstance(ended.exception, MachineError)
    assert "wheels of a release have it" in str(ended.exception)


def test_a_system_without_knobs_has_no_link() -> None:
    etcd = FILE.replace("engine: cassandra", "engine: etcd").replace(
        ", settings: {concurrent_reads: 128}", ""
    )
    for specs in ([specified("azure/P30", etcd)], [{"cluster": {"nodes": "<script>"}}], []):
        assert what_if_link(specs, "report.what-if.html") == what_if_link(specs, None) == []


def test_what_the_page_has_no_knob_for_is_told() -> None:
    database = {"jvm": {"collector": "zgc"}, "table": {"compaction": "leveled"}}
    assert what_if.left_out({"database": database}) == ["the collector zgc", "leveled compaction"]
    usual = {"jvm": {"collector": "g1"}, "table": {"compaction": "size-tiered"}}
    assert what_if.left_out({"database": usual}) == what_if.left_out({}) == []
