"""How wide bands are on machines that a calibration has not seen.

`scripts/abroad_page.py` and `scripts/left_out.py` keep of each published figure how far its
prediction is off, as a part of its band: 1 is at the band's end, by logarithms, before a width. The
width of a kind of figure is that of eight parts of ten, where each study counts alike: a further
study would come with a machine of its own, and not with one more cell (`widths` in
`data/calibration/catalogue.yaml`). What it is worth is counted on each study with the width that
the others tell.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

KEPT = Path(__file__).resolve().parents[1] / "tests" / "prediction" / "widths.json"
COVERED = 0.8
Parts = dict[str, dict[str, list[float]]]
"""By figure and study."""


def parts() -> Parts:
    """Return what the two pages kept."""
    kept: Parts = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return kept


def part(ratio: float, low: float, high: float, width: float = 1.0) -> float:
    """Return how far off a prediction is as a part of its band; `width`: what the band has."""
    off = -math.log(ratio)
    return round(width * off / math.log(high if off > 0 else low), 3)


def keep(figure: str, study: str, found: Iterable[float]) -> None:
    """Keep the parts of a study's figures."""
    kept = parts()
    kept.setdefault(figure, {})[study] = sorted(found)
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def width(studies: Collection[Sequence[float]]) -> float:
    """Return within which part of their bands eight of ten figures lie."""
    weighed = sorted((one, 1 / len(study)) for study in studies for one in study)
    least, reached = COVERED * len(studies), 0.0
    for one, weight in weighed:
        reached += weight
        if reached >= least - 1e-9:
            return one
    raise AssertionError("all of them are more than eight of ten")


def left_out(studies: Mapping[str, Sequence[float]]) -> Iterator[tuple[str, float, int, int]]:
    """Yield of each study the width that the others tell, how many are inside, and of how many."""
    for name, found in studies.items():
        told = width([others for other, others in studies.items() if other != name])
        yield name, told, sum(one <= told for one in found), len(found)


def share_inside(studies: Mapping[str, Sequence[float]]) -> float:
    """Return which share of a study left out is inside, in the mean of all."""
    return fmean(inside / of for _, _, inside, of in left_out(studies))


def table() -> str:
    """Return what each study says of the width that the others tell."""
    lines = ["| figure | study | width of the others | inside |", "|---|---|---|---|"]
    for figure, studies in parts().items():
        counts = list(left_out(studies))
        lines += [
            f"| {figure} | {name} | {told:.2f} | {inside} of {of}, {inside / of:.0%} |"
            for name, told, inside, of in counts
        ]
        inside, of = sum(count[2] for count in counts), sum(count[3] for count in counts)
        lines.append(
            f"| **{figure}** | all, of each study as much | {width([*studies.values()]):.2f} | "
            f"{share_inside(studies):.0%} ({inside} of {of}) |"
        )
    return "\n".join(lines) + "\n"
