"""`python -m campaigns.fuzz --seconds N`: mutates the corpora, and keeps what broke something."""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time

from disklab.errors import DisklabError

from campaigns.fuzz.targets import CORPORA, TARGETS, BrokenError, Target


def fuzz(target: Target, seconds: float, seed: int) -> tuple[int, list[str]]:
    """Try the corpus, then mutations of it until the time is over; return the count and faults."""
    chance = random.Random(f"{seed} {target.name}")
    corpus = target.corpus()
    deadline = time.monotonic() + seconds
    tried, faults = 0, []
    with target.opened() as attempt:
        while tried < len(corpus) or time.monotonic() < deadline:
            given = corpus[tried] if tried < len(corpus) else chance.choice(corpus)
            if tried >= len(corpus):
                given = target.change(given, chance)
            tried += 1
            try:
                attempt(given)
            except DisklabError:
                continue  # refused with a place and a rule
            except BrokenError as error:
                faults.append(f"{kept(target, given)}: {error}")
            except Exception as error:
                faults.append(f"{kept(target, given)}: {type(error).__name__}: {error}")
            if len(faults) >= 10:
                break
    return tried, faults


def kept(target: Target, given: bytes) -> str:
    """Keep an input in the corpus, so that it is tried first from now on; return its path."""
    path = CORPORA / target.name / f"found-{hashlib.sha256(given).hexdigest()[:12]}"
    path.write_bytes(given)
    return str(path.relative_to(CORPORA.parent.parent))


def main() -> int:
    """Fuzz each target; print what was tried and what broke."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=[one.name for one in TARGETS])
    given = parser.parse_args()
    bad = 0
    for target in TARGETS:
        if given.target is None or target.name in given.target:
            tried, faults = fuzz(target, given.seconds, given.seed)
            print(f"{target.name}: {tried} inputs (seed {given.seed}), {len(faults)} faults")
            print(*faults, sep="\n", end="\n" if faults else "", flush=True)
            bad += len(faults)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
