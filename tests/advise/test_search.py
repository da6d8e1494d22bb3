"""The search of one kind of disks: what becomes of it when its best fails at full fidelity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from disklab import spec
from disklab.advice import search
from disklab.advice.advise import How, advise
from disklab.advice.candidates import NODES, Candidate, Field, dominated, field_of
from disklab.advice.levers import COLLECTOR, tuned
from disklab.advice.options import disks_alone
from disklab.advice.question import Question, question_of
from disklab.advice.rows import TOO_DEAR
from disklab.advice.search import (
    MOST_TRIED,
    Ladder,
    chosen,
    front,
    ladders_of,
    looked_at,
    take_back,
)
from disklab.advice.simulator import FAR, Simulator, Tried, pausing
from disklab.catalog import load_catalog
from disklab.cli.advise_asked import Asked
from disklab.databases.calibration import calibration_for
from disklab.errors import Problem, UserError
from disklab.results import TrialResult
from disklab.results.required import Kept, Outcome, Point

from tests.advise.exhaustive import FILE, question_with


def question() -> Question:
    asked = {"read": 0.5, "write": 0.5, "rows": 500_000_000, "row": 500, "rate": 4000}
    told = FILE.format(**asked, p99=10, room=0, compaction="leveled")
    return question_of(spec.parse(told, Path("t.yaml")), ("P20", "P30", "E8s_v3", "E16s_v3"))


def candidates() -> list[Candidate]:
    """Return the options with host caching, the cheapest first."""
    found = field_of(question(), load_catalog(), calibration_for("cassandra")).candidates
    return [one for one in found if one.disks.caching == "ReadOnly"]


class Quick:
    """Judges by the VM alone: E8s_v3 looks able with the slack of a quick run, and is not."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.asked: list[str] = []

    def __call__(self, one: Candidate) -> list[Tried]:
        """Return what becomes of an option, as it is and tuned."""
        self.asked.append(one.hardware)
        result: Any = None
        found = []
        for variant in (one, *tuned(one, question().spec)):
            able = "E16s" in variant.vm and bool(variant.settings)
            kept = Kept(Outcome.MET if able else Outcome.MISSED, ())
            found.append(Tried(variant, result, kept, promising=bool(variant.settings)))
        return found


def climbed(ladder: Ladder, quick: Quick) -> Ladder:
    while (one := ladder.next()) is not None:
        ladder.learn(one, quick(one))
    return ladder


def missed(candidate: Candidate) -> Tried:
    """Return an option that misses the promise when it is looked at more closely."""
    result: Any = None
    return Tried(candidate, result, Kept(Outcome.MISSED, ()), promising=False, fidelity="full")


def best_of(ladder: Ladder) -> Candidate:
    return ladder.best.candidate


def test_the_search_goes_on_above_what_fails_at_full_fidelity() -> None:
    quick, all_ = Quick(), candidates()
    ladder = climbed(Ladder("P", list(all_)), quick)
    assert best_of(ladder).vm.endswith("E8s_v3")
    ladder.reject(missed(best_of(ladder)))
    climbed(ladder, quick)
    cheapest = next(one for one in all_ if "E16s" in one.vm)
    assert best_of(ladder).hardware == cheapest.hardware
    assert best_of(ladder).settings
    # What is no better than a failed one was not tried, and nothing twice.
    assert len(quick.asked) == len(set(quick.asked)) < len(all_)


def test_what_costs_more_than_something_that_does_it_is_not_searched() -> None:
    quick, all_ = Quick(), candidates()
    ladder = climbed(Ladder("P", list(all_)), quick)
    cheapest = next(one for one in all_ if "E16s" in one.vm)
    ladder.reject(missed(best_of(ladder)))
    ladder.look_again(cheapest.usd_per_month)
    asked = len(quick.asked)
    climbed(ladder, quick)
    assert not [one for one in quick.asked[asked:] if one.startswith("E16s")]


def test_what_costs_as_much_as_something_that_does_it_is_not_searched() -> None:
    one, other, *_ = candidates()
    result: Any = None
    ladder = Ladder("P", [one, replace(other, usd_per_month=one.usd_per_month)])
    ladder.learn(one, [Tried(one, result, Kept(Outcome.MET, ()), True)])
    assert ladder.alive == []


