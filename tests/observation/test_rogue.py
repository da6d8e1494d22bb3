"""`disklab observe` of servers that say what no server says: bounded, in words, and at once."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from disklab import spec
from disklab.spec.draft import flow

from tests.observation import rogue
from tests.observation.rogue import Rogue
from tests.observation.servers import DISKLAB, VARIABLE
from tests.programs import ended

PASSWORD = "correct horse battery"
SERVERS = {"mariadb": rogue.mysql, "postgresql": rogue.postgresql}


def command(engine: str, address: str, out: Path, *options: str) -> list[str]:
    who = ("--user", "watch", "--password-variable", VARIABLE)
    where = ("--address", address, "--out", str(out), "--for", "2s")
    return [str(DISKLAB), "observe", engine, *where, *who, *options]


def looked(engine: str, address: str, out: Path) -> subprocess.CompletedProcess[str]:
    return ended(command(engine, address, out), env={**os.environ, VARIABLE: PASSWORD})


@pytest.mark.parametrize("rate_per_s", [20.0, 67_160.0, 2e6, 9e8])
def test_any_rate_is_written_so_that_it_can_be_read(tmp_path: Path, rate_per_s: float) -> None:
    out = tmp_path / "seen.yaml"
    with rogue.mysql(Rogue(rate_per_s)) as address:
        ran = looked("mariadb", address, out)
    assert ran.returncode == 0, ran.stderr
    assert spec.load(out).cells[0].spec.require.rate_per_s == pytest.approx(rate_per_s, rel=0.05)


STRANGE = {
    "text": Rogue(status={"Handler_write": "abc"}),
    "missing": Rogue(without=("Handler_write",)),
    "nan": Rogue(status={"Handler_write": "nan"}),
    "inf": Rogue(status={"Innodb_buffer_pool_bytes_data": "inf"}),
    "negative": Rogue(status={"Handler_write": "-5"}),
    "superscript": Rogue(status={"wsrep_cluster_size": "²"}),
    "mean of rows": Rogue(mean="NaN"),
    "fewer columns": Rogue(tables=[["shop.users", "1000000"]]),
    "more columns": Rogue(tables=[["shop.users", "1000000", "5", "4", "9"]]),
    "size": Rogue(tables=[["shop.users", "1000000", "1e400", "4"]]),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_what_counts_nothing_is_refused_in_words(tmp_path: Path, strange: str) -> None:
    with rogue.mysql(STRANGE[strange]) as address:
        ran = looked("mariadb", address, tmp_path / "seen.yaml")
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    assert "no answer of MariaDB" in ran.stderr
    assert not (tmp_path / "seen.yaml").exists()


@pytest.mark.parametrize(
    "value", ["300}}\rtitle: INJECTED", "300}}\ntitle: INJECTED", "*x", "&a 5", "'", '"', "# 5"]
)
def test_what_a_setting_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, value: str
) -> None:
    out = tmp_path / "seen.yaml"
    with rogue.mysql(Rogue(variables={"innodb_io_capacity": value})) as address:
        ran = looked("mariadb", address, out)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert "no answer of MariaDB" in ran.stderr
    assert "setting" in ran.stderr
    assert not out.exists()
    # Where a setting is a text, its quotes keep it one.
    assert yaml.safe_load(flow({"name": value})) == {"name": value}


@pytest.mark.parametrize("engine", SERVERS)
def test_a_server_that_says_nothing_is_left_after_seconds(tmp_path: Path, engine: str) -> None:
    begun = time.monotonic()
    with SERVERS[engine](Rogue(mode="hang")) as address:
        ran = looked(engine, address, tmp_path / "seen.yaml")
    assert time.monotonic() - begun < 60
    assert ran.returncode == 1
    # MariaDB's client has a limit of its own, as long as ours: either may be the first.
    assert "within" in ran.stderr or "system error: 110" in ran.stderr


@pytest.mark.parametrize("engine", SERVERS)
def test_ctrl_c_ends_the_wait_for_it_at_once(tmp_path: Path, engine: str) -> None:
    with SERVERS[engine](Rogue(mode="hang")) as address:
        words = command(engine, address, tmp_path / "seen.yaml")
        with subprocess.Popen(
            words,
            env={**os.environ, VARIABLE: PASSWORD},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        ) as running:
            time.sleep(5)
            begun = time.monotonic()
            running.send_signal(signal.SIGINT)
            _, stderr = running.communicate(timeout=30)
    assert running.returncode == 130
    assert time.monotonic() - begun < 5
    assert b"Traceback" not in stderr


@pytest.mark.parametrize(
    ("engine", "mode"), [("mariadb", "flood"), ("postgresql", "flood"), ("postgresql", "copyout")]
)
def test_rows_without_end_are_left(tmp_path: Path, engine: str, mode: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with SERVERS[engine](Rogue(mode=mode)) as address:
        ran = looked(engine, address, tmp_path / "seen.yaml")
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    most_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert most_kib <= max(before, (1 << 20) + (1 << 18))


def test_a_server_that_wants_data_is_left(tmp_path: Path) -> None:
    begun = time.monotonic()
    with rogue.postgresql(Rogue(mode="copy")) as address:
        ran = looked("postgresql", address, tmp_path / "seen.yaml")
    assert ran.returncode == 1
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("engine", SERVERS)
def test_who_asks_for_the_password_in_clear_does_not_get_it(tmp_path: Path, engine: str) -> None:
    asking = Rogue(mode="clear")
    with SERVERS[engine](asking) as address:
        ran = looked(engine, address, tmp_path / "seen.yaml")
    assert ran.returncode == 1
    if engine == "mariadb":
        assert not any(PASSWORD.encode() in heard for heard in asking.heard)


def test_psql_that_cannot_refuse_sends_none_beyond_this_machine(tmp_path: Path) -> None:
    told = subprocess.run(["psql", "--version"], capture_output=True, text=True, check=True).stdout
    if int(told.split()[2].split(".")[0]) >= 16:
        pytest.skip("this psql refuses by itself")
    ran = looked("postgresql", "192.0.2.1:5432", tmp_path / "seen.yaml")
    assert ran.returncode == 1
    assert "would send the password unencrypted" in ran.stderr
