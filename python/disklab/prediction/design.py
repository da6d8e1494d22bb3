"""Which cells tell parameters apart, and how well those that are chosen know each of them.

A cell's information is that of a least-squares fit: how far its figures move when a parameter
does, in logarithms, weighed as `fitting` weighs them. Cells are added one by one, each the one that
makes the ellipsoid of the parameters smallest for its time (D-optimal, Fedorov 1972).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disklab.databases.simulating import Job
from disklab.engine.process import simulate
from disklab.errors import Problem, UserError
from disklab.prediction.cells import with_parameters
from disklab.prediction.fitting import REHEARSED, WEIGHTS
from disklab.prediction.run import Options

Matrix = NDArray[np.float64]

STEP = 0.2
"""By how much a parameter is moved, as a logarithm: a simulated tail has noise of some percent."""

NOISE = 0.05
"""Standard deviation of a figure's logarithm between equal rehearsals, of weight 1.

**Source:** published runs of equal cells differ by 5 to 20 %; our own on an idle machine by less.
"""

PRIOR = math.log(4)
"""What is known of a parameter before: within a factor of four in two cases of three. Without it
the first cells, fewer than parameters, would have no ellipsoid at all."""

EIGHT_OF_TEN = 1.2816
"""Standard deviations within which eight cases of ten lie (normal distribution)."""

MOST_CORRELATED = 0.95
"""Of two parameters beyond it the cells tell the sum or the ratio alone."""

LEAST_TOLD = math.log(2)
"""A parameter with a larger standard deviation is one that the cells do not tell."""


@dataclass(frozen=True)
class Known:
    """How well a parameter is known."""

    name: str
    within: float | None
    """In eight cases of ten the true value lies within this factor; None: it is not told."""
    like: str = ""
    """The parameter that it is cannot be separated from; empty: none."""


def informations(
    jobs: Sequence[Job], names: Sequence[str], values: Mapping[str, int], options: Options
) -> list[Matrix]:
    """Return what each cell tells of the parameters: a symmetric matrix in the names' order.

    `values`: all parameters, about which the named ones are moved. Raises UserError when the
    simulator refuses a cell.
    """
    further = ({name: max(1, round(values[name] * math.exp(STEP)))} for name in names)
    moved = [dict(values), *({**values, **one} for one in further)]
    width = len(moved)
    asked = (
        {
            "cell": number,
            "seed": options.seed,
            "fidelity": options.fidelity,
            **with_parameters(jobs[number // width], moved[number % width]),
        }
        for number in range(width * len(jobs))
    )
    logs = np.zeros((len(jobs), width, len(REHEARSED)))
    for answer in simulate(asked, workers=options.workers):
        if answer["event"] == "refused":
            raise UserError(*(Problem(**reason) for reason in answer["reasons"]))
        told = {"ops/s": answer["ops_per_s"], **answer["latency_ms"]}
        at = divmod(answer["cell"], width)
        logs[at] = [math.log(max(told[figure], 1e-9)) for figure in REHEARSED]
    weights = np.array([WEIGHTS[figure] for figure in REHEARSED])
    slopes = (logs[:, 1:, :] - logs[:, :1, :]) / STEP * weights
    return [one @ one.T / NOISE**2 for one in slopes]


def choose(informations: Sequence[Matrix], costs_s: Sequence[float], budget_s: float) -> list[int]:
    """Return which cells to measure, the most telling first; at least one.

    `costs_s`: how long each takes; those chosen take no longer than the budget, but for the first.
    """
    count = informations[0].shape[0]
    known: Matrix = np.eye(count) / PRIOR**2
    chosen: list[int] = []
    left = budget_s

    def gain(cell: int) -> float:
        before, after = (
            np.linalg.slogdet(known)[1],
            np.linalg.slogdet(known + informations[cell])[1],
        )
        return float(after - before) / costs_s[cell]

    while True:
        able = [cell for cell in range(len(costs_s)) if cell not in chosen]
        able = [cell for cell in able if costs_s[cell] <= left or not chosen]
        if not able:
            return chosen
        best = max(able, key=gain)
        chosen.append(best)
        known += informations[best]
        left -= costs_s[best]


def tell(information: Matrix, names: Sequence[str], noise: float = NOISE) -> list[Known]:
    """Return what is known of each parameter, in the names' order.

    Of two that are not told apart the later one is taken as it is, and of what is hardly told each
    is; the others are then known as if those were right. `noise`: as `NOISE`, as it was seen.
    """
    left, found = list(range(len(names))), {}
    while left:
        deviations, correlation = _spread(information[np.ix_(left, left)], noise)
        pairs = [(abs(correlation[i, j]), i, j) for j in range(len(left)) for i in range(j)]
        worst = max(pairs, default=(0.0, 0, 0))
        weakest = max(range(len(left)), key=lambda at: deviations[at])
        if worst[0] > MOST_CORRELATED:
            _, first, second = worst
            found[left[second]] = Known(names[left[second]], None, names[left[first]])
            del left[second]
        elif deviations[weakest] > LEAST_TOLD:
            found[left[weakest]] = Known(names[left[weakest]], None)
            del left[weakest]
        else:
            for at, index in enumerate(left):
                within = math.exp(EIGHT_OF_TEN * deviations[at])
                found[index] = Known(names[index], float(within))
            break
    return [found[index] for index in range(len(names))]


def correlations(information: Matrix, names: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the correlation of each pair of parameters."""
    _, found = _spread(information, NOISE)
    return {(names[i], names[j]): float(found[i, j]) for j in range(len(names)) for i in range(j)}


def _spread(information: Matrix, noise: float) -> tuple[Matrix, Matrix]:
    """Return standard deviations and correlations of the parameters."""
    # A millionth of the largest keeps what is not told at all from dividing by zero.
    small = max(float(np.max(np.diag(information))), 1.0) * 1e-6
    covariance = np.linalg.inv(information + small * np.eye(len(information)))
    own = np.sqrt(np.diag(covariance))
    return own * (noise / NOISE), covariance / np.outer(own, own)
