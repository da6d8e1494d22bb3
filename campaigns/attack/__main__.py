"""`python -m campaigns.attack --tries N`: each kind of hostile tries, and the page of counts."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from campaigns.attack.campaign import attack
from campaigns.attack.page import renewed
from campaigns.attack.registry import KINDS


def main() -> int:
    """Make the tries; print what was let in."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.attack", description=__doc__)
    parser.add_argument("--tries", type=int, default=1000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in KINDS])
    parser.add_argument("--page", type=Path, help="where the counts are written")
    given = parser.parse_args()
    tallies = []
    for kind in KINDS:
        if given.kind is None or kind.name in given.kind:
            begun = time.monotonic()
            tally = attack(kind, given.tries, given.seed)
            seconds = time.monotonic() - begun
            print(
                f"{kind.name}: {tally.tried} tries (seed {given.seed}), {tally.refused} refused, "
                f"{len(tally.failures)} let in, {seconds:.0f} s",
                flush=True,
            )
            print(*tally.failures, sep="\n", end="\n" if tally.failures else "", flush=True)
            tallies.append(tally)
    if given.page is not None:
        today = datetime.now(timezone.utc).date().isoformat()
        renewed(given.page, tallies, given.seed, today)
    return int(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