def test_an_option_that_fails_as_it_is_may_do_with_its_levers_turned() -> None:
    one = candidates()[-1]
    levers = tuned(one, question().spec)[0]
    result: Any = None
    met = Kept(Outcome.MET, ())
    ladder = Ladder("P", [one])
    ladder.learn(
        one, [Tried(one, result, Kept(Outcome.MISSED, ()), True), Tried(levers, result, met, True)]
    )
    assert best_of(ladder) == one
    ladder.reject(missed(one))
    assert best_of(ladder) == replace(one, settings=levers.settings)
    ladder.reject(missed(levers))
    assert ladder.best is None


def test_other_kinds_are_looked_at_again_when_the_leading_one_fails() -> None:
    """What was left aside beside a leader is the cheapest without it: 6 x L8as_v3, 2026-11-27."""
    quick, all_ = Quick(), candidates()
    leader, other = Ladder("P", list(all_)), Ladder("V", list(all_))
    climbed(leader, quick)
    dear = next(one for one in reversed(all_) if "E16s" in one.vm)
    result: Any = None
    met = Tried(dear, result, Kept(Outcome.MET, ()), promising=True)
    other.tried, other.best, other.alive = [met], met, []
    take_back([leader, other], leader.best, missed(best_of(leader)))
    assert leader.rejected
    assert other.alive
    assert max(one.usd_per_month for one in other.alive) < dear.usd_per_month
    assert best_of(other) == dear


def test_what_a_failed_answer_leaves_is_searched_with_as_many_tries_again() -> None:
    """PostgreSQL's 500 GB on AWS: 8,446 USD a month where 577 do, after 14 tries (2026-11-29)."""
    one = candidates()[0]
    steps = range(2 * MOST_TRIED)
    all_ = [replace(one, usd_per_month=100.0 + n, vm=f"azure/Standard_E{n}s_v3") for n in steps]
    ladder, able = Ladder("P", list(all_)), Kept(Outcome.MET, ())
    result: Any = None
    # Beside the dearest one all that were tried failed by latencies, which rule out nothing else.
    ladder.tried = [Tried(all_[-1], result, able, True)]
    ladder.tried += [Tried(one, result, Kept(Outcome.MISSED, ()), False) for one in all_[:13]]
    ladder.best = ladder.tried[0]
    assert ladder.next() is None
    ladder.best = Tried(all_[14], result, able, True)
    ladder.tried.append(ladder.best)
    ladder.reject(missed(all_[14]))
    ladder.alive = all_[15:-1]
    assert ladder.next() is not None


def test_what_costs_several_times_the_answer_is_not_shown() -> None:
    one, able = candidates()[0], Kept(Outcome.MET, ())
    result: Any = None
    prices = (100.0, 100.0 * TOO_DEAR - 1, 100.0 * TOO_DEAR + 1)
    best = [Tried(replace(one, usd_per_month=usd), result, able, True) for usd in prices]
    ladders = [Ladder(str(n), [], best=one) for n, one in enumerate(best)]
    assert chosen(ladders) == best[:2]


def test_an_answer_without_a_setting_that_fails_is_proved_with_it() -> None:
    one = candidates()[-1]
    levers = tuned(one, question().spec)[0]
    calibration = calibration_for("cassandra")

    class Minute(Simulator):
        """A cell of 20 s does without settings; a minute does not."""

        def quick(self, candidates: Any, fidelity: str = "quick") -> dict[str, Tried]:
            kept = Kept(Outcome.MET, ())
            return {one.name: Tried(one, calm(5), kept, True, fidelity) for one in candidates}  # type: ignore[arg-type]

        def proved(self, promising: Tried, *, at_length: bool = True) -> Tried:
            able = promising.candidate.settings == levers.settings
            kept = Kept(Outcome.MET if able else Outcome.MISSED, ())
            return replace(promising, kept=kept, fidelity="full")

    simulator = Minute(question(), load_catalog(), calibration)
    best = Tried(levers, calm(5), Kept(Outcome.MET, ()), True)
    ladder = Ladder("P", [], tried=[best], best=best)
    answer, closer = looked_at(best, [ladder], simulator)
    assert answer is best is ladder.best
    assert closer.kept.outcome is Outcome.MET


