"""From a question to its advice: rule out, search, simulate finalists, see what flips it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from disklab.advice import page
from disklab.advice.answer import Advice
from disklab.advice.candidates import NODES, Candidate, field_of
from disklab.advice.levers import COLLECTOR, one_more
from disklab.advice.options import SAME_PRICE, Option, disks_alone, levers_of, ranked, short
from disklab.advice.present import candidate_of
from disklab.advice.promise import bare, with_room
from disklab.advice.question import FACTOR, Question
from disklab.advice.search import (
    Ladder,
    Simulator,
    Tried,
    alone,
    best_of,
    climb,
    come_as_near,
    front,
    ladders_of,
    plainer,
    steady,
)
from disklab.catalog import load_catalog
from disklab.catalog.quantity import plain_number
from disklab.database_facts import facts_of
from disklab.databases.calibration import Calibration, calibration_for
from disklab.engine.process import Memory, Workers
from disklab.errors import Problem, UserError
from disklab.events import Emit
from disklab.folders import Inside
from disklab.prediction import Options, predict
from disklab.prediction.cells import prepare
from disklab.prediction.outages import Rebuilt, rebuild_times
from disklab.prediction.run import bands_of
from disklab.results import Bands, Run
from disklab.results.required import Outcome, judge, kept, required_of
from disklab.spec import Experiment

FINALISTS = 3
"""Options that are simulated at full fidelity: the cheapest of as many kinds of disks."""

MOST_ROUNDS = 4
"""How often the search goes on where a finalist does not keep the promise at full fidelity."""

FAR_OFF = 2.0
"""Who misses the promise so many times over gets no band, which would not tell otherwise."""

ONCE, OFTEN = 1, 2
"""Repeats at full fidelity, each of its own random streams: where bands tell what is not known, and
where nothing else does."""

MORE_LOAD = 1.5
MORE_DATA = 2
"""Growth at which the choice is looked at again."""

ADVICE, PAGE = "advice.json", "advice.html"
"""What a run folder has beside its results."""


@dataclass(frozen=True)
class How:
    """How advice is worked out."""

    seed: int = 1
    workers: Workers = None
    bands: bool | None = None
    """Whether finalists get 80 % bands; None: where that is quick."""
    given: Mapping[str, Bands] = field(default_factory=dict, repr=False)
    """Those of options by their names, as far as they are known."""
    memory: Memory = field(default_factory=dict, repr=False, compare=False)
    """Answers of the simulator that are known already."""
    calibration: Calibration | None = None
    out: Path = Path("disklab-runs")
    command: tuple[str, ...] = ()
    beside: Path | None = None
    """Where the experiment file of the finalists is written."""


Tell = Callable[[str, int, str], None]
"""Hears what is being done, how many cells are simulated, and the best so far in words."""


def advise(question: Question, how: How, emit: Emit, tell: Tell) -> Advice:
    """Return the advice. The finalists' run is stored, with everything else beside it."""
    catalog = load_catalog()
    calibration = how.calibration or calibration_of(question)
    tell("looking through the catalogue", 0, "")
    field = field_of(question, catalog, calibration)
    ladders = ladders_of(field)
    simulator = Simulator(question.raised, catalog, calibration, how.workers, seed=how.seed)
    advice = Advice(question, field, ladders, [], 0)
    runs_now = compared(advice)
    if not field.candidates:
        if runs_now is not None:
            beside(advice, runs_now, [], how, emit)
            store(advice, how)
        return advice

    def heard(cells: int, best: Tried | None) -> None:
        failed = dict.fromkeys(one.kind.partition(",")[0] for one in ladders if one.failed)
        ruled_out = f", ruled out so far: {', '.join(failed)}" if failed else ""
        tell(f"simulating quick{ruled_out}", cells, "" if best is None else briefly(best, question))

    known: dict[str, Tried] = {}
    for turn in range(MOST_ROUNDS):
        climb(ladders, simulator, heard)
        if turn == 0 and best_of(ladders) is None and (calm := without_pauses(simulator)):
            # Nothing does it, so disks are looked for that would, were it not for the collector.
            ladders = advice.ladders = ladders_of(field)
            climb(ladders, calm, heard)
            simulator.cells += calm.cells
            advice.calm = best_of(ladders) is not None
        if turn == 0 and best_of(ladders) is None:
            come_as_near(ladders, simulator)
        most = cheapest_met(known.values())
        new = [one for one in chosen(ladders) if one.candidate.name not in known]
        new = [one for one in new if one.candidate.usd_per_month < most]
        if not new:
            break
        first = new[0]
        if first.promising and not advice.calm and (plain := plainer(first, field, simulator)):
            new += [plain] if plain.candidate.name not in known else []
        tell("simulating the finalists", simulator.cells, briefly(first, question))
        known |= simulator.full([one.candidate for one in new])
        if advice.calm or not rejected_of(ladders, known, cheapest_met(known.values())):
            break
    advice.tried = list(known.values())
    finalists = shown(known.values(), calm=advice.calm)
    last = replace(how, memory=simulator.memory)
    tell("how sure that is", simulator.cells, briefly(finalists[0], question) if finalists else "")
    options = [one.candidate for one in finalists]
    last = last if advice.calm else with_bands(finalists, question, calibration, last)
    advice.options = ranked(
        beside(advice, runs_now, options, last, emit).values(), by_price=advice.calm
    )
    advice.cells = simulator.cells
    tell("turning the levers", simulator.cells, "")
    advice.without_room = without_room(advice, simulator)
    explain(advice, simulator)
    store(advice, how)
    return advice


