"""Did you mean ...?"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable

# Below this likeness a suggestion puzzles more than it helps (difflib's own default).
CUTOFF = 0.6
MOST = 3
"""Names that are told."""
LONGEST = 200
"""Letters; nothing that is known has a longer name, and the search takes time by length."""


def suggestions(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names nearest to `word`, best first.

    A name without its vendor or with other capitals (`p30`) finds `azure/P30`.
    """
    if len(word) > LONGEST:
        return []
    names = sorted(set(known))
    short = {name: _short(name) for name in names}
    wanted = _short(word)
    same = [name for name in names if short[name] == wanted]
    if same:
        return same[:MOST]
    by_short: dict[str, list[str]] = {}
    for name in names:
        by_short.setdefault(short[name], []).append(name)
    near = difflib.get_close_matches(wanted, by_short, n=2 * MOST, cutoff=CUTOFF)
    near.sort(key=lambda name: _apart(wanted, name))
    return [name for match in near for name in by_short[match]][:MOST]


def _apart(word: str, name: str) -> float:
    """Return how far two sizes of one kind are apart; infinite: they are of no one kind."""
    if re.sub(r"\d+", "#", word) != re.sub(r"\d+", "#", name):
        return math.inf
    pairs = zip(re.findall(r"\d+", word), re.findall(r"\d+", name), strict=True)
    return float(sum(abs(int(a) - int(b)) for a, b in pairs))


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return `did you mean A or B?`, or `otherwise` when nothing is near."""
    near = suggestions(word, known)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def _short(name: str) -> str:
    """Return a name as it is compared: without vendor, `Standard_` and capitals."""
    return name.rsplit("/", 1)[-1].casefold().removeprefix("standard_")
