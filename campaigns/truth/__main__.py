"""`python -m campaigns.truth --minutes N`: rehearses the matrix, predicts it, writes the page."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path

from campaigns.truth.matrix import BEDS, Bed, key_of, size
from campaigns.truth.page import page_of
from campaigns.truth.reasons import REASONS
from campaigns.truth.rehearsing import Place, rehearse
from campaigns.truth.state import stored

STATE = Path("campaigns/truth/cells.jsonl")
PLACE = Path("target/truth")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.truth", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; 60 by default")
    parser.add_argument("--bed", action="append", help="only this one; may be repeated")
    parser.add_argument("--state", type=Path, default=STATE, help=f"cells; {STATE} by default")
    parser.add_argument("--resume", action="store_true", help="leave out what the state file has")
    parser.add_argument("--page", type=Path, help="write the page")
    parser.add_argument("--place", type=Path, default=PLACE, help=f"runs; {PLACE} by default")
    parser.add_argument(
        "--through", default="", metavar="COMMAND", help="start rehearsals by it, such as nice"
    )
    return parser.parse_args()


def main() -> int:
    given = arguments()
    os.environ.pop("DISKLAB_CATALOG", None)
    # An end by a signal takes the hosts away, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    deadline = time.monotonic() + given.minutes * 60
    place = Place(given.place, tuple(shlex.split(given.through)))
    beds = [bed for bed in BEDS if given.bed is None or bed.name in given.bed]
    done = stored(given.state) if given.resume else {}
    print(f"{size()} cells in {len(BEDS)} beds; {len(done)} are stored, references too", flush=True)
    for bed in beds:
        left = [cell.name for cell in bed.cells if key_of(bed, cell) not in done]
        for names in filled_apart(bed, left):
            if time.monotonic() < deadline:
                add(bed, names, place, given.state, deadline)
    if given.page:
        lines = stored(given.state)
        given.page.write_text(page_of(lines, place.folder, REASONS), encoding="utf-8")
    return 0


def filled_apart(bed: Bed, names: list[str]) -> list[list[str]]:
    """Return the cells by the fills that they share: writes of SQL databases have one each.

    A bed is filled again once a twentieth of it changed. Below that, of PostgreSQL, the vacuum
    behind a trial's updates leaves pages with room, and the next one's rows go there instead of to
    new pages: half writes behind such a trial read 1.52 times an operation instead of once
    (PostgreSQL 15, 2026-11-26).
    """
    if bed.engine == "cassandra":
        return [names] if names else []
    writes = {cell.name for cell in bed.cells if cell.mechanism == "mixture"}
    reading = [name for name in names if name not in writes]
    alone = [[name] for name in names if name in writes]
    return [reading, *alone] if reading else alone


def add(bed: Bed, names: list[str], place: Place, state: Path, deadline: float) -> None:
    """Rehearse cells of a bed and store each as it is done."""
    print(f"{bed.name}: {len(names)} cells", flush=True)
    state.parent.mkdir(parents=True, exist_ok=True)
    with state.open("a", encoding="utf-8") as file:
        for line in rehearse(bed, names, place, deadline):
            file.write(json.dumps(line) + "\n")
            file.flush()
            rate = f"{line['ops_per_s']:,.0f} ops/s" if line["ops_per_s"] else line["reason"]
            load = line["load_average"][0]
            print(f"  {line['cell']}: {line['status']}, {rate}, load {load:g}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
