"""fio's job files as experiments, and fio's files with what no file of fio has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.probe.fio_results import read
from disklab.spec.fio_file import DEFAULTS, READ, SAME, WITHOUT_EFFECT, On, experiment_text
from hypothesis import given
from hypothesis import strategies as st

ETCD = """
[global]
ioengine=sync
direct=0
directory=/var/lib/etcd
[wal]
rw=write
bs=2300
size=22m
fdatasync=1
"""
SEVERAL = """
; kbench and others write such files
[global]
ioengine=libaio
direct=1
size=1g
runtime=30
time_based
iodepth=32
bs=4k
ramp_time=5
[randread]
rw=randread
[beside]
rw=randwrite
buffered=0
rate_iops=200
[seq]
stonewall
rw=read
bs=128k,64k
numjobs=2
iodepth=1
[mix]
stonewall
rw=randrw
rwmixread=75
bssplit=4k/60:64k/
fsync=32
[small]
wait_for_previous
rw=randread
bs=512
"""
POSTGRESQL = """
[global]
time_based=1
ioengine=sync
buffered=1
runtime=120
bs=8kiB
directory=/mnt/p20
[checkpointer]
rw=write
size=4GiB
fsync_on_close=1
sync_file_range=write:32
[wal]
rw=write
size=2GiB
fdatasync=1
[large_read]
rw=read
size=10GiB
"""


def trials(folder: Path, text: str, disks: tuple[str, ...] = ("azure/P30",)) -> list[spec.Trial]:
    file = folder / "job.fio"
    file.write_text(text)
    made = experiment_text(file, On(disks, "azure/Standard_D8s_v3"))
    return spec.parse(made).trials("predict")


def test_etcds_test_is_one_buffered_job_that_syncs_each_write(tmp_path: Path) -> None:
    (trial,) = trials(tmp_path, ETCD)
    fio, stop = trial.spec.workload.fio, trial.spec.workload.stop
    assert (fio.rw, fio.block_bytes, fio.direct, fio.fdatasync) == ("write", 2300, False, 1)
    assert (fio.size_bytes, fio.once, fio.load) == (22 << 20, True, (1, 1))
    assert stop.duration_s == 3600.0


def test_sections_run_together_until_one_has_a_stonewall(tmp_path: Path) -> None:
    disks = ("azure/P30", "azure/E30")
    made = trials(tmp_path, SEVERAL, disks)
    levels = ["randread + beside", "seq", "mix", "small"]
    assert [trial.factors["section"] for trial in made] == levels * len(disks)
    loads = [trial.spec.workload.fio for trial in made[: len(levels)]]
    together, seq, mix, small = (load for load in loads if load is not None)
    assert [(one.name, one.rate_iops) for one in together.beside] == [("beside", 200)]
    assert together.load == (1, 32)
    assert (seq.block_bytes, seq.load, seq.beside) == (128 << 10, (2, 1), ())
    assert (mix.read_percent, mix.block_bytes, mix.fsync) == (75, 64 << 10, 32)
    assert [(size.block_bytes, size.share_ratio) for size in mix.bssplit] == [
        (4096, 0.6),
        (65536, 0.4),
    ]
    assert (small.block_bytes, small.bssplit, small.fsync, small.once) == (512, (), None, False)
    assert {trial.spec.workload.warm_up_s for trial in made} == {5.0}


def test_three_sections_of_postgresql_run_at_the_same_time(tmp_path: Path) -> None:
    (trial,) = trials(tmp_path, POSTGRESQL)
    fio = trial.spec.workload.fio
    sections = (fio, *fio.beside)
    assert [section.name for section in sections] == ["checkpointer", "wal", "large_read"]
    assert [section.direct for section in sections] == [False] * 3
    assert [section.fdatasync for section in sections] == [None, 1, None]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("verify=crc32c", "job.fio:5: verify=crc32c: disklab has no such load"),
        ("rw=trim", "job.fio:5: rw=trim: disklab has no such pattern"),
        ("ioengine=rbd", "job.fio:5: ioengine=rbd: disklab has no such engine"),
        ("size=50%", "job.fio:5: size=50%: is not a size that disklab reads"),
        ("iodepht=8", "did you mean iodepth"),
        ("bs=${BS}", "job.fio:5: bs=${BS}: a variable comes from fio's environment"),
        ("random_distribution=zipf:1.2", "job.fio:5: random_distribution=zipf:1.2: disklab has"),
        ("bssplit=4k/60:8k/60", "job.fio:5: bssplit=4k/60:8k/60: the shares"),
        ("include other.fio", "job.fio:5: include other.fio: files are not included"),
    ],
)
def test_what_cannot_be_done_is_named_by_file_and_line(
    tmp_path: Path, line: str, complaint: str
) -> None:
    with pytest.raises(UserError) as refused:
        trials(tmp_path, f"[job]\nrw=randread\nruntime=10\ntime_based\n{line}\n")
    assert complaint in str(refused.value)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        trials(tmp_path, "[a]\nverify=md5\nrw=trim\n[b]\nrw=read\n")
    told = str(refused.value)
    assert all(part in told for part in ("job.fio:2", "job.fio:3", "job.fio:4: [b]: says neither"))


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio itself judges the files")
@pytest.mark.parametrize("text", [ETCD, SEVERAL, POSTGRESQL])
def test_fio_takes_the_same_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.fio"
    # Its own folders are not there.
    file.write_text("\n".join(line for line in text.splitlines() if "directory" not in line))
    subprocess.run(["fio", "--parse-only", str(file)], check=True, capture_output=True)


@pytest.mark.parametrize(
    "line",
    [
        "=5",
        "=",
        " = 5",
        "numjobs=\u00b2",
        "direct=\u00b2",
        "rate_iops=\u00b2,\u00b3",
        "bssplit=4k/\u00b2:8k/50",
        "size=\u0661g",
        *(
            f"{name}={'9' * 5000}"
            for name in ("numjobs", "size", "runtime", "rate_iops", "iodepth")
        ),
    ],
    ids=lambda line: line[:20],
)
def test_a_line_that_is_no_number_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError) as refused:
        trials(tmp_path, f"[a]\nrw=randread\nsize=1g\n{line}\n")
    assert "job.fio:4" in str(refused.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("directory=/mnt/readcache", "directory=/mnt/nocache"),
        ("filename=/dev/nvme1n1", "filename=/dev/nvme2n1"),
        ("filename=/mnt/a/file", "directory=/mnt/b"),
    ],
)
def test_jobs_of_two_places_are_refused_by_name(tmp_path: Path, first: str, second: str) -> None:
    """MicrosoftDocs' fioreadwrite.ini: its readers and writers are on two volumes."""
    file = tmp_path / "two.fio"
    one = "[{}]\nrw={}\nsize=1g\n{}\n"
    file.write_text(one.format("reader", "randread", first) + one.format("writer", "write", second))
    with pytest.raises(UserError) as refused:
        experiment_text(file, On(("azure/P30",), "azure/Standard_DS14_v2"))
    (problem,) = refused.value.problems
    assert problem.value in second
    assert "is another place than /" in problem.rule
    file.write_text(one.format("reader", "randread", first) + one.format("writer", "write", first))
    experiment_text(file, On(("azure/P30",), "azure/Standard_DS14_v2"))


