"""Settings that cost nothing and move a limit: what else to try before buying more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from disklab.advice.candidates import Candidate
from disklab.database_facts import facts_of
from disklab.spec import TrialSpec

CONCURRENT_READS = 128
"""Of Cassandra, whose default is 32: "16 x number of drives" is the rule of its cassandra.yaml, and
disks in the network answer many times more at once."""

MAX_WAL_SIZE = "16GB"
"""Of PostgreSQL, whose default is 1 GB: the log after which a checkpoint begins, and each page's
first change after it is logged whole. **Source:** PostgreSQL's manual, 30.5: checkpoints that come
close together cost more log; "Checkpoints are fairly expensive"."""

READ_AHEAD = "8KiB"
"""Of the device: Linux reads 128 KiB around a fault, of which a small row needs a page or two.
**Source:** Azure-Samples 2019, read ahead of 8 KiB was the fastest for rows of 4 KiB."""
READ_AHEAD_BYTES = 8 << 10


def levers(spec: TrialSpec) -> Iterator[tuple[str, str | int]]:
    """Yield the settings that could be turned: dotted path and value."""
    database = spec.database
    if database is not None and facts_of(database.engine).simulator == "cassandra":
        told = database.settings.get("concurrent_reads", 32)
        if str(told).isdigit() and int(told) < CONCURRENT_READS:
            yield "database.settings.concurrent_reads", CONCURRENT_READS
    if database is not None and facts_of(database.engine).simulator == "postgresql":
        work = spec.workload.operations
        if work is not None and work.write > 0 and "max_wal_size" not in database.settings:
            yield "database.settings.max_wal_size", MAX_WAL_SIZE
    if spec.cluster is not None:
        read_ahead = spec.cluster.volumes["data"].read_ahead_bytes
        if read_ahead is None or read_ahead > READ_AHEAD_BYTES:
            yield "cluster.volumes.data.read_ahead", READ_AHEAD


def tuned(candidate: Candidate, spec: TrialSpec) -> list[Candidate]:
    """Return the option with every lever turned; none: there is no lever left."""
    settings = dict(levers(spec))
    return [replace(candidate, settings={**candidate.settings, **settings})] if settings else []


def singly(candidate: Candidate, spec: TrialSpec) -> list[Candidate]:
    """Return the option with each lever turned by itself, and with none."""
    bare = replace(candidate, settings={})
    return [bare, *(replace(bare, settings={path: value}) for path, value in levers(spec))]
