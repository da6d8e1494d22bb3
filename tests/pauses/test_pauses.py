"""Pauses follow from what is allocated: held against collections of a real Cassandra."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, median

import pytest
from disklab.databases.simulating import own_client
from disklab.prediction.cells import with_parameters
from disklab.prediction.counted import rehearsed_trials
from disklab.results import Share

from campaigns.pauses.twin import Line, allocated_bytes, measured, package, pauses_us
from campaigns.truth.__main__ import STATE
from campaigns.truth.matrix import BEDS, MEMORY_MIXED, MEMORY_READS, key_of
from campaigns.truth.state import experiment_of, stored
from campaigns.truth.twin import job_of, simulated

ROOT = Path(__file__).resolve().parents[2]

KEYS_COME_IN = (20_000, 200_000)
"""Rows whose keys had just come into the key cache: while they grow old, up to fifteen collections
move them again, and a prediction takes them as known. With more rows keys come all the time."""


def factor(seen: float, predicted: float) -> float:
    return math.exp(abs(math.log(predicted / seen)))


def fills_the_key_cache(line: Line) -> bool:
    return line["mixture"] == "reads" and line["rows"] in KEYS_COME_IN


def test_operations_allocate_what_the_calibration_says() -> None:
    """Rows of 200 B to 32 KiB, two heaps, G1 and Parallel: one line for reads, one for writes."""
    off = [factor(*allocated_bytes(line)) for line in measured()]
    assert len(off) == 32
    assert median(off) < 1.1
    # A key that is not in the key cache costs some KB more.
    assert max(off) < 1.35


@pytest.mark.long
def test_measured_collections_are_predicted() -> None:
    """Seen by one JVM (4 GiB, Cassandra's own options), predicted for others: time an operation."""
    told = [*pauses_us(measured())]
    off = {str(line): factor(*both) for line, *both in told if not fills_the_key_cache(line)}
    assert len(off) >= 20
    assert median(off.values()) < 1.7
    assert max(off.values()) < 4.0, max(off, key=lambda name: off[name])
    parallel = [factor(*both) for line, *both in told if line["collector"] == "Parallel"]
    assert median(parallel) < 2.2
    for line, seen, predicted in told:
        if fills_the_key_cache(line):
            assert predicted < 1.2 * seen, line


QUIET_LOAD = 10.0
"""Load average of a minute. With more beside it on two cores, a collection waits for its cores."""


def test_stored_rehearsals_are_predicted_without_their_references(tmp_path: Path) -> None:
    """JVMs of 1 GiB in slow motion, from the package's calibration alone: pauses an operation.

    Compressed tables are left out: what opening a chunk allocates is not known.
    """
    lines, jobs = stored(ROOT / STATE), {}
    values = own_client(package().values())
    for bed in BEDS:
        plain = bed.engine == "cassandra" and bed.table.get("compression") == "none"
        for name in (MEMORY_READS, MEMORY_MIXED):
            line = lines.get(key_of(bed, next(one for one in bed.cells if one.name == name)))
            if not plain or line is None or line["load_average"][0] >= QUIET_LOAD:
                continue
            share = Share.model_validate(line["share"])
            trials = rehearsed_trials(experiment_of(bed, tmp_path), share)
            trial = next(one for one in trials if one.factors["cell"] == name)
            jobs[line["cell"]] = with_parameters(job_of(trial, line["cpus"]), values)
    assert len(jobs) >= 6
    off = {}
    for key, answers in simulated(jobs).items():
        line = lines[key]
        seen = line["gc_pause_ms"] * 1e3 / sum(line["operations"].values())
        told = (one["telemetry"]["pause_ratio"] / one["ops_per_s"] * 1e6 for one in answers)
        off[key] = factor(seen, fmean(told))
    assert max(off.values()) < 2.6, off
    assert median(off.values()) < 2.0, off
