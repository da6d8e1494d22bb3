"""`disklab predict`: a matrix of trials, simulated on all cores, into a run folder."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from disklab.catalog import Catalog, load_catalog
from disklab.catalog.facts import PriceTerms
from disklab.catalog.load import user_files
from disklab.catalog.price import DEFAULT_REGION, DEFAULT_TERMS
from disklab.database_facts import facts_of
from disklab.databases.calibration import Calibration, calibration_for
from disklab.databases.simulating import PPM, Job
from disklab.engine.process import Memory, Workers, simulate, simulate_once
from disklab.errors import Problem
from disklab.events import (
    Emit,
    PlannedTrial,
    RunFinished,
    RunStarted,
    TrialFinished,
    Warned,
    fan_out,
)
from disklab.prediction import steady
from disklab.prediction.bands import design_of, simulated_bands
from disklab.prediction.cells import Prepared, prepare
from disklab.prediction.counted import study_of, why_not_counted
from disklab.prediction.outages import yearly_costs
from disklab.prediction.outcome import refused_result, result_of
from disklab.prediction.search import Search, run_searches
from disklab.prediction.steady import joined, takes_over
from disklab.prediction.uncertain import Ranged, Uncertain, unknowns_of
from disklab.prediction.year import NO_YEAR, stated_failures, weather_of_trial
from disklab.prediction.years import Tools, weather_years
from disklab.results import (
    DEFAULT_OUT,
    Bands,
    ExperimentNote,
    Reason,
    Recovery,
    ReferenceRun,
    Run,
    RunInfo,
    Share,
    TrialResult,
    Yearly,
    new_run_id,
    utc_now,
)
from disklab.results import PlannedTrial as StoredTrial
from disklab.results.event_log import EventLog
from disklab.results.pricing import cluster_price, prices
from disklab.results.seconds import storage_p99_ms
from disklab.results.weather import WeatherYear
from disklab.spec import Experiment, Trial, TrialSpec


@dataclass(frozen=True)
class Options:
    """How a matrix is predicted."""

    seed: int = 1
    repeats: int = 1
    """Each with a seed of its own: seed, seed + 1, ..."""
    workers: Workers = None
    """Cells at a time; None: one a core."""
    fidelity: Literal["full", "quick"] = "full"
    bands: bool | None = False
    """Whether figures get 80 % bands; None: where that takes at most `MOST_AUTOMATIC` cells."""
    draws: int | None = None
    """Of the bands; None: as many as tell apart what they consist of."""
    rough: frozenset[int] = frozenset()
    """Trials whose bands are sketched, a seventh of the time: nothing builds up in them."""
    year: bool = False
    """Whether a year of disk weather is drawn; it is where a promise has an `of_time`, too."""
    weather: tuple[Path, ...] = ()
    """Catalogue files with numbers of the weather that replace the package's."""
    given: Mapping[int, Bands] = field(default_factory=dict, repr=False, compare=False)
    """Bands by trial that are known already; with any, no others are worked out."""
    memory: Memory = field(default_factory=dict, repr=False, compare=False)
    """Answers that are known already."""
    ranged: Ranged | None = None
    """The experiment file with its ranges, of which the experiment is the middle."""
    ablate: tuple[str, ...] = ()
    """Mechanisms that are switched off."""
    calibration: Calibration | None = None
    """Instead of the package's own for the database."""
    region: str = DEFAULT_REGION
    """Whose list prices are counted with, where the catalogue has them."""
    terms: PriceTerms = DEFAULT_TERMS
    out: Path = DEFAULT_OUT
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Cell:
    """One trial with everything that its result needs."""

    trial: Trial
    prepared: Prepared
    price_usd_per_month: float | None
    not_counted: str = ""