ON = On(("azure/P30",), "azure/Standard_E16s_v5")
NUMBERS = ("numjobs", "direct", "iodepth", "rate_iops", "rwmixread", "fsync", "size", "runtime")
STRANGE = ("²", "٣", "9" * 400, "9" * 5000, "-1", "1e9", "0x10", "", "NaN", "4²", "9999999p")


def job(*lines: str) -> str:
    return "\n".join(["[job]", "rw=randrw", "bs=4k", "size=1g", *lines])


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", STRANGE)
def test_a_strange_number_is_refused_in_words_or_read(
    tmp_path: Path, name: str, value: str
) -> None:
    lines = words_of(tmp_path, f"{name}={value}").splitlines()
    assert max(map(len, lines)) < 400


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_line_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: str
) -> None:
    assert words_of(tmp_path_factory.mktemp("fio"), f"{name}={value}")


def words_of(tmp_path: Path, line: str) -> str:
    """Return what a job file becomes with a line, or why it is refused."""
    file = tmp_path / "job.fio"
    file.write_bytes(job(line).encode(errors="replace"))
    try:
        return experiment_text(file, ON)
    except UserError as refused:
        return str(refused)


SIDE: dict[str, Any] = {
    "total_ios": 1000,
    "io_bytes": 4096000,
    "runtime": 1000,
    "clat_ns": {
        "N": 1000,
        "min": 10,
        "max": 900,
        "mean": 100.0,
        "stddev": 5.0,
        "percentile": {"50.000000": 100, "99.000000": 800},
        "bins": {"100": 1000},
    },
}
NOTHING = {"total_ios": 0, "io_bytes": 0, "runtime": 0}


