"""`disklab predict` and `disklab calibrate` at quick fidelity; blind predictions are kept."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from disklab.errors import UserError
from disklab.prediction.register import digest, read_register, write_register
from disklab.results import Run

from tests.in_process import disklab

ROOT = Path(__file__).parents[2]
THREADS = "experiments/cassandra-disk-caching-threads.yaml"
NONE_128 = ("--only", "cluster.volumes.data.caching=None", "--only", "workload.load.threads=128")


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    # tests/test_command_line.py starts the program itself.
    return disklab(*arguments, code=code)


def predicted(out: Path, *arguments: str, code: int = 0) -> list[Any]:
    ran = run("predict", *arguments, "--no-bands", "--json", "--out", str(out), code=code)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_cell_is_predicted_stored_and_explained(tmp_path: Path) -> None:
    (cell,) = predicted(tmp_path, THREADS, *NONE_128, "--fidelity", "quick")
    assert (cell["mode"], cell["trial"], cell["repeat"], cell["status"]) == ("predict", 1, 0, "ok")
    assert cell["factors"] == {"cluster.volumes.data.caching": "None", "workload.load.threads": 128}
    # Little's law: 128 threads, each with one operation under way.
    assert cell["ops_per_s"] * cell["latency_ms"]["mean"] / 1000 == pytest.approx(128, rel=0.02)
    # Uncached reads of Premium SSD take 2.7 ms each, and a row in 64 KiB of read-ahead one or two.
    assert 3 < cell["latency_ms"]["p50"] < 6
    assert cell["bottleneck"]["resource"] == "latency"
    told = cell["telemetry"]
    assert 0.9 < told["read_ios_per_operation"] < 4
    assert {limit["limit"] for limit in told["limits"]} >= {"client CPU", "data disk IOPS"}
    assert cell["price_usd_per_month"] > 6 * 4 * 135
    (folder,) = tmp_path.iterdir()
    stored = Run.open(folder)
    assert stored.finished() == {(1, 0)}
    assert stored.info.environment["fidelity"] == "quick"
    assert stored.info.command[:2] == ["disklab", "predict"]
    assert stored.course(1, 0).response("read").total == cell["per_operation"]["read"]["operations"]
    assert stored.planned()[0].spec["dataset"]["rows"] == 150_000_000


def test_the_same_seed_gives_the_same_figures_and_another_one_others(tmp_path: Path) -> None:
    arguments = (THREADS, *NONE_128, "--fidelity", "quick")
    first, second = predicted(tmp_path, *arguments, "--repeat", "2", "--seed", "7")
    again = predicted(tmp_path, *arguments, "--repeat", "2", "--seed", "7", "--jobs", "1")
    by_repeat = {cell["repeat"]: cell for cell in again}
    for cell in (first, second):
        same = by_repeat[cell["repeat"]]
        assert same["latency_ms"] == cell["latency_ms"]
        assert same["ops_per_s"] == cell["ops_per_s"]
    assert first["latency_ms"] != second["latency_ms"]
    assert first["ops_per_s"] == pytest.approx(second["ops_per_s"], rel=0.1)


def test_against_the_reference_calibration_rows_are_marked_and_not_counted(tmp_path: Path) -> None:
    arguments = (THREADS, "--only", "workload.load.threads=256", "--fidelity", "quick")
    ran = run("predict", *arguments, "--no-bands", "--against", "reference", "--out", str(tmp_path))
    lines = ran.stdout.splitlines()
    none = next(line for line in lines if line.startswith("None, 256"))
    cached = next(line for line in lines if line.startswith("ReadOnly, 256"))
    assert "51,000" in none
    assert none.rstrip().endswith("calibration row")
    assert "46,000" in cached
    assert "calibration row" not in cached
    assert "not counted: 1 x calibration row" in ran.stdout
    assert any(line.startswith("ops/s: off by") and "1 cells" in line for line in lines)
    *_, compared = predicted(tmp_path, *arguments, "--against", "reference")
    errors = {cell["factors"]["cluster.volumes.data.caching"]: cell for cell in compared["cells"]}
    assert errors["None"]["note"] == "calibration row"
    cell = errors["ReadOnly"]
    error = cell["predicted"]["ops/s"] / cell["published"]["ops/s"] - 1
    assert cell["error"]["ops/s"] == pytest.approx(error)
    assert compared["median_error"]["ops/s"] == pytest.approx(abs(error))
    folder = next(tmp_path.iterdir())
    reported = run("report", str(folder), "--against", "reference")
    told = " ".join(reported.stdout.split())
    assert "Predict compared with published, 1 cell: rates differ by " in told
    assert "Not counted: 1 of 2" in told
    # And the prediction itself ends with its answer.
    assert "ReadOnly" in ran.stdout.splitlines()[-4] or "one simulated run" in ran.stdout


def test_a_device_is_predicted_and_another_load_is_not_counted(tmp_path: Path) -> None:
    file = "experiments/azure-local-disks.yaml"
    *cells, compared = predicted(tmp_path, file, "--only", "device=NVMe", "--against", "reference")
    sync = next(cell for cell in cells if cell["factors"]["workload.fio.profile"] == "sync")
    assert sync["latency_ms"]["p50"] == pytest.approx(0.043, rel=0.15)
    assert sync["latency_ms"]["p99"] == pytest.approx(0.121, rel=0.15)
    notes = [cell["note"] for cell in compared["cells"]]
    # Its percentiles are where the catalogue's service times come from.
    assert notes == [
        "calibration row: the catalogue's service times are these",
        "published with 4k blocks, 16 jobs, depth 512",
    ]
    assert compared["median_error"] == {}


def test_the_next_step_has_a_database_only_where_the_experiment_has_one(tmp_path: Path) -> None:
    quick = ("--fidelity", "quick", "--no-bands", "--out", str(tmp_path))
    disk = run("predict", "azure-local-disks", "--only", "device=NVMe", *quick).stdout
    assert "on emulated disks:    disklab rehearse" in disk
    cell = ("--only", "cluster.volumes.data.caching=None", "--only", "workload.load.threads=64")
    cluster = run("predict", THREADS, *cell, *quick).stdout
    assert "with a real database: disklab rehearse" in cluster


def test_what_cannot_be_predicted_is_refused_with_the_reason(tmp_path: Path) -> None:
    text = Path("experiments/yugabytedb-disk-types.yaml").read_text(encoding="utf-8")
    other = tmp_path / "other.yaml"
    other.write_text(text.replace("credits: 50%", "page_cache: as-left"), encoding="utf-8")
    cells = predicted(tmp_path, str(other), "--only", "workload=TPC-C", code=1)
    assert [cell["status"] for cell in cells] == ["refused"] * 3
    rule = "a simulated trial of SQL is independent of others: no earlier trial has left it a cache"
    assert cells[0]["reason"]["rule"] == rule
    file = "experiments/cassandra-cache-cliff.yaml"
    only = ("--only", "dataset.rows=500M", "--only", "data disks=local")
    (cell,) = predicted(tmp_path, file, *only, code=1)
    assert "holds 224 GiB" in cell["reason"]["rule"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--fidelity", "quik"),
            "--fidelity: quik: is neither full nor quick; did you mean quick?",
        ),
        (("--against", "me"), "--against: me: is not known; write reference"),
        (
            ("--only", "thread=1"),
            "thread: is not a factor of the experiment; did you mean threads?",
        ),
        (("--calibration", "no.yaml"), "--calibration: no.yaml: cannot be read: No such file"),
    ],
)
def test_wrong_options_leave_no_run(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    ran = run("predict", THREADS, *arguments, "--out", str(tmp_path / "runs"), code=2)
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "runs").exists()


def test_a_calibration_finds_the_parameter_that_made_the_figures(tmp_path: Path) -> None:
    """A known answer: figures simulated with 900 us of overhead are told as measured."""
    package = ROOT / "python" / "disklab" / "data" / "calibration" / "cassandra.yaml"
    truth = yaml.safe_load(package.read_text(encoding="utf-8"))
    start = tmp_path / "start.yaml"
    truth["parameters"]["overhead_ns"]["value"] = 120_000
    start.write_text(yaml.safe_dump(truth))
    truth["parameters"]["overhead_ns"]["value"] = 900_000
    file = tmp_path / "truth.yaml"
    file.write_text(yaml.safe_dump(truth))
    only = ("--only", "cluster.volumes.data.caching=None", "--only", "workload.load.threads=64,128")
    quick = ("--fidelity", "quick")
    predicted(tmp_path / "runs", THREADS, *only, *quick, "--calibration", str(file))
    (folder,) = (tmp_path / "runs").iterdir()
    made = tmp_path / "made.yaml"
    begin = ("--calibration", str(start))
    told_by = ("--measured", str(folder))
    fit = ("calibrate", THREADS, *only, *quick, *begin, "--fit", "overhead_ns", *told_by)
    told = json.loads(run(*fit, "--json", "--out", str(made)).stdout)
    assert told["parameters"]["overhead_ns"] == pytest.approx(900_000, rel=0.1)
    assert told["error_after"] < told["error_before"]
    assert told["at_bound"] == []
    # The new file marks its rows, and predicts with them.
    again = yaml.safe_load(made.read_text(encoding="utf-8"))
    assert len(again["calibration_rows"]) == 2
    assert again["range"]["threads"] == [64, 128]
    (cell,) = predicted(tmp_path / "runs", THREADS, *NONE_128, *quick, "--calibration", str(made))
    measured = next(
        one["measured"] for one in told["cells"] if one["factors"]["workload.load.threads"] == 128
    )
    assert cell["ops_per_s"] == pytest.approx(measured["ops/s"], rel=0.05)
    # It is not overwritten, and too few cells or unknown parameters are refused.
    assert "exists already and is not overwritten" in run(*fit, "--out", str(made), code=2).stderr
    few = ("calibrate", THREADS, *NONE_128, "--fit", "overhead_ns,read_cpu_ns,pause_every_requests")
    assert "3 parameters cannot be fitted on 1 cells" in run(*few, code=2).stderr
    wrong = ("calibrate", THREADS, *NONE_128, "--fit", "overhed_ns")
    assert "did you mean overhead_ns" in run(*wrong, code=2).stderr


def test_declared_rows_are_fitted_anew(tmp_path: Path) -> None:
    """Two groups of parameters on the rows that a file declares, without naming an experiment."""
    package = ROOT / "python" / "disklab" / "data" / "calibration" / "cassandra.yaml"
    declared = yaml.safe_load(package.read_text(encoding="utf-8"))
    warm = {"cluster.volumes.data.caching": "ReadOnly", "workload.load.threads": 256}
    declared["calibration_rows"] = [
        {
            "experiment": "cassandra-disk-caching-threads",
            "factors": {"cluster.volumes.data.caching": "None", "workload.load.threads": 64},
            "fits": ["overhead_ns"],
        },
        {
            "experiment": "cassandra-disk-caching-read-ahead",
            "factors": {**warm, "cluster.volumes.data.read_ahead": "16KiB"},
            "fits": ["client_read_cpu_ns"],
        },
    ]
    declared["parameters"]["client_read_cpu_ns"]["value"] = 150_000
    file, made = tmp_path / "declared.yaml", tmp_path / "made.yaml"
    file.write_text(yaml.safe_dump(declared))
    again = ("calibrate", "--calibration", str(file), "--fidelity", "quick")
    lines = run(*again, "--json", "--out", str(made)).stdout.splitlines()
    first, second = (json.loads(line) for line in lines)
    assert list(first["parameters"]) == ["overhead_ns"]
    (cell,) = second["cells"]
    assert cell["after"]["ops/s"] == pytest.approx(cell["measured"]["ops/s"], rel=0.03)
    found = yaml.safe_load(made.read_text(encoding="utf-8"))
    values = {name: one["value"] for name, one in found["parameters"].items()}
    fitted = values["client_read_cpu_ns"]
    assert fitted == second["parameters"]["client_read_cpu_ns"]
    assert 160_000 < fitted < 175_000
    assert found["calibration_rows"] == declared["calibration_rows"]
    assert found["range"]["threads"] == [64, 512]
    # What chooses cells needs an experiment to choose from.
    wrong = run("calibrate", "--fit", "overhead_ns", code=2)
    assert "without one the declared rows are fitted" in wrong.stderr
    for row in declared["calibration_rows"]:
        del row["fits"]
    file.write_text(yaml.safe_dump(declared))
    assert "declares no rows with `fits`" in run(*again, code=2).stderr


def test_one_rule_that_refuses_all_cells_is_told_once(tmp_path: Path) -> None:
    """Six cells, one fact: it was told six times, then in verdicts again (users.md 6)."""
    file = tmp_path / "large.yaml"
    file.write_text(
        "title: t\n"
        "cluster: {nodes: 3, vm: azure/Standard_L16s_v3, volumes: {data: {disks: local}}}\n"
        "database: {engine: cassandra, replication_factor: 3}\n"
        "dataset: {rows: 20G, row: 1 x 1000B}\n"
        "workload: {operations: {read: 100%}, load: {threads: 16}, stop: {duration: 5s}}\n"
        "factors:\n"
        "  cluster.vm: [azure/Standard_L8s_v3, azure/Standard_L16s_v3, azure/Standard_L32s_v3]\n"
        "  cluster.volumes.data.disks: [local, nvme]\n"
    )
    told = run("predict", str(file), "--no-bands", "--out", str(tmp_path / "runs"), code=1).stdout
    assert told.count("refused: ") == 1
    assert "5 more refusals at" in " ".join(told.split())
    assert "No answer" not in told


def test_kill_ends_a_prediction_as_ctrl_c_does(tmp_path: Path) -> None:
    """`timeout` and a job's end in CI send SIGTERM, which used to end it without a word."""
    program = [str(Path(sys.executable).with_name("disklab"))]
    program += ["predict", "cassandra-vm-types", "--jobs", "1"]
    log = tmp_path / "log"
    with (
        log.open("w") as stream,
        subprocess.Popen(program, cwd=tmp_path, stdout=stream, stderr=stream) as running,
    ):
        while running.poll() is None and not any(
            file.stat().st_size for file in tmp_path.rglob("trials.jsonl")
        ):
            time.sleep(0.05)
        running.terminate()
        running.wait(60)
    assert running.returncode == 130, log.read_text()
    assert "interrupted: " in log.read_text()


