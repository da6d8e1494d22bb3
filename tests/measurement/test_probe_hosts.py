"""The probe of all hosts: a table, outliers named, nothing left."""

from __future__ import annotations

import json

from disklab.measurement.probing import outliers
from disklab.probe.cells import KIB, PERCENTILES, Cell, Direction, Profile
from disklab.probe.fio import Latency, Measurement, Side
from disklab.probe.run import CellResult

from .bench import Bench

CELL = Cell(Profile.ASYNC, Direction.RANDREAD, 4 * KIB)


def result(spot: str, iops: float) -> CellResult:
    latency = Latency(1e6, 1, 2_000_000, dict.fromkeys(PERCENTILES, 1_000_000))
    sides = {"read": Side(round(iops), round(iops) * 4096, latency)}
    return CellResult(spot, "", Measurement(CELL, sides, latency, 1.0, "", ()))


def test_the_host_with_a_seventh_is_named() -> None:
    spots = [result(f"n{number}/data", 5000 + number) for number in range(5)]
    (one,) = outliers([*spots, result("bad/data", 714.0)])
    assert str(one) == (
        "bad/data: async randread 4k: 714 IOPS, 7.0 times fewer than usual here (5,002)"
    )
    assert outliers([result("a/data", 5000), result("b/data", 700)]) == []
    assert outliers([result(f"n{n}/data", 5000 + 100 * n) for n in range(4)]) == []


def test_all_volumes_are_probed_and_left_as_they_were(bench: Bench) -> None:
    second = bench.folder / "second"
    second.mkdir()
    bench.write(
        "h.yaml",
        f"hosts: {{here: {{local: true, volumes: {{data: {bench.data}, more: {second}}}}}}}",
    )
    words = ["probe", "--hosts", "h.yaml", "--profile", "sync", "--rw", "randread", "--bs", "4k"]
    words += ["--duration", "1s", "--size", "16M"]
    code, _, err = bench.run(*words)
    assert code == 2
    assert "give --yes" in err
    code, out, err = bench.run(*words, "--yes", "--json")
    assert code == 0, err
    told = [json.loads(line) for line in out.splitlines()]
    assert [one["factors"]["subject"] for one in told] == ["here/data", "here/more"]
    bench.nothing_is_left()
    assert list(second.iterdir()) == []
    probes = bench.folder / "state/disklab/probes"
    assert list(probes.iterdir()) == []