POSTGRESQL = Asked(database="postgresql", data="500GB", reads=8000, p99=10)


def looked_through(asked: Asked, *wanted: str) -> Field:
    found = calibration_for(asked.database or "cassandra")
    return field_of(question_of(asked.experiment(), wanted), load_catalog(), found)


def test_a_single_copy_on_a_local_disk_is_marked() -> None:
    options = looked_through(POSTGRESQL).candidates
    assert {one.lossy for one in options if one.disks.kind in ("nvme", "local")} == {True}
    assert not any(one.lossy for one in options if one.disks.kind not in ("nvme", "local"))
    dropped = looked_through(replace(POSTGRESQL, durable=False)).candidates
    assert not any(one.lossy for one in dropped)


def test_a_size_that_retires_is_offered_to_those_who_name_it_alone() -> None:
    found = looked_through(POSTGRESQL)
    assert not any(one.vm.endswith(("L4s", "DS14_v2", "L8s_v2")) for one in found.candidates)
    assert any("retires on 2028-05-01" in reason for reason in found.refused)
    named = looked_through(replace(POSTGRESQL, durable=False), "L8s_v2")
    assert {one.vm for one in named.candidates} == {"azure/Standard_L8s_v2"}


def test_a_confidential_size_is_offered_to_those_who_name_it_alone() -> None:
    found = looked_through(POSTGRESQL)
    assert not any("_DC" in one.vm for one in found.candidates)
    assert any("for confidential computing" in reason for reason in found.refused)
    named = looked_through(POSTGRESQL, "DC16as_v5")
    assert {one.vm for one in named.candidates} == {"azure/Standard_DC16as_v5"}


GCP = Asked(cloud="gcp", data="500GB", reads=8000, p99=10)


@pytest.mark.parametrize("database", ["cassandra", "postgresql", "mariadb"])
def test_googles_disks_are_offered_with_prices(database: Any) -> None:
    found = looked_through(replace(GCP, database=database))
    kinds = {one.disks.expression.partition("(")[0] for one in found.candidates}
    assert kinds >= {"gcp/pd-balanced", "gcp/pd-ssd", "gcp/hyperdisk-balanced", "nvme"}
    assert all(one.usd_per_month > 0 for one in found.candidates)
    # IOPS follow from the size: more of them are a larger disk.
    sizes = {one.made.volume.size_bytes for one in found.candidates if "pd-balanced" in one.name}
    assert len(sizes) > 1
    assert not any(one.vm.startswith("gcp/c4-") and "pd-" in one.name for one in found.candidates)


def test_disks_without_a_price_are_named() -> None:
    calibration, asked = calibration_for("cassandra"), question_of(GCP.experiment(), ())
    unpriced = replace(load_catalog(), prices=[])
    assert "gcp/pd-ssd" in field_of(asked, unpriced, calibration).unpriced
    assert not field_of(asked, load_catalog(), calibration).unpriced


def small() -> Question:
    asked = {"read": 0.5, "write": 0.5, "rows": 500_000_000, "row": 500, "rate": 4000}
    told = FILE.format(**asked, p99=10, room=0, compaction="leveled")
    return question_of(spec.parse(told, Path("t.yaml")), ("P30", "nvme", "E8s_v3", "L8s_v3"))


def test_more_and_smaller_nodes_are_looked_through_too() -> None:
    calibration = calibration_for("cassandra")
    found = field_of(replace(small(), more_nodes=True), load_catalog(), calibration).candidates
    twice = {one.hardware: one for one in found if NODES in one.settings}
    usual = {one.hardware: one for one in found if NODES not in one.settings}
    assert "6 x L8s_v3 with local NVMe" in twice
    for name, one in twice.items():
        assert one.patch()[NODES] == 6
        assert one.nodes_of(3) == 6
        same = usual.get(name.removeprefix("6 x "))
        assert same is None or one.usd_per_month == pytest.approx(2 * same.usd_per_month)
    kinds = [ladder.kind for ladder in ladders_of(Field(found))]
    assert {"nvme", "nvme, 6 nodes"} <= set(kinds)