def shown(known: Iterable[Tried], *, calm: bool) -> list[Tried]:
    """Return the finalists of what was simulated at full fidelity, the first the likeliest answer.

    What keeps the promise, by price; where nothing does, what misses it least.
    """
    every = sorted(known, key=lambda one: one.candidate.usd_per_month)
    lossy = [one for one in every if one.candidate.lossy][:1]
    keeping = [one for one in every if not one.candidate.lossy]
    able = [one for one in keeping if one.kept.outcome is Outcome.MET]
    if able and not calm:
        return [*able[: FINALISTS + 1], *lossy]
    return [*sorted(keeping, key=lambda one: one.miss)[:FINALISTS], *lossy]


def with_bands(
    finalists: Sequence[Tried], question: Question, calibration: Calibration, how: How
) -> How:
    """Return how finalists are simulated, with the bands of those that may be the answer.

    By price, until one surely keeps the promise: what is dearer is not the answer.
    """
    if not banded(question, how):
        return how
    found: dict[str, Bands] = {}
    for one in finalists:
        if one.miss > FAR_OFF:
            continue
        rough = steady(one, question.spec)
        experiment = question.experiment({one.candidate.name: one.candidate.patch()})
        options = Options(
            seed=how.seed,
            bands=True,
            draws=DRAWS,
            rough=frozenset({0}) if rough else frozenset(),
            calibration=calibration,
            workers=how.workers,
        )
        bands = bands_of(experiment, options).get(0)
        if bands is None:
            continue
        found[one.candidate.name] = bands
        sure = judge(one.required, [one.result.model_copy(update={"bands": bands})])
        if sure.outcome is Outcome.MET and not one.candidate.lossy:
            break
    return replace(how, given=found)


DRAWS = 16
"""Draws of a finalist's bands: its spread is known within a fifth by them, in a quarter of the
time that telling the unknowns apart takes."""


def without_pauses(simulator: Simulator) -> Simulator | None:
    """Return one that simulates nodes which never pause; None: they never do."""
    database = simulator.question.spec.database
    pausing = facts_of(database.engine).simulator == "cassandra"
    return replace(simulator, ablate=("pauses",), cells=0) if pausing else None


def briefly(one: Tried, question: Question) -> str:
    """Return an option that was simulated quick in a few words."""
    nodes = "" if NODES in one.candidate.settings else f"{question.spec.cluster.nodes} x "
    p99 = one.result.latency_ms.get("p99")
    latency = "" if p99 is None else f", p99 {short(p99)} ms"
    return f"{nodes}{one.candidate.name}, {one.candidate.usd_per_month:,.0f} USD a month{latency}"