def predict(experiment: Experiment, options: Options, emit: Emit) -> Run:
    """Simulate every trial of an experiment; each result is stored as soon as it is there.

    Refused trials are results too. Raises EngineError when the engine dies; what is finished stays.
    """
    catalog = load_catalog()
    weather = load_catalog([*user_files(), *options.weather]) if options.weather else catalog
    study = study_of(experiment)
    cells = [
        _prepared(trial, experiment, catalog, options, study)
        for trial in experiment.trials("predict")
    ]
    run = Run.create(
        options.out,
        _info(experiment, options, cells),
        experiment_text=experiment.document.text,
        planned=[_stored(cell) for cell in cells],
    )
    with run.writing(), EventLog(run.folder) as log:
        emit = fan_out(log, emit)
        _announce(run, experiment, options, cells, emit)
        finished = 0
        for cell in cells:
            problems = [*_refusals(cell.trial), *cell.prepared.reasons]
            if problems:
                finished += _finish(
                    run, refused_result(cell.trial, experiment.title, problems), emit
                )
        try:
            banded = dict(options.given) or _bands(cells, options, str(experiment.path))
            yearly = _yearly(cells, options, weather)
            years = _years(cells, options, yearly, weather, emit)
            outcomes = _simulated(experiment, options, cells)
            for result, answer in _with_storage(
                options, cells, _steadied(options, cells, outcomes)
            ):
                bands = banded.get(result.trial) if result.status == "ok" else None
                result = result.model_copy(update={"bands": bands})  # noqa: PLW2901
                result = _with_costs(result, yearly, years)  # noqa: PLW2901
                _keep_histograms(run, result, answer)
                finished += _finish(run, result, emit)
        except KeyboardInterrupt:
            left = _planned(cells, options) - finished
            emit(RunFinished(run.info.id, run.folder, finished, left, interrupted=True))
            raise
        run.end()
        emit(RunFinished(run.info.id, run.folder, finished, 0, interrupted=False))
    return run


def bands_of(experiment: Experiment, options: Options) -> dict[int, Bands]:
    """Return the bands of each trial that has them, without a run."""
    catalog = load_catalog()
    cells = [
        _prepared(trial, experiment, catalog, options, None)
        for trial in experiment.trials("predict")
    ]
    return _bands(cells, options, str(experiment.path))


def calibration_of(trial: Trial, options: Options) -> Calibration | None:
    """Return the calibration of a trial's database; None: there is none, or no database."""
    if trial.spec.database is None:
        return None
    return options.calibration or calibration_for(trial.spec.database.engine)


def _of_version(trial: Trial, options: Options) -> Calibration | None:
    """Return what of the calibration holds for the trial's version and collector."""
    found, database = calibration_of(trial, options), trial.spec.database
    if found is None or database is None:
        return None
    return found.of_version(database.version).with_collector(database.jvm.collector)


def _prepared(
    trial: Trial,
    experiment: Experiment,
    catalog: Catalog,
    options: Options,
    study: ReferenceRun | None,
) -> _Cell:
    if trial.refused is not None:
        return _Cell(trial, Prepared(None), None)
    calibration = calibration_of(trial, options)
    prepared = prepare(trial, catalog, calibration, str(experiment.path))
    not_counted = why_not_counted(study, dict(trial.factors), calibration)
    price = cluster_price(catalog, trial.spec, options.region, options.terms)
    return _Cell(trial, prepared, price, not_counted)


def _refusals(trial: Trial) -> list[Problem]:
    refused = trial.refused
    if refused is None:
        return []
    first = Problem(refused.place, refused.value, refused.rule, refused.way_out)
    return [first, *refused.more]


MOST_AUTOMATIC = 256
"""Cells of rows that bands may take without being asked for: at quick fidelity a core simulates ten
of them a second. SQL and devices take longer, so they are asked for."""


def _bands(cells: list[_Cell], options: Options, place: str) -> dict[int, Bands]:
    """Return the bands of each trial that has them.

    Searches have none: they choose their load; nor have trials that take over caches, which would
    need the whole sequence for each, nor those with a timetable, whose delays have no ranges.
    """
    ranged = options.ranged if options.ranged and options.ranged.ranges else None
    found = {
        cell.trial.index: Uncertain(
            cell.trial, _of_version(cell.trial, options), cell.prepared.job, place, ranged
        )
        for cell in cells
        if cell.prepared.job is not None
        and not _is_search(cell)
        and not takes_over(cell.trial)
        and not cell.trial.spec.events
    }
    if options.bands is False or not found:
        return {}
    design = design_of(unknowns_of(list(found.values())), options.draws)
    slow = any("database" not in cell.job for cell in found.values())
    if (
        options.bands is None
        and ranged is None
        and (slow or len(found) * len(design) > MOST_AUTOMATIC)
    ):
        return {}
    return simulated_bands(
        found, design, options.seed, options.ablate, options.workers, options.rough
    )


