"""The same over SSH: a real sshd, the user's own OpenSSH, and an agent that is pushed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.ssh_server import SshServer, start_server

from .bench import Bench

MEASURE = ("measure", "e.yaml", "--hosts", "h.yaml")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    folder = tmp_path / "ssh"
    folder.mkdir()
    started = start_server(folder)
    try:
        yield started
    finally:
        started.stop()


def hosts(bench: Bench, server: SshServer) -> str:
    return (
        f"ssh_config: {server.config}\n"
        f"hosts: {{n1: {{address: box, volumes: {{data: {bench.data}}}}}}}\n"
    )


def test_a_host_over_ssh_is_measured_and_left_as_it_was(bench: Bench, server: SshServer) -> None:
    bench.write("h.yaml", hosts(bench, server))
    code, _, err = bench.run(*MEASURE, "--yes", "--quick")
    assert code == 0, err
    bench.nothing_is_left()
    (run,) = bench.runs()
    results = run.results()
    assert [one.status for one in results] == ["ok", "ok"]
    for one in results:
        extra = one.model_extra or {}
        assert extra["host"] == "n1/data"
        # One machine, so its clock is ours.
        assert abs(extra["clock"]["ahead_ms"]) <= 1 + extra["clock"]["error_ms"]
    assert server.connections() == []


def test_an_unknown_host_key_is_refused_and_nothing_is_made(
    bench: Bench, server: SshServer
) -> None:
    bench.write("h.yaml", hosts(bench, server))
    (server.folder / "known").write_text("", encoding="utf-8")
    code, _, err = bench.run(*MEASURE, "--yes", "--quick")
    assert code == 1
    assert "host key" in err.lower()
    assert bench.runs() == []
