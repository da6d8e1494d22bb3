"""A trace through real fio on an emulated disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.procedures.rehearsed import only_result

pytestmark = [pytest.mark.machine, pytest.mark.alone]

EXPERIMENT = """
title: A few seconds of a trace
device:
  vm: azure/Standard_D8s_v3
  volume: {disks: azure/P10, caching: ReadOnly}
workload: {trace: t.csv}
before: {host_cache: empty}
rehearse: {time_dilation: 1}
"""


def test_fio_does_what_the_trace_says_and_no_more(tmp_path: Path) -> None:
    lines = [
        f"{10**17 + n * 100_000},h,0,{'Write' if n % 4 == 0 else 'Read'},{n % 50 * 16384},8192,0"
        for n in range(400)
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    told = only_result(tmp_path / "e.yaml")
    done = {side: one["operations"] for side, one in told["per_operation"].items()}
    assert done == {"read": 300, "write": 100}
    assert (told["trace"]["reads"], told["trace"]["writes"]) == (300, 100)
    # 4 s at 100 a second; the first reads of each place miss, those of what was written hit.
    assert 3.9 <= told["duration_s"] <= 12
    assert told["host_cache_hit_ratio"] > 0.8
    assert told["loop"]["rate_per_s"] == pytest.approx(100)
    assert not list((tmp_path / "run" / "hosts").iterdir())
