"""The search: on each kind of disks the cheapest option that may keep the promise.

Everything here is simulated at sketch fidelity (a seventh of a quick cell's time), without stops of
the JVM, and what it ends with at quick fidelity, with them. A sketch is too short for what builds
up, so a kind whose best sketch quick denies is searched quick from there on.

Options of one kind are tried by halves of their prices. One that fails takes with it every option
that is no better in anything: a faster profile is never slower. If the strongest of a kind fails,
no other of it is tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from disklab.advice.candidates import NODES, PLAINER_RATIO, Candidate, Field, too_weak
from disklab.advice.levers import COLLECTOR, singly, tuned, uncollected
from disklab.advice.options import ALIKE_RATIO
from disklab.advice.promise import TELLING, fullest_limit, limits_of
from disklab.advice.rows import TOO_DEAR
from disklab.advice.simulator import Fidelity, Simulator, Tried
from disklab.results import TrialResult
from disklab.results.required import Outcome, fullest

Tell = Callable[[Sequence["Ladder"]], None]
"""Hears what is known after each step."""

FINALISTS = 3
"""Options that are simulated at full fidelity: the cheapest of as many kinds of disks."""

MOST_ROUNDS = 12
"""How often the search goes on where its answer fails when it is looked at more closely."""

MOST_TRIED = 14
"""Options of a kind that are simulated until it has a best: 2^14 by halves, more than there are."""

LESS_FULL = 0.9
"""So much of what a limit was of one that failed for it, the next may be: nearer ones fail too."""

CONFIRMED = 3
"""Kinds of disks, the cheapest, whose best is simulated quick: as many as are finalists."""

MOST_WAYS = 2
"""Ways in which the settings of one hardware are proved."""


@dataclass
class Ladder:
    """The options of one kind of disks, and what is known of them."""

    kind: str
    alive: list[Candidate]
    """Those that may still be the cheapest; cheapest first."""
    tried: list[Tried] = field(default_factory=list)
    best: Tried | None = None
    failed: bool = False
    """Whether even the strongest fails."""
    rejected: list[Candidate] = field(default_factory=list)
    """Those that looked able quick, and at full fidelity were not."""
    too_full: dict[str, float] = field(default_factory=dict)
    """How full a limit was, at a first look, of one that it failed for at a closer one."""
    fidelity: Fidelity = "quick"
    """At which its options are tried."""

    def __post_init__(self) -> None:
        """Remember which there were."""
        self._all = list(self.alive)
        self.tried_before = 0
        """How much hardware was tried when the last answer of this kind failed."""
        self.borne: dict[int, float] = {}
        """The disk reads of an operation that each option, by its identity, was seen to carry."""

    @property
    def nearest(self) -> Tried | None:
        """The cheapest of the options that miss the promise least, within what is known."""
        least = min((one.miss for one in self.tried), default=0.0)
        near = [one for one in self.tried if one.miss <= least * ALIKE_RATIO]
        return min(near, key=lambda one: one.candidate.usd_per_month, default=None)

    def next(self, most_usd: float = float("inf")) -> Candidate | None:
        """Return what to try: the strongest first, then the middle of what is left up to a price.

        None: nothing is left, or the strongest failed, or so many were tried.
        """
        cheap = [one for one in self.alive if one.usd_per_month <= most_usd]
        if not cheap or self.failed or self._hardware() - self.tried_before >= MOST_TRIED:
            return None
        if not self.tried:
            return max(self.alive, key=lambda one: one.strength.rank())
        return cheap[len(cheap) // 2]

    def _hardware(self) -> int:
        return len({one.candidate.hardware for one in self.tried})

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
        able = one.kept.outcome is Outcome.MET if self.rejected else one.promising
        if not able or not self.too_full:
            return able
        used = limits_of(one.result)
        return all(used.get(name, 0.0) < full for name, full in self.too_full.items())

    def reject(self, closer: Tried) -> None:
        """Take back the best, which does not keep the promise when it is looked at more closely.

        The search goes on among what it had left aside as dearer, and by the promise as it is: the
        slack of a quick run let the wrong one pass.
        """
        if self.best is not None:
            self.rejected.append(self.best.candidate)
            if closer.kept.points and (fullest(closer.result) or 0.0) >= TELLING:
                name = fullest_limit(closer.result)
                if used := limits_of(self.best.result).get(name):
                    self.too_full[name] = min(used * LESS_FULL, self.too_full.get(name, used))
        self.tried_before = self._hardware()
        self.look_again()

    def confirm(self, quick: Tried) -> None:
        """Take in what became at quick fidelity of the best, which was a sketch."""
        self.tried = [one for one in self.tried if one is not self.best] + [quick]
        if self.passes(quick):
            self.best = quick
            return
        # What a sketch let pass is not believed any more; what it denied is.
        self.tried = [one for one in self.tried if one.fidelity == "quick" or not self.passes(one)]
        self.fidelity = "quick"
        self.look_again()

    def look_again(self, below_usd: float = float("inf"), *, ruled_out: bool = True) -> None:
        """Search again below a price, with the results so far.

        `ruled_out`: leave out what is at most as good as an option that failed.
        """
        names = {one.name for one in self.rejected}
        failures = Counter(one.hardware for one in self.rejected)
        # Where an option fails as it is, it may do with all its levers turned.
        passed = [
            one
            for one in self.tried
            if one.candidate.name not in names
            and failures[one.candidate.hardware] < MOST_WAYS
            and self.passes(one)
        ]
        self.best = min(
            passed,
            key=lambda one: (one.candidate.usd_per_month, -len(one.candidate.settings)),
            default=None,
        )
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
class Found:
    """What a search ends with."""

    ladders: Sequence[Ladder]
    closer: dict[str, Tried] = field(default_factory=dict)
    """What was simulated at full fidelity, or has a band that leaves doubt, by name."""
    calm: bool = False
    """Whether nothing keeps the promise, and the best of the ladders would without pauses."""
    answer: Tried | None = None
    """The cheapest that surely keeps the promise; None: nothing does."""

    @property
    def more(self) -> int:
        """How many more are simulated at full fidelity, to be shown beside the answer."""
        return max(1, FINALISTS + 1 - len(self.closer))

    @property
    def finalists(self) -> list[Tried]:
        """What is shown, the likeliest answer first.

        What keeps the promise, by price; where nothing does, what misses it least.
        """
        every = sorted(self.closer.values(), key=lambda one: one.candidate.usd_per_month)
        lossy = [one for one in every if one.candidate.lossy][:1]
        keeping = [one for one in every if not one.candidate.lossy]
        able = [one for one in keeping if one.kept.outcome is Outcome.MET]
        if able and not self.calm:
            return [*able[: FINALISTS + 1], *lossy]
        return [*sorted(keeping, key=lambda one: one.miss)[:FINALISTS], *lossy]


def search(field: Field, simulator: Simulator, tell: Tell) -> Found:
    """Return the cheapest option that surely keeps the promise, with what is shown beside it."""
    search_result = Found(ladders_of(field))
    for _ in range(MOST_ROUNDS):
        # The other kinds are confirmed once the answer is: each of its failures costs one cell.
        climb(search_result.ladders, simulator, tell, confirmed=1)
        best = best_of(search_result.ladders)
        if best is None:
            break
        best, closer = looked_at(best, search_result.ladders, simulator)
        search_result.closer[best.candidate.name] = closer
        if closer.kept.outcome is Outcome.MET:
            search_result.answer = closer
            climb(search_result.ladders, simulator, tell, min(CONFIRMED, 1 + search_result.more))
        else:
            take_back(search_result.ladders, best, closer)
        if best_of(search_result.ladders) is best:
            break
    if search_result.answer is not None:
        for rival in rivals(search_result, search_result.answer, field, simulator):
            search_result.closer[rival.candidate.name] = simulator.proved(rival)
    elif search_result.closer:
        return search_result
    else:
        # Nothing does it, so disks are looked for that would, were it not for the collector.
        if calm := simulator.never_pausing:
            search_result.ladders = ladders_of(field)
            climb(search_result.ladders, calm, tell)
            search_result.calm = best_of(search_result.ladders) is not None
        if not search_result.calm:
            come_as_near(search_result.ladders, simulator)
    look_beside(search_result, simulator)
    return search_result


def look_beside(search_result: Found, simulator: Simulator) -> None:
    """Look more closely at what is shown beside the answer, or where nothing is one."""
    shown = chosen(search_result.ladders)
    new = [one for one in shown if one.candidate.name not in search_result.closer]
    new = new[: search_result.more]
    if search_result.answer is None:
        search_result.closer |= simulator.full([one.candidate for one in new])
        return
    for one in new:
        search_result.closer[one.candidate.name] = simulator.proved(one, at_length=False)


def looked_at(best: Tried, ladders: Sequence[Ladder], simulator: Simulator) -> tuple[Tried, Tried]:
    """Return the best with the levers that it needs, and what becomes of it ever more closely."""
    closer = simulator.full([best.candidate])[best.candidate.name]
    if closer.kept.outcome is Outcome.MET:
        (ladder,) = (one for one in ladders if one.best is best)
        simple = simplify(ladder, best, simulator)
        closer = simulator.proved(simple)
        if closer.kept.outcome is Outcome.MET or simple is best:
            return simple, closer
        # A minute may need a setting that 20 s do not.
        ladder.best, closer = best, simulator.proved(best)
    return best, closer


def rivals(search_result: Found, answer: Tried, field: Field, simulator: Simulator) -> list[Tried]:
    """Return what costs hardly more than the answer and may be preferred to it."""
    own = answer.candidate
    near = [
        simplify(ladder, ladder.best, simulator)
        for ladder in by_price(search_result.ladders)
        if ladder.best is not None and preferable(ladder.best.candidate, own)
    ]
    plain = plainer(answer, field, simulator)
    near += [] if plain is None else [plain]
    return [one for one in near if one.candidate.name not in search_result.closer][:MOST_RIVALS]


def preferable(one: Candidate, answer: Candidate) -> bool:
    """Return whether an option costs hardly more than the answer, and something is better about it.

    Fewer nodes, or what is plainer.
    """
    near = one.usd_per_month <= answer.usd_per_month * PLAINER_RATIO and not one.lossy
    fewer = one.nodes_of(0) < answer.nodes_of(0)
    return near and (fewer or bool(one.plainer_than(answer)))


MOST_RIVALS = 2
"""Options that are proved beside the answer."""


def take_back(ladders: Sequence[Ladder], best: Tried, closer: Tried) -> None:
    """Take back the answer so far, which fails when it is looked at more closely."""
    for ladder in ladders:
        if ladder.best is best:
            ladder.reject(closer)
        elif ladder.best is not None:
            # What was left aside beside a kind that leads may be the cheapest now.
            ladder.look_again()


def chosen(ladders: Sequence[Ladder]) -> list[Tried]:
    """Return the finalists: the cheapest of each kind that may do it, else the nearest."""
    best = [one.best for one in affordable(ladders) if one.best is not None]
    # One that loses data is shown for its price, and is never the answer.
    lossy = [one for one in best if one.candidate.lossy][:1]
    keeping = [one for one in best if not one.candidate.lossy]
    if keeping:
        return [*keeping[: FINALISTS - len(lossy)], *lossy]
    near = [nearest for one in ladders if (nearest := one.nearest) is not None]
    near = [one for one in near if not one.candidate.lossy]
    return [*sorted(near, key=lambda one: one.miss)[: FINALISTS - 1], *lossy]


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
    ladders: Sequence[Ladder], simulator: Simulator, tell: Tell, confirmed: int = CONFIRMED
) -> None:
    """Try options until each ladder knows its cheapest, and so many of these are no sketches."""
    for ladder in ladders:
        ladder.fidelity = ladder.fidelity if ladder.tried else "sketch"
    while True:
        try_all(ladders, simulator, tell, confirmed)
        sketched = [
            one
            for one in affordable(ladders)[:confirmed]
            if one.best and one.best.fidelity != "quick"
        ]
        if not sketched:
            break
        best = {id(one): one.best.candidate for one in sketched if one.best is not None}
        quick = simulator.unstopped(list(best.values()))
        for ladder in sketched:
            ladder.confirm(quick[best[id(ladder)].name])
        tell(ladders)
    for ladder in ladders if confirmed > 1 else ():
        if ladder.best is not None and ladder.best.fidelity != "quick":
            # Dearer than all that are simulated at full fidelity, and never confirmed.
            ladder.best = None
    tell(ladders)


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


def by_price(ladders: Sequence[Ladder]) -> list[Ladder]:
    """Return the ladders that have a best, the cheapest first, of the same price by nodes."""
    able = [(one.best.candidate, one) for one in ladders if one.best is not None]
    able.sort(key=lambda pair: (pair[0].usd_per_month, pair[0].nodes_of(0)))
    return [ladder for _, ladder in able]


def affordable(ladders: Sequence[Ladder]) -> list[Ladder]:
    """Return the same without those that cost too many times the cheapest that keeps its data."""
    answer = best_of(ladders)
    most = float("inf") if answer is None else answer.candidate.usd_per_month * TOO_DEAR
    return [
        one for one in by_price(ladders) if one.best and one.best.candidate.usd_per_month <= most
    ]


def try_all(ladders: Sequence[Ladder], simulator: Simulator, tell: Tell, wanted: int) -> None:
    """Try options, some kinds at a time, until each ladder has a best or nothing left.

    Nothing that costs more than the best of as many kinds as are wanted.
    """
    while True:
        leave_dear(ladders)
        best = [one.best.candidate for one in by_price(ladders) if one.best is not None]
        prices = [one.usd_per_month for one in best if not one.lossy]
        most = prices[wanted - 1] if len(prices) >= wanted else float("inf")
        turns = [(ladder, one) for ladder in ladders if (one := ladder.next(most)) is not None]
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
        tell(ladders)


FIRST_KINDS = 3
"""Kinds of disks that are tried at a time: what they cost may leave the others out."""


def best_of(ladders: Sequence[Ladder]) -> Tried | None:
    """Return the cheapest option that may do; None: none is known yet."""
    best = [one.best for one in by_price(ladders)]
    return next((one for one in best if one is not None and not one.candidate.lossy), None)


def simplify(ladder: Ladder, best: Tried, simulator: Simulator) -> Tried:
    """Return the best of a kind without the levers that it does not need."""
    if best.candidate.settings == best.candidate.fixed:
        return best
    spec = simulator.question.spec
    bare = replace(best.candidate, settings=dict(best.candidate.fixed))
    fewer = [
        one
        for one in (*singly(bare, spec), *tuned(bare, spec))
        if len(one.settings) < len(best.candidate.settings)
        and one.name not in {tried.candidate.name for tried in ladder.tried}
    ]
    if COLLECTOR in best.candidate.settings:
        stopping = simulator.quick([uncollected(best.candidate)])
        if not any(ladder.passes(one) for one in stopping.values()):
            fewer = [one for one in fewer if COLLECTOR in one.settings]
    # What a sketch denies is believed; of the rest those with the fewest settings come first.
    sketched = simulator.quick(fewer, "sketch")
    able = [one.candidate for one in sketched.values() if one.promising]
    for simple in sorted(able, key=lambda one: len(one.settings)):
        for tried in simulator.quick([simple]).values():
            ladder.tried.append(tried)
            if ladder.passes(tried):
                ladder.best = tried
                return tried
    return best


def plainer(best: Tried, field: Field, simulator: Simulator) -> Tried | None:
    """Return what costs about what the best does, has fewer disks or newer VMs, and may do it.

    Little less, too: of what costs nearly the same the sketches may have denied the plainer one.
    None: nothing, of the few that are tried.
    """
    own = best.candidate
    least_usd = own.usd_per_month / PLAINER_RATIO
    alike = [one for one in field.candidates if one.usd_per_month >= least_usd]
    near = [one for one in alike if one.plainer_than(own) and preferable(one, own)]
    near.sort(key=lambda one: (one.disk_count, one.usd_per_month))
    for one in near[:MOST_PLAINER]:
        for tried in simulator.variants([one])[0]:
            if tried.promising:
                return tried
    return None


MOST_PLAINER = 3
"""Plainer options that are tried."""


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
