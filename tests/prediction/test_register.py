"""Blind predictions: written once, never changed unseen, and the same when simulated again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from disklab.errors import UserError
from disklab.prediction.register import digest, read_register, write_register

from tests.in_process import disklab

THREADS = Path(__file__).parents[2] / "experiments/cassandra-disk-caching-threads.yaml"
ONE = ("--only", "cluster.volumes.data.caching=None", "--only", "workload.load.threads=64")


def predict(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = ["predict", str(THREADS), *ONE, "--fidelity", "quick", "--no-bands"]
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
