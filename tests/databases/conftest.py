"""A real Cassandra on an emulated disk, started once for all tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from disklab.databases import Database, NodePlace, Request, Sizes, provision
from disklab.databases.cassandra.configuration import CQL_PORT, JOLOKIA_PORT, STORAGE_PORT
from disklab.hosts.addresses import free_addresses
from disklab.hosts.control_group import ControlGroup, GroupRoot
from disklab.hosts.left_databases import make_run_dir
from disklab.hosts.places import Places

from tests.hosts.conftest import Lab, new_lab

GIB = 1 << 30
PORTS = (CQL_PORT, STORAGE_PORT, JOLOKIA_PORT)


@dataclass(frozen=True)
class OnDisk:
    """A database on the emulated disks of a lab."""

    lab: Lab
    place: NodePlace
    request: Request
    database: Database


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that the user of servers and clients may look into; pytest's own is closed."""
    with tempfile.TemporaryDirectory(prefix="disklab-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="package")
def disk_lab() -> Iterator[Lab]:
    with new_lab() as lab:
        yield lab


def node_on(lab: Lab, host: str, size: str, *options: str, group: bool = True) -> NodePlace:
    """Attach one volume for data and commit log, and return the place of a node on it."""
    mounted = lab.root / f"{host}-data"
    lab.attach(
        *("azure/P30", "--host", host, "--name", "data", "--size", size),
        *("--mount", str(mounted), *options),
    )
    run_dir = Places(lab.run_dir, lab.data_dir).database(host)
    make_run_dir(run_dir)
    root = GroupRoot.of_machine()
    assert root is not None, "these tests need a memory controller"
    return NodePlace(
        name=host,
        address=free_addresses(1, PORTS)[0],
        volumes={"data": mounted},
        run_dir=run_dir,
        log_dir=lab.root / "logs",
        group=ControlGroup.make(f"{lab.root.name}-{host}", GIB, root) if group else None,
    )


def request(scale: Fraction = Fraction(1, 100)) -> Request:
    """Return a Cassandra with the memory of a Standard_DS14_v2."""
    return Request("cassandra", Sizes(112 * GIB, scale), table={"compression": "none"})


@pytest.fixture(scope="package")
def cassandra(disk_lab: Lab) -> Iterator[OnDisk]:
    """A running node with an empty table, in a memory group, on an emulated azure/P30 of 2 GiB."""
    place = node_on(disk_lab, "cassandra", "2GiB")
    asked = request()
    database = provision(asked, [place])
    database.start()
    try:
        yield OnDisk(disk_lab, place, asked, database)
    finally:
        database.stop()
        assert place.group.remove()
