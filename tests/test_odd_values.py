"""Values that nobody means, on the command line: refused in words, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec

from tests.in_process import disklab

HUGE = "9" * 23
NOT_TEXT = "\udcff"
"""A byte that no UTF-8 text has, as Python hands it on."""


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("predict", "cassandra-host-caching-quick", "--seed", HUGE), "--seed"),
        (("rehearse", "redis-fsync", "--seed", "-5"), "--seed"),
        (("rehearse", "redis-fsync", "--scale", "\u0663/\u0664"), "--scale"),
        (("experiment", "show", "etcd-which-disk", "--scale", "-1"), "--scale"),
        (("disk", "attach", "azure/P10", "--scale", "-1"), "--scale"),
        (("disk", "attach", "azure/P10", "--scale", "0"), "--scale"),
        (("disk", "attach", "azure/P10", "--mount", f"/tmp/{NOT_TEXT}"), "--mount"),
        (("disk", "show", NOT_TEXT), "VOLUME"),
        (("disk", "detach", NOT_TEXT), "VOLUME"),
        (("run", "--disk", "azure/P10", "--credits", "nan%", "--", "true"), "--credits"),
        (("run", "--disk", "azure/P10", "--budget", "fsyncs <= \u0663", "--", "true"), "--budget"),
        (("run", "--disk", "azure/P10", "--budget", "ios <= 1_000", "--", "true"), "--budget"),
        (("observe", "mariadb", "--address", "127.0.0.1:99999", "--user", "u"), "--address"),
        (("observe", "mariadb", "--address", "[::1]:\u00b2", "--user", "u"), "--address"),
        (("observe", "postgresql", "--address", "here:\u0663", "--user", "u"), "--address"),
    ],
)
def test_it_is_refused_in_words(words: tuple[str, ...], place: str) -> None:
    ran = disklab(*words)
    assert ran.returncode == 2, ran.stderr
    assert place in ran.stderr
    assert "Traceback" not in ran.stderr


def test_measure_takes_an_example_by_its_name(tmp_path: Path) -> None:
    """It said that there is no etcd-which-disk, and asked for etcd-which-disk."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("hosts: 5\n")
    ran = disklab("measure", "etcd-which-disk", "--hosts", str(hosts))
    assert ran.returncode == 2
    assert "etcd-which-disk" not in ran.stderr
    assert "hosts.yaml:1" in ran.stderr


@pytest.mark.parametrize("name", ["etcd-which-disk", "etcd-which-disk.yaml"])
def test_an_example_is_read_by_its_name(name: str) -> None:
    assert spec.load(name).cells
