"""What people see: figures in words, curves and bars made of characters, progress, chart files."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from disklab.cli.probing import Follower
from disklab.cli.run_progress import RunView
from disklab.events import PhaseStarted, Progress
from disklab.probe import report
from disklab.probe.cells import KIB, PERCENTILES, Cell, Direction, Load, Profile
from disklab.probe.charts import sections, write_chart
from disklab.probe.fio import Latency, Measurement, Side
from disklab.probe.report import show
from disklab.probe.run import CellEnded, CellResult
from rich.console import Console

MS = 1_000_000


def result(
    subject: str, profile: Profile, iops: float, p50_ns: int, load: Load | None = None
) -> CellResult:
    cell = Cell(profile, Direction.RANDREAD, 4 * KIB, load)
    percentiles = {p: round(p50_ns * (1 + p / 100)) for p in PERCENTILES}
    latency = Latency(float(p50_ns), p50_ns, 9 * p50_ns, percentiles)
    sides = {"read": Side(int(iops), int(iops) * cell.block_bytes, latency)}
    measured = Measurement(cell, sides, latency, 1.0, "fio-3.33", ())
    return CellResult(subject, "own file", measured)


def test_a_curve_rises_from_bottom_left_to_top_right() -> None:
    curve = {p: 1000.0 * (number + 1) ** 2 for number, p in enumerate(PERCENTILES)}
    *rows, labels, legend = [line.plain for line in report.percentile_curves({"disk": curve})]
    assert len(rows) == report.ROWS
    columns = [row.find("●") for row in reversed(rows) if "●" in row]
    assert columns == sorted(columns)
    assert sum(row.count("●") for row in rows) == len(PERCENTILES)
    assert rows[0].split()[0] == "289"  # 17 squared, in microseconds
    assert labels.split()[:3] == ["percentile", "1", "5"]
    assert labels.rstrip().endswith("99.99")
    assert legend.strip() == "● disk"


def test_equal_curves_stand_beside_each_other() -> None:
    flat = dict.fromkeys(PERCENTILES, 5000.0)
    text = "\n".join(line.plain for line in report.percentile_curves({"one": flat, "two": flat}))
    assert text.count("●▲") == len(PERCENTILES)


def test_bars_are_in_proportion_and_carry_the_promise() -> None:
    full, half = report.bars([("a", 100.0, 50.0, "x"), ("b", 50.0, None, "y")])
    assert full.plain.count("█") == report.BAR - 1  # one of them shows the promise
    assert full.plain.index("┃") - full.plain.index("█") == report.BAR // 2
    assert half.plain.count("█") == report.BAR // 2
    assert "┃" not in half.plain


def test_several_disks_stand_side_by_side() -> None:
    out = Console(file=io.StringIO(), width=150)
    results = [
        result(name, profile, iops, p50_ns)
        for name, iops, p50_ns in (("uncached", 5000.0, 3 * MS), ("cached", 60000.0, MS // 5))
        for profile in Profile
    ]
    show(results, out)
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()
    first = next(number for number, line in enumerate(lines) if "sync randread 4k" in line)
    assert "uncached" in lines[first]
    assert "cached" in lines[first + 1]
    assert any(
        line.split() == ["●", "uncached", "randread", "▲", "cached", "randread"] for line in lines
    )


def test_a_cell_is_shown_as_a_trial_of_a_run() -> None:
    out = Console(file=io.StringIO(), width=150)
    ended = result("here", Profile.SYNC, 5000.0, MS)
    with RunView(out) as view:
        tell = Follower("here", [(0, {})], view, as_json=False)
        tell(PhaseStarted("fill", "here: writing 4k before reading it"))
        tell(PhaseStarted("measure", f"here: {ended.cell.title}"))
        tell(Progress("measure", 0.5, None, None, None))
        tell(CellEnded(ended))
    assert isinstance(out.file, io.StringIO)
    filled, began, phase, done = out.file.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert filled == "  fill: here: writing 4k before reading it"
    assert began.startswith("trial 1 of 1: cell here: sync randread 4k; repeat 1 (about ")
    assert phase == "  measure"
    assert done.startswith(
        "ok      disk here, cell sync randread 4k; repeat 1: 5,000 ops/s, p50 1.50"
    )


@pytest.mark.parametrize("suffix", [".svg", ".html", ".png"])
def test_a_chart_file_is_self_contained(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"chart{suffix}"
    write_chart([result("a disk", profile, 5000.0, MS) for profile in Profile], file)
    content = file.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG")
    else:
        assert b"a disk" in content
        assert b'src="http' not in content
        # Where each chart's figures come from: what was probed, and by which programs.
        assert b"Probe of a disk \xc2\xb7 disklab 0" in content
        assert b"\xc2\xb7 fio-3.33 \xc2\xb7 20" in content
        assert content.count(b"<figcaption") == content.count(b"<figure")


def test_charts_say_the_load_of_their_own_cells(tmp_path: Path) -> None:
    own = result("data", Profile.ASYNC, 9_000.0, MS, Load(8, 32))
    (rates,) = sections([own])
    assert rates.lead.startswith("8 jobs, depth 32.")
    write_chart([own], tmp_path / "own.svg")
    assert "Rates: 8 jobs, depth 32." in (tmp_path / "own.svg").read_text()
    out = io.StringIO()
    show([own], Console(file=out, width=150))
    assert "8 jobs, depth 32; bars are MB/s, ┃ the promise" in out.getvalue()
    (both,) = sections([own, result("data", Profile.ASYNC, 9_000.0, MS)])
    assert both.lead.startswith("8 jobs, depth 32; 4 jobs, depth 256.")
