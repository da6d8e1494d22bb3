"""A kit that the command line names: checked, measured over SSH, rehearsed under sudo."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from disklab.hosts.addresses import free_addresses
from disklab.kits import kit_named
from disklab.results import Run

from tests.hosts.conftest import Lab
from tests.machines.ssh_server import SshServer
from tests.measurement.bench import Bench
from tests.measurement.test_built_postgresql import start_and_kill
from tests.privilege.conftest import CALLER
from tests.privilege.test_caller import owners
from tests.privilege.test_divided import NOTHING, as_caller, nothing_left
from tests.programs import ended

from .conftest import MEASURED, own_kit

sudo = pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root")


def test_an_experiment_is_checked_with_the_kit_that_is_named(bench: Bench, own: Path) -> None:
    bench.write("e.yaml", MEASURED)
    code, _, err = bench.told("experiment", "check", "e.yaml")
    assert code == 2, err
    assert "there is no kit of this name" in err
    # In a process of its own: a kit that is named stays for the life of one.
    code, out, err = bench.run("experiment", "check", "e.yaml", "--kit", str(own))
    assert code == 0, err
    assert "1 trial" in out


def written(bench: Bench, ssh_server: SshServer, volume: Path) -> None:
    """Write the experiment, and the host that it is measured on."""
    (address,) = free_addresses(1, tuple(kit_named("nats").kit.ports.values()))
    host = f"{{address: box, private_address: {address}, volumes: {{data: {volume}}}}}"
    bench.write("e.yaml", MEASURED)
    bench.write("h.yaml", f"ssh_config: {ssh_server.config}\nhosts: {{n1: {host}}}\n")


@pytest.mark.machine
def test_it_is_measured_on_a_host_over_ssh(
    bench: Bench, ssh_server: SshServer, volume: Path, own: Path
) -> None:
    written(bench, ssh_server, volume)
    words = ("measure", "e.yaml", "--hosts", "h.yaml", "--yes", "--quick", "--repeat", "1")
    code, _, err = bench.run(*words, "--kit", str(own))
    # Beside other tests no figure may count.
    assert code in (0, 1), err
    run = bench.whole_run()
    (result,) = run.results()
    assert result.errors == {}
    assert result.ops_per_s
    assert any("was built on" in text for text in result.warnings), result.warnings
    assert any("sync_interval 2m" in text for text in result.warnings), result.warnings
    log = (run.folder / "logs" / "n1-output.log").read_text(encoding="utf-8")
    assert "Server is ready" in log


@pytest.mark.machine
@pytest.mark.long
def test_a_killed_measurement_goes_on_with_its_full_data(
    bench: Bench, ssh_server: SshServer, volume: Path, own: Path
) -> None:
    written(bench, ssh_server, volume)
    start_and_kill(bench, volume, "--kit", str(own))
    (first,) = bench.runs()
    log = first.folder / "logs" / "n1-output.log"
    begun = log.stat().st_size if log.exists() else 0
    code, _, err = bench.run("measure", "--resume", first.folder.name, "--yes", "--kit", str(own))
    assert code in (0, 1), err
    (result,) = bench.whole_run().results()
    assert result.ops_per_s
    assert [phase for phase in result.phases if phase.name == "fill"] == []
    # The second server found what the first was filled with.
    second = log.read_bytes()[begun:].decode()
    found = re.search(r"Restored ([\d,]+) messages for stream", second)
    assert found is not None, second
    assert int(found[1].replace(",", "")) >= 200


@pytest.mark.machine
@sudo
def test_it_is_rehearsed_under_sudo_and_the_results_are_the_callers(lab: Lab, mine: Path) -> None:
    kit, file = own_kit(mine / "own"), mine / "experiment.yaml"
    file.write_text(MEASURED, encoding="utf-8")
    # Closed to everybody else.
    for own in (file, kit, *kit.parent.iterdir(), kit.parent):
        own.chmod(0o700 if own.is_dir() else 0o600)
        os.chown(own, CALLER, CALLER)
    words = ("rehearse", str(file), "--kit", str(kit), "--quick", "--out", str(mine / "runs"))
    with as_caller(lab, mine, *words) as started:
        said, _ = started.communicate(timeout=400)
    assert started.returncode in (0, 1), said
    assert nothing_left(lab) == NOTHING
    assert set(owners(mine).values()) == {CALLER}
    (run,) = (Run.open(path.parent) for path in (mine / "runs").glob("*/run.json"))
    (result,) = run.results()
    assert result.ops_per_s, result


@sudo
def test_under_sudo_a_kit_is_read_with_the_callers_rights(lab: Lab, mine: Path) -> None:
    secret = mine / "secret.yaml"
    secret.write_text("a: root's secret\n", encoding="utf-8")
    secret.chmod(0o600)
    file = mine / "experiment.yaml"
    file.write_text(MEASURED, encoding="utf-8")
    kit = own_kit(mine / "own")
    (kit.parent / "load.py").unlink()
    (kit.parent / "load.py").symlink_to(secret)
    for given in (secret, kit):
        with as_caller(lab, mine, "rehearse", str(file), "--kit", str(given)) as started:
            said, _ = started.communicate(timeout=60)
        assert started.returncode == 2, said
        assert "Permission denied" in said
        assert "root's secret" not in said


@pytest.mark.machine
def test_steps_of_a_node_run_in_its_own_network(lab: Lab, mine: Path) -> None:
    kit, file = own_kit(mine / "own"), mine / "experiment.yaml"
    text = kit.read_text(encoding="utf-8")
    # The addresses of whoever runs it: of the node, and not of the client.
    looks = '{run: [grep, -q, -F, "{node.address}", /proc/net/fib_trie], nodes: each}'
    assert "  empty:\n" in text
    kit.write_text(text.replace("  empty:\n", f"  settle: [{looks}]\n  empty:\n"))
    network = "cluster: {network: azure/standard, "
    file.write_text(MEASURED.replace("cluster: {", network), encoding="utf-8")
    out = str(mine / "runs")
    words = ["rehearse", str(file), "--kit", str(kit), "--quick", "--json", "--out", out]
    ran = ended(
        [str(Path(sys.executable).with_name("disklab")), *words], most_s=400, env=lab.environment()
    )
    assert ran.returncode in (0, 1), ran.stderr
    (line,) = ran.stdout.splitlines()
    assert json.loads(line)["ops_per_s"] > 0
