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
from disklab.advice.levers import COLLECTOR, COMPACTION, in_words, rooms, singly
from disklab.advice.options import SAME_PRICE, Lever, Option, disks_alone, levers_of, ranked, short
from disklab.advice.present import candidate_of
from disklab.advice.question import FACTOR, Question
from disklab.advice.search import (
    Ladder,
    Simulator,
    Tried,
    best_of,
    climb,
    come_as_near,
    ladders_of,
    plainer,
    sketches,
    steady,
)
from disklab.catalog import load_catalog
from disklab.catalog.quantity import about_bytes, plain_number
from disklab.database_facts import facts_of
from disklab.databases.calibration import Calibration, calibration_for
from disklab.engine.process import Memory, Workers
from disklab.errors import Problem, UserError
from disklab.events import Emit
from disklab.folders import Inside
from disklab.prediction import Options, predict
from disklab.prediction.cells import prepare
from disklab.prediction.outages import Rebuilt, rebuild_times
from disklab.results import Run
from disklab.results.required import Outcome, kept, only_durability, required_of
from disklab.spec import ClusterTrial, Experiment

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

REHEARSED_BYTES = 4 << 30
"""How much data a rehearsal of advice has."""


@dataclass(frozen=True)
class How:
    """How advice is worked out."""

    seed: int = 1
    workers: Workers = None
    bands: bool | None = None
    """Whether finalists get 80 % bands; None: where that is quick."""
    rough: frozenset[str] = frozenset()
    """Options whose bands are sketched."""
    bare: frozenset[str] = frozenset()
    """Options that have none: they are far off the promise."""
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
    simulator = Simulator(question, catalog, calibration, how.workers)
    advice = Advice(question, field, ladders, [], 0)
    runs_now = compared(advice)
    if not field.candidates:
        if runs_now is not None:
            beside(advice, runs_now, [], how, emit)
            store(advice, how)
        return advice

    def heard(cells: int, best: Tried | None) -> None:
        tell("simulating quick", cells, "" if best is None else briefly(best, question))

    known: dict[str, Option] = {}
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
        finalists = [
            one
            for one in chosen(ladders)
            if one.candidate.name not in known and one.candidate.usd_per_month < most
        ]
        if not finalists:
            break
        first = finalists[0]
        if first.promising and not advice.calm and (plain := plainer(first, field, simulator)):
            finalists += [plain] if plain.candidate.name not in known else []
        tell("simulating the finalists", simulator.cells, briefly(first, question))
        rough = {one.candidate.name for one in finalists if steady(one, question.spec)}
        options = [one.candidate for one in finalists]
        full = simulator.quick(options, "full")
        bare = {name for name, one in full.items() if not advice.calm and one.miss > FAR_OFF}
        last = replace(how, rough=frozenset(rough), bare=frozenset(bare), memory=simulator.memory)
        simulated = beside(advice, runs_now, options, last, emit)
        known |= simulated
        if advice.calm or not rejected_of(ladders, simulated, cheapest_met(known.values())):
            break
    advice.options = ranked(known.values(), by_price=advice.calm)
    advice.cells = simulator.cells
    tell("turning the levers", simulator.cells, "")
    explain(advice, simulator)
    store(advice, how)
    return advice


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


def cheapest_met(options: Iterable[Option]) -> float:
    """Return the price of the cheapest that surely keeps the promise; infinite: none does."""
    able = (one for one in options if one.kept.outcome is Outcome.MET)
    return min((one.candidate.usd_per_month for one in able), default=float("inf"))


