"""The engine answers a share of the experiments' jobs as it did, byte for byte."""

from __future__ import annotations

import pytest

from scripts.answers import experiment_jobs, hashes, kept

SHARE = frozenset(
    {
        "azure-local-disks",
        "cassandra-lost-local-disk",
        "crashes",
        "device-trace",
        "etcd-which-disk",
        "galera-local-or-attached",
        "mariadb-doublewrite",
        "postgresql-failover-disks",
        "yugabytedb-disk-types",
    }
)
"""Each simulated database, faults, devices and a trace; `python -m scripts.answers` has all."""
# In CI every third trial of an experiment.
EVERY = [3, pytest.param(1, marks=pytest.mark.long)]


@pytest.mark.parametrize("every", EVERY)
def test_answers_are_those_of_the_tree(every: int) -> None:
    jobs = {
        name: job
        for name, job in experiment_jobs(SHARE)
        if int(name.partition("/")[2]) % every == 0
    }
    new, old = hashes(jobs), kept()
    assert {name.partition("/")[0] for name in new} == SHARE
    changed = [name for name, digest in new.items() if old.get(name) != digest]
    assert not changed, f"if that is meant: python -m scripts.answers --write; changed: {changed}"
