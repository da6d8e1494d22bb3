"""Hashes of the simulator's answers to experiments and crashes: does a change alter a byte?

`python -m scripts.answers` compares; `--write` renews the file after a change that is meant to
change figures. Both name the answers that changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.engine.process import simulate
from disklab.prediction.cells import prepare
from disklab.spec import load

ROOT = Path(__file__).resolve().parent.parent
HASHES = ROOT / "tests" / "prediction" / "answers.json"
CRASHES = ROOT / "tests" / "prediction" / "crashes.yaml"
DIGITS = 16
"""Of a SHA-256 in hexadecimal: too many for two different answers to share by chance."""


def experiment_jobs(names: frozenset[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each job of the experiments (`names`: of those alone), named by file and trial."""
    catalog = load_catalog()
    faults: Any = None
    for path in (*sorted((ROOT / "experiments").glob("*.yaml")), CRASHES):
        if names is not None and path.stem not in names:
            continue
        for number, trial in enumerate(load(path).trials("predict")):
            calibration = calibration_for(trial.spec.engine or "")
            job = prepare(trial, catalog, calibration, path.name).job
            if path == CRASHES and job is not None:
                # MySQL's own files have no timetable yet, its model has: it gets the first one.
                faults = faults or job["mariadb"]["faults"]
                job = {**job, "mariadb": {"faults": faults, **job["mariadb"]}}
            if job is not None:
                yield f"{path.stem}/{number}", {"seed": 1, "fidelity": "quick", **job}


def hashes(jobs: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return the hash of the answer to each job, by its name."""
    names = list(jobs)
    numbered = ({**jobs[name], "cell": number} for number, name in enumerate(names))
    digests: dict[str, str] = {}
    for answer in simulate(numbered):
        name = names[answer.pop("cell")]
        # The one thing that an answer says of the machine.
        answer.pop("wall_s", None)
        text = json.dumps(answer, sort_keys=True)
        digests[name] = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    return dict(sorted(digests.items()))


def kept() -> dict[str, str]:
    """Return the hashes of the tree."""
    digests: dict[str, str] = json.loads(HASHES.read_text())
    return digests


def main() -> int:
    """Compare all jobs with the file, or write it anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the hashes anew")
    arguments = parser.parse_args()
    new = hashes(dict(experiment_jobs()))
    old = kept() if HASHES.exists() else {}
    changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    if arguments.write:
        HASHES.write_text(json.dumps(new, indent=0) + "\n")
    print(f"{len(new)} answers, {len(changed)} of them other than before", *changed, sep="\n  ")
    return 1 if changed and not arguments.write else 0


if __name__ == "__main__":
    sys.exit(main())
