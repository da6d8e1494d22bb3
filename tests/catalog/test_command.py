"""`disklab catalog` as people and programs use it. Runs without root."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests import in_process


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return in_process.disklab("catalog", *arguments, code=code)


def parsed(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_a_disk_with_sources_dates_and_prices() -> None:
    shown = run("azure/P30").stdout
    for part in ("1024 GiB", "5000", "200 MB/s", "2023-03-16", "135.17 USD a month", "East US"):
        assert part in shown
    facts = {fact["fact"]: fact for fact in parsed("azure/P30")["facts"]}
    assert facts["IOPS"]["value"] == "5000"
    assert facts["write latency"]["status"] == "inferred"
    assert facts["write latency"]["source"] == ["tk_storage_tests", "tk_zrs_2022"]
    assert facts["premium-ssd-2020: write latency"]["date"] == "2020-09-07"


def test_a_vm_size() -> None:
    shown = run("azure/Standard_DS14_v2").stdout
    for part in ("64000 iops, 512 mb_per_s, 576 cache_gib", "1.482 USD a hour", "1024000 B"):
        assert part in shown


def test_a_part_of_a_name_lists() -> None:
    found = parsed("DS14")
    assert [vm["name"] for vm in found["vm_sizes"]] == ["azure/Standard_DS14_v2"]
    everything = parsed()
    assert len(everything["vm_sizes"]) == 980
    assert len(everything["disks"]) == 54
    assert "azure/Standard_D8s_v3" in run("D8s").stdout


def test_an_unknown_word() -> None:
    ran = run("azure/P31", code=2)
    assert ran.stdout == ""
    assert "error: WORD: 'azure/P31': nothing in the catalogue has it; did you mean" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_unknown_word_as_json() -> None:
    ran = run("azure/P31", "--json", code=2)
    error = json.loads(ran.stdout)["error"]
    assert error["problems"][0]["place"] == "WORD"


def test_the_form_of_a_file_can_be_printed() -> None:
    schema = json.loads(run("--schema").stdout)
    assert "families" in schema["properties"]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("familys: {}\n")
    ran = run("--catalog", str(file), code=2)
    assert (
        f"{file}:1: familys: 'familys': there is no such key; did you mean families?" in ran.stderr
    )


def test_the_check_names_what_is_assumed_old_or_unpriced() -> None:
    shown = run("Lasv3", "--check").stdout
    assert "azure/Lasv3" in shown
    assert "temp read latency" in shown
    assert "assumed" in shown
    found = parsed("--check")["doubts"]
    kinds = {(one["of"], one["fact"]): one["kind"] for one in found}
    assert kinds["azure/Lasv3", "nvme flush latency"] == "assumed"
    # The limits of 2024 are stated by their page, and prices of 2026 are young enough until 2027.
    assert ("azure/Lasv3", "uncached") not in kinds
    assert kinds["azure/Dasv5", "cached"] == "inferred"
    assert kinds["gcp/hyperdisk-ml", "price"] == "missing"
    assert len(found) < 1000
