"""What is killed: commands of disklab, and the state of the lab that each begins in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from campaigns.kills.tracing import CHILD
from tests.journal import Promise

VM = "azure/Standard_DS14_v2"  # it has a temp disk and a host cache
RAW = ("disk", "attach", "azure/P30", "--no-calibrate", "--size", "16MiB")
EXT4 = (*RAW, "--filesystem", "ext4", "--mount", "LAB/mnt")
SECOND = (*EXT4, "--name", "second")
CACHED = (*RAW, "--vm", VM, "--caching", "readwrite")
RUN = ("run", "--disk", "azure/P10", "--size", "16MiB", "--filesystem", "ext4", "--no-calibrate")
ENGINE = "disklab-engine emulate"
MKFS = ("mke2fs", "mount", "umount")


EXPERIMENT = """
title: Does a rehearsal go on wherever it is killed?
cluster:
  nodes: 1
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: azure/P15, size: 50GiB, filesystem: ext4}}
database: {engine: postgresql}
workload:
  sysbench: {script: oltp_read, tables: 1, rows_per_table: 5M, threads: 2}
  warm_up: 100s
  stop: {duration: 1000s}
factors:
  workload.sysbench.threads: [2, 4]
rehearse: {scale: 1/500, time_dilation: 1}
"""
"""Build, fill, two measurements: half a minute on an idle machine."""


@dataclass(frozen=True)
class Scenario:
    """One command, and what it begins with."""

    name: str
    command: Sequence[str]
    before: Sequence[Sequence[str]] = ()
    """Commands that make its state."""
    writes: bool = False
    """Whether a writer works on the volume `data` meanwhile."""
    promise: Promise = Promise.ACKNOWLEDGED
    kill_engine: bool = False
    """Whether the host is dead when the command begins."""
    mend: Sequence[str] = ()
    """What brings a volume back that the command broke."""
    again: Sequence[str] = ()
    """A command that must work after `clean`, when it does not find its volume there."""
    rehearses: bool = False
    """Whether it rehearses `EXPERIMENT`, and goes on with `--resume` afterwards."""

    @property
    def programs(self) -> frozenset[str]:
        """Which programs are followed."""
        if self.rehearses:
            # A killed child fails its trial, and is no crash of ours.
            return frozenset({"conductor"})
        copies = {"conductor" + CHILD, ENGINE + CHILD}
        return frozenset({"conductor", ENGINE, *MKFS, *copies})


SCENARIOS = [
    Scenario("attach", RAW, again=RAW),
    Scenario("attach ext4", EXT4, again=EXT4),
    Scenario("attach second", SECOND, [RAW], writes=True, again=SECOND),
    Scenario("attach cached", CACHED, again=CACHED),
    Scenario("set", ("disk", "set", "data", "--iops", "4000"), [RAW], writes=True),
    Scenario(
        "set caching",
        ("disk", "set", "data", "--caching", "none", "--read-ahead", "8KiB"),
        [CACHED],
        writes=True,
        promise=Promise.FLUSHED,
    ),
    Scenario(
        "fail",
        ("disk", "fail", "data", "host-failure"),
        [CACHED],
        writes=True,
        promise=Promise.FLUSHED,
        mend=("disk", "fail", "data", "recover"),
    ),
    Scenario(
        "recover",
        ("disk", "fail", "data", "recover"),
        [CACHED, ("disk", "fail", "data", "slow", "2x")],
        writes=True,
        promise=Promise.FLUSHED,
        mend=("disk", "fail", "data", "recover"),
    ),
    Scenario("detach", ("disk", "detach", "second"), [RAW, SECOND], writes=True),
    Scenario("detach last", ("disk", "detach", "data"), [EXT4]),
    Scenario("detach and delete", ("disk", "detach", "second", "--delete-data"), [RAW, SECOND]),
    Scenario("clean dead host", ("clean",), [RAW, SECOND], writes=True, kill_engine=True),
    Scenario("clean all", ("clean", "--all"), [RAW, SECOND], writes=True),
    Scenario("clean all data", ("clean", "--all", "--data"), [EXT4]),
    Scenario("run", (*RUN, "--", "dd", "if=/dev/zero", "of=x", "bs=4k", "count=4", "conv=fsync")),
    Scenario(
        "rehearse",
        ("rehearse", "LAB/experiment.yaml", "--quick", "--out", "LAB/runs"),
        rehearses=True,
    ),
]
