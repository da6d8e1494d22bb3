"""The same over SSH: a real sshd, the user's own OpenSSH, and an agent that is pushed."""

from __future__ import annotations

from tests.machines.ssh_server import SshServer

from .bench import Bench

MEASURE = ("measure", "e.yaml", "--hosts", "h.yaml")


def hosts(bench: Bench, ssh_server: SshServer) -> str:
    return (
        f"ssh_config: {ssh_server.config}\n"
        f"hosts: {{n1: {{address: box, volumes: {{data: {bench.data}}}}}}}\n"
    )


def test_a_host_over_ssh_is_measured_and_left_as_it_was(
    bench: Bench, ssh_server: SshServer
) -> None:
    bench.write("h.yaml", hosts(bench, ssh_server))
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
    assert ssh_server.connections() == []


def test_an_unknown_host_key_is_refused_and_nothing_is_made(
    bench: Bench, ssh_server: SshServer
) -> None:
    bench.write("h.yaml", hosts(bench, ssh_server))
    (ssh_server.folder / "known").write_text("", encoding="utf-8")
    code, _, err = bench.run(*MEASURE, "--yes", "--quick")
    assert code == 1
    assert "host key" in err.lower()
    assert bench.runs() == []
