"""sysbench: what it is asked for, what its words become, and that it really runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab import spec
from disklab.engine import server_account
from disklab.engine.load import LoadDone, LoadProgress, Stop
from disklab.errors import MachineError, UserError
from disklab.hosts import requirements
from disklab.procedures.turn import workload_of
from disklab.results import decode
from disklab.workloads.program import Process
from disklab.workloads.protocol import Asked, Begin, Workload
from disklab.workloads.sysbench import driver
from disklab.workloads.sysbench.driver import Told

TARGET = {
    "protocol": "postgresql",
    "contact_points": ["127.0.0.9:5432"],
    "database": "disklab",
    "user": "disklab",
    "tls": True,
}
FILE = """
title: t
cluster: {{nodes: 1, vm: azure/Standard_D8s_v5, volumes: {{data: {{disks: azure/P15}}}}}}
database: {{engine: postgresql}}
workload:
  sysbench: {{script: {script}, tables: 4, rows_per_table: 100k, threads: 6{more}}}
  stop: {{duration: 30s}}
  {load}
"""
# What sysbench 1.0.20 of Debian 12 said, shortened to three buckets.
SAID = """\
sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

[ 1s ] thds: 4 tps: 887.44 qps: 10680.25 (r/w/o: 0.00/8901.37/1778.88) lat (ms,99%): 11.87 \
err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 4 tps: 1038.16 qps: 12470.98 (r/w/o: 0.00/10394.65/2076.33) lat (ms,99%): 12.98 \
err/s: 2.00 reconn/s: 0.00
[ 2s ] queue length: 0, concurrency: 0
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.230 |                                         1
       1.579 |**************************************** 241
      17.633 |*                                        8

