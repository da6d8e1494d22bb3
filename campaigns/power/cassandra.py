"""Versions in Cassandra's rows: one node, whose commit log is synced before each answer."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from disklab.databases import NodePlace, Request, Sizes, provision
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import CQL_PORT, JOLOKIA_PORT, STORAGE_PORT
from disklab.databases.protocol import Conditions
from disklab.engine import CqlLogin, CqlQuery, QueryError
from disklab.errors import DisklabError
from disklab.hosts.addresses import free_addresses
from disklab.hosts.left_databases import make_run_dir
from disklab.hosts.places import Places

from campaigns.power.disk import LostError, run
from campaigns.power.marks import Marks

ROWS = 50
FILLER = "x" * 300
PORTS = (CQL_PORT, STORAGE_PORT, JOLOKIA_PORT)
TABLE = "disklab.versions"
# A flush makes segments of the commit log free: what they held must be in its SSTable by then.
FLUSH_EVERY = 50
KNOWN: dict[Path, Cassandra] = {}
"""The node of each laboratory: after a cut it starts with the same address and password."""


def node_of(lab: Path) -> Cassandra:
    """Return the node of a laboratory; a folder in it is where its volume is mounted."""
    if lab in KNOWN:
        return KNOWN[lab]
    (lab / "cassandra").mkdir()
    (lab / "run").mkdir(mode=0o755)
    run_dir = Places(lab / "run", lab / "data").database("power")
    make_run_dir(run_dir)
    place = NodePlace(
        name="power",
        address=free_addresses(1, PORTS)[0],
        volumes={"data": lab / "cassandra"},
        run_dir=run_dir,
        log_dir=lab / "logs",
    )
    settings = {"commitlog_sync": "batch", "commitlog_segment_size": "4MiB"}
    asked = Request("cassandra", Sizes(8 << 30, Fraction(1, 50)), settings=settings)
    made = provision(asked, [place])
    assert isinstance(made, Cassandra)
    KNOWN[lab] = made
    return made


@contextmanager
def serving(volume: Path) -> Iterator[tuple[Cassandra, CqlQuery]]:
    """Run the node on a volume; yield a connection. LostError: it does not come up."""
    node = node_of(volume.parent)
    place = node.nodes[0].files.place
    folder = place.volumes["data"]
    run("mount", "--bind", volume, folder)
    try:
        try:
            node.start()
        except DisklabError as error:
            tables = sorted(volume.rglob("disklab/versions-*/*"))
            files = ", ".join(f"{one.name} {one.stat().st_size}" for one in tables if one.is_file())
            told = f"Cassandra does not start: {error}"[-2000:]
            raise LostError(f"{told}\nits table has {files}") from None
        try:
            target = node.target
            login = CqlLogin(str(target["user"]), str(target["password"]))
            point = f"{place.address}:{CQL_PORT}"
            with CqlQuery([point], consistency="ONE", login=login) as query:
                yield node, query
        finally:
            # As the power goes: nothing is written in an orderly way.
            node.kill_node(place.name)
    finally:
        run("umount", folder)


def work(volume: Path, marks: Marks, rounds: int, seed: int) -> None:
    """Write versions of rows until `rounds` were acknowledged; flushes between."""
    chance = random.Random(seed)
    with serving(volume) as (node, query):
        query.ask(f"CREATE TABLE {TABLE} (id int PRIMARY KEY, version int, filler text)")
        for row in range(ROWS):
            query.ask(insert(row, 0))
        subprocess.run(["sync", "-f", str(volume)], check=True)
        marks.begin()
        for version in range(1, rounds + 1):
            row = chance.randrange(ROWS)
            with marks.promise(str(row), version):
                query.ask(insert(row, version))
            if version % FLUSH_EVERY == 0:
                node.settle(Conditions(compacted=False))


def insert(row: int, version: int) -> str:
    return f"INSERT INTO {TABLE} (id, version, filler) VALUES ({row}, {version}, '{FILLER}')"


def check(volume: Path, acknowledged: Mapping[str, int], sent: Mapping[str, int]) -> None:
    """LostError: it does not start, or a row is older than promised."""
    with serving(volume) as (_, query):
        try:
            found = query.ask(f"SELECT id, version, filler FROM {TABLE}")
        except QueryError as error:
            raise LostError(str(error)) from None
    if len(found) != ROWS:
        raise LostError(f"{len(found)} rows of {ROWS}")
    for one in found:
        row, version = str(one["id"]), int(one["version"])
        least, most = acknowledged.get(row, 0), sent.get(row, 0)
        if one["filler"] != FILLER or not least <= version <= most:
            raise LostError(f"row {row}: version {version}; {least} was promised and {most} sent")
