"""`disklab experiment`, its schema and its page, as people, editors and programs use them."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from disklab import spec
from disklab.errors import UserError
from disklab.spec.schema import schema

from tests.in_process import disklab

ROOT = Path(__file__).parents[2]
REFERENCE = sorted((ROOT / "experiments").glob("*.yaml"))
PAGE = (ROOT / "docs" / "experiment-file.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


@cache
def editor() -> jsonschema.Draft202012Validator:
    """Made once, and not by all who only list the tests: it takes a second."""
    return jsonschema.Draft202012Validator(schema())


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return disklab("experiment", *arguments, folder=ROOT, code=code)


def test_check_counts_trials_and_refused_cells_of_every_file() -> None:
    shown = run("check", *(f"experiments/{file.name}" for file in REFERENCE)).stdout
    assert "experiments/cassandra-local-or-attached.yaml: 18 trials\n" in shown
    assert "experiments/cassandra-cache-cliff.yaml: 15 trials, 3 refused\n" in shown
    assert "  500M, local: 500000000 rows of 4255 B" in shown, "each with its reason"
    lines = [line for line in shown.splitlines() if line.startswith("experiments/")]
    assert len(lines) == len(REFERENCE) > 30


def test_a_file_of_which_no_cell_can_be_is_told_by_the_exit_code(tmp_path: Path) -> None:
    text = (ROOT / "experiments/cassandra-cache-cliff.yaml").read_text(encoding="utf-8")
    full = tmp_path / "full.yaml"
    full.write_text(text.replace("[50M, 150M, 500M, 1000M, 2000M]", "[900G]"), encoding="utf-8")
    ran = run("check", str(full), code=1)
    assert re.search(r"full.yaml: (\d+) trials, \1 refused\n", ran.stdout), ran.stdout


def test_check_tells_every_problem_of_every_file(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("title: x\nworkload: {operations: {read: 100}}\nclustr: {}\n")
    other.write_text("title: [x]\n")
    ran = run("check", str(one), str(other), "experiments/azure-local-disks.yaml", code=2)
    assert "azure-local-disks.yaml: 12 trials" in ran.stdout
    for message in (
        f"error: {one}:2: workload.operations.read: 100: a share is between 0 % and 100 %; write",
        f"error: {one}:3: clustr: clustr: there is no such key; did you mean cluster?",
        f"error: {other}:1: title: [x]: is one word, not a list or mapping; write one value",
        f"error: {other}:1: workload: (missing): is needed; add it",
    ):
        assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    told = json.loads(run("check", str(one), "--json", code=2).stdout)
    assert {problem["way_out"] for problem in told["error"]["problems"]} >= {
        "write 100%",
        "did you mean cluster?",
    }


def test_show_has_the_matrix_the_shares_and_the_reasons() -> None:
    shown = run("show", "experiments/cassandra-cache-cliff.yaml", "--mode", "rehearse").stdout
    row = next(line for line in shown.splitlines() if line.split()[:1] == ["8"])
    assert re.search(r"500M +local +500M -> 417k +3M -> 2.5k +128 -> 21 .*refused", row)
    assert "scale 1/200, 1 of 6 nodes" in shown
    place = r"experiments/cassandra-cache-cliff\.yaml:\d+: dataset\.rows: 500M:"
    assert re.search(rf"refused: 8\n  {place}", shown)


def test_show_takes_a_part_of_the_matrix() -> None:
    file = "experiments/azure-local-disks.yaml"
    told = json.loads(run("show", file, "--only", "device=OS disk, cached,NVMe", "--json").stdout)
    assert [trial["trial"] for trial in told["trials"]] == [4, 5, 10, 11]
    assert told["trials"][0]["factors"] == {
        "device": "OS disk, cached",
        "workload.fio.profile": "sync",
    }
    assert told["trials"][0]["spec"]["device"]["volume"]["caching"] == "ReadWrite"
    assert told["trials"][0]["refused"] is None
    for only, message in (
        ("devise=NVMe", "--only: devise: is not a factor of the experiment; did you mean device?"),
        ("device=NVM", "--only: NVM: is not a level of device; did you mean NVMe?"),
        ("NVMe", "--only: NVMe: a choice reads FACTOR=LEVEL,...; write for example --only"),
    ):
        assert message in run("show", file, "--only", only, code=2).stderr
    assert "did you mean rehearse?" in run("show", file, "--mode", "reherse", code=2).stderr


def test_show_overrides_scale_and_nodes() -> None:
    file = "experiments/cassandra-local-or-attached.yaml"
    told = json.loads(
        run("show", file, "--mode", "rehearse", "--scale", "1/10", "--nodes", "3", "--json").stdout
    )
    share = told["trials"][1]["share"]
    assert share["threads"] == {"full": 128, "here": 64}
    assert share["rows"] == {"full": 10_000_000, "here": 500_000}
    refused = {t["factors"]["database.replication_factor"] for t in told["trials"] if t["refused"]}
    assert refused == {5}


def test_the_schema_is_printed_and_is_a_schema() -> None:
    printed: Any = json.loads(run("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(printed)
    assert printed == schema()
    volume = printed["$defs"]["Volume"]["properties"]
    assert volume["caching"]["enum"] == ["None", "ReadOnly", "ReadWrite"]
    assert volume["caching"]["description"] == "Host caching of the disks."


@pytest.mark.parametrize("file", REFERENCE, ids=lambda file: file.stem)
def test_editors_accept_what_disklab_accepts(file: Path) -> None:
    editor().validate(yaml.safe_load(file.read_text()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cluster.nodez", 3),
        ("cluster.volumes.data.caching", "ReadOnyl"),
        ("cluster.volumes.data.read_ahead", "8XB"),
        ("dataset.rows", "10m"),
        ("dataset.row", "5 by 818B"),
        ("workload.load", {"rate": "20000"}),
        ("workload.stop", {"duration": "30"}),
        ("rehearse.scale", "1:100"),
        ("factors", {"a": []}),
    ],
)
def test_editors_refuse_what_disklab_refuses(path: str, value: object, tmp_path: Path) -> None:
    given: Any = yaml.safe_load(EXAMPLES[0])
    editor().validate(given)
    *parents, last = path.split(".")
    inner = given
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    with pytest.raises(jsonschema.ValidationError):
        editor().validate(given)
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(given))
    with pytest.raises(UserError):
        spec.load(file)


def test_the_examples_of_the_page_load() -> None:
    first, second = (spec.parse(text, "docs/experiment-file.md") for text in EXAMPLES)
    assert len(first.trials("rehearse")) == 8
    trials = second.trials("predict")
    assert [tuple(trial.factors.values()) for trial in trials] == [
        ("attached", "read"),
        ("attached", "write"),
        ("local", "read"),
        ("local", "write"),
    ]
    assert trials[3].spec.before.dataset == "empty"
    assert second.only({"data disks": ["local"], "work": ["read", "write"]}).trials("predict")
