"""What a broken experiment file is told, all at once; whatever a file says, it never crashes."""

from __future__ import annotations

import random
import re
from functools import partial
from pathlib import Path

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.prediction.uncertain import read_ranged
from disklab.spec.located import document_of

BASE = """\
title: A small one
cluster:
  nodes: 3
  vm: azure/Standard_DS14_v2
  volumes:
    data: {disks: 4 x azure/P30, caching: None, read_ahead: 8KiB}
    commitlog: {disks: local}
database: {engine: cassandra, replication_factor: 1, consistency: QUORUM}
dataset: {rows: 10M, row: 5 x 818B}
workload:
  operations: {read: 100%}
  load: {threads: 128}
  stop: {operations: 3M}
factors:
  cluster.volumes.data.caching: [None, ReadOnly]
rehearse: {nodes: 1, scale: 1/100}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        spec.parse(text, "x.yaml")
    return str(caught.value).splitlines()


def test_the_base_is_right() -> None:
    assert len(spec.parse(BASE).trials("predict")) == 2


def test_a_client_on_the_server_is_rehearsed_and_not_measured() -> None:
    text = BASE.replace("nodes: 3", "nodes: 1", 1) + "client: {on_server: true}\n"
    text = text.replace("consistency: QUORUM", "consistency: ONE")
    experiment = spec.parse(text, "x.yaml")
    assert not any(trial.refused for trial in experiment.trials("rehearse"))
    for trial in experiment.trials("measure"):
        assert trial.refused is not None
        assert (trial.refused.place, trial.refused.value) == ("x.yaml:17: client.on_server", "true")


def timetable(*events: str) -> str:
    """Return the base with links, zones and these events."""
    text = BASE.replace("  vm: azure", "  network: azure/standard\n  zones: 3\n  vm: azure")
    text = text[: text.index("factors:")].replace("operations: 3M", "duration: 60s")
    timed = [f"{{at: {at}s, {event}}}" for at, event in enumerate(events, 1)]
    return f"{text}events: [{', '.join(timed)}]\n"


def test_a_link_is_joined_once_for_each_time_that_it_is_broken() -> None:
    events = ("slow_link: n2, round_trip: 9ms", "join: n2", "lossy: n2, loss: 5%", "join: n2")
    spec.parse(timetable(*events))
    for again in (2, 4):
        (told,) = problems(timetable(*events[:again], "join: n2"))
        assert f"at {again + 1} s the link of n2 is as it was at first" in told


def test_nodes_of_a_lost_zone_are_lost_until_they_are_replaced() -> None:
    spec.parse(timetable("lose_zone: 1", "replace: n1", "kill: n1"))
    (told,) = problems(timetable("lose_zone: 1", "kill: n1"))
    assert "at 2 s n1 is lost" in told
    (told,) = problems(timetable("lose_zone: 1", "lose_zone: 1"))
    assert "at 2 s no node of zone 1 is left to be lost" in told


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # keys and words
        ("dataset:", "datasett:", "x.yaml:9: datasett: datasett: there is no such key; did you"),
        ("    data:", "    date:", "x.yaml:15: cluster.volumes.data: data: a level patches what"),
        ("consistency: QUORUM", "consistency: QUROUM", "did you mean QUORUM?"),
        ("engine: cassandra", "engine: casandra", "x.yaml:8: database.engine: casandra: is not"),
        ("azure/P30", "azure/P33", "x.yaml:6: cluster.volumes.data.disks: 'azure/P33': no such"),
        ("_DS14_v2", "_DS41_v2", "x.yaml:4: cluster.vm: 'azure/Standard_DS41_v2': no such VM"),
        ("title: A small one\n", "", "x.yaml:1: title: (missing): is needed; add it"),
        ("{read: 100%}", "{reed: 100%}", "operations.reed: reed: there is no such key; did you"),
        # amounts
        ("read_ahead: 8KiB", "read_ahead: -1", "-1: an amount of data is not negative; write 0"),
        (
            "read_ahead: 8KiB",
            "read_ahead: 8Kb",
            "read_ahead: 8Kb: is not a number of whole bytes with B",
        ),
        (
            "rows: 10M",
            "rows: 10m",
            "x.yaml:9: dataset.rows: 10m: is not a whole number; k, M and G are",
        ),
        ("rows: 10M", "rows: 1.5", "dataset.rows: 1.5: is not a whole number"),
        ("rows: 10M", "rows: 0", "dataset.rows: 0: must be from 1"),
        ("rows: 10M", "rows: true", "dataset.rows: true: is not a whole number"),
        ("threads: 128", "rate: 20000", "load.rate: 20000: a rate is a number of operations a"),
        ("threads: 128", "rate: 20000", "; write 20000/s"),
        ("threads: 128", "threads: 0", "load.threads: 0: must be from 1"),
        ("operations: 3M", "duration: 30", "stop.duration: 30: a time is a number with us, ms"),
        ("5 x 818B", "five", "dataset.row: five: a row reads COLUMNS x BYTES"),
        ("5 x 818B", "smal", "; did you mean small?"),
        ("5 x 818B", "1 x 60% 200B + 30% 4KiB", "the shares of rows are above 0% and add up to"),
        (
            "5 x 818B",
            "1 x lognormal median 8KiB p95 1KiB",
            "row: 1 x lognormal median 8KiB p95 1KiB: the p95 of rows is above their median "
            "of 8192 bytes; write for example 1 x lognormal median 1KiB p95 8KiB, or 1 x 8192B",
        ),
        (
            "5 x 818B",
            "1 x lognormal 1KiB",
            "a lognormal row reads COLUMNS x lognormal median BYTES",
        ),
        (
            "5 x 818B",
            "1 x lognormal median 1MiB p95 16MiB",
            "the largest of 4,096 rows would have columns of 636763618 bytes, and 16MiB is most",
        ),
        ("5 x 818B", "1 x 60% 200B + 40% 0B", "a row has 1 to 1000 columns of 1B to 16MiB"),
        ("scale: 1/100", "scale: 100", "rehearse.scale: 100: a scale shrinks"),
        ("nodes: 3", "nodes: 0", "x.yaml:3: cluster.nodes: 0: must be from 1"),
        # contradictions
        ("{read: 100%}", "{read: 50%, write: 60%}", "the shares make 100 %, and these make 110 %"),
        ("{read: 100%}", "{read: 100}", "operations.read: 100: a share is between 0 % and"),
        ("threads: 128", "threads: 128, rate: 10/s", "a load is either threads (closed loop) or"),
        ("{threads: 128}", "{}", "a load is either threads (closed loop) or rate (open loop)"),
        (
            "{threads: 128}",
            "{rate: 10/s, at_most: 5/s}",
            "at_most is the ceiling of a closed loop: threads that wait for each other; write "
            "{threads: 128, at_most: 20000/s}",
        ),
        ("rows: 10M,", "rows: 10M, fill: 30%,", "a data set has either rows or fill"),
        ("  load: {threads: 128}\n", "", "workload.load: (missing): is needed: threads (closed"),
        ("factors:", "procedure: {fixed: {rate: 1/s}}\nfactors:", "procedure fixed decides the"),
        (
            "database:",
            "client: {on_server: true}\ndatabase:",
            "x.yaml:3: cluster.nodes: 3: with `client.on_server` the load comes from the VM of the "
            "one server; write 1, or",
        ),
        ("factor: 1,", "factor: 5,", "5: each copy is on a node of its own, and the cluster has"),
        ("QUORUM}", "THREE}", "database.consistency: THREE: THREE waits for 3 copies, and there"),
        (
            "QUORUM}",
            "ANY}",
            "x.yaml:8: database.consistency: ANY: Cassandra has ANY only for writes",
        ),
        ("QUORUM}", "QUORUM, table: {chunk_length: 16KiB}}", "16KiB: a table without compression"),
        (
            "QUORUM}",
            "QUORUM, table: {compression: lz4, chunk_length: 12KiB}}",
            "x.yaml:8: database.table.chunk_length: 12KiB: a chunk is a power of two from 1KiB to",
        ),
        ("rows: 10M", "rows: 10G", "x.yaml:9: dataset.rows: 10G: 10000000000 rows of 4255 B x 1"),
        ("4 x azure/P30", "azure/Ultra(1024GiB)", None),
        ("4 x azure/P30", "65 x azure/P30", "takes 64 data disks, not 65"),
        ("factors:", "before: {credits: half}\nfactors:", "before.credits: half: is not a share"),
        ("database:", "device: {vm: x}\ndatabase:", "device.volume: (missing): is needed"),
        # factors
        ("[None, ReadOnly]", "[]", "x.yaml:15: factors.cluster.volumes.data.caching: []: a factor"),
        (
            "[None, ReadOnly]",
            "[None, None]",
            "None: each level may appear only once; remove one of them",
        ),
        ("[None, ReadOnly]", "[None, ReadOnyl]", "x.yaml:15: cluster.volumes.data.caching: ReadO"),
        ("volumes.data.caching", "volumes.date.caching", "date: a level patches what the baseline"),
        ("volumes.data.caching", "volume.data.caching", "volume: there is no such key; did you"),
        (
            "database: {",
            "database: {version: '6.2', ",
            "the newest Cassandra that disklab knows is 5",
        ),
        # YAML
        ("title:", "\ttitle:", "a line is indented by a tab, and YAML has spaces only"),
        ("nodes: 3", "nodes: [3", "x.yaml:4: x.yaml: is not YAML"),
        ("nodes: 3", "nodes: 3\n  nodes: 4", "x.yaml:4: nodes: the key stands on line 3 already"),
        ("nodes: 3", "nodes: &a [*a]", "*a: an alias stands outside of what it repeats"),
    ],
)
def test_a_broken_file(old: str, new: str, message: str | None) -> None:
    assert old in BASE
    text = BASE.replace(old, new, 1)
    if message is None:
        # A rule that some cells break refuses those: Ultra has no host cache.
        trials = spec.parse(text, "x.yaml").trials("predict")
        assert [trial.refused is None for trial in trials] == [True, False]
        assert "has no host caching" in trials[1].refused.rule
        assert trials[1].refused.place == "x.yaml:15: cluster.volumes.data.caching"
        return
    assert any(message in line for line in problems(text)), problems(text)


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = BASE
    for old, new in [
        ("nodes: 3", "nodes: none"),
        ("_DS14_v2", "_DS41_v2"),
        ("8KiB", "8XB"),
        ("10M", "10m"),
        ("ReadOnly]", "ReadOnyl]"),
        ("1/100", "1/0"),
    ]:
        text = text.replace(old, new, 1)
    found = problems(text)
    lines = [int(line.split(":")[1]) for line in found]
    assert lines == [3, 4, 6, 9, 15, 16]
    assert lines == sorted(lines)


def test_each_problem_is_told_once_although_many_trials_have_it() -> None:
    text = BASE.replace("rows: 10M", "rows: 10m").replace(
        "factors:", "factors:\n  workload.load.threads: [1, 2, 3, 4]"
    )
    assert len(problems(text)) == 1


def test_a_rule_that_every_trial_breaks_is_an_error_of_the_file() -> None:
    text = BASE.replace("[None, ReadOnly]", "[ReadOnly, ReadWrite]").replace(
        "4 x azure/P30", "azure/Ultra(1024GiB)"
    )
    # Each level breaks it in words of its own; both cells are refused.
    assert all(trial.refused for trial in spec.parse(text).trials("predict"))
    alone = text.replace("caching: None", "caching: ReadOnly").split("factors:")[0]
    assert "has no host caching" in problems(alone)[0]


def test_a_baseline_is_checked_where_every_level_overrides_it() -> None:
    text = BASE.replace("caching: None", "caching: Nome")
    assert problems(text)[0].startswith("x.yaml:6: cluster.volumes.data.caching: Nome: is not one")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_text("#" * (2 << 20))
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"title: caf\xe9")
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    for path, rule in [
        (tmp_path / "no.yaml", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (large, "an experiment file has at most 1048576 bytes"),
        (latin, "cannot be read: it is not UTF-8 text"),
        (empty, "an experiment is a mapping"),
    ]:
        with pytest.raises(UserError) as caught:
            spec.load(path)
        assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("cassandra-vm-type", "did you mean cassandra-vm-types"),
        ("experiments/cassandra-vm-type.yaml", "did you mean cassandra-vm-types"),
        ("mine.yaml", "disklab experiment new FILE"),
    ],
)
def test_a_name_that_neither_a_file_nor_an_example_has(
    name: str, way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for read in (spec.load, partial(read_ranged, only={})):
        with pytest.raises(UserError) as caught:
            read(Path(name))
        assert f"{name}: neither a file here nor an example" in str(caught.value)
        assert way_out in str(caught.value)


def test_words_that_yaml_1_1_would_twist_stay_words() -> None:
    text = "{a: off, b: 1:30, c: 0x10, d: yes, e: '1'}"
    words = document_of(Path("words.yaml"), text).root.plain()
    assert words == {"a": "off", "b": "1:30", "c": "0x10", "d": "yes", "e": "1"}


def test_a_workload_that_the_database_does_not_take() -> None:
    tpcc = "workload: {tpcc: {warehouses: 9, connections: 5}, stop: {duration: 60s}}\n"
    head, _, rest = BASE.partition("workload:\n")
    factors = rest[rest.index("factors:") :]
    (first, *_) = problems(
        head.replace("dataset: {rows: 10M, row: 5 x 818B}\n", "") + tpcc + factors
    )
    assert first.endswith(
        "tpcc: Cassandra can be asked for rows; choose another database or workload"
    )


TEXTS = [
    file.read_text(encoding="utf-8")
    for file in sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
]
WORDS = (
    "null",
    "[]",
    "{}",
    "-1",
    "0",
    "true",
    "None",
    "~",
    "'x'",
    "99999999999999999999",
    "1e400",
    ".nan",
    ".inf",
    "[1,2]",
    "{a:b}",
    "local",
    "x.y",
    "azure/P30",
    "1/0",
    "nvme",
    "ephemeral-os",
    "azure/Ultra",
    "azure/PremiumV2(1GiB)",
    '""',
    "&a",
    "*a",
    "30%",
    "200%",
    "1s",
    "?",
    "-",
)
# Most twists make a mistake: among this many texts of each seed some are still experiments.
TEXTS_EACH = 60


def twisted(text: str, chance: random.Random) -> str:
    """Return the text with a few words, lines or characters changed."""
    for _ in range(chance.randint(1, 3)):
        words = [match.span() for match in re.finditer(r"[A-Za-z0-9_./%]+", text)]
        lines = text.split("\n")
        here, there = chance.choice(words), chance.choice(words)
        at = chance.randrange(len(lines))
        mark = chance.randrange(len(text))
        text = chance.choice([
            text[: here[0]] + chance.choice(WORDS) + text[here[1] :],
            text[: here[0]] + text[there[0] : there[1]] + text[here[1] :],
            text[: here[0]] + text[here[1] :],
            "\n".join(lines[:at] + lines[at + 1 :]),
            "\n".join([*lines[:at], chance.choice(lines), *lines[at:]]),
            text[:mark] + chance.choice("{}[]:,-#'\" \n") + text[mark + 1 :],
        ])  # fmt: skip
    return text


@pytest.mark.parametrize("seed", range(4))
def test_a_twisted_file_is_an_experiment_or_a_users_error(seed: int) -> None:
    chance = random.Random(seed)
    refused = 0
    for _ in range(TEXTS_EACH):
        text = twisted(chance.choice(TEXTS), chance)
        try:
            for trial in spec.parse(text, "x.yaml").trials("rehearse"):
                assert trial.refused is not None or trial.here.workload is not None
        except UserError as error:
            refused += 1
            for problem in error.problems:
                assert problem.place, text
                assert problem.rule, text
                assert problem.way_out, text
    assert 0 < refused < TEXTS_EACH