def calibration_of(question: Question) -> Calibration:
    """Return the package's calibration of the database."""
    engine = question.spec.database.engine
    found = calibration_for(engine)
    assert found is not None, "a question is about a database that advice simulates"
    return found


def compared(advice: Advice) -> Candidate | None:
    """Return what runs now, to be simulated too; None: nobody stated it, or it cannot be."""
    if advice.present is None:
        return None
    found = candidate_of(advice.question)
    if isinstance(found, str):
        advice.unknown = found
        return None
    return found


def beside(
    advice: Advice, runs_now: Candidate | None, options: Sequence[Candidate], how: How, emit: Emit
) -> dict[str, Option]:
    """Simulate options at full fidelity, with what runs now beside them; return the options."""
    names = {one.name for one in options}
    also = [runs_now] if runs_now is not None and runs_now.name not in names else []
    run, found = finals(advice.question, [*options, *also], how, emit)
    advice.run = run.folder
    if runs_now is not None:
        advice.now = found.get(runs_now.name)
        if advice.now is None:
            advice.unknown = refused_as(run, runs_now.name)
    return {name: one for name, one in found.items() if name in names}


def refused_as(run: Run, name: str) -> str:
    """Return why an option of a run has no figures."""
    trials = {one.trial for one in run.planned() if one.factors[FACTOR] == name}
    whys = [str(one.reason) for one in run.results() if one.trial in trials and one.reason]
    return whys[0] if whys else "it has no figures"


def chosen(ladders: Sequence[Ladder]) -> list[Tried]:
    """Return the finalists: the cheapest of each kind that may do it, else the nearest."""
    best = [one.best for one in ladders if one.best is not None]
    best.sort(key=lambda one: one.candidate.usd_per_month)
    # One that loses data is shown for its price, and is never the answer.
    lossy = [one for one in best if one.candidate.lossy][:1]
    keeping = [one for one in best if not one.candidate.lossy]
    if keeping:
        return [*keeping[: FINALISTS - len(lossy)], *lossy]
    near = [found for one in ladders if (found := one.nearest) is not None]
    near = [one for one in near if not one.candidate.lossy]
    return [*sorted(near, key=lambda one: one.miss)[: FINALISTS - 1], *lossy]


def cheapest_met(options: Iterable[Option | Tried]) -> float:
    """Return the price of the cheapest that surely keeps the promise; infinite: none does."""
    able = (one for one in options if one.kept.outcome is Outcome.MET)
    return min((one.candidate.usd_per_month for one in able), default=float("inf"))


def rejected_of(
    ladders: Sequence[Ladder], found: Mapping[str, Tried], below_usd: float
) -> list[Ladder]:
    """Take back each best that fails at full fidelity, and return the ladders that had one.

    What they have above a price needs no search: something that costs less is known to do.
    """
    failed = []
    for ladder in ladders:
        full = None if ladder.best is None else found.get(ladder.best.candidate.name)
        if full and full.kept.outcome is not Outcome.MET:
            ladder.reject(below_usd)
            failed.append(ladder)
    for ladder in ladders:
        # What was left aside beside a kind that leads may be the cheapest now that it does not.
        if failed and ladder not in failed and ladder.best is not None:
            ladder.look_again(below_usd)
    return failed


