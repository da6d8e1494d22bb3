"""`disklab experiment new`: files that load, hold what was asked, and are never written over."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.spec.draft import Draft, draft
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.in_process import disklab

DISKLAB = Path(sys.executable).with_name("disklab")
DISKS = ["azure/P30", "4 x azure/P30", "azure/PremiumV2(250GiB, 3000 IOPS, 125 MB/s)"]


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    nodes = draw(st.integers(1, 9))
    by_rate = draw(st.booleans())
    return Draft(
        database=draw(st.sampled_from(["cassandra", "mariadb", "mysql", "postgresql", "none"])),
        vm=draw(st.sampled_from(["azure/Standard_DS14_v2", "azure/Standard_E16s_v3"])),
        disks=draw(st.lists(st.sampled_from(DISKS), min_size=1, max_size=3, unique=True)),
        caching=draw(st.sampled_from([["None"], ["ReadOnly"], ["None", "ReadOnly"]])),
        nodes=nodes,
        copies=draw(st.integers(1, nodes)),
        # More of the longest rows do not fit on one P30.
        rows=draw(st.integers(1, 10**7)),
        row_bytes=draw(st.integers(1, 32768)),
        read_ratio=draw(st.integers(0, 100)) / 100,
        threads=None if by_rate else draw(st.integers(1, 4096)),
        rate_per_s=draw(st.integers(1, 10**6)) if by_rate else None,
        p99_ms=draw(st.none() | st.integers(1, 100)),
        title=draw(st.none() | st.sampled_from(["Which: #1?", "- a list, 'quoted'"])),
    )


@given(drafts())
def test_every_draft_is_an_experiment_that_asks_what_was_wished(wish: Draft) -> None:
    # Premium SSD v2 has no host caching: a baseline that cannot be is the file's mistake.
    assume("V2" not in wish.disks[0] or wish.caching[0] == "None")
    experiment = spec.parse(draft(wish))
    trials = experiment.trials("predict")
    assert len(trials) == len(wish.disks) * len(wish.caching)
    one = trials[0].spec
    if wish.title:
        assert experiment.title == wish.title
    if wish.database == "none":
        assert one.device.volume.disks == wish.disks[0]
        return
    assert one.dataset.rows == wish.rows
    assert one.dataset.column_bytes == wish.row_bytes
    assert one.workload.operations.read == pytest.approx(wish.read_ratio)
    assert one.workload.load.rate_per_s == wish.rate_per_s
    assert (one.require is not None) == (wish.p99_ms is not None)


def test_more_copies_than_nodes_are_refused_before_anything_is_written() -> None:
    with pytest.raises(UserError, match="3 nodes hold at most 3 copies"):
        draft(Draft("cassandra", "azure/Standard_DS14_v2", ["azure/P30"], copies=5))


def new(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    with patch.object(sys, "stdin", io.StringIO()):
        ran = disklab("experiment", "new", *words)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def test_the_command_writes_checks_and_never_writes_over(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    told = new(str(file), "--disks", "azure/P30", "--disks", "azure/P40", "--p99", "10").stdout
    assert told.endswith(f"next: disklab predict {file} --fidelity quick\n")
    assert len(spec.load(file).trials("predict")) == 2
    before = file.read_text()
    assert "exists already and is not overwritten" in new(str(file), code=2).stderr
    assert file.read_text() == before
    link = tmp_path / "link.yaml"
    link.symlink_to(tmp_path / "elsewhere.yaml")
    assert "choose another place" in new(str(link), code=2).stderr
    assert not (tmp_path / "elsewhere.yaml").exists()
    other = tmp_path / "other.yaml"
    wrong = new(str(other), "--vm", "azure/Standard_D8ds_v9", code=2).stderr
    assert "did you mean azure/Standard_D8ds_v7" in wrong
    assert not other.exists()
    cached = tmp_path / "cached.yaml"
    new(str(cached), "--caching", "ReadOnly")
    assert all(one.refused is None for one in spec.load(cached).trials("predict"))
    told_json = json.loads(new(str(other), "--database", "none", "--json").stdout)
    assert told_json["trials"] == 1


def test_what_does_not_fit_is_told_of_the_option_and_no_line(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    words = new(str(file), "--disks", "azure/P40", "--data", "1TB", code=2).stderr
    assert words.startswith("error: --data: 1G: 1000000000 rows")
    assert not file.exists()


def test_a_file_of_which_no_cell_can_be_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    words = new(str(file), "--disks", "local", "--disks", "azure/P40", "--data", "1TB", code=2)
    local, attached = words.stderr.splitlines()
    assert local.startswith("error: --data: 1G: 1000000000 rows")
    assert "local of azure/Standard_L8s_v3 holds 80 GiB" in local
    assert "azure/P40 of azure/Standard_L8s_v3 holds 2 TiB" in attached
    assert not file.exists()


def test_all_data_have_a_unit(tmp_path: Path) -> None:
    """100 bytes would be one row, whose disk is never read."""
    words = new(str(tmp_path / "one.yaml"), "--data", "100", code=2).stderr
    assert words == "error: --data: 100: has no unit; write 100GB, or 100B for bytes\n"
    asked = disklab("advise", "--data", "100", "--reads", "2000", "--p99", "10")
    assert (asked.returncode, asked.stderr) == (2, words)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/cli.md"])
def test_what_the_pages_ask_for_can_be(page: str, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / page).read_text()
    examples = re.findall(r"--disks \w+ --disks '[^']+' --data \w+", text)
    assert examples
    for number, options in enumerate(examples):
        file = str(tmp_path / f"{number}.yaml")
        assert not json.loads(new(file, *shlex.split(options), "--json").stdout)["refused"]


BOTH = ("--caching", "None", "--caching", "ReadOnly")


def test_a_host_cache_of_unpublished_size_is_taken_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "assumed.yaml"
    told = new(str(file), "--database", "postgresql", *BOTH).stdout
    assert "say what you assume: cluster.host_cache: 100GiB" in told
    text = file.read_text().replace("  volumes:", "  host_cache: 100GiB\n  volumes:")
    _, trial = spec.parse(text).trials("predict")
    assert trial.refused is None
    assert trial.share.host_cache_bytes.full == 100 << 30


def test_on_a_terminal_it_asks_and_asks_again_after_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "asked.yaml"
    asked = {
        "Database": ["casandra", ""],
        "Disks": ["azure/P33", "azure/P30; 4 x azure/P30"],
        "Host caching": ["ReadOnly"],
        "VM size": [""],
        "Nodes": ["4"],
        "Bytes of a row": ["many", "500 GB", "2kB"],
        "Data without copies": ["900TB", "1TB"],
        "Copies": ["5", ""],
        "Reads, percent": ["180", "50"],
    }
    said = answered([str(DISKLAB), "experiment", "new", str(file)], asked)
    assert "did you mean cassandra?" in said
    assert "azure/P33: no such disk in the catalogue" in said
    assert "write for example 1000B or 4KiB" in said
    # What cannot be is told where it is given, and asked again.
    assert "--row: 1 x 500000000000B" in said
    assert "with room for compaction" in said
    assert "--copies: 5" in said
    assert "is not a percentage" in said
    trials = spec.load(file).trials("predict")
    assert len(trials) == 2
    one = trials[0].spec
    assert one.cluster.nodes == 4
    assert {volume.caching for volume in one.cluster.volumes.values()} == {"ReadOnly"}
    assert one.dataset.rows == 500_000_000
    assert one.workload.operations.read == 0.5


def test_disks_of_aws_have_a_vm_of_aws(tmp_path: Path) -> None:
    file = tmp_path / "aws.yaml"
    told = json.loads(
        new(str(file), "--database", "mysql", "--disks", "aws/gp3(1000GiB)", "--json").stdout
    )
    assert told["refused"] == []
    assert "vm: aws/r8g.2xlarge" in file.read_text()


def answered(command: list[str], asked: dict[str, list[str]]) -> str:
    """Run a command on a terminal of its own and answer each question, as often as it comes."""
    left = {question: list(answers) for question, answers in asked.items()}
    child, terminal = pty.fork()
    if child == 0:
        os.execv(command[0], command)
    said, line = "", ""
    try:
        while True:
            # Of a busy machine: Python starts in a second or two.
            assert select.select([terminal], [], [], 60.0)[0], said
            try:
                part = os.read(terminal, 4096).decode()
            except OSError:  # the other end is closed: it has ended
                break
            if not part:
                break
            said, line = said + part, (line + part).rpartition("\n")[2]
            question = next((one for one in left if line.startswith(one)), None)
            if question is not None and line.endswith(": "):
                os.write(terminal, left[question].pop(0).encode() + b"\n")
                line = ""
    finally:
        os.close(terminal)
        status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0, said
    assert not any(left.values()), said
    return said