def _yearly(cells: list[_Cell], options: Options, catalog: Catalog) -> dict[int, Yearly]:
    """Return what failures cost each trial that states, or whose year needs, how many there are."""
    found, assumed = {}, set()
    for index, (trial, job) in _runnable(cells, options).items():
        spec = trial.spec
        if has_year(spec, options) and spec.cluster is not None and spec.failures is None:
            weather = weather_of_trial(spec, catalog)
            failures = {"failures": stated_failures(weather, spec)}
            trial = replace(trial, spec=spec.model_copy(update=failures))  # noqa: PLW2901
            assumed.add(index)
        found[index] = (trial, job)
    return yearly_costs(found, options.seed, options.workers, frozenset(assumed))


def _runnable(cells: list[_Cell], options: Options) -> dict[int, tuple[Trial, Job]]:
    return {
        cell.trial.index: (cell.trial, {"ablate": list(options.ablate), **cell.prepared.job})
        for cell in cells
        if cell.prepared.job is not None
    }


def has_year(spec: TrialSpec, options: Options) -> bool:
    """Return whether a year of disk weather is drawn for a trial."""
    return options.year or (spec.require is not None and spec.require.of_time_ratio is not None)


def _years(
    cells: list[_Cell],
    options: Options,
    costs: dict[int, Yearly],
    catalog: Catalog,
    emit: Emit,
) -> dict[int, WeatherYear]:
    """Return what a year of disk weather costs each trial that asks for it."""
    asked = {
        index: one
        for index, one in _runnable(cells, options).items()
        if has_year(one[0].spec, options)
    }
    if not asked:
        return {}

    def job_of(trial: Trial) -> Job | None:
        prepared = prepare(trial, catalog, calibration_of(trial, options), "a change")
        return None if prepared.job is None else {"ablate": list(options.ablate), **prepared.job}

    def price_of(spec: TrialSpec) -> float | None:
        return cluster_price(catalog, spec, options.region, options.terms)

    tools = Tools(catalog, options.seed, options.workers, job_of, price_of)
    found = weather_years(asked, costs, tools)
    if left := len(asked) - len(found):
        emit(Warned(f"{left} of {len(asked)} cells have no year of weather: {NO_YEAR}"))
    return found


def _with_costs(
    result: TrialResult, yearly: dict[int, Yearly], years: dict[int, WeatherYear]
) -> TrialResult:
    """Return the result with what failures and the weather cost it, where that is known."""
    if result.status != "ok":
        return result
    if (year := years.get(result.trial)) is not None:
        result = result.model_copy(update={"year": year})
    if (found := yearly.get(result.trial)) is None:
        return result
    recovery = (result.recovery or Recovery()).model_copy(update={"yearly": found})
    return result.model_copy(update={"recovery": recovery})


Outcome = tuple[TrialResult, dict[str, Any] | None]
"""A result and the engine's answer; None: it was refused."""