def rejected_of(
    ladders: Sequence[Ladder], found: Mapping[str, Option], below_usd: float
) -> list[Ladder]:
    """Take back each best that fails at full fidelity, and return the ladders that had one.

    What they have above a price needs no search: something that costs less is known to do.
    """
    failed = []
    for ladder in ladders:
        full = None if ladder.best is None else found.get(ladder.best.candidate.name)
        failing = (Outcome.MISSED, Outcome.CANNOT_SUSTAIN)
        if full and full.kept.outcome in failing and not only_durability(full.kept):
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
    rough = (one for one in experiment.trials("predict") if one.factors[FACTOR] in how.rough)
    bare = (one for one in experiment.trials("predict") if one.factors[FACTOR] in how.bare)
    options = Options(
        seed=how.seed,
        repeats=ONCE if banded(question, how) else OFTEN,
        memory=how.memory,
        rough=frozenset(trial.index for trial in rough),
        bare=frozenset(trial.index for trial in bare),
        workers=how.workers,
        bands=how.bands,
        calibration=how.calibration,
        region=question.region,
        terms=question.terms,
        out=how.out,
        command=how.command,
    )
    run = predict(experiment, options, emit)
    rebuilt = _rebuilt(experiment, options, how.calibration or calibration_of(question))
    nodes = question.spec.nodes
    copies = question.spec.copies
    found = {}
    for trial in run.planned():
        results = tuple(r for r in run.results() if r.trial == trial.trial)
        required = required_of(trial.spec)
        told = kept(required, results) if required is not None else None
        candidate = by_name[str(trial.factors[FACTOR])]
        if told is not None:
            again = rebuilt.get(trial.trial)
            found[candidate.name] = Option(
                *(candidate, results, told, candidate.nodes_of(nodes), again), copied=copies > 1
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
    judge_disks(advice, simulator)
    options, spec = advice.options[:EXPLAINED], advice.question.spec
    variants = {one.name: singly(one.candidate, spec) for one in options}
    quick = simulator.quick([variant for some in variants.values() for variant in some])
    for number, one in enumerate(options):
        bare, *turned = variants[one.name]
        first = quick.get(bare.name)
        told = [
            (turned_in_words(variant), quick[variant.name].result)
            for variant in turned
            if variant.name in quick
        ]
        found = room_of(one.candidate, spec)
        found += levers_of(first.result, told) if first is not None else ()
        advice.options[number] = replace(one, levers=found)
    advice.changes = [*flips(advice, simulator)]
    advice.cells = simulator.cells


EXPLAINED = 2
"""Options whose levers are turned one by one."""


def judge_disks(advice: Advice, simulator: Simulator) -> None:
    """Add to each option what its disks do without pauses, and its p99 with the usual collector."""
    calm = without_pauses(simulator)
    if calm is None:
        return
    candidates = [one.candidate for one in advice.options]
    alone = calm.quick(candidates, "sketch" if sketches(calm) else "quick")
    usual = {
        one.name: replace(one, settings=left)
        for one in candidates
        if COLLECTOR in one.settings
        and (left := {path: way for path, way in one.settings.items() if path != COLLECTOR})
        is not None
    }
    stopping = simulator.quick(list(usual.values()))
    simulator.cells += calm.cells
    for number, one in enumerate(advice.options):
        name = one.candidate.name
        if name in alone:
            other = stopping.get(usual[name].name) if name in usual else None
            result = None if other is None else other.result
            disks = disks_alone(alone[name].result, alone[name].promising, result)
            advice.options[number] = replace(one, disks=disks)


def turned_in_words(variant: Candidate) -> str:
    """Return the settings of an option that were turned: `128 concurrent reads`."""
    return ", ".join(
        in_words(path, value)
        for path, value in variant.settings.items()
        if path not in variant.fixed and path != NODES
    )


def room_of(candidate: Candidate, spec: ClusterTrial) -> tuple[Lever, ...]:
    """Return the compaction that lets an option hold the data; none: it holds them as they are."""
    if COMPACTION not in candidate.fixed:
        return ()
    need = rooms(spec)
    own, other = next(iter(need)), candidate.fixed[COMPACTION]
    before = f"{about_bytes(need[own])} a node with room for {own} compaction"
    return (Lever(in_words(COMPACTION, other), before, about_bytes(need[other])),)


def flips(advice: Advice, simulator: Simulator) -> list[str]:
    """Return at which price, rate or data the choice is another one."""
    able = [one for one in advice.options if one.kept.outcome in (Outcome.MET, Outcome.CANNOT_TELL)]
    if not able:
        return []
    first, found = able[0], []
    if len(able) > 1:
        second = able[1]
        more = second.candidate.usd_per_month / first.candidate.usd_per_month - 1
        found.append(
            f"As good within what is known: {second.name} ({second.price})."
            if more < SAME_PRICE
            else f"Price: {second.name} ({second.price}) is the choice once the first costs "
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
    load = tree["workload"]["load"]
    rate = question.rate_per_s * MORE_LOAD
    asked = {key: value for key, value in tree["require"].items() if key != "rate"}
    more_load = {
        **tree,
        "workload": {**tree["workload"], "load": {**load, "rate": f"{plain_number(rate)}/s"}},
        "require": {**asked, "rate": f"{plain_number(rate)}/s"},
    }
    found = [(f"At {rate:,.0f}/s ({MORE_LOAD:g} times the rate)", changed(question, more_load))]
    dataset = question.spec.dataset
    if dataset is not None and dataset.rows is not None and "rows" in tree["dataset"]:
        data = {**tree["dataset"], "rows": dataset.rows * MORE_DATA}
        words = f"With {MORE_DATA} times the data"
        found.append((words, changed(question, {**tree, "dataset": data})))
    return found


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
        dataset = question.spec.the_dataset
        whole = (dataset.rows or 0) * dataset.columns * dataset.column_bytes
        scale = max(1, -(-whole // REHEARSED_BYTES))
        tree["rehearse"] = {"nodes": 1, "scale": f"1/{scale}"}
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120)
    head = "# Written by `disklab advise`: the options that it simulated at full fidelity.\n"
    return head + text
