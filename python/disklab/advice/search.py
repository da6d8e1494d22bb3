"""The search: on each kind of disks the cheapest option that may keep the promise.

Everything here is simulated at sketch fidelity (a seventh of a quick cell's time), without stops of
the JVM, and what it ends with at quick fidelity, with them. A sketch is too short for what builds
up, so a kind whose best sketch quick denies is searched quick from there on.

Options of one kind are tried by halves of their prices. One that fails takes with it every option
that is no better in anything: a faster profile is never slower. If the strongest of a kind fails,
no other of it is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from disklab.advice.candidates import NODES, PLAINER_RATIO, Candidate, Field, too_weak
from disklab.advice.levers import COLLECTOR, collected, collectors, singly, tuned
from disklab.advice.options import ALIKE_RATIO
from disklab.advice.promise import SLACK, bought, loosened
from disklab.advice.question import FACTOR, Question
from disklab.catalog import Catalog
from disklab.database_facts import facts_of
from disklab.databases.calibration import Calibration
from disklab.engine.process import Memory, Workers, simulate_once
from disklab.errors import Problem, UserError
from disklab.prediction.cells import prepare
from disklab.prediction.outcome import result_of
from disklab.prediction.run import ablations, requires_storage
from disklab.results import TrialResult
from disklab.results.required import (
    MAY_BE_LOST,
    Kept,
    Outcome,
    Required,
    Specified,
    carried_ratio,
    fullest,
)
from disklab.results.seconds import storage_p99_ms
from disklab.spec import ClusterTrial

FAR = 3.0
"""An option that misses by such a factor, or carries less than all with every lever turned, is not
tried with fewer of them."""

OVERLOADED = 0.8
"""A sketch of 8.6 s, of which one stop of a JVM takes less than a tenth, that carries less than so
much of the rate tells that the option cannot."""

Fidelity = Literal["sketch", "quick", "full"]

MOST_TRIED = 14
"""Options of a kind that are simulated: 2^14 by halves, more than there are."""


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

    @property
    def overloaded(self) -> bool:
        """Whether it does so much less than is offered that a longer run would say the same."""
        return (carried_ratio([self.result]) or 1.0) < OVERLOADED


@dataclass
class Ladder:
    """The options of one kind of disks, and what is known of them."""

    kind: str
    alive: list[Candidate]
    """Those that may still be the cheapest; cheapest first."""
    total: int = 0
    tried: list[Tried] = field(default_factory=list)
    best: Tried | None = None
    failed: bool = False
    """Whether even the strongest fails."""
    rejected: list[Candidate] = field(default_factory=list)
    """Those that looked able quick, and at full fidelity were not."""
    fidelity: Fidelity = "quick"
    """At which its options are tried."""

    def __post_init__(self) -> None:
        """Remember which there were."""
        self.total = len(self.alive)
        self._all = list(self.alive)
        self.borne: dict[int, float] = {}
        """The disk reads of an operation that each option, by its identity, was seen to carry."""

    @property
    def nearest(self) -> Tried | None:
        """The cheapest of the options that miss the promise least, within what is known."""
        least = min((one.miss for one in self.tried), default=0.0)
        near = [one for one in self.tried if one.miss <= least * ALIKE_RATIO]
        return min(near, key=lambda one: one.candidate.usd_per_month, default=None)

    def next(self) -> Candidate | None:
        """Return what to try: the strongest first, then the middle of what is left."""
        if (
            not self.alive
            or self.failed
            or len({t.candidate.hardware for t in self.tried}) >= (MOST_TRIED)
        ):
            return None
        if not self.tried:
            return max(self.alive, key=lambda one: one.strength.rank())
        return self.alive[len(self.alive) // 2]

    def learn(self, candidate: Candidate, found: Sequence[Tried]) -> None:
        """Take in what became of an option and its levers."""
        first = not self.tried
        self.tried += found
        passed = next((one for one in found if self.passes(one)), None)
        self.alive = [one for one in self.alive if one is not candidate]
        if passed is None:
            self.failed = first
            self.alive = [one for one in self.alive if not one.strength.at_most(candidate.strength)]
            return
        price = passed.candidate.usd_per_month
        if self.best is None or price < self.best.candidate.usd_per_month:
            self.best = passed
        self.alive = [one for one in self.alive if one.usd_per_month < price]

    def passes(self, one: Tried) -> bool:
        """Return whether an option may be the best; without slack once that has misled."""
        return one.kept.outcome is Outcome.MET if self.rejected else one.promising

    def reject(self, below_usd: float = float("inf")) -> None:
        """Take back the best: at full fidelity it does not keep the promise.

        The search goes on among what it had left aside as dearer, below a price, and by the promise
        as it is: the slack of a quick run let the wrong one pass.
        """
        self.rejected += [] if self.best is None else [self.best.candidate]
        self.look_again(below_usd)

    def confirm(self, quick: Tried) -> None:
        """Take in what became at quick fidelity of the best, which was a sketch."""
        self.tried = [one for one in self.tried if one is not self.best] + [quick]
        if self.passes(quick):
            self.best = quick
            return
        # What a sketch let pass is not believed any more; what it denied is.
        self.tried = [one for one in self.tried if one.fidelity == "quick" or not self.passes(one)]
        self.fidelity = "quick"
        self.look_again(float("inf"))

    def look_again(self, below_usd: float, *, ruled_out: bool = True) -> None:
        """Search again below a price, with the results so far.

        `ruled_out`: leave out what is at most as good as an option that failed.
        """
        names = {one.name for one in self.rejected}
        # Where an option fails as it is, it may do with its levers turned.
        passed = [one for one in self.tried if self.passes(one) and one.candidate.name not in names]
        self.best = min(passed, key=lambda one: one.candidate.usd_per_month, default=None)
        able = {one.candidate.hardware for one in passed}
        bad = [one.candidate for one in self.tried if one.candidate.hardware not in able]
        tried = {one.candidate.hardware for one in self.tried}
        price = below_usd
        if self.best is not None:
            price = min(price, self.best.candidate.usd_per_month)
        self.alive = [
            one
            for one in self._all
            if one.hardware not in tried
            and one.usd_per_month < price
            and not (ruled_out and any(one.strength.at_most(other.strength) for other in bad))
        ]


@dataclass
class Simulator:
    """Simulates options of a question."""

    question: Question
    catalog: Catalog
    calibration: Calibration
    workers: Workers = None
    seed: int = 1
    ablate: tuple[str, ...] = ()
    """What every cell is simulated without: `pauses`, to judge the disks alone."""
    cells: int = 0
    """How many were simulated."""
    memory: Memory = field(default_factory=dict, repr=False)
    """The search, its levers, the look at disks alone and the finalists' run ask some twice."""

    def variants(
        self, candidates: Sequence[Candidate], fidelity: Fidelity = "quick"
    ) -> list[list[Tried]]:
        """Return what becomes of each option with its levers turned, until one way does it.

        The way that does most comes first, and the option as the file has it last. Another
        collector is tried where the file's own stops nodes for too long, and nothing else fails.
        """
        ways = [[*tuned(one, self.question.spec), one] for one in candidates]
        first = self.sifted([some[0] for some in ways], fidelity)
        found = [[first[some[0].name]] if some[0].name in first else [] for some in ways]
        open_ways = [
            way
            for some, tried in zip(ways, found, strict=True)
            if not any(one.promising or one.miss > FAR for one in tried)
            for way in some[1:]
        ]
        others = self.sifted(open_ways, fidelity)
        for some, tried in zip(ways, found, strict=True):
            tried += [others[way.name] for way in some[1:] if way.name in others]
        stopped = [tried for tried in found if not any(one.promising for one in tried)]
        calmed = self.calmed([one for tried in stopped for one in tried])
        for tried in stopped:
            tried += [calmed[one.candidate.name] for one in tried if one.candidate.name in calmed]
        return found

    def calmed(self, tried: Sequence[Tried]) -> dict[str, Tried]:
        """Return quick options that fail for stops of nodes alone with another collector.

        By their names as they failed. Their sketches, which have no stops, kept the promise.
        """
        failed = [one.candidate for one in tried if one.fidelity == "quick" and not one.promising]
        spec = self.question.spec
        if not failed or not collectors(spec) or self.ablate:
            return {}
        sketched = self.quick(failed, "sketch")
        able = [one for one in failed if one.name in sketched and sketched[one.name].promising]
        turned = {one.name: collected([one], spec)[-1] for one in able}
        quick = self.quick(list(turned.values()))
        return {name: quick[one.name] for name, one in turned.items() if one.name in quick}

    def sifted(self, candidates: Sequence[Candidate], fidelity: Fidelity) -> dict[str, Tried]:
        """Return what becomes of each option; those that are overloaded are sketched alone."""
        if fidelity != "quick":
            return self.quick(candidates, fidelity)
        sketched = self.quick(candidates, "sketch")
        overloaded = {name: one for name, one in sketched.items() if one.overloaded}
        left = [one for one in candidates if one.name not in overloaded]
        return overloaded | self.quick(left)

    def full(self, candidates: Sequence[Candidate]) -> dict[str, Tried]:
        """Return what becomes of each option at full fidelity, one at a time: each takes 0.6 GB."""
        found = replace(self, workers=alone(self.workers)).quick(candidates, "full")
        self.cells += len(found)
        return found

    def quick(
        self, candidates: Sequence[Candidate], fidelity: Fidelity = "quick"
    ) -> dict[str, Tried]:
        """Return what becomes of each option by name; those that are refused are missing."""
        if not candidates:
            return {}
        levels = {one.name: one.patch() for one in candidates}
        by_name = {one.name: one for one in candidates}
        experiment = self.question.experiment(levels)
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
            tried = self._tried(candidate, result, trial.spec.model_dump(mode="json"))
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
        before = len(self.memory)
        answers = list(simulate_once(jobs, self.memory, workers=self.workers))
        if len(jobs) > 1 and all(answer["event"] == "refused" for answer in answers):
            raise UserError(*(Problem(**reason) for reason in answers[0]["reasons"]))
        cells = {answer["cell"]: answer for answer in answers if answer["event"] == "cell"}
        self.cells += len(self.memory) - before
        return cells

    def _tried(self, candidate: Candidate, result: TrialResult, spec: dict[str, Any]) -> Tried:
        # A lost node is simulated for the finalists alone, and what is lost with a VM is told of
        # them, beside what the option could do.
        quick = {"recovery_s": None, "durability": MAY_BE_LOST}
        # A year of weather is drawn for the finalists: here a quiet hour is to keep the bounds.
        required = in_a_quiet_hour(Specified.model_validate(spec).required())
        required = required.model_copy(update=quick)
        told, loose = bought(required, [result]), bought(loosened(required), [result])
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


