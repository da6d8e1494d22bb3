"""`disklab catalog` with disks in place of a name, word for word: `disks.txt` beside this file.

`DISKLAB_UPDATE_SNAPSHOTS=1` writes the file anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from .test_command import parsed, run

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
