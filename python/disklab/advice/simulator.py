"""Options of a question, simulated: what becomes of each as a sketch, quick, in full, for sure.

Sketches (a seventh of a quick cell's time) leave out stops of the JVM. Cells run for a part of the
time that the file states; the whole of it proves an answer, with other random streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from disklab.advice.candidates import Candidate
from disklab.advice.levers import COLLECTOR, collected, collectors, tuned
from disklab.advice.promise import SHORT, SLACK, SURE, TELLING, bare, bought, loosened
from disklab.advice.question import FACTOR, Question
from disklab.catalog import Catalog
from disklab.database_facts import facts_of
from disklab.databases.calibration import Calibration
from disklab.engine.process import Memory, Workers, simulate_once
from disklab.errors import Problem, UserError
from disklab.prediction.cells import prepare
from disklab.prediction.outcome import result_of
from disklab.prediction.run import Options, ablations, bands_of, requires_storage
from disklab.results import Bands, TrialResult
from disklab.results.required import (
    MAY_BE_LOST,
    Kept,
    Outcome,
    Required,
    Specified,
    carried_ratio,
    fullest,
    is_overloaded,
    judge,
)
from disklab.results.seconds import storage_p99_ms
from disklab.spec import ClusterTrial

FAR = 3.0
"""An option that misses by such a factor, or carries less than all with every lever turned, is not
tried with fewer of them."""

DRAWS = 16
"""Draws of a band: its spread is known within a fifth by them, in a quarter of the time that
telling the unknowns apart takes."""

Fidelity = Literal["sketch", "quick", "full"]


@dataclass(frozen=True)
class Tried:
    """An option that was simulated."""

    candidate: Candidate
    result: TrialResult
    kept: Kept
    """By the promise as it is."""
    promising: bool
    """Whether it keeps the promise with the slack of a quick run."""
    fidelity: Fidelity = "quick"
    required: Required = field(default_factory=Required, repr=False)
    """The promise by which it was judged."""

    @property
    def miss(self) -> float:
        """How far it is from the promise: 1 or less keeps it, an overload is above 1000."""
        ratio = carried_ratio([self.result]) or 1.0
        if self.kept.achieved_ratio is not None:
            return 1000 / ratio
        return max((point.miss for point in self.kept.points), default=1.0)


@dataclass
class Simulator:
    """Simulates options of a question."""

    question: Question
    catalog: Catalog
    calibration: Calibration
    workers: Workers = None
    seed: int = 1
    margin: float = 1.0
    """Share of how full a limit may be that a cell as long as the file says may show."""
    ablate: tuple[str, ...] = ()
    """What every cell is simulated without: `pauses`, to judge the disks alone."""
    memory: Memory = field(default_factory=dict, repr=False)
    """The search, its levers, the look at disks alone and the finalists' run ask some twice."""
    bands: dict[str, Bands] | None = None
    """Those of options by name, as far as they are known; None: options get none."""
    stops: list[float] = field(default_factory=list, repr=False)
    """By how much options missed that another collector made keep the promise."""
    refusals: list[Problem] = field(default_factory=list, repr=False)
    """Why the engine took none of what it was given at a time."""

    @property
    def cells(self) -> int:
        """How many were simulated, but for those of bands."""
        return len({id(answer) for answer in self.memory.values()})

    @property
    def never_pausing(self) -> Simulator | None:
        """One that simulates nodes which never pause; None: they never do."""
        return replace(self, ablate=("pauses",)) if pausing(self.question) else None

    def variants(
        self, candidates: Sequence[Candidate], fidelity: Fidelity = "quick"
    ) -> list[list[Tried]]:
        """Return what becomes of each option with its levers turned, until one way does it.

        The way that does most comes first, and the option as the file has it last.
        """
        ways = [[*tuned(one, self.question.spec), one] for one in candidates]
        tried = self.sifted([some[0] for some in ways], fidelity)
        settled = {name for name, one in tried.items() if one.promising or one.miss > FAR}
        others = [way for some in ways if some[0].name not in settled for way in some[1:]]
        tried |= self.sifted(others, fidelity)
        outcomes = [[tried[way.name] for way in some if way.name in tried] for some in ways]
        if fidelity != "sketch":
            return outcomes
        nearest = [min(some, key=lambda one: one.miss) for some in outcomes if some]
        closer = self.unstopped([one.candidate for one in nearest if cannot_tell(one)])
        return [[closer.get(one.candidate.name, one) for one in some] for some in outcomes]

    def sifted(self, candidates: Sequence[Candidate], fidelity: Fidelity) -> dict[str, Tried]:
        """Return what becomes of each option; those that are overloaded are sketched alone."""
        if fidelity != "quick":
            return self.quick(candidates, fidelity)
        sketched = self.quick(candidates, "sketch")
        overloaded = {name: one for name, one in sketched.items() if is_overloaded([one.result])}
        left = [one for one in candidates if one.name not in overloaded]
        return overloaded | self.unstopped(left)

    def unstopped(self, candidates: Sequence[Candidate]) -> dict[str, Tried]:
        """Return what becomes quick of each option by name, if need be with another collector.

        Once that one has helped, it is tried first; and alone, where stops miss by far.
        """
        calm = self._turned(candidates) if self.stops else {}
        by_far = min(self.stops, default=0.0) > FAR
        settled = {name for name, one in calm.items() if by_far or one.promising}
        own = self.quick([one for one in candidates if one.name not in settled])
        return calm | own | self.calmed(list(own.values()))

    def calmed(self, tried: Sequence[Tried]) -> dict[str, Tried]:
        """Return quick options that fail for stops of nodes alone with another collector.

        By their names as they failed.
        """
        failed = [one for one in tried if one.fidelity == "quick" and not one.promising]
        turned = self._turned([one.candidate for one in failed])
        helped = [one for one in failed if (t := turned.get(one.candidate.name)) and t.promising]
        self.stops.extend(one.miss for one in helped)
        return turned

    def _turned(self, candidates: Sequence[Candidate]) -> dict[str, Tried]:
        """Return quick options with another collector, where their sketches may keep the promise.

        By their names with the file's own. Sketches have no stops.
        """
        if not candidates or not collectors(self.question.spec) or self.ablate:
            return {}
        sketched = self.quick(candidates, "sketch")
        maybe = {name for name, one in sketched.items() if one.promising or cannot_tell(one)}
        able = [one for one in candidates if one.name in maybe]
        turned = {one.name: collected([one], self.question.spec)[-1] for one in able}
        quick = self.quick(list(turned.values()))
        return {name: quick[one.name] for name, one in turned.items() if one.name in quick}

    def full(self, candidates: Sequence[Candidate]) -> dict[str, Tried]:
        """Return what becomes of each option at full fidelity, one at a time: each takes 0.6 GB."""
        return replace(self, workers=alone(self.workers)).quick(candidates, "full")

    def proved(self, promising: Tried, *, at_length: bool = True) -> Tried:
        """Return what becomes of an option that is looked at ever more closely until it fails.

        First with its band, by sketches, which tell most cliffs in a seventh of the time; in the
        end, `at_length`, for as long as the file says, by other random streams.
        """
        candidate = promising.candidate
        proof = replace(self, question=self.question.whole, seed=self.seed + 1, margin=SURE)
        looks: list[Callable[[], Tried]] = [lambda: self.full([candidate])[candidate.name]]
        looks += [lambda: proof.full([candidate])[candidate.name]] if at_length else []
        if self.bands is not None:
            looks.insert(0, lambda: self.banded(candidate, rough=True))
            if not steady(promising, self.question.spec):
                looks.insert(2, lambda: self.banded(candidate, rough=False))
        for look in looks:
            closer = look()
            if closer.kept.outcome is not Outcome.MET:
                break
        return closer

    def banded(self, one: Candidate, *, rough: bool) -> Tried:
        """Return what becomes of an option under the asked rate, with its band where it has one.

        `rough`: by sketches, which do where nothing builds up.
        """
        asked = replace(self, question=self.question.asked)
        options = Options(
            seed=self.seed,
            bands=True,
            draws=DRAWS,
            rough=frozenset({0} if rough else ()),
            calibration=self.calibration,
            workers=self.workers,
        )
        found = asked.quick([one])[one.name]
        bands = bands_of(asked.question.experiment({one.name: one.patch()}), options).get(0)
        if bands is not None and self.bands is not None:
            self.bands[one.name] = bands
        result = found.result.model_copy(update={"bands": bands})
        told = judge(bare(found.required), [result])
        return replace(found, result=result, kept=told, promising=False)

    def quick(
        self, candidates: Sequence[Candidate], fidelity: Fidelity = "quick"
    ) -> dict[str, Tried]:
        """Return what becomes of each option by name; those that are refused are missing."""
        if not candidates:
            return {}
        levels = {one.name: one.patch() for one in candidates}
        by_name = {one.name: one for one in candidates}
        # Of a server with one log a sketch is a part of the time, and of the system with it.
        parts = fidelity == "sketch" and not pausing(self.question)
        experiment = (self.question.whole if parts else self.question).experiment(levels)
        trials = {trial.index: trial for trial in experiment.trials("predict")}
        jobs: list[dict[str, Any]] = []
        warnings = {}
        for index, trial in trials.items():
            if trial.refused is not None:
                continue
            prepared = prepare(trial, self.catalog, self.calibration, str(experiment.path))
            warnings[index] = list(prepared.warnings)
            if prepared.job is not None:
                calm = ablations(trial.spec, self.ablate) if fidelity == "sketch" else ()
                head = {"cell": index, "seed": self.seed, "fidelity": fidelity}
                jobs.append({**head, "ablate": list(calm or self.ablate), **prepared.job})
        found = {}
        answers, tails = self._answers(jobs)
        for index, answer in answers.items():
            trial = trials[index]
            name = str(trial.factors[FACTOR])
            candidate = by_name[name]
            result = result_of(
                trial,
                0,
                experiment.title,
                answer,
                warnings=warnings[trial.index],
                price_usd_per_month=candidate.usd_per_month,
            )
            result = result.model_copy(update={"storage_p99_ms": storage_p99_ms(tails[index])})
            lasts = fidelity == "full" or self.question.lasts
            margin = self.margin if lasts else SHORT
            tried = self._tried(candidate, result, trial.spec.model_dump(mode="json"), margin)
            found[name] = replace(tried, fidelity=fidelity)
        return found

    def _answers(
        self, jobs: list[dict[str, Any]]
    ) -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]]:
        """Return the answers by cell, and the tails that show what of them is storage.

        Where storage is asked for, cells are simulated without stops: all that is judged is in
        them, unless a latency of the whole is asked for too.
        """
        spec = self.question.spec
        calm = ablations(spec, self.ablate) if requires_storage(spec) else ()
        if not calm:
            answers = self._simulated(jobs)
            return answers, {index: answer.get("tail", {}) for index, answer in answers.items()}
        alone = self._simulated([{**job, "ablate": list(calm)} for job in jobs])
        tails = {index: answer.get("tail", {}) for index, answer in alone.items()}
        if not self.question.require.latencies():
            return alone, tails
        # What storage alone misses, the whole does too: it is not simulated.
        bound = (spec.require.storage_p99_ms or 0.0) * SLACK if spec.require else 0.0
        left = [job for job in jobs if (storage_p99_ms(tails.get(job["cell"], {})) or 0.0) <= bound]
        return alone | self._simulated(left), tails

    def _simulated(self, jobs: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Return the answer of each job by its cell; each is simulated once.

        Raises UserError where the engine takes none of several, as one of another version does.
        """
        # A quick cell of a server with one log is as large as the server: up to 1.3 GB.
        large = not pausing(self.question) and any(job["fidelity"] != "sketch" for job in jobs)
        workers = alone(self.workers) if large else self.workers
        answers = list(simulate_once(jobs, self.memory, workers=workers))
        if jobs and all(answer["event"] == "refused" for answer in answers):
            reasons = [Problem(**reason) for reason in answers[0]["reasons"]]
            if len(jobs) > 1:
                raise UserError(*reasons)
            self.refusals += reasons
        return {answer["cell"]: answer for answer in answers if answer["event"] == "cell"}

    def _tried(
        self, candidate: Candidate, result: TrialResult, spec: dict[str, Any], margin: float
    ) -> Tried:
        # A lost node is simulated for the finalists alone, and what is lost with a VM is told of
        # them, beside what the option could do.
        quick = {"recovery_s": None, "durability": MAY_BE_LOST}
        # A year of weather is drawn for the finalists: here a quiet hour is to keep the bounds.
        required = in_a_quiet_hour(Specified.model_validate(spec).required())
        required = required.model_copy(update=quick)
        told, loose = (
            bought(bounds, [result], margin) for bounds in (required, loosened(required))
        )
        met = loose.outcome is Outcome.MET
        return Tried(candidate, result, told, met, required=required)


def alone(workers: Workers) -> Workers:
    """Return workers that take one cell at a time, where they are of this machine."""
    return 1 if workers is None or isinstance(workers, int) else workers


def in_a_quiet_hour(required: Required) -> Required:
    """Return a promise without its share of a year's time."""
    parts = {name: getattr(required, name) for name in ("all", "read", "write")}
    always = {"of_time_ratio": None}
    update = {name: part.model_copy(update=always) for name, part in parts.items() if part}
    return required.model_copy(update=update)


def pausing(question: Question) -> bool:
    """Return whether nodes pause, which sketches leave out."""
    return facts_of(question.spec.database.engine).in_java


def cannot_tell(sketched: Tried) -> bool:
    """Return whether a sketch misses a latency by little although nothing is full: too short."""
    full = fullest(sketched.result)
    near = not sketched.promising and 1.0 < sketched.miss <= FAR
    return near and full is not None and full < TELLING


def steady(tried: Tried, spec: ClusterTrial) -> bool:
    """Return whether a sketch tells how an option answers to small changes: no limit is near."""
    if not facts_of(spec.database.engine).in_java:
        return False
    collector = tried.candidate.settings.get(COLLECTOR, spec.database.jvm.collector)
    return collector in CONCURRENT and (fullest(tried.result) or 0.0) < NEAR


NEAR = 0.8
"""A limit that is so full may be passed where everything is a little worse, and what waits at it
then grows for longer than a sketch lasts."""


CONCURRENT = ("zgc", "shenandoah")
"""Collectors that stop a node for less than a millisecond."""
