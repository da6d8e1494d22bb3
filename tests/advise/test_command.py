"""`disklab advise` with the real simulator and the package's catalogue, or prices of one's own."""

from __future__ import annotations

import html
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from disklab import spec
from disklab.catalog import Price, load_catalog, vm_price, volume_price
from disklab.catalog.load import with_more
from disklab.cli.advise import beside, progress
from disklab.results import Run
from disklab.spec import bundled

from tests.catalog.test_price_lists import usd
from tests.in_process import disklab

if TYPE_CHECKING:
    from tests.advise.conftest import Advice

FILE = """
title: What to buy?
cluster:
  nodes: 3
  vm: azure/Standard_E8s_v3
  volumes: {data: {disks: 2 x azure/P30}}
client: {nodes: 2, vm: azure/Standard_E16s_v3}
database:
  engine: cassandra
  version: "4.1"
  replication_factor: 3
  table: {compaction: leveled}
dataset: {rows: 500M, row: 1 x 1000B}
workload:
  operations: {read: 80%, write: 20%}
  load: {rate: 4000/s}
  stop: {duration: 10s}
require: REQUIRE
"""


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    ran = disklab(*arguments)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def advised(folder: Path, require: str, *options: str) -> dict[str, Any]:
    """Return the advice on a file that requires this."""
    file = folder / "buy.yaml"
    file.write_text(FILE.replace("REQUIRE", require))
    told = run(
        *("advise", str(file), "--no-bands", "--json", "--out", str(folder / "runs")), *options
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def test_the_cheapest_that_keeps_the_promise_is_named_first(advice: Advice, tmp_path: Path) -> None:
    told = advice.told
    first, *others = told["options"]
    assert told["answer"][0].startswith(f"Buy {first['option']}: ")
    assert first["outcome"] == "met"
    able = [one["usd_per_month"] for one in others if one["outcome"] == "met"]
    assert all(first["usd_per_month"] <= price for price in able)
    # Everything that was simulated and is cheaper does not keep it, each with its reason.
    for one in told["others"]:
        if one["usd_per_month"] < first["usd_per_month"]:
            assert one["outcome"] != "met", one
            assert one["why"], one
    assert any("times the rate" in line for line in told["changes"])
    stored = Run.open(told["run"])
    # Those with the file's nodes are named without them.
    names = {one["factor"] for one in told["options"]}
    assert {trial.factors["option"] for trial in stored.planned()} == names
    # What the disks take of p99 is told apart from stops of the JVM.
    assert first["storage_ms"] < first["latency_ms"]["p99"]
    assert ", of which storage " in told["answer"][1]
    report = run("report", told["run"], "--html", str(tmp_path / "page.html"))
    assert "asked for" in report.stdout
    stored_page = Path(told["run"]) / "advice.html"
    assert f"advice: {stored_page}" in report.stderr.replace("\n", "")
    assert told["answer"][0] in html.unescape(stored_page.read_text())
    # What is written beside it is an experiment that can be rehearsed.
    again = spec.load(told["experiment"])
    assert len(again.trials("rehearse")) == len(told["options"])


def test_nothing_qualifies_is_said_with_the_reason(tmp_path: Path) -> None:
    told = advised(
        tmp_path,
        "{read: {p99: 1ms}, durability: survives deallocation}",
        *("--candidates", "P30,nvme,E8s_v3,L8s_v3"),
    )
    assert told["answer"][0].startswith("Nothing qualifies. The closest is ")
    assert "read p99" in told["answer"][1]
    assert any("do not survive" in reason for reason in told["ruled_out"].values())
    assert all(one["outcome"] != "met" for one in told["options"])


def test_a_file_that_requires_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "buy.yaml"
    file.write_text(FILE.replace("require: REQUIRE", ""))
    told = run("advise", str(file), code=2)
    assert "that meets it; add for example require:" in told.stderr


def test_an_experiment_that_comes_with_disklab_is_known_by_name() -> None:
    told = run("advise", "cassandra-host-caching-quick", code=2)
    assert "that meets it; add for example require:" in told.stderr


def test_the_finalists_are_never_written_among_disklab_s_own_files(tmp_path: Path) -> None:
    own = bundled.folder() / "cassandra-what-to-buy.yaml"
    assert beside(own) == Path("cassandra-what-to-buy-advice.yaml")
    assert beside(tmp_path / "mine.yaml") == tmp_path / "mine-advice.yaml"


@pytest.mark.parametrize(
    "engine", ["postgresql", *(pytest.param(n, marks=pytest.mark.long) for n in ("mariadb",))]
)
def test_a_server_of_tpcc_is_advised_on(engine: str, tmp_path: Path) -> None:
    told = json.loads(
        run(
            *("advise", "--database", engine, "--tpcc", "40", "--p99", "500"),
            *("--candidates", "P10,P20,D4s_v5", "--no-bands", "--json"),
            *("--out", str(tmp_path / "runs"), "--write", str(tmp_path / "advice.yaml")),
        ).stdout
    )
    assert told["answer"][0].startswith("Buy 1 x D4s_v5 with ")
    assert told["answer"][1].startswith("At 40 warehouses ")
    assert "warehouses" in told["answer"][2]
    first = told["options"][0]
    assert first["outcome"] == "met"
    assert not any("terminals" in one["binds"] for one in told["options"])


def test_a_budget_below_every_option_says_so(tmp_path: Path) -> None:
    told = advised(tmp_path, "{budget: 100 USD/month}", "--candidates", "P30,E8s_v3")
    assert told["options"] == []
    assert told["answer"][0] == "Nothing can do it for 100 USD a month."
    assert told["answer"][1].startswith("The cheapest whose limits may allow it is 3 x E8s_v3 with")
    assert any("costs more than the budget" in reason for reason in told["ruled_out"].values())


@pytest.mark.parametrize(
    ("engine", "lever"),
    [
        ("postgresql", "of WAL between checkpoints"),
        pytest.param("mariadb", "8 KiB read-ahead", marks=pytest.mark.long),
    ],
)
def test_one_server_is_advised_on(engine: str, lever: str, tmp_path: Path) -> None:
    told = json.loads(
        run(
            *("advise", "--database", engine, "--data", "100GB", "--reads", "2000"),
            *("--writes", "200", "--p99", "20", "--candidates", "P30,D8s_v3,nvme,L8s_v3"),
            *("--no-bands", "--json", "--out", str(tmp_path / "runs")),
            *("--write", str(tmp_path / "advice.yaml")),
        ).stdout
    )
    first = told["options"][0]
    assert first["option"].startswith("1 x D")
    assert first["outcome"] in ("met", "cannot tell")
    # The single copy on a local disk stands below, marked.
    assert [one["local_data"] for one in told["options"]][-2:] == [False, True]
    assert "no other copy" in told["options"][-1]["why"]
    doubts_writes = "'s writes" in " ".join(first["warnings"])
    assert doubts_writes == (engine == "postgresql")
    # What the setting does was simulated.
    # It is needed, helps by what is told, or changes nothing; then it is not in the answer.
    said = " ".join(told["answer"])
    helps = any(lever in one for one in told["options"][0]["levers"])
    needs = any(setting in said for setting in [f"It needs {lever}", f"and {lever}"])
    assert helps == (f"Would help: {lever}" in said or f"; {lever}" in said)
    assert helps or needs or lever not in said
    again = spec.load(tmp_path / "advice.yaml")
    assert {trial.spec.database.engine for trial in again.trials("rehearse") if trial.spec.database}


def test_what_holds_its_rate_by_burst_credits_alone_is_not_bought(tmp_path: Path) -> None:
    """PostgreSQL of 64 GB at 4,200 operations a second: 4,391 ms on a D4s_v5 without credits."""
    told = run(
        *("advise", "--database", "postgresql", "--data", "64GB", "--reads", "4000"),
        *("--writes", "200", "--p99", "10", "--durable", "--no-bands", "--json"),
        *("--candidates", "PremiumV2,D4s_v5,D8s_v5", "--out", str(tmp_path / "runs")),
        *("--write", str(tmp_path / "advice.yaml")),
    )
    options = json.loads(told.stdout)["options"]
    assert {option["vm"] for option in options} == {"azure/Standard_D8s_v5"}
    experiment = spec.load(tmp_path / "advice.yaml")
    assert experiment.cells[0].spec.before.credits_ratio == 0


def test_disks_are_bought_by_storage_alone(tmp_path: Path) -> None:
    """What client, network and stops of the JVM add is none of it."""
    told = advised(tmp_path, "{storage_p99: 1ms}", "--candidates", "nvme,L8s_v3")
    first = told["options"][0]
    assert told["answer"][0].startswith("Disks: local NVMe of 3 x L8s_v3 keep 1 ms (storage's ")
    assert first["outcome"] == "met"
    assert first["storage_ms"] <= 1 < first["latency_ms"]["p99"]


def test_kill_ends_a_search_with_the_cheapest_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    def killed_after(*bests: str) -> None:
        with progress() as tell:
            for best in bests:
                tell("simulating quick", 3, best)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed_after("1 x E8s_v5 with P30, 500 USD a month", "")
    assert "full fidelity: 1 x E8s_v5 with P30, 500 USD a month" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        killed_after("")
    assert "nothing that meets the requirement has been found so far" in capsys.readouterr().err


def test_where_no_terminal_is_a_line_now_and_then_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress() as tell:
        tell("sketching", 3, "")
    assert not capsys.readouterr().err
    monkeypatch.setattr("disklab.cli.advise.LINE_EVERY_S", 0.0)
    with progress() as tell:
        tell("sketching", 3, "")
        tell("simulating quick", 12, "1 x E8s_v5 with [P30], 500 USD a month")
    assert capsys.readouterr().err.splitlines() == [
        "sketching: 3 cells simulated",
        "simulating quick: 12 cells simulated; best so far: 1 x E8s_v5 with [P30], 500 USD a month",
    ]


MINE = """prices:
- {region: us-central1, per: hour, vms: {gcp/n2-standard-8: 0.31}}
- {region: eastus, per: month, disks: {azure/P30: 100}}
- region: us-central1
  per: month
  formulas: {gcp/hyperdisk-ml: {per_gib: 0.1}}
"""


def test_a_price_of_ones_own_comes_before_the_catalogues(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE)
    with with_more(file):
        catalog = load_catalog()
        assert usd(vm_price(catalog, "gcp/n2-standard-8", region="us-central1")) == 226.3
        assert usd(volume_price(catalog, "2 x azure/P30")) == 200.0
        # Of this disk the catalogue has no price.
        assert usd(volume_price(catalog, "gcp/hyperdisk-ml(100GiB)")) == 10.0
        assert not vm_price(catalog, "gcp/n2-standard-8").doubt("us-central1", None)  # type: ignore[union-attr]
    assert not isinstance(volume_price(load_catalog(), "gcp/hyperdisk-ml(100GiB)"), Price)


@pytest.mark.parametrize(
    ("was", "wrong", "told"),
    [
        ("gcp/n2-standard-8", "gcp/n2-standard-9", ":2: prices.0.vms.gcp/n2-standard-9"),
        ("formulas", "formula", ":6: prices.2.formula: 'formula': there is no such key"),
        ("azure/P30: 100", "azure/P31: 100", ":3: prices.1.disks.azure/P31"),
        ("per_gib: 0.1", "per_gib: much", ":6: prices.2.formulas.gcp/hyperdisk-ml.per_gib"),
    ],
)
def test_an_error_names_its_line_and_the_way_out(
    tmp_path: Path, was: str, wrong: str, told: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE.replace(was, wrong))
    asks = ("--cloud", "gcp", "--data", "1TB", "--reads", "100", "--p99", "10")
    refused = disklab("advise", *asks, "--prices", str(file))
    assert refused.returncode == 2
    assert f"{file}{told}" in refused.stderr
    assert "; " in refused.stderr.partition(told)[2]