def ladders_of(field: Field) -> list[Ladder]:
    """Return the candidates by kind of disks and number of nodes, without those that cannot win."""
    kinds: dict[str, list[Candidate]] = {}
    for one in field.candidates:
        caching = "" if one.disks.caching == "None" else f", {one.disks.caching}"
        nodes = f", {one.settings[NODES]} nodes" if NODES in one.settings else ""
        kinds.setdefault(one.disks.kind + caching + nodes, []).append(one)
    return [Ladder(kind, front(alive)) for kind, alive in kinds.items()]


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those, the cheapest first, that have more of something than everything cheaper."""
    found: list[Candidate] = []
    strongest: dict[tuple[str, ...], np.ndarray] = {}
    for one in candidates:
        mine = np.array([one.strength.amounts])
        others = strongest.get(one.strength.kinds)
        if others is not None and (others >= mine).all(axis=1).any():
            continue
        found.append(one)
        strongest[one.strength.kinds] = mine if others is None else np.vstack([others, mine])
    return found


def climb(
    ladders: Sequence[Ladder], simulator: Simulator, tell: Callable[[int, Tried | None], None]
) -> None:
    """Try options until each ladder knows its cheapest.

    `tell` hears how many cells are done, and the best so far.
    """
    if sketches(simulator):
        for ladder in ladders:
            ladder.fidelity = "sketch" if not ladder.tried else ladder.fidelity
    while True:
        try_all(ladders, simulator, tell)
        sketched = [
            one
            for one in by_price(ladders)[:CONFIRMED]
            if one.best and one.best.fidelity != "quick"
        ]
        if not sketched:
            break
        best = {id(one): one.best.candidate for one in sketched if one.best is not None}
        quick = simulator.quick(list(best.values()))
        calmed = simulator.calmed([one for one in quick.values() if not one.promising])
        for ladder in sketched:
            name = best[id(ladder)].name
            ladder.confirm(calmed[name] if name in calmed else quick[name])
        tell(simulator.cells, best_of(ladders))
    for ladder in ladders:
        if ladder.best is not None and ladder.best.fidelity != "quick":
            # Dearer than all that are simulated at full fidelity, and never confirmed.
            ladder.best = None
    for ladder in by_price(ladders)[:SIMPLIFIED]:
        simplify(ladder, simulator)
    tell(simulator.cells, best_of(ladders))


def come_as_near(ladders: Sequence[Ladder], simulator: Simulator) -> None:
    """Where nothing keeps the promise, look for cheaper options that come as near as the strongest.

    Of the nearest kinds, by halves of the prices of what was never tried.
    """
    near = [(one, nearest) for one in ladders if (nearest := one.nearest)]
    near = [(one, nearest) for one, nearest in near if not nearest.candidate.lossy]
    near.sort(key=lambda pair: pair[1].miss)
    for ladder, nearest in near[:NEAR_KINDS]:
        least = min(one.miss for one in ladder.tried)
        ladder.look_again(nearest.candidate.usd_per_month, ruled_out=False)
        for _ in range(MOST_HALVES):
            if not ladder.alive:
                break
            middle = ladder.alive[len(ladder.alive) // 2]
            (found,) = simulator.variants([middle])
            ladder.tried += found
            price = middle.usd_per_month
            if any(one.miss <= least * ALIKE_RATIO for one in found):
                ladder.alive = [one for one in ladder.alive if one.usd_per_month < price]
            else:
                ladder.alive = [
                    one
                    for one in ladder.alive
                    if one is not middle and not one.strength.at_most(middle.strength)
                ]


NEAR_KINDS = 2
"""Kinds of disks that are shown where nothing keeps the promise."""

MOST_HALVES = 5
"""Options that are tried of each of them: 2^5 by halves."""


def sketches(simulator: Simulator) -> bool:
    """Return whether sketches are looked at first: they leave out stops of nodes, and are short."""
    return facts_of(simulator.question.spec.database.engine).simulator == "cassandra"


def steady(tried: Tried, spec: ClusterTrial) -> bool:
    """Return whether a sketch tells how an option answers to small changes: no limit is near."""
    if facts_of(spec.database.engine).simulator != "cassandra":
        return False
    collector = tried.candidate.settings.get(COLLECTOR, spec.database.jvm.collector)
    return collector in CONCURRENT and (fullest(tried.result) or 0.0) < NEAR


NEAR = 0.8
"""A limit that is so full may be passed where everything is a little worse, and what waits at it
then grows for longer than a sketch lasts."""


CONCURRENT = ("zgc", "shenandoah")
"""Collectors that stop a node for less than a millisecond."""


def by_price(ladders: Sequence[Ladder]) -> list[Ladder]:
    """Return the ladders that have a best, the cheapest first."""
    able = [one for one in ladders if one.best is not None]
    return sorted(able, key=lambda one: one.best.candidate.usd_per_month if one.best else 0.0)


def try_all(
    ladders: Sequence[Ladder], simulator: Simulator, tell: Callable[[int, Tried | None], None]
) -> None:
    """Try options, some kinds at a time, until each ladder has a best or nothing left."""
    while True:
        leave_dear(ladders)
        turns = [(ladder, one) for ladder in ladders if (one := ladder.next()) is not None]
        if not turns:
            return
        # The kinds that may be the cheapest first: what they cost leaves dearer kinds out.
        turns.sort(key=lambda turn: turn[0].alive[0].usd_per_month)
        turns = turns[:FIRST_KINDS]
        for fidelity in dict.fromkeys(ladder.fidelity for ladder, _ in turns):
            some = [turn for turn in turns if turn[0].fidelity == fidelity]
            tried = simulator.variants([one for _, one in some], fidelity)
            for (ladder, one), variants in zip(some, tried, strict=True):
                ladder.learn(one, variants)
        leave_weak(ladders, simulator)
        tell(simulator.cells, best_of(ladders))


SIMPLIFIED = 2
"""Kinds of disks, the cheapest, whose best is looked at with fewer levers."""

CONFIRMED = 4
"""Kinds of disks, the cheapest, whose best is simulated quick: one more than are finalists."""

FIRST_KINDS = 3
"""Kinds of disks that are tried at a time: what they cost may leave the others out."""


def best_of(ladders: Sequence[Ladder]) -> Tried | None:
    """Return the cheapest option that may do; None: none is known yet."""
    best = [one.best for one in ladders if one.best is not None and not one.best.candidate.lossy]
    return min(best, key=lambda one: one.candidate.usd_per_month, default=None)


def simplify(ladder: Ladder, simulator: Simulator) -> None:
    """Take back the levers that the best of a kind does not need."""
    best = ladder.best
    if best is None or best.candidate.settings == best.candidate.fixed:
        return
    spec = simulator.question.spec
    bare = replace(best.candidate, settings=dict(best.candidate.fixed))
    fewer = [
        one
        for one in (*singly(bare, spec), *tuned(bare, spec))
        if len(one.settings) < len(best.candidate.settings)
        and one.name not in {tried.candidate.name for tried in ladder.tried}
    ]
    found = simulator.quick(fewer) if fewer else {}
    ladder.tried += found.values()
    able = [one for one in found.values() if ladder.passes(one)]
    ladder.best = min([*able, best], key=lambda one: len(one.candidate.settings))


def plainer(best: Tried, field: Field, simulator: Simulator) -> Tried | None:
    """Return what costs little more than the best and has fewer disks or newer VMs, and may do it.

    None: nothing, of the few that are tried.
    """
    own = best.candidate
    most = own.usd_per_month * PLAINER_RATIO
    near = [
        one
        for one in field.candidates
        if own.usd_per_month <= one.usd_per_month <= most and one.plainer_than(own)
    ]
    near.sort(key=lambda one: (one.disk_count, one.usd_per_month))
    tried = [one for some in simulator.variants(near[:MOST_PLAINER]) for one in some]
    return next((one for one in tried if one.promising), None)


MOST_PLAINER = 3
"""Plainer options that are tried."""


TOO_DEAR = 2.5
"""A kind of disks whose cheapest option costs so many times the best one found is not looked at
any further: it would not be bought."""


def leave_dear(ladders: Sequence[Ladder]) -> None:
    """Leave options that cost much more than what is known to do."""
    best = [one.best.candidate for one in ladders if one.best is not None]
    known = [one.usd_per_month for one in best if not one.lossy]
    if not known:
        return
    cheapest = min(known)
    for ladder in ladders:
        most = cheapest * TOO_DEAR
        if ladder.best is not None:
            own = ladder.best.candidate.usd_per_month
            leads = any(one.usd_per_month < cheapest for one in ladder.alive)
            most = min(most, own * (ALIKE if leads else OTHER_KIND))
        ladder.alive = [one for one in ladder.alive if one.usd_per_month <= most]


ALIKE = 0.97
"""A saving of a few percent decides nothing: prices are list prices, latencies a model's."""
OTHER_KIND = 0.85
"""The same of a kind of disks that can be no more than second."""


LEARNED_SLACK = {"quick": 0.9, "sketch": 0.8}
"""Of the disk reads that a simulated operation had: they vary by a few percent with the seed."""


def leave_weak(ladders: Sequence[Ladder], simulator: Simulator) -> None:
    """Leave options whose limits cannot carry the disk reads that simulations have shown.

    Nodes with no more memory than a simulated one have no fewer.
    """
    shown = [
        (
            tried.candidate.strength.memory_gib,
            reads_of(tried.result) * LEARNED_SLACK[tried.fidelity],
        )
        for ladder in ladders
        for tried in ladder.tried
    ]
    for ladder in ladders:
        left = []
        for one in ladder.alive:
            some = [reads for gib, reads in shown if gib >= one.strength.memory_gib]
            least = min(some, default=0.0)
            borne = ladder.borne.get(id(one), 0.0)
            if least <= borne or not too_weak(
                simulator.question, one, simulator.calibration, least
            ):
                ladder.borne[id(one)] = max(borne, least)
                left.append(one)
        ladder.alive = left


def reads_of(result: TrialResult) -> float:
    """Return the disk reads of an operation of a simulated cell."""
    told = (result.telemetry.model_extra or {}).get("read_ios_per_operation")
    return float(told or 0.0)
