"""From a question to its advice: rule out, search, simulate finalists, see what flips it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from disklab.advice import page
from disklab.advice.answer import Advice
from disklab.advice.candidates import NODES, Candidate, field_of
from disklab.advice.levers import COLLECTOR, one_more, uncollected
from disklab.advice.options import SAME_PRICE, Option, disks_alone, levers_of, ranked, short
from disklab.advice.present import candidate_of
from disklab.advice.promise import bare, with_room
from disklab.advice.question import FACTOR, Question
from disklab.advice.search import Ladder, best_of, climb, front, search
from disklab.advice.simulator import Fidelity, Simulator, Tried, alone, pausing, steady
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
from disklab.prediction.outages import rebuild_times
from disklab.results import Bands, Run
from disklab.results.required import kept, required_of

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
    proved: Mapping[str, Tried] = field(default_factory=dict, repr=False, compare=False)
    """Options that were looked at more closely, by name, with the load grown where in full."""
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
    brief = question.brief
    bands = dict(how.given) if banded(question, how) else None
    simulator = Simulator(*(brief.raised, catalog, calibration, how.workers, how.seed), bands=bands)
    advice = Advice(question, field, [], [], 0)
    runs_now = compared(advice)
    if not field.candidates:
        if runs_now is not None:
            beside(advice, runs_now, [], how, emit)
            store(advice, how)
        return advice

    def heard(ladders: Sequence[Ladder]) -> None:
        best = best_of(ladders)
        failed = dict.fromkeys(one.kind.partition(",")[0] for one in ladders if one.failed)
        ruled_out = f", ruled out so far: {', '.join(failed)}" if failed else ""
        words = "" if best is None else briefly(best, question)
        tell(f"simulating{ruled_out}", simulator.cells, words)

    search_result = search(field, simulator, heard)
    advice.ladders, advice.calm = search_result.ladders, search_result.calm
    advice.tried = list(search_result.closer.values())
    finalists = search_result.finalists
    if not finalists and simulator.refusals:
        raise UserError(*dict.fromkeys(simulator.refusals))
    if bands is not None and search_result.answer is None and not search_result.calm:
        for one in finalists:
            if one.candidate.name not in bands and one.miss <= FAR_OFF:
                simulator.banded(one.candidate, rough=steady(one, question.spec))
    tell("how sure that is", simulator.cells, briefly(finalists[0], question) if finalists else "")
    last = replace(how, memory=simulator.memory, given=bands or {}, proved=search_result.closer)
    options = [one.candidate for one in finalists]
    advice.options = ranked(
        beside(advice, runs_now, options, last, emit).values(), by_price=advice.calm
    )
    rebuild(advice, how)
    tell("turning the levers", simulator.cells, "")
    # Disks that come with VMs have the sizes that they have: room to grow may double a price.
    advice.without_room = looser(advice, simulator, field.tight)
    if question.nodes_asked:
        more = field_of(replace(question, more_nodes=True), catalog, calibration).candidates
        twice = [one for one in more if NODES in one.settings]
        advice.smaller = looser(advice, simulator, twice)
    explain(advice, simulator)
    advice.cells = simulator.cells
    store(advice, how)
    return advice


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
    run, found = finals(advice.question.brief, [*options, *also], how, emit)
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
    simulator = Simulator(question.raised, load_catalog(), calibration, how.workers, seed=how.seed)
    raised = {name: one for name, one in how.proved.items() if one.fidelity == "full"}
    new = [one for one in finalists if one.name not in raised]
    raised |= replace(simulator, memory=how.memory).full(new)
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
            found[candidate.name] = Option(
                *(candidate, results, promise, candidate.nodes_of(nodes), None),
                copied=copies > 1,
                raised=None if more is None else more.result,
            )
    return run, found


def banded(question: Question, how: How) -> bool:
    """Return whether finalists get bands: without being asked, only where rows are quick."""
    database = question.spec.database
    return facts_of(database.engine).is_quick if how.bands is None else how.bands


def rebuild(advice: Advice, how: How) -> None:
    """Add to the answer what a lost node of it needs until it has its data again."""
    if not advice.options:
        return
    first, *others = advice.options
    question = advice.question.brief
    experiment = question.experiment({first.candidate.name: first.candidate.patch()})
    (trial,) = experiment.trials("predict")
    calibration = how.calibration or calibration_of(question)
    job = prepare(trial, load_catalog(), calibration, str(experiment.path)).job
    if job is not None:
        rebuilt = rebuild_times({0: (trial, job)}, how.seed, how.workers).get(0)
        advice.options = [replace(first, rebuilt=rebuilt), *others]


def explain(advice: Advice, simulator: Simulator) -> None:
    """Add what the disks do by themselves, levers, and what flips the choice."""
    unraised = replace(simulator, question=advice.question.brief)
    judge_disks(advice, unraised, simulator)
    options, spec = advice.options[:EXPLAINED], advice.question.spec
    more = {one.name: one_more(one.candidate, spec) for one in options}
    some = [one.candidate for one in options]
    ways = some + [way for ways in more.values() for way, _, _ in ways]
    quick = unraised.quick(ways, first_look(advice.question))
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


def first_look(question: Question) -> Fidelity:
    """Return at which fidelity options are compared: sketches, unless these leave out stops."""
    return "quick" if pausing(question) else "sketch"


def looser(advice: Advice, simulator: Simulator, options: Sequence[Candidate]) -> Candidate | None:
    """Return which of the options would do for much less than the answer; None: none.

    Those that a rule of the question leaves out: room to grow, the number of nodes.
    """
    chosen = advice.chosen
    if chosen is None:
        return None
    most = chosen.candidate.usd_per_month * STEP_RATIO
    cheap = [one for one in options if one.usd_per_month < most and not one.lossy]
    ladder = Ladder("looser", front(cheap))
    climb([ladder], simulator, lambda _: None)
    return None if ladder.best is None else ladder.best.candidate


STEP_RATIO = 0.9
"""What saves less than a tenth is not told."""


EXPLAINED = 2
"""Options whose levers are turned one by one."""


def judge_disks(advice: Advice, simulator: Simulator, raised: Simulator) -> None:
    """Add to each option what its disks do without pauses, and its p99 with the usual collector.

    That with the head-room, where it fails.
    """
    calm = simulator.never_pausing
    if calm is None:
        return
    candidates = [one.candidate for one in advice.options]
    alone = calm.quick(candidates)
    usual = {one.name: uncollected(one) for one in candidates if COLLECTOR in one.settings}
    stopping = raised.quick(list(usual.values()))
    for number, one in enumerate(advice.options):
        name = one.candidate.name
        if name in alone:
            other = stopping.get(usual[name].name) if name in usual else None
            result = None if other is None else other.result
            disks = disks_alone(alone[name].result, alone[name].promising, result)
            advice.options[number] = replace(one, disks=disks)


def flips(advice: Advice, simulator: Simulator) -> list[str]:
    """Return at which price, rate or data the choice is another one."""
    best = advice.chosen or advice.perhaps
    able = [one for one in advice.options if best and one.kept.outcome is best.kept.outcome]
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
    for words, question in grown(advice.question.brief):
        try:
            looks = replace(simulator, question=question)
            quick = looks.quick([one.candidate for one in able], first_look(question))
        except UserError:
            # None of them can be: so much data fits on no option's disks.
            quick = {}
        left = [one for one in able if (t := quick.get(one.candidate.name)) and t.promising]
        if not left:
            found.append(
                f"{words}: none of these options meets the requirement; ask again with it."
            )
        elif left[0] is first:
            found.append(f"{words}: the choice stays the same.")
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