def finals(
    question: Question, finalists: Sequence[Candidate], how: How, emit: Emit
) -> tuple[Run, dict[str, Option]]:
    """Simulate the finalists at full fidelity, as a run."""
    by_name = {one.name: one for one in finalists}
    levels = {name: one.patch() for name, one in by_name.items()}
    experiment = question.experiment(levels)
    trials = {str(one.factors[FACTOR]): one.index for one in experiment.trials("predict")}
    options = Options(
        seed=how.seed,
        repeats=ONCE if banded(question, how) else OFTEN,
        memory=how.memory,
        workers=alone(how.workers),
        given={trials[name]: bands for name, bands in how.given.items() if name in trials},
        calibration=how.calibration,
        region=question.region,
        terms=question.terms,
        out=how.out,
        command=how.command,
    )
    run = predict(experiment, options, emit)
    calibration = how.calibration or calibration_of(question)
    rebuilt = _rebuilt(experiment, options, calibration)
    simulator = Simulator(question.raised, load_catalog(), calibration, how.workers, seed=how.seed)
    raised = replace(simulator, memory=how.memory).full(finalists)
    nodes = question.spec.nodes
    copies = question.spec.copies
    found = {}
    for trial in run.planned():
        results = tuple(r for r in run.results() if r.trial == trial.trial)
        required = required_of(trial.spec)
        promise = kept(bare(required), results) if required is not None else None
        candidate = by_name[str(trial.factors[FACTOR])]
        if promise is not None and required is not None:
            more = raised.get(candidate.name)
            grown = None if more is None else more.kept
            promise = with_room(promise, grown, required.head_room_ratio)
            again = rebuilt.get(trial.trial)
            found[candidate.name] = Option(
                *(candidate, results, promise, candidate.nodes_of(nodes), again),
                copied=copies > 1,
                raised=None if more is None else more.result,
            )
    return run, found


def banded(question: Question, how: How) -> bool:
    """Return whether finalists get bands: without being asked, only where rows are quick."""
    database = question.spec.database
    quick = facts_of(database.engine).simulator == "cassandra"
    return quick if how.bands is None else how.bands


def _rebuilt(
    experiment: Experiment, options: Options, calibration: Calibration
) -> dict[int, Rebuilt]:
    """Return what a lost node of each option needs until it has its data again."""
    catalog = load_catalog()
    runnable = {}
    for trial in experiment.trials("predict"):
        if trial.refused is None:
            prepared = prepare(trial, catalog, calibration, str(experiment.path))
            if prepared.job is not None:
                runnable[trial.index] = (trial, prepared.job)
    return rebuild_times(runnable, options.seed, options.workers)


def explain(advice: Advice, simulator: Simulator) -> None:
    """Add what the disks do by themselves, levers, and what flips the choice."""
    unraised = replace(simulator, question=advice.question)
    judge_disks(advice, unraised, simulator)
    options, spec = advice.options[:EXPLAINED], advice.question.spec
    more = {one.name: one_more(one.candidate, spec) for one in options}
    some = [one.candidate for one in options]
    quick = unraised.quick(some + [way for ways in more.values() for way, _, _ in ways])
    for number, one in enumerate(options):
        first = quick.get(one.candidate.name)
        turned = [
            (words, quick[way.name].result, cost)
            for way, words, cost in more[one.name]
            if way.name in quick
        ]
        levers = levers_of(first.result, turned) if first is not None else ()
        advice.options[number] = replace(one, levers=levers)
    advice.changes = [*flips(advice, simulator)]
    advice.cells = simulator.cells


def without_room(advice: Advice, simulator: Simulator) -> Candidate | None:
    """Return what would do for much less with the data of the first day; None: nothing.

    Disks that come with VMs have the sizes that they have: room for growth may double a price.
    """
    chosen = advice.chosen
    if chosen is None:
        return None
    most = chosen.candidate.usd_per_month * STEP_RATIO
    cheap = [one for one in advice.looked.tight if one.usd_per_month < most and not one.lossy]
    ladder = Ladder("tight", front(cheap))
    climb([ladder], simulator, lambda *_: None)
    return None if ladder.best is None else ladder.best.candidate


STEP_RATIO = 0.9
"""What saves less than a tenth is not told."""


EXPLAINED = 2
"""Options whose levers are turned one by one."""


def judge_disks(advice: Advice, simulator: Simulator, raised: Simulator) -> None:
    """Add to each option what its disks do without pauses, and its p99 with the usual collector.

    That with the head-room, where it fails.
    """
    calm = without_pauses(simulator)
    if calm is None:
        return
    candidates = [one.candidate for one in advice.options]
    alone = calm.quick(candidates)
    usual = {
        one.name: replace(one, settings=left)
        for one in candidates
        if COLLECTOR in one.settings
        and (left := {path: way for path, way in one.settings.items() if path != COLLECTOR})
        is not None
    }
    stopping = raised.quick(list(usual.values()))
    simulator.cells += calm.cells
    for number, one in enumerate(advice.options):
        name = one.candidate.name
        if name in alone:
            other = stopping.get(usual[name].name) if name in usual else None
            result = None if other is None else other.result
            disks = disks_alone(alone[name].result, alone[name].promising, result)
            advice.options[number] = replace(one, disks=disks)


