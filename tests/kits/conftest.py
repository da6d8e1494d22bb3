"""Emulated hosts, hosts over SSH and a caller of sudo for the tests of kits; a user's own kit."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

import pytest

from tests.hosts.conftest import lab
from tests.measurement.conftest import bench, volume
from tests.privilege.conftest import mine

__all__ = ["bench", "lab", "mine", "volume"]

MEASURED = """
title: What does a server of one's own do?
cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: azure/P10}}}
database: {engine: kit, kit: own}
workload:
  tool: {load: publish, threads: 2, fill: 200}
  stop: {duration: 3s}
before: {page_cache: as-left}
rehearse: {scale: 1, time_dilation: 1}
"""


def own_kit(folder: Path) -> Path:
    """Write a kit that does not come with disklab, and return its file: NATS by another name."""
    shipped = Path(str(resources.files("disklab") / "kits" / "nats"))
    folder.mkdir()
    for file in shipped.glob("*.*"):
        shutil.copy(file, folder)
    kit = folder / "kit.yaml"
    kit.write_text(kit.read_text(encoding="utf-8").replace("kit: nats\n", "kit: own\n"))
    return kit


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return own_kit(tmp_path / "own")
