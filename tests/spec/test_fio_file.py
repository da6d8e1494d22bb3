"""fio's job files as experiments."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.spec.fio_file import On, experiment_text

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