def test_an_overloaded_option_is_sketched_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator(question(), load_catalog(), calibration_for("cassandra"))
    weak, able, *_ = candidates()
    simulated: list[tuple[str, str]] = []
    missed = Kept(Outcome.MISSED, ())

    def quick(some: list[Candidate], fidelity: str = "quick") -> dict[str, Tried]:
        simulated.extend((one.name, fidelity) for one in some)
        rates = {weak.name: 2000.0, able.name: 3900.0}
        return {one.name: Tried(one, offered(rates[one.name]), missed, one is able) for one in some}

    monkeypatch.setattr(simulator, "quick", quick)
    assert simulator.sifted([weak, able], "quick").keys() == {weak.name, able.name}
    assert simulated == [(weak.name, "sketch"), (able.name, "sketch"), (able.name, "quick")]


def test_an_engine_that_takes_no_option_says_why() -> None:
    calibration = calibration_for("cassandra")
    simulator = Simulator(question(), load_catalog(), calibration, ablate=("of another version",))
    with pytest.raises(UserError, match="of another version"):
        simulator.quick(candidates()[:2])


def offered(ops_per_s: float) -> TrialResult:
    """Return a result of a loop that was offered 4,000 a second."""
    loop = {"kind": "open", "rate_per_s": 4000.0}
    found: Any = SimpleNamespace(ops_per_s=ops_per_s, duration_s=8.6, loop=loop)
    return found  # type: ignore[no-any-return]


def test_what_costs_more_and_has_no_more_of_anything_is_not_simulated() -> None:
    calibration = calibration_for("cassandra")
    asked = replace(question(), more_nodes=True)
    found = field_of(asked, load_catalog(), calibration).candidates
    left = front(found)
    assert left[0] is found[0]
    for one in found:
        stronger = [
            other
            for other in left
            if other.usd_per_month <= one.usd_per_month and one.strength.at_most(other.strength)
        ]
        assert stronger, one.name
    assert len(left) < len(found)


def test_six_nodes_are_six_unless_more_are_asked_for() -> None:
    found = field_of(small(), load_catalog(), calibration_for("cassandra")).candidates
    assert found
    assert {one.nodes_of(3) for one in found} == {3}


def test_a_vm_size_is_left_out_for_one_that_costs_no_more_and_has_no_less() -> None:
    catalog = load_catalog()
    sizes = [catalog.vms[f"azure/Standard_{name}"] for name in ("D8s_v5", "D16s_v5")]
    small_size, large_size = (one.name for one in sizes)
    assert dominated(sizes, {small_size: 100.0, large_size: 200.0}) == set()
    assert dominated(sizes, {small_size: 200.0, large_size: 200.0}) == {small_size}


def calm(p99_ms: float, ops_per_s: float = 1000.0, **tail: float) -> TrialResult:
    return TrialResult(
        experiment="t",
        mode="predict",
        trial=0,
        factors={},
        ops_per_s=ops_per_s,
        loop={"kind": "open", "rate_per_s": 1000.0},
        latency_ms={"p99": p99_ms},
        tail_ms={"p99": tail},
    )


def test_storage_is_service_limits_and_what_waits_behind_them() -> None:
    alone = disks_alone(calm(5, disk=1, limits=0.5, slots=0.25, network=3), True, calm(60))
    assert (alone.storage_ms, alone.p99_ms, alone.usual_p99_ms) == (1.75, 5, 60)
    assert str(alone) == "storage 1.8 ms; with G1 60 ms"
    assert disks_alone(calm(5, ops_per_s=500), False, None) is None


def test_options_are_tried_with_the_way_that_does_most_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulator = Simulator(question(), load_catalog(), calibration_for("cassandra"))
    one = candidates()[-1]
    asked: list[list[str]] = []

    def quick(able: bool, miss: float) -> Any:
        point = Point("read p99", Outcome.MISSED, "", "", miss)

        def found(_: Simulator, ways: list[Candidate], fidelity: str = "quick") -> dict[str, Tried]:
            asked.append([way.name for way in ways])
            kept = Kept(Outcome.MET if able else Outcome.MISSED, (point,))
            return {way.name: Tried(way, calm(5), kept, able) for way in ways}

        return found

    monkeypatch.setattr(Simulator, "quick", quick(True, 1.0))
    assert len(simulator.variants([one])[0]) == 1
    # What is far off is not saved by fewer levers; what is near may be.
    monkeypatch.setattr(Simulator, "quick", quick(False, 50.0))
    assert len(simulator.variants([one])[0]) == 1
    monkeypatch.setattr(Simulator, "quick", quick(False, FAR))
    assert {way.name for way in (tried.candidate for tried in simulator.variants([one])[0])} == {
        one.name,
        *(way.name for way in tuned(one, question().spec)),
    }


