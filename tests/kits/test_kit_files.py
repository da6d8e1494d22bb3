"""What a kit file says, what of it is refused and where, and what is read of a tool's answer."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from disklab.cli import app
from disklab.errors import MachineError, UserError
from disklab.kits import kit_named, read_kit, shipped
from disklab.kits.plan import Plan, Spot, filled, slowed, unknown_names
from disklab.kits.results import Reader, at_path
from disklab.kits.schema import Result
from disklab.results import Histogram
from disklab.workloads.tool import read_histogram
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
NEW = Path(str(resources.files("disklab") / "kits" / "new.yaml"))


def changed(tmp_path: Path, **parts: Any) -> Path:
    """Return a kit file: that of `kit new`, with these parts of its own."""
    kit = {**yaml.safe_load(NEW.read_text(encoding="utf-8")), **parts}
    file = tmp_path / "kit.yaml"
    file.write_text(yaml.safe_dump({name: part for name, part in kit.items() if part is not None}))
    return file


def refused(file: Path) -> str:
    with pytest.raises(UserError) as raised:
        read_kit(file)
    return str(raised.value)


@pytest.mark.parametrize("name", shipped())
def test_a_kit_that_comes_along_is_whole(name: str) -> None:
    found = kit_named(name)
    assert list(unknown_names(found.kit)) == []
    assert found.kit.kit == name
    lines = (found.folder / "kit.yaml").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150, f"{name}: {len(lines)} lines"
    # Where a setting decides what is lost, it says so.
    assert any(kind.promises for kind in found.kit.settings.values()), name


def test_no_code_names_a_kit() -> None:
    top = Path(str(resources.files("disklab")))
    names = {f'"{name}"' for name in shipped()}
    for file in top.rglob("*.py"):
        if file.parent.parent != top / "kits":
            text = file.read_text(encoding="utf-8")
            assert not [name for name in names if name in text], file


@pytest.mark.parametrize("name", shipped())
def test_a_kit_that_comes_along_has_its_page_and_its_experiment(name: str) -> None:
    page = (ROOT / "docs" / "kits" / f"{name}.md").read_text(encoding="utf-8")
    files = [
        file
        for file in (ROOT / "experiments").glob("*.yaml")
        if f"kit: {name}," in file.read_text()
    ]
    assert files
    assert any(f"`{file.stem}`" in page for file in files)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"volume": {"data": "required"}}, "volume"),
        ({"volumes": {"log": "required"}}, "the volume data is required"),
        ({"processes": [{"run": "redis-server /etc", "ready": [{"port": "client"}]}]}, "run"),
        ({"licence": None}, "this key is required"),
        ({"memory": {"data": {"share": 0.6, "least": "1 MiB"}}}, "is a share, such as 25 %"),
        ({"programs": [{"name": "server"}]}, "exactly one way"),
        ({"programs": [{"name": "x", "wheel": "x==1"}]}, "a wheel has its sha256"),
        ({"programs": [{"name": "x", "script": "../load.py"}]}, "programs.0.script"),
        ({"programs": [{"name": "x", "folder": True, "path": "../../bin/sh"}]}, "stays in the"),
        ({"loads": {}}, "a kit has loads of its own"),
        ({"settings": {"a": {"type": "time", "unit": "d", "default": "1d"}}}, "units.time"),
        ({"counters": [{"name": "a", "run": ["x"]}]}, "a counter is at a path"),
        ({"phases": {"create": [{"http": "/a"}]}}, "http has a port"),
        ({"phases": {"create": [{"run": ["a"], "log": "b"}]}}, "in exactly one way"),
        ({"kit": "Mine!"}, "kit"),
    ],
)
def test_what_a_kit_may_not_say(tmp_path: Path, parts: dict[str, Any], said: str) -> None:
    problem = refused(changed(tmp_path, **parts))
    assert said in problem
    # Each is shown with its line.
    assert "kit.yaml:" in problem


def test_a_pattern_without_its_groups_is_refused(tmp_path: Path) -> None:
    load = yaml.safe_load(NEW.read_text())["loads"]["set"]
    for line, said in (("(\\d+", "is not a regular expression"), ("(\\d+)", "1 groups, and 2")):
        results = [{"line": line, "figures": ["rate", "p99"]}]
        assert said in refused(changed(tmp_path, loads={"set": {**load, "results": results}}))


def test_a_template_that_means_nothing_is_told_with_its_place(tmp_path: Path) -> None:
    kit = yaml.safe_load(NEW.read_text())
    kit["processes"][0]["run"].append("{setting.appendfsink}")
    file = changed(tmp_path, processes=kit["processes"])
    with pytest.raises(UserError) as raised:
        read_kit(file)
    (problem,) = raised.value.problems
    assert problem.place == f"{file}: processes.0.run.2"
    assert "setting.appendfsync" in problem.way_out
    checked = CliRunner().invoke(app, ["kit", "check", str(file)])
    assert checked.exit_code != 0


def test_a_kit_of_the_user_takes_no_name_that_is_taken(tmp_path: Path) -> None:
    file = changed(tmp_path, kit=shipped()[0])
    experiment = Path(__file__).parents[2] / "experiments" / "nats-sync-interval.yaml"
    ran = CliRunner().invoke(app, ["rehearse", str(experiment), "--kit", str(file)])
    assert "comes with disklab" in str(ran.exception)


@pytest.mark.parametrize("name", ["../kit.yaml", "/etc/passwd", "nobody", "kit:nats", "{run}"])
def test_an_experiment_points_to_no_file(tmp_path: Path, name: str) -> None:
    changed(tmp_path)
    text = (Path(__file__).parents[2] / "experiments" / "nats-sync-interval.yaml").read_text()
    file = tmp_path / "experiment.yaml"
    file.write_text(text.replace("kit: nats", f"kit: {json.dumps(name)}"))
    ran = CliRunner().invoke(app, ["experiment", "check", str(file)])
    assert ran.exit_code != 0
    assert "no kit of this name" in str(ran.exception) + ran.output


def test_new_is_a_kit_and_writes_over_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    assert CliRunner().invoke(app, ["kit", "new", str(file)]).exit_code == 0
    assert "nothing is wrong" in CliRunner().invoke(app, ["kit", "check", str(file)]).output
    assert CliRunner().invoke(app, ["kit", "new", str(file)]).exit_code != 0


def test_words_and_numbers_of_the_plan() -> None:
    values: dict[str, str | int | float] = {
        "node.address": "127.0.0.1",
        "memory.heap": 3 << 20,
        "port.http": 80,
    }
    assert filled("{node.address}:{port.http}", values, "") == "127.0.0.1:80"
    assert filled("{memory.heap / 1048576}m", values, "") == "3m"
    assert filled('cluster { "a": {port.http} }', values, "") == 'cluster { "a": 80 }'
    with pytest.raises(UserError, match=r"port\.http"):
        filled("{port.htpp}", values, "files.a")


def test_nodes_are_written_as_each_program_wants_them() -> None:
    kit = kit_named("nats").kit
    spots = [Spot(f"n{i}", f"10.0.0.{i}", {"data": "/d"}, "/r", {}) for i in (1, 2)]
    plan = Plan(kit, spots, {"limit": 1, "node": 2}, {"sync_interval": "always"}, slow=2)
    text = plan.text(1, "nats.conf")
    assert "routes: [nats://10.0.0.1:6222, nats://10.0.0.2:6222]" in text
    assert "server_name: n2" in text
    assert "sync_interval: always" in text
    assert slowed("2m", 3) == "6m"
    assert slowed("0.5s", 3) == "1.5s"


def test_what_is_read_of_a_tool() -> None:
    lines = ["warm up 1 msgs/sec", "aggregated stats: 1,717 msgs/sec", "P50: 2,982.21us | P99: 9us"]
    results = [
        Result(line=r"stats: ([\d,]+) msgs/sec", figures=("rate",), thousands=","),
        Result(
            line=r"P50: ([\d.,]+)us .* P99: (\d+)us",
            figures=("p50", "p99"),
            unit="us",
            thousands=",",
        ),
    ]
    reader = Reader(results, "bench")
    for line in lines:
        reader.take(line)
    reader.check("")
    assert reader.numbers == pytest.approx({"rate": 1717.0, "p50": 2.98221, "p99": 0.009})


def test_a_result_that_no_pattern_matches_is_an_error() -> None:
    reader = Reader([Result(line=r"(\d+) per second", figures=("rate",))], "bench")
    reader.take("connection refused")
    with pytest.raises(MachineError, match=r"bench: nothing that it wrote matches .*\nrefused"):
        reader.check("refused")
    silent = Reader([Result.model_validate({"json": ["count"], "figures": ["count"]})], "bench")
    with pytest.raises(MachineError, match="count"):
        silent.check("")


def test_figures_of_every_line_are_added_up_and_those_of_the_last_count() -> None:
    forms: list[dict[str, Any]] = [
        {"line": r"^t:\d+:(\d+)$", "figures": ["there"], "sum": True},
        {"line": r"^(\d+) us (\d+)$", "figures": ["latency", "times"], "unit": "us"},
        {"json": ["count", "a.b"], "figures": ["count", "failed"]},
        {"line": "^HDR (\\S+)$", "figures": ["hdr"], "optional": True},
    ]
    reader = Reader([Result.model_validate(form) for form in forms], "bench")
    for line in ("t:0:5", "t:1:7", "100 us 3", "2000 us 1", '{"count": 1}', "{", "HDR abc"):
        reader.take(line)
    reader.take('{"count": 3, "a": {"b": 2}}')
    reader.check("")
    assert reader.numbers == {"there": 12.0, "count": 3.0, "failed": 2.0}
    assert reader.buckets == pytest.approx([(0.1, 3), (2.0, 1)])
    assert reader.hdr == "abc"


def test_a_path_of_an_answer() -> None:
    answer = {"nodes": {"x": {"a": [1, 2]}, "y": {"a": [3]}}}
    assert list(at_path(answer, "nodes.*.a[0]")) == [1, 3]
    assert list(at_path(answer, "nodes.*.a[*]")) == [1, 2, 3]
    assert list(at_path(answer, "nodes.z.a")) == []


def test_the_page_has_a_kit_that_is_whole(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "kits.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(kit: .*?)```", page, re.DOTALL)
    file = tmp_path / "kit.yaml"
    file.write_text(example, encoding="utf-8")
    found = read_kit(file)
    assert list(unknown_names(found.kit)) == []
    assert found.kit.tried == "never run by us"


def test_percentiles_that_a_tool_says_are_the_trials() -> None:
    told = Reader((), "", {"p50": 2.0, "p95": 9.0, "p99": 20.0, "p99.9": 55.0, "max": 55.0})
    histogram = read_histogram(told, 1, 6000)
    assert histogram.counts.sum() == 6000
    summary = histogram.summary_ms()
    assert {name: round(summary[name]) for name in told.numbers} == told.numbers
    # A tool that says fewer has said nothing of the rest; and no latency is not zero.
    assert read_histogram(Reader((), "", {"p50": 2.0, "p99": 20.0}), 1, 6000) is None
    assert Histogram.of(()).summary_ms() == {}