def _simulated(experiment: Experiment, options: Options, cells: list[_Cell]) -> Iterator[Outcome]:
    """Yield each outcome, in the order of completion."""
    runnable = {cell.trial.index: cell for cell in cells if cell.prepared.job is not None}
    if not runnable:
        return
    jobs = [
        {
            # A cell's number holds trial and repeat.
            "cell": index * options.repeats + repeat,
            "seed": options.seed + repeat,
            "fidelity": options.fidelity,
            "ablate": list(options.ablate),
            **(cell.prepared.job or {}),
        }
        for repeat in range(options.repeats)
        for index, cell in runnable.items()
    ]

    def cell_of(job: Job) -> _Cell:
        return runnable[job["cell"] // options.repeats]

    # The longest first: a long cell that begins last leaves the other cores idle.
    direct: list[Job] = []
    for repeat in range(options.repeats):
        of_repeat = [job for job in jobs if job["cell"] % options.repeats == repeat]
        direct += joined(
            [(cell_of(job).trial, job) for job in of_repeat if not _is_search(cell_of(job))]
        )
    direct.sort(key=requests_of, reverse=True)
    for answer in simulate_once(direct, options.memory, workers=options.workers):
        yield _outcome(cell_of(answer), experiment, options, answer)
    searches = [
        Search(variable, job) for job in jobs if (variable := cell_of(job).trial.spec.variable)
    ]
    for search in run_searches(searches, lambda some: simulate(some, workers=options.workers)):
        result, _ = _outcome(cell_of(search.job), experiment, options, search.best)
        if not search.refused:
            update = {
                "loop": {"kind": "closed", "threads": search.threads},
                "warnings": [*result.warnings, *search.notes()],
            }
            result = result.model_copy(update=update)
        yield result, None if search.refused else search.best


def _steadied(
    options: Options, cells: list[_Cell], outcomes: Iterator[Outcome]
) -> Iterator[Outcome]:
    """Yield outcomes; those that spend burst credits last, each with its steady state."""
    jobs = {cell.trial.index: cell for cell in cells if cell.prepared.job is not None}
    spent: list[tuple[TrialResult, dict[str, Any], steady.Spending]] = []
    for result, answer in outcomes:
        cell = jobs.get(result.trial)
        bucket = None
        if cell is not None and answer is not None and result.status == "ok":
            bucket = None if _is_search(cell) else steady.spending(cell.trial, answer)
        if bucket is None or answer is None:
            yield result, answer
        else:
            spent.append((result, answer, bucket))
    if not spent:
        return
    again: dict[int, Job] = {}
    for number, (result, _, bucket) in enumerate(spent):
        job = {**(jobs[result.trial].prepared.job or {}), "ablate": list(options.ablate)}
        job |= {"seed": options.seed + result.repeat, "fidelity": "quick"}
        again[2 * number] = steady.without_credits(job)
        if bucket.ran_out:
            again[2 * number + 1] = steady.with_endless_credits(job)
    batch = [{**job, "cell": number} for number, job in again.items()]
    answers = {int(answer["cell"]): answer for answer in simulate(batch, workers=options.workers)}
    for number, (result, answer, bucket) in enumerate(spent):
        after, endless = answers[2 * number], answers.get(2 * number + 1)
        if after["event"] != "refused":
            result = steady.with_steady(result, answer, bucket, after, endless)  # noqa: PLW2901
        yield result, answer


def _with_storage(
    options: Options, cells: list[_Cell], outcomes: Iterator[Outcome]
) -> Iterator[Outcome]:
    """Yield outcomes; where storage's share of p99 is required, with it, last.

    A node that stops holds requests up behind the stop: what is storage shows without stops alone.
    """
    judged = {cell.trial.index: cell for cell in cells if requires_storage(cell.trial.spec)}
    waiting: list[Outcome] = []
    for outcome in outcomes:
        result, answer = outcome
        if result.trial in judged and answer is not None and result.status == "ok":
            waiting.append(outcome)
        else:
            yield outcome
    jobs = []
    for number, (result, _) in enumerate(waiting):
        cell = judged[result.trial]
        if calm := ablations(cell.trial.spec, options.ablate):
            job = {**(cell.prepared.job or {}), "fidelity": options.fidelity, "ablate": list(calm)}
            jobs.append({**job, "cell": number, "seed": options.seed + result.repeat})
    answers = {one["cell"]: one for one in simulate(jobs, workers=options.workers)} if jobs else {}
    for number, (result, answer) in enumerate(waiting):
        tail = answers.get(number, answer or {}).get("tail", {})
        yield result.model_copy(update={"storage_p99_ms": storage_p99_ms(tail)}), answer


def requires_storage(spec: TrialSpec) -> bool:
    """Return whether storage's share of p99 is required."""
    return spec.require is not None and spec.require.storage_p99_ms is not None


def ablations(spec: TrialSpec, ablate: Sequence[str]) -> tuple[str, ...]:
    """Return what else a cell is simulated without to see storage; empty: it sees it as it is."""
    database = spec.database
    if database is None or not facts_of(database.engine).in_java:
        return ()
    return () if "pauses" in ablate else (*ablate, "pauses")


def requests_of(job: Job) -> float:
    """Return about how many requests at replicas a job simulates; zero: nobody knows."""
    database = job.get("database")
    if database is None:
        return 0.0
    if then := job.get("then"):
        parts = [job | {"then": []}, *then]
        return sum(requests_of(part) for part in parts)
    work, copies = database["workload"], database["database"]["replication_factor"]
    reads = (work["read_ppm"] + work.get("others", {}).get("scan_ppm", 0)) / PPM
    asked = reads * (copies // 2 + 1) + (1 - reads) * copies
    return float((work["stop"]["operations"] or 0) * asked)


def _is_search(cell: _Cell) -> bool:
    return cell.trial.spec.variable is not None


def _outcome(
    cell: _Cell, experiment: Experiment, options: Options, answer: dict[str, Any]
) -> Outcome:
    repeat = answer["cell"] % options.repeats
    if answer["event"] == "refused":
        problems = [Problem(**reason) for reason in answer["reasons"]]
        refused = refused_result(cell.trial, experiment.title, problems)
        return refused.model_copy(update={"repeat": repeat}), None
    result = result_of(
        cell.trial,
        repeat,
        experiment.title,
        answer,
        warnings=list(cell.prepared.warnings),
        price_usd_per_month=cell.price_usd_per_month,
    )
    return result.model_copy(update={"not_counted": cell.not_counted}), answer


def _keep_histograms(run: Run, result: TrialResult, answer: dict[str, Any] | None) -> None:
    if answer is None:
        return
    with run.record_seconds(result.trial, result.repeat) as writer:
        response = {name: one["response"] for name, one in answer["per_operation"].items()}
        writer.whole({"elapsed_s": answer["elapsed_s"], "response": response, "service": response})


def _finish(run: Run, result: TrialResult, emit: Emit) -> int:
    result = result.model_copy(update={"run": run.info.id, "started": utc_now()})
    run.append(result)
    emit(
        TrialFinished(
            result.trial,
            result.repeat,
            result.status,
            result.duration_s or 0.0,
            result.model_dump(mode="json"),
        )
    )
    return 1


def _planned(cells: list[_Cell], options: Options) -> int:
    """Return how many results a run will have."""
    runnable = sum(cell.prepared.job is not None for cell in cells)
    return runnable * options.repeats + len(cells) - runnable


def _announce(
    run: Run, experiment: Experiment, options: Options, cells: list[_Cell], emit: Emit
) -> None:
    planned = tuple(
        PlannedTrial(cell.trial.index, repeat, cell.trial.factors, 0.0)
        for repeat in range(options.repeats)
        for cell in cells
        if cell.prepared.job is not None
    )
    refused = sum(cell.prepared.job is None for cell in cells)
    started = RunStarted(
        run.info.id, run.folder, "predict", experiment.title, options.seed, planned, 0, refused
    )
    emit(started)
    warnings = {text for cell in cells for text in cell.prepared.warnings}
    for text in sorted(warnings):
        emit(Warned(text))


def _stored(cell: _Cell) -> StoredTrial:
    problems = [*_refusals(cell.trial), *cell.prepared.reasons]
    reason = None
    if problems:
        first = problems[0]
        reason = Reason(
            place=first.place, value=first.value, rule=first.rule, way_out=first.way_out
        )
    return StoredTrial(
        trial=cell.trial.index,
        factors=dict(cell.trial.factors),
        spec=cell.trial.spec.model_dump(mode="json"),
        share=Share.model_validate(cell.trial.share.model_dump(mode="json")),
        refused=reason,
    )


def _info(experiment: Experiment, options: Options, cells: list[_Cell]) -> RunInfo:
    used = {
        calibration.name: calibration
        for cell in cells
        if (calibration := calibration_of(cell.trial, options)) is not None
    }
    return RunInfo(
        id=new_run_id(str(experiment.path), "predict"),
        mode="predict",
        experiment=ExperimentNote(
            title=experiment.title, source=experiment.source, file=str(experiment.path)
        ),
        seed=options.seed,
        repeats=options.repeats,
        command=list(options.command),
        started=utc_now(),
        environment={
            "python": sys.version.split()[0],
            "machine": platform.machine(),
            "system": platform.system(),
            "fidelity": options.fidelity,
            "calibration": [one.model_dump(mode="json") for one in used.values()],
            **({"ablate": list(options.ablate)} if options.ablate else {}),
        },
        versions={"disklab": version("disklab")},
        prices=prices(
            load_catalog(),
            (cell.trial for cell in cells if not cell.trial.refused),
            options.region,
            options.terms,
        ),
        notes=[f"calibration: {name} ({one.date})" for name, one in used.items()],
    )