def test_many_cells_say_how_far_they_are_without_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    levels = ", ".join(f"{seconds}s" for seconds in range(1, 4000))
    file.write_text(
        "title: many\n"
        "device: {vm: azure/Standard_D8s_v5, volume: {disks: azure/P30}}\n"
        "workload: {fio: {rw: randread, bs: 4k, jobs: 4, depth: 16}, stop: {duration: 60s}}\n"
        f"factors: {{workload.stop.duration: [{levels}]}}\n"
    )
    program = str(Path(sys.executable).with_name("disklab"))
    words = [program, "predict", str(file), "--out", str(tmp_path / "runs")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        begun = time.monotonic()
        line = running.stderr.readline().decode()
        running.kill()
    assert line.startswith("simulating: ")
    assert time.monotonic() - begun < 60


BLIND = Path(__file__).parents[2] / "experiments/cassandra-disk-caching-threads.yaml"
ONE = ("--only", "cluster.volumes.data.caching=None", "--only", "workload.load.threads=64")


def predict(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = ["predict", str(BLIND), *ONE, "--fidelity", "quick", "--no-bands"]
    return disklab(*words, "--out", str(out / "runs"), *arguments)


def test_what_was_registered_is_told_from_what_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "blind.json"
    ran = predict(tmp_path, "--register", str(path))
    assert ran.returncode == 0, ran.stderr
    content = read_register(path)
    assert content["sha256"] in ran.stdout + ran.stderr
    (prediction,) = content["predictions"]
    assert prediction["figures"]["ops_per_s"]["value"] > 0
    assert prediction["factors"]["workload.load.threads"] == 64
    same = predict(tmp_path, "--check-register", str(path))
    assert same.returncode == 0, same.stderr
    other = predict(tmp_path, "--seed", "2", "--check-register", str(path))
    assert other.returncode == 1
    told = " ".join((other.stdout + other.stderr).split())
    assert "seed: registered 1, now 2" in told
    assert "ops_per_s: registered" in told
    again = predict(tmp_path, "--register", str(path))
    assert again.returncode != 0
    assert read_register(path) == content
    prediction["figures"]["ops_per_s"]["value"] *= 1.01
    path.write_text(json.dumps(content), encoding="utf-8")
    changed = predict(tmp_path, "--check-register", str(path))
    assert changed.returncode == 2
    assert "digest does not match" in " ".join(changed.stderr.split())


def test_any_change_breaks_the_digest_and_the_order_of_keys_does_not(tmp_path: Path) -> None:
    content = {
        "format": 1,
        "registered": "2026-11-23T12:00:00+00:00",
        "experiment_sha256": "a",
        "calibration_sha256": {"x": "b"},
        "predictions": [{"factors": {"threads": 1}, "repeat": 0, "figures": {}}],
    }
    whole = {**content, "sha256": digest(content)}
    path = tmp_path / "r.json"
    write_register(path, dict(reversed(whole.items())))
    assert read_register(path) == whole
    for name in content:
        assert digest({**whole, name: "other"}) != whole["sha256"], name


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "not json"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="is not a file of --register"):
        read_register(path)