def test_a_sketch_that_a_quick_cell_denies_is_not_believed_any_more() -> None:
    all_ = candidates()
    result: Any = None
    met, missed = Kept(Outcome.MET, ()), Kept(Outcome.MISSED, ())
    ladder = Ladder("P", list(all_), fidelity="sketch")
    weak = all_[0]
    other = next(one for one in all_ if not one.strength.at_most(weak.strength))
    ladder.learn(other, [Tried(other, result, met, True, "sketch")])
    ladder.learn(weak, [Tried(weak, result, met, True, "sketch")])
    assert best_of(ladder) == weak
    ladder.confirm(Tried(weak, result, missed, False))
    # The other sketch is as doubtful, so it is tried again; what is no better than the weak one
    # is not.
    assert (ladder.fidelity, ladder.best) == ("quick", None)
    assert other in ladder.alive
    assert weak not in ladder.alive
    ladder.learn(other, [Tried(other, result, met, True)])
    assert best_of(ladder) == other


@pytest.mark.parametrize("collector", ["g1", "zgc"])
def test_sketches_leave_out_stops_and_quick_cells_have_them(
    collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration = calibration_for("cassandra")
    told = (
        small()
        .text({})
        .replace("engine: cassandra", f"engine: cassandra\n  jvm: {{collector: {collector}}}")
    )
    asked = question_of(spec.parse(told, Path("t.yaml")), ("P30", "E8s_v3"))
    simulator = Simulator(asked, load_catalog(), calibration)
    assert pausing(asked)
    jobs: list[dict[str, Any]] = []

    def none(_: Simulator, some: list[dict[str, Any]]) -> Any:
        jobs.extend(some)
        return {}, {}

    monkeypatch.setattr(Simulator, "_answers", none)
    one = field_of(asked, load_catalog(), calibration).candidates[0]
    simulator.quick([one], "sketch")
    simulator.quick([one])
    assert [(job["fidelity"], job["ablate"]) for job in jobs] == [
        ("sketch", ["pauses"]),
        ("quick", []),
    ]


def test_another_collector_is_tried_where_stops_alone_are_in_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibration = calibration_for("cassandra")
    told = small().text({}).replace('version: "4.1"', 'version: "5.0"')
    asked = question_of(spec.parse(told, Path("t.yaml")), ("P30", "E8s_v3"))
    simulator = Simulator(asked, load_catalog(), calibration)
    one = field_of(asked, load_catalog(), calibration).candidates[-1]

    def judged(calm: bool) -> Any:
        def quick(_: Simulator, some: list[Candidate], fidelity: str = "quick") -> Any:
            def able(way: Candidate) -> bool:
                return calm if fidelity == "sketch" else way.settings.get(COLLECTOR) == "zgc"

            kept = Kept(Outcome.MISSED, ())
            return {way.name: Tried(way, calm_result, kept, able(way), fidelity) for way in some}  # type: ignore[arg-type]

        return quick

    calm_result = calm(5)
    failed = Tried(one, calm_result, Kept(Outcome.MISSED, ()), promising=False)
    monkeypatch.setattr(Simulator, "quick", judged(calm=True))
    (turned,) = simulator.calmed([failed]).values()
    assert turned.candidate.settings[COLLECTOR] == "zgc"
    assert turned.promising
    # What fails without stops too is not saved by it.
    monkeypatch.setattr(Simulator, "quick", judged(calm=False))
    assert simulator.calmed([failed]) == {}


def test_the_collector_that_helped_one_option_is_tried_first_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibration = calibration_for("cassandra")
    assert calibration is not None
    told = small().text({}).replace('version: "4.1"', 'version: "5.0"')
    asked = question_of(spec.parse(told, Path("t.yaml")), ("P30", "E8s_v3"))
    simulator = Simulator(asked, load_catalog(), calibration)
    first, second, *_ = field_of(asked, load_catalog(), calibration).candidates
    cells: list[tuple[str, str]] = []

    def quick(_: Simulator, some: list[Candidate], fidelity: str = "quick") -> Any:
        def tried(way: Candidate) -> Tried:
            collector = str(way.settings.get(COLLECTOR, "g1"))
            cells.append((fidelity, collector))
            able = fidelity == "sketch" or collector == "zgc"
            kept = Kept(Outcome.MET if able else Outcome.MISSED, ())
            return Tried(way, calm(5), kept, able, fidelity)  # type: ignore[arg-type]

        return {way.name: tried(way) for way in some}

    monkeypatch.setattr(Simulator, "quick", quick)
    for one, simulated in (
        (first, [("quick", "g1"), ("sketch", "g1"), ("quick", "zgc")]),
        (second, [("sketch", "g1"), ("quick", "zgc")]),
    ):
        cells.clear()
        (turned,) = simulator.unstopped([one]).values()
        assert turned.promising
        assert cells == simulated


def test_of_the_same_price_the_option_with_fewer_nodes_is_first() -> None:
    kept = Kept(Outcome.MET, ())
    few, *_ = candidates()
    many = replace(few, settings={NODES: 6})
    best = [Tried(one, calm(5), kept, promising=True) for one in (many, few)]
    ladders = [Ladder(str(n), [], best=one) for n, one in enumerate(best)]
    assert search.best_of(ladders) is best[1]
    assert search.preferable(few, many)
    assert not search.preferable(many, few)


def test_what_costs_more_than_the_kinds_that_are_wanted_is_not_tried() -> None:
    kept = Kept(Outcome.MET, ())
    cheap, *dearer = candidates()
    answer = Ladder("P", [], best=Tried(cheap, calm(5), kept, promising=True))
    other = Ladder("V", dearer)
    search.try_all([answer, other], Never(), lambda _: None, wanted=1)
    assert other.tried == []
    with pytest.raises(AssertionError, match="simulated"):
        search.try_all([answer, other], Never(), lambda _: None, wanted=2)


class Never(Simulator):
    """Simulates nothing."""

    def __init__(self) -> None:
        """It has no question."""

    def variants(self, *_: Any) -> Any:
        """Fail: it is not asked."""
        raise AssertionError("an option is simulated")


def test_a_sketch_of_crowded_processors_is_not_believed() -> None:
    """6 x L4aos_v4 with ZGC: p99 1.7 ms in a sketch and quick, 95 ms at full fidelity (2026-11-29).

    Its processors are 79 % busy at the asked rate: of a full cell's p99 40 ms are a queue for them
    behind flushes and compactions, which smaller cells have smaller.
    """
    calibration = calibration_for("cassandra")
    asked = question_of(
        Asked(nodes=6, data="2TB", reads=20000, writes=5000, p99=10).experiment(),
        ("L4aos_v4", "nvme"),
        growth_ratio=0.0,
    )
    (one,) = field_of(asked, load_catalog(), calibration).candidates
    turned = replace(one, settings=tuned(one, asked.spec)[0].settings | {COLLECTOR: "zgc"})
    at_asked, raised = (
        Simulator(some, load_catalog(), calibration).quick([turned], "sketch")[turned.name]
        for some in (asked, asked.raised)
    )
    assert at_asked.result.latency_ms["p99"] < 3
    assert not at_asked.promising
    assert not raised.promising
    assert "node CPU" in str(at_asked.kept)


def test_an_engine_that_takes_nothing_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    problem = Problem("job.client", "true", "no key of this engine", "take that of this version")

    def simulate(jobs: Iterable[dict[str, Any]], *_: Any, **__: Any) -> Iterator[Any]:
        for job in jobs:
            yield {"event": "refused", "cell": job["cell"], "reasons": [asdict(problem)]}

    monkeypatch.setattr("disklab.advice.simulator.simulate_once", simulate)
    asked = question_with(2005)
    with pytest.raises(UserError) as error:
        advise(asked, How(bands=False, out=tmp_path), lambda _: None, lambda *_: None)
    assert error.value.problems == (problem,)
