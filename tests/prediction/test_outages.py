"""What failures cost a trial: times from its own simulation, figures beside its price."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.prediction.outages import needed_of
from disklab.prediction.run import Options, predict
from disklab.report.faults import fault_section, sentences
from disklab.report.subject import subjects_of
from disklab.results import Run, Yearly

TEXT = """\
title: failures
cluster:
  nodes: 3
  vm: azure/Standard_DS14_v2
  volumes: {data: {disks: 4 x azure/P30}}
client: {nodes: 1, vm: azure/Standard_DS14_v2}
database: {engine: cassandra, replication_factor: 3, consistency: LOCAL_QUORUM}
dataset: {rows: 2M, row: 5 x 818B}
workload:
  operations: {read: 50%, write: 50%}
  keys: uniform
  load: {rate: 300/s}
  stop: {duration: 20s}
failures: {vm_lost_per_year: 8%, vm_restarts_per_year: 2, disk_lost_per_year: 0.2%,
           replaced_after: 10min}
factors:
  data disks:
    attached: {}
    local: {cluster.volumes.data.disks: local}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("failures") / "x.yaml"
    path.write_text(TEXT)
    return predict(spec.load(path), Options(out=path.parent / "runs"), lambda _: None)


def yearly(run: Run, level: str) -> Yearly:
    (subject,) = subjects_of([run])
    cells = subject.matrix.cells.values()
    (found,) = [one for one in cells if one.factors["data disks"] == level]
    return found.usable[0].recovery.yearly


def test_local_disks_are_streamed_and_attached_ones_start_again(run: Run) -> None:
    attached, local = yearly(run, "attached"), yearly(run, "local")
    streamed_s = 2_000_000 * 4255 / (2 * 24 * 2**20)
    # Ten minutes until a VM is there, 12.3 s until it answers, 35.9 s of schema and ring delay.
    assert local.lost_s == pytest.approx(600 + 48.2 + streamed_s, rel=0.01)
    assert attached.disk_lost_s == pytest.approx(local.lost_s, rel=0.01)
    assert 612 < attached.lost_s < 630
    assert local.disk_lost_s is None
    assert (local.bound, attached.bound) == ("stream throughput", "stream throughput")
    # 8 % a year of a VM on local disks, 4 x 0.2 % of a stripe of four, cubed.
    assert local.loss_probability > 500 * attached.loss_probability
    assert local.unavailable_min > attached.unavailable_min


def test_the_report_tells_it_beside_the_price(run: Run) -> None:
    (subject,) = subjects_of([run])
    told = sentences(subject.matrix)
    assert len(told) == 2
    assert all("USD a month" in text and "a year" in text for text, _ in told)
    assert "stream_throughput_outbound" in told[0][1]
    assert fault_section(subject) is None


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("failures: {replaced_after: 10min}", "nothing in it ever fails"),
        ("failures: {vm_lost_per_year: often, replaced_after: 1min}", "not a number of failures"),
        ("failures: {vm_lost_per_year: 5000, replaced_after: 1min}", "between 0 and 1000 a year"),
        ("failures: {vm_lost_per_year: 8%}", "replaced_after"),
    ],
)
def test_what_cannot_be_is_said(line: str, rule: str) -> None:
    before, _, rest = TEXT.partition("failures:")
    text = f"{before}{line}\nfactors:{rest.partition('factors:')[2]}"
    with pytest.raises(UserError, match=rule):
        spec.parse(text, "x.yaml").trials("predict")


def test_levels_need_as_many_copies_as_cassandra_asks() -> None:
    needed = [needed_of(level, 3) for level in ("ONE", "TWO", "LOCAL_QUORUM", "ALL")]
    assert needed == [1, 2, 2, 3]
    assert needed_of("THREE", 2) == 2


def test_one_copy_of_local_data_never_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    one = TEXT.replace("replication_factor: 3", "replication_factor: 1").replace("2M", "200k")
    path.write_text(one.replace("disk_lost_per_year: 0.2%,", ""))
    found = predict(spec.load(path), Options(out=tmp_path / "runs"), lambda _: None).results()
    back = {
        one.factors["data disks"]: one.recovery.yearly.comes_back
        for one in found
        if one.recovery and one.recovery.yearly
    }
    assert back == {"attached": True, "local": False}


def test_a_trial_to_which_no_stated_failure_can_happen_has_no_costs(tmp_path: Path) -> None:
    """Disks of the VM do not fail by themselves; this once ended the prediction of all cells."""
    path = tmp_path / "x.yaml"
    path.write_text(TEXT.replace("vm_lost_per_year: 8%, vm_restarts_per_year: 2, ", ""))
    run = predict(spec.load(path), Options(out=tmp_path / "runs"), lambda _: None)
    assert yearly(run, "attached").disk_lost_s is not None
    (local,) = [one for one in run.results() if one.factors["data disks"] == "local"]
    assert local.usable
    assert local.recovery is None