def report(*jobs: object) -> str:
    return json.dumps({"fio version": "fio-3.33", "global options": {}, "jobs": [*jobs]})


def ran(**changed: object) -> dict[str, Any]:
    options = {"rw": "randread", "bs": "4k", "direct": "1", "ioengine": "libaio", "size": "1g"}
    whole = {"jobname": "job", "groupid": 0, "job options": options}
    return {**whole, "read": SIDE, "write": NOTHING, "sync": {}, **changed}


def side(**changed: object) -> dict[str, Any]:
    return {**SIDE, **changed}


def clat(**changed: object) -> dict[str, Any]:
    return side(clat_ns={**SIDE["clat_ns"], **changed})


STRANGE_JOBS: list[object] = [
    5,
    None,
    [],
    ran(read=5),
    ran(read=side(total_ios="abc")),
    ran(read=side(total_ios=float("nan"))),
    ran(read=side(total_ios=float("inf"))),
    ran(read=side(total_ios=-5)),
    ran(read=side(runtime=float("nan"))),
    ran(read=side(io_bytes=[])),
    ran(read=side(clat_ns=7)),
    ran(read=clat(percentile={"50.000000": -5, "99.000000": -9})),
    ran(read=clat(percentile={"x": 5})),
    ran(read=clat(percentile=[])),
    ran(read=clat(mean=float("nan"))),
    ran(sync=[1]),
    ran(**{"job options": {"rw": "randread", "numjobs": "²", "size": "9" * 5000}}),
]


@pytest.mark.parametrize("strange", STRANGE_JOBS, ids=range(len(STRANGE_JOBS)))
def test_what_fio_never_writes_is_refused_in_words(tmp_path: Path, strange: object) -> None:
    file = tmp_path / "out.json"
    file.write_text(report(strange))
    with pytest.raises(UserError) as refused:
        read(file, ON)
    assert max(map(len, str(refused.value).splitlines())) < 500


def test_what_fio_writes_is_read(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text(report(ran()))
    (result,) = read(file, ON).results
    assert result.ops_per_s == pytest.approx(1000)


def text_of(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "job.fio"
    file.write_text(job(*lines))
    return experiment_text(file, ON)


@pytest.mark.parametrize(
    "line", ["verify=0", "rate_iops=0", "loops=1", "offset=0k", "zonemode=none"]
)
def test_an_option_at_its_default_is_as_good_as_no_line(tmp_path: Path, line: str) -> None:
    assert text_of(tmp_path, line) == text_of(tmp_path)


def test_a_section_takes_back_what_global_has_set(tmp_path: Path) -> None:
    file = tmp_path / "job.fio"
    file.write_text("[global]\nverify=md5\n" + job("verify=0"))
    assert experiment_text(file, ON) == text_of(tmp_path)


@pytest.mark.parametrize("line", ["verify=md5", "rate=1m", "offset=1g", "thinktime=100"])
def test_an_option_that_changes_the_load_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match="disklab has no such load"):
        text_of(tmp_path, line)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_every_default_that_fio_tells_is_taken(tmp_path: Path) -> None:
    told = asked("all")
    names = {line.partition(":")[0].strip() for line in told.splitlines() if ":" in line}
    refused = []
    for name in sorted(names - READ - WITHOUT_EFFECT - {"write_barrier"}):
        value = re.search(r"default: (.+)", asked(name))
        if value is None or value[1] == "no default" or SAME.get(name, name) in WITHOUT_EFFECT:
            continue
        try:
            text_of(tmp_path, f"{name}={value[1]}")
        except UserError:
            refused.append(f"{name}={value[1]}")
    assert refused == []
    assert names >= {*DEFAULTS} - {"hugepage-size"} - READ


def asked(name: str) -> str:
    return subprocess.run(
        ["fio", f"--cmdhelp={name}"], capture_output=True, text=True, check=True, timeout=20
    ).stdout
