"""A MariaDB and a Redis that disklab builds on a host: over SSH, filled, loaded, nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.databases.registry import record_of
from disklab.hosts.addresses import free_addresses

from tests.databases.servers import need
from tests.machines.ssh_server import SshServer

from .bench import Bench, rows_in

MEASURE = ("measure", "e.yaml", "--hosts", "h.yaml")
SERVERS: dict[str, tuple[str, str]] = {
    "mariadb": ("ready for connections", "Shutdown complete"),
    "redis": ("Ready to accept connections", "Redis is now ready to exit"),
}
"""What they log when they have begun and ended."""


@pytest.mark.parametrize("engine", ["mariadb", pytest.param("redis", marks=pytest.mark.long)])
def test_it_is_built_filled_loaded_and_removed(
    bench: Bench, ssh_server: SshServer, volume: Path, engine: str
) -> None:
    need(engine)
    (address,) = free_addresses(1, record_of(engine).ports)
    host = f"{{address: box, private_address: {address}, volumes: {{data: {volume}}}}}"
    bench.write("e.yaml", rows_in(f"{{engine: {engine}}}", "{read: 50%, write: 50%}"))
    bench.write("h.yaml", f"ssh_config: {ssh_server.config}\nhosts: {{n1: {host}}}\n")
    code, _, err = bench.run(*MEASURE, "--yes", "--quick")
    assert code == 0, err
    bench.nothing_is_left()
    (run,) = bench.runs()
    (result,) = run.results()
    assert result.status in ("ok", "invalid"), result
    assert result.errors == {}
    assert result.ops_per_s
    # What no emulator counted is seen by the host's own counters, or absent; never 0.
    assert result.disk_iops is None or result.disk_iops > 0
    assert not {"disk_read_ios", "disk_write_bytes"} & set(result.model_extra or {})
    assert any("the load came from the machine" in text for text in result.warnings)
    log = (run.folder / "logs" / "n1-output.log").read_text(encoding="utf-8")
    assert [line for line in SERVERS[engine] if line not in log] == []