SQL statistics:
    transactions:                        1925   (977.88 per sec.)
    ignored errors:                      2      (1.00 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          2.0073s
    total number of events:              1925

Latency (ms):
         min:                                    0.65
         avg:                                    4.07
         max:                                   40.06
         99th percentile:                       12.75
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program that is found as sysbench; a test writes what it does."""
    # pytest's own folders are closed to the user that load clients run as.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sysbench"
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        if account := server_account():
            os.chown(folder, account.uid, account.gid)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        yield path


def workload(script: str = "oltp_read", more: str = "", load: str = "") -> Workload:
    text = FILE.format(script=script, more=more, load=load)
    return workload_of(spec.parse(text).trials("rehearse")[0].here, 1)


def ran(begin: Begin) -> list[object]:
    with begin() as load:
        return list(load)


def test_its_words_become_progress_and_a_result() -> None:
    told = Told()
    assert not told.is_whole()
    seconds = [line for one in SAID.splitlines() if (line := told.take(one)) is not None]
    assert told.is_whole()
    # Its latencies come last, and may be missing.
    assert Told(totals={"events": 1.0, "elapsed_s": 1.0}).is_whole()
    assert [(one.t_s, one.operations, one.errors) for one in seconds] == [(1, 887, 0), (2, 1926, 2)]
    assert seconds[0].p99_ms == pytest.approx(11.87)
    done = told.done(cpu_ns=1, started_unix_ns=2, open_loop=False)
    one = done.operations["transaction"]
    assert (one.count, one.failed) == (1925, 2)
    assert done.errors == {"retried": 2}, "a transaction begun anew is a failure that is shown"
    assert done.ops_per_s == pytest.approx(1925 / 2.0073)
    latencies = decode(done.response["transaction"])
    assert latencies.total == 250
    assert latencies.percentile(50) / 1e6 == pytest.approx(1.579, rel=0.01)
    assert latencies.max / 1e6 == pytest.approx(17.633, rel=0.01)


def test_the_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "SYSTEM_PATHS", ())
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match="sysbench") as refused:
        workload()
    assert "install it" in refused.value.problems[0].way_out


def test_a_run_that_does_not_end_is_ended(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("disklab.workloads.sysbench.driver.GRACE_SECONDS", 0.0)
    begin = workload().run(TARGET, Asked(Stop(duration_s=1.0), stream=1))
    with pytest.raises(MachineError, match="its transactions hang"):
        ran(begin)


def test_what_it_says_of_a_failure_is_the_error(program: Path) -> None:
    program.write_text(
        "#!/bin/sh\necho 'FATAL: PQexec() failed: 7 server closed the connection'\nexit 1\n"
    )
    begin = workload().run(TARGET, Asked(Stop(duration_s=1.0), stream=1))
    with pytest.raises(MachineError, match="server closed the connection"):
        ran(begin)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("tpcb", r"/proc/self/fd/\d+"),
        ("oltp_read", "oltp_read_only"),
        ("oltp_insert", "oltp_read_only"),
    ],
)
def test_tables_are_made_by_the_script_that_knows_them(
    program: Path, script: str, name: str
) -> None:
    program.write_text('#!/bin/sh\necho "FATAL: $*"\nexit 1\n')
    for begin in workload(script).fill(TARGET):
        with pytest.raises(MachineError, match=f"FATAL: {name} "):
            ran(begin)


def test_a_line_without_an_end_is_read_in_pieces_and_quoted_in_part(program: Path) -> None:
    program.write_text(
        "#!/bin/sh\nprintf 'FATAL: \\377 '\nhead -c 3000000 /dev/zero | tr '\\0' x\nexit 1\n"
    )
    begin = workload().run(TARGET, Asked(Stop(duration_s=1.0), stream=1))
    with pytest.raises(MachineError, match="FATAL: \ufffd xxx") as failed:
        ran(begin)
    assert len(str(failed.value)) < 1000


def test_a_program_that_writes_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disklab.workloads.program.MOST_SAID_BYTES", 8)
    with Process("it", ["printf", "%08d", "0"], dict(os.environ), 60.0) as all_it_may:
        assert "".join(all_it_may.lines()) == "00000000"
    endless = Process("it", ["yes"], dict(os.environ), 60.0)
    with endless, pytest.raises(MachineError, match="it wrote more than 0 MiB"):
        list(endless.lines())


@pytest.mark.parametrize(
    ("script", "load", "expected"),
    [
        ("oltp_read", "", {"oltp_read_only", "--range-selects=off", "--point-selects=10"}),
        ("oltp_read_write", "", {"oltp_read_write"}),
        ("oltp_point_select", "load: {rate: 500/s}", {"oltp_point_select", "--rate=500"}),
    ],
)
def test_a_run_is_asked_for_as_the_file_says(
    program: Path, script: str, load: str, expected: set[str]
) -> None:
    seen, said = program.with_name("seen"), program.with_name("said")
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" "PGSSLMODE=$PGSSLMODE" > {seen}\ncat {said}\n'
    )
    said.write_text(SAID)
    begin = workload(script, ", secondary_index: false", load).run(
        TARGET, Asked(Stop(duration_s=3.6), stream=7, threads=9)
    )
    *seconds, done = ran(begin)
    assert all(isinstance(one, LoadProgress) for one in seconds)
    assert isinstance(done, LoadDone)
    # With a rate its latencies hold the time in its queue, and it tells no others.
    assert bool(done.service) == (not load)
    asked = set(seen.read_text().splitlines())
    assert (
        expected
        | {
            *("--pgsql-host=127.0.0.9", "--pgsql-port=5432", "PGSSLMODE=require"),
            *("--tables=4", "--table-size=100000", "--create-secondary=off", "--rand-type=uniform"),
            *("--threads=9", "--time=4", "--histogram=on", "--report-interval=1", "--rand-seed=8"),
        }
        <= asked
    )


def test_our_own_script_is_there_and_inserts_ten_rows() -> None:
    (path,) = driver.SCRIPTS["oltp_insert"]
    text = Path(path).read_text(encoding="utf-8")
    assert f"STATEMENTS = {driver.STATEMENTS}" in text


@pytest.mark.usefixtures("program")
def test_inserts_wear_the_tables_and_reads_do_not() -> None:
    told = Told()
    for line in SAID.splitlines():
        told.take(line)
    done = told.done(cpu_ns=1, started_unix_ns=2, open_loop=False)
    assert workload("oltp_insert").wear(done) == pytest.approx(1925 * 10 / 400_000)
    assert workload("oltp_read").wear(done) == 0


def test_rows_are_preferred_as_the_file_says(program: Path) -> None:
    seen, said = program.with_name("seen"), program.with_name("said")
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\ncat {said}\n')
    said.write_text(SAID)
    preferring = workload("oltp_read_only", ", rand_type: special")
    ran(preferring.run(TARGET, Asked(Stop(duration_s=3.6), stream=7, threads=9)))
    assert "--rand-type=special" in seen.read_text().splitlines()


def test_a_transaction_has_the_statements_that_the_file_says(program: Path) -> None:
    seen, said = program.with_name("seen"), program.with_name("said")
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\ncat {said}\n')
    said.write_text(SAID)
    asked = Asked(Stop(duration_s=3.6), stream=7, threads=9)
    counted = workload("oltp_read_write", ", statements: {index_updates: 5, delete_inserts: 0}")
    ran(counted.run(TARGET, asked))
    options = seen.read_text().splitlines()
    assert {"--index-updates=5", "--delete-inserts=0", "--point-selects=10"} <= set(options)
    ran(workload("oltp_read_write", "").run(TARGET, asked))
    assert not any(option.startswith("--index-updates") for option in seen.read_text().split())
