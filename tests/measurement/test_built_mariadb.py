"""A MariaDB that disklab builds on a host: over SSH, filled, loaded, and nothing of it left."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.databases.mariadb.configuration import PORTS
from disklab.hosts.addresses import free_addresses

from tests.databases.mariadb import need_mariadb
from tests.machines.ssh_server import SshServer

from .bench import Bench, rows_in

EXPERIMENT = rows_in("{engine: mariadb}", "{read: 50%, write: 50%}")
MEASURE = ("measure", "e.yaml", "--hosts", "h.yaml")


@pytest.fixture
def volume() -> Iterator[Path]:
    """A directory that the server's user may pass through; pytest's own are closed to others."""
    need_mariadb()
    folder = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    folder.chmod(0o755)
    try:
        yield folder
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder)


def test_it_is_built_filled_loaded_and_removed(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    (address,) = free_addresses(1, PORTS)
    host = f"{{address: box, private_address: {address}, volumes: {{data: {volume}}}}}"
    bench.write("e.yaml", EXPERIMENT)
    bench.write("h.yaml", f"ssh_config: {ssh_server.config}\nhosts: {{n1: {host}}}\n")
    code, _, err = bench.run(*MEASURE, "--yes", "--quick")
    assert code == 0, err
    bench.nothing_is_left()
    (run,) = bench.runs()
    (result,) = run.results()
    assert result.status in ("ok", "invalid"), result
    assert result.errors == {}
    assert result.ops_per_s
    assert any("the load came from the machine" in text for text in result.warnings)
    log = (run.folder / "logs" / "n1-output.log").read_text(encoding="utf-8")
    assert "ready for connections" in log
    assert "Shutdown complete" in log
