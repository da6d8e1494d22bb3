"""A device experiment measured here and over SSH: from two files to a run that a report reads."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from disklab.database_facts import facts_of
from disklab.measurement.journal import Journal
from disklab.measurement.machines_of import ENGINES

from tests.machines.ssh_server import SshServer
from tests.programs import wait_until

from .bench import EXPERIMENT, MEASURE, Bench

TWO_DISKS = (
    EXPERIMENT
    + "  disk: {P30: {device.volume.disks: azure/P30}, P40: {device.volume.disks: azure/P40}}\n"
)


def test_a_plan_changes_nothing_and_a_run_needs_a_yes(bench: Bench) -> None:
    out = bench.plan()
    assert f"make    a file of 1024 MiB in {bench.data}; removed at the end" in out
    assert "read the plan, then give --yes" in bench.refused()
    assert bench.runs() == []
    bench.nothing_is_left()


def test_from_two_files_to_a_report(bench: Bench) -> None:
    code, out, err = bench.run(*MEASURE, "--yes", "--quick", "--json")
    assert code == 0, err
    bench.nothing_is_left()
    told = [json.loads(line) for line in out.splitlines()]
    assert {one["factors"]["workload.fio.rw"] for one in told} == {"randread", "randwrite"}
    (run,) = bench.runs()
    assert run.info.mode == "measure"
    host = run.info.environment["hosts"]["here"]
    assert host["kernel"] == os.uname().release
    for result in run.results():
        assert (result.mode, result.status) == ("measure", "ok")
        assert result.ops_per_s
        extra = result.model_extra or {}
        assert extra["host"] == "here/data"
        assert extra["clock"] == {"ahead_ms": 0, "error_ms": 0}
        assert set(extra["canary_iops"]) == {"before", "after"}
    events = (run.folder / "events.jsonl").read_text(encoding="utf-8")
    assert '"RunStarted"' in events or "run" in events
    code, out, err = bench.told("report", str(run.folder))
    assert code == 0, err
    assert "How fast is this disk?" in out


def test_what_the_site_cannot_change_is_refused_or_comes_from_a_group(bench: Bench) -> None:
    bench.write("e.yaml", TWO_DISKS)
    assert "e.yaml:3: device.volume.disks: azure/P30: here/data is one disk" in bench.refused(
        "--plan"
    )
    second = bench.folder / "second"
    second.mkdir()
    bench.write(
        "h.yaml",
        f"hosts: {{here: {{local: true, volumes: {{data: {bench.data}, big: {second}}}}}}}\n"
        "groups: {disk: {P30: [here/data], P40: [here/big], P50: [here]}}\n",
    )
    code, out, err = bench.told(*MEASURE, "--plan", "--repeat", "2")
    assert code == 0, err
    assert "8 measurements" in out
    assert str(second) in out


def test_a_missing_directory_is_told_before_anything_is_made(bench: Bench) -> None:
    bench.data.rmdir()
    err = bench.refused("--yes")
    assert "h.yaml:1: hosts.here.volumes.data" in err
    assert "No such file or directory" in err
    assert bench.runs() == []


@pytest.mark.parametrize(
    "end", ["Ctrl-C", pytest.param("kill and resume", marks=pytest.mark.long), "kill and clean"]
)
def test_what_ends_in_the_middle_leaves_nothing_and_goes_on(bench: Bench, end: str) -> None:
    sign = signal.SIGINT if end == "Ctrl-C" else signal.SIGKILL
    with bench.start(*MEASURE, "--yes", "--quick") as process:
        wait_until(lambda: any(run.finished() for run in bench.runs()), process)
        process.send_signal(sign)
        process.communicate(timeout=60)
    (run,) = bench.runs()
    if sign == signal.SIGKILL:
        assert len(list(bench.data.iterdir())) == 1
        assert Journal.of(run.folder).left()
        if end == "kill and clean":
            _, out, _ = bench.told("clean", "--dry-run")
            assert f"would undo the file {bench.data}" in out
            _, out, _ = bench.told("clean")
            assert f"undid the file {bench.data}" in out
            bench.nothing_is_left()
    else:
        assert process.returncode == 130
        bench.nothing_is_left()
    run = bench.measured("measure", "--resume", str(run.folder), "--yes")
    assert len(run.finished()) == 2
    assert run.info.ended is not None


def hosts(bench: Bench, ssh_server: SshServer) -> str:
    return (
        f"ssh_config: {ssh_server.config}\n"
        f"hosts: {{n1: {{address: box, volumes: {{data: {bench.data}}}}}}}\n"
    )


def test_a_host_over_ssh_is_measured_and_left_as_it_was(
    bench: Bench, ssh_server: SshServer
) -> None:
    bench.write("h.yaml", hosts(bench, ssh_server))
    run = bench.measured()
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


PAGE = Path(__file__).parents[2] / "docs" / "measure.md"


def test_every_database_says_what_its_hosts_need() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for engine in ENGINES:
        title = facts_of(engine).title
        assert f"| {title} |" in text, title
        assert f"- **{title}** is" in text, title
