"""What programs find in their environment: little, wherever they run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from disklab.databases.etcd.cluster import LOG
from disklab.databases.protocol import NodePlace
from disklab.databases.this_machine import DatabaseProcess
from disklab.hosts.control_group import MARK
from disklab.machines.child import KEPT, minimal
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command
from disklab.workloads.sysbench.driver import environment

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "of the cloud",
    "AZURE_CLIENT_SECRET": "of the other",
    "SSH_AUTH_SOCK": "/run/agent",
    "HTTPS_PROXY": "http://user:password@proxy",
    "JAVA_TOOL_OPTIONS": "-Dx=y",
    "PGOPTIONS": "-c archive_mode=on",
    "LD_LIBRARY_PATH": "/nonexistent",
    "CASSANDRA_HOME": "/nonexistent",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TZ", "Europe/Berlin")


def allowed(name: str) -> bool:
    return name in KEPT or name.startswith("DISKLAB_")


def test_the_few_are_kept_and_a_programs_own_come_beside_them() -> None:
    found = minimal({"PGPASSWORD": "x"})
    assert found.pop("PGPASSWORD") == "x"
    assert found["TZ"] == "Europe/Berlin"
    assert found["PATH"] == os.environ["PATH"]
    assert all(allowed(name) for name in found)


def test_a_program_of_this_machine_has_no_secret_of_its_user() -> None:
    ran = LocalMachine().run(Command(["env", "-0"], variables={"OWN": "1"}), 20.0)
    names = {line.partition(b"=")[0].decode() for line in ran.stdout.split(b"\0") if line}
    assert {"PATH", "OWN"} <= names
    # The shell that looks for the program's parent sets these itself.
    assert all(allowed(name) for name in names - {"OWN", "PWD", "OLDPWD", "SHLVL", "_"})


def test_a_server_has_no_secret_of_its_user(tmp_path: Path) -> None:
    place = NodePlace("n1", "127.0.0.1", {}, tmp_path, tmp_path)
    process = DatabaseProcess("a server", place, (), LOG)
    script = "import os, sys; sys.stdout.write('\\n'.join(os.environ)); sys.stdout.flush()"
    process.launch([sys.executable, "-I", "-S", "-c", script], variables={"PASSWORD": "x"})
    process.finish(60.0)
    names = set((tmp_path / "n1-output.log").read_text().split())
    assert {MARK, "PASSWORD", "PATH", "LC_ALL"} <= names
    assert all(allowed(name) for name in names - {MARK, "PASSWORD"})


def test_sysbench_has_its_password_and_no_secret_of_its_user() -> None:
    found = environment({"password": "x", "tls": True})
    assert (found["PGPASSWORD"], found["PGSSLMODE"]) == ("x", "require")
    assert not set(SECRETS) & found.keys()
