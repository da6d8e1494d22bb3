"""Hosts, databases and networks of other PID namespaces, and what `clean` does to them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

from disklab.hosts.cleaning import Scope, clean, clean_orphans
from disklab.hosts.places import Places

from campaigns.attack.kind import HurtError, Kind, Try, Yard
from tests.hosts.test_decoys import seen
from tests.hosts.test_other_namespaces import FOLDERS, Holders, living

SEPARATE = ["unshare", "--pid", "--fork", "true"]


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield one of each kind of life in other namespaces, and what `clean` is told to do.

    Without root, or where namespaces cannot be made, a try does nothing.
    """
    may = os.geteuid() == 0 and subprocess.run(SEPARATE, check=False).returncode == 0
    for number in count(1):
        scope = Scope(everything=chance.random() < 0.7, data=chance.random() < 0.7)
        yield str(scope), partial(_attempt, number, scope, yard) if may else lambda: None


def _attempt(number: int, scope: Scope, yard: Yard) -> None:
    root = Path(tempfile.mkdtemp(prefix="namespaces-", dir=yard.folder))
    places = Places(root / "run", root / "data")
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, root)
        holders = Holders(undo)
        for _ in living(places, holders, number):
            pass
        holders.wait()
        watched = [*(places.run / one for one in FOLDERS), places.data]
        before = seen(*watched)
        removed = [*clean_orphans(places), *clean(places, scope)[0]]
        if removed or seen(*watched) != before:
            raise HurtError(f"something was taken away or changed: {removed}")


KIND = Kind(
    "namespaces",
    "what lives in another PID namespace, and what cannot be told, in folders that disklab made: "
    "`clean` with and without `--all` and `--data`, and the start of a rehearsal, touch none",
    tries,
)
