"""`disklab catalog` as people, programs and shells use it. Runs without root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import in_process
from tests.programs import ended


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


SNAPSHOT = Path(__file__).with_name("disks.txt")

SHOWN = (
    "azure/PremiumV2(250GiB, 10000 IOPS, 250 MB/s)",
    "4 x azure/P30",
    "azure/PremiumSSD(200GiB)",
    "2 x azure/P40(performance-plus)",
    "azure/Ultra(1024GiB, 5000 IOPS, 200 MB/s)",
    "2 x aws/gp3(100GiB)",
)
REFUSED = (
    "azure/PremiumV2(10GiB, 80000 IOPS, 250 MB/s)",
    "azure/PremiumV2(100GiB, 4000 IOPS, 1200 MB/s)",
    "azure/PremiumV2(0GiB, 1 IOPS)",
    "azure/Ultra(64GiB, 5000 IOPS, 200 MiB)",
    "4 x azure/P31",
    "999 x azure/P30",
    "azure/P30(20000 IOPS)",
    "2 x nvme",
    "azure/P30(",
)


def test_what_disks_give_and_cost() -> None:
    told = [f"$ disklab catalog '{disks}'\n{_trimmed(run(disks).stdout)}" for disks in SHOWN]
    for disks in REFUSED:
        ran = run(disks, code=2)
        assert not ran.stdout
        told.append(f"$ disklab catalog '{disks}'\n{_trimmed(ran.stderr)}")
    text = "\n".join(told)
    if os.environ.get("DISKLAB_UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()


def _trimmed(text: str) -> str:
    """Return what is shown, without the padding of tables and without the list of sources."""
    shown = text.partition("\nSources\n")[0]
    return "".join(f"{line.rstrip()}\n" for line in shown.splitlines())


def test_disks_as_json() -> None:
    found = parsed("4 x azure/P30")
    assert (found["count"], found["disk"]) == (4, "azure/P30")
    assert (found["size_bytes"], found["iops"], found["bytes_per_s"]) == (4 << 40, 20000, 800e6)
    assert found["price_usd_per_month"] == 540.68
    assert found["price"]["region"] == "East US"
    assert set(found["price"]["source"]) <= found["sources"].keys()


def test_an_impossible_disk_as_json() -> None:
    ran = run("azure/PremiumV2(10GiB, 80000 IOPS)", "--json", code=2)
    [problem] = json.loads(ran.stdout)["error"]["problems"]
    assert problem["value"] == "80000 IOPS on 10 GiB"
    assert "min(80000, max(3000, 500 x GiB)) (source disks_types, 2026-08-11" in problem["rule"]
    assert problem["way_out"] == "ask for at most 5000 IOPS, or for at least 160 GiB"


DISKLAB = Path(sys.executable).with_name("disklab")


def completed(words: str) -> list[str]:
    count = len(words.split()) - (not words.endswith(" "))
    asked = {"_DISKLAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    ran = ended([str(DISKLAB)], env={**os.environ, **asked})
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("disklab disk attach azure/P3", ["azure/P3", "azure/P30"]),
        ("disklab disk attach azure/P30 --vm azure/Standard_DS14", ["azure/Standard_DS14_v2"]),
        ("disklab catalog azure/Standard_DS14", ["azure/Standard_DS14_v2"]),
        ("disklab disk fail data st", ["stall"]),
    ],
)
def test_names_are_completed(words: str, expected: list[str]) -> None:
    assert completed(words) == expected


def test_a_broken_file_does_not_break_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("families: [")
    monkeypatch.setenv("DISKLAB_CATALOG", str(broken))
    assert completed("disklab disk attach azure/P3") == []