def flips(advice: Advice, simulator: Simulator) -> list[str]:
    """Return at which price, rate or data the choice is another one."""
    able = [one for one in advice.options if one.kept.outcome in (Outcome.MET, Outcome.CANNOT_TELL)]
    if not able:
        return []
    first, found = able[0], []
    if len(able) > 1:
        second = able[1]
        more = second.candidate.usd_per_month / first.candidate.usd_per_month - 1
        if more >= SAME_PRICE:
            found.append(
                f"Price: {second.name} ({second.price}) is the choice once the first costs "
                f"{more * 100:.0f} % more."
            )
    for words, question in grown(advice.question):
        grown_simulator = replace(simulator, question=question, cells=0)
        try:
            quick = grown_simulator.quick([one.candidate for one in able])
        except UserError:
            # None of them can be: so much data fits on no option's disks.
            quick = {}
        simulator.cells += grown_simulator.cells
        left = [one for one in able if (t := quick.get(one.candidate.name)) and t.promising]
        if not left:
            found.append(f"{words}: none of these options keeps the promise; ask again with it.")
        elif left[0] is first:
            found.append(f"{words}: the choice stays.")
        else:
            found.append(f"{words}: {left[0].name} ({left[0].price}).")
    return found


def grown(question: Question) -> list[tuple[str, Question]]:
    """Return the question with a higher rate, and with more data."""
    tree = question.tree
    rate = question.rate_per_s * MORE_LOAD
    more_load = {**tree, "require": tree["require"] | {"rate": f"{plain_number(rate)}/s"}}
    more = changed(question, more_load).offering(question.raised_per_s * MORE_LOAD)
    variants = [(f"At {rate:,.0f}/s ({MORE_LOAD:g} times the rate)", more)]
    dataset = question.spec.dataset
    if dataset is not None and dataset.rows is not None and "rows" in tree["dataset"]:
        data = {**tree["dataset"], "rows": dataset.rows * MORE_DATA}
        words = f"With {MORE_DATA} times the data"
        variants.append((words, changed(question, {**tree, "dataset": data}).raised))
    return variants


def changed(question: Question, tree: dict[str, Any]) -> Question:
    """Return the question with another file."""
    return replace(question, tree=tree)


def store(advice: Advice, how: How) -> None:
    """Write the experiment of the options that were simulated, and everything found.

    The page is stored too, so that nobody must ask again (for minutes) to see it.
    """
    if how.beside is not None and advice.options:
        text = rehearsable(advice)
        try:
            how.beside.write_text(text, encoding="utf-8")
        except OSError as error:
            rule = f"cannot be written: {error.strerror}"
            raise UserError(
                Problem("--write", str(how.beside), rule, "name another file")
            ) from None
        advice.written = how.beside
    if advice.run is not None:
        told = json.dumps(advice.as_json(), ensure_ascii=False, indent=1)
        Inside(advice.run, ADVICE).replace(f"{told}\n".encode())
        page.write(advice, Inside(advice.run, PAGE), how.seed)


def rehearsable(advice: Advice) -> str:
    """Return an experiment file that predicts and rehearses the options of the advice."""
    question = advice.question
    options = [*advice.options, *([advice.now] if advice.now is not None else [])]
    levels = {one.candidate.name: one.candidate.patch() for one in options}
    tree = yaml.safe_load(question.text(levels))
    if "rehearse" not in tree:
        tree["rehearse"] = {"nodes": 1, "scale": f"1/{advice.shrinks_by}"}
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120)
    head = "# Written by `disklab advise`: the options that it simulated at full fidelity.\n"
    return head + text
