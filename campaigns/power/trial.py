"""One recorded run, and every cut of it that is asked for."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from campaigns.power import cassandra, etcd, files, mariadb, postgresql
from campaigns.power.cuts import Cut, Images, cuts_of, last_flush, promised
from campaigns.power.disk import SIZES, LostError, check_file_system, mounted, recorded
from campaigns.power.marks import Marks
from campaigns.power.recorder import Record, records_of

PREFIX = "disklab-power-"


@dataclass(frozen=True)
class Setup:
    """A writer on a file system, and how many promises its run ends with."""

    name: str
    filesystem: str
    writer: ModuleType | mariadb.Writer
    rounds: int
    size: int
    whole: int = 0
    """Bytes that its disk writes whole where they are aligned."""
    loses: bool = False
    """Whether nothing guards what was promised: losses are what it is there to show."""


# PostgreSQL: 40 MB of data folder and 16 MiB segments of its log; etcd: segments of 64 MB, and the
# next one made ready.
SETUPS = [
    Setup("files on ext4", "ext4", files, 150, SIZES["ext4"]),
    Setup("files on xfs", "xfs", files, 150, SIZES["xfs"]),
    Setup("PostgreSQL on ext4", "ext4", postgresql, 300, 4 * SIZES["ext4"]),
    Setup("PostgreSQL on xfs", "xfs", postgresql, 300, SIZES["xfs"]),
    Setup("etcd on ext4", "ext4", etcd, 300, 5 * SIZES["ext4"]),
    Setup("etcd on xfs", "xfs", etcd, 300, 2 * SIZES["xfs"]),
    Setup("MariaDB on ext4", "ext4", mariadb.SAFE, 200, 4 * SIZES["ext4"]),
    Setup("MariaDB without doublewrite", "ext4", mariadb.TORN, 200, 4 * SIZES["ext4"], loses=True),
    Setup(
        "MariaDB without doublewrite on a disk that writes 16 KiB whole",
        "ext4 of 16 KiB",
        mariadb.TORN,
        200,
        4 * SIZES["ext4"],
        whole=16384,
    ),
    Setup(
        "MariaDB with innodb_flush_log_at_trx_commit 2",
        "ext4",
        mariadb.UNSYNCED,
        200,
        4 * SIZES["ext4"],
        loses=True,
    ),
    Setup("Cassandra on ext4", "ext4", cassandra, 200, 8 * SIZES["ext4"]),
]


@dataclass(frozen=True)
class Outcome:
    """What came of one cut."""

    setup: str
    position: int
    seed: int
    lying: bool
    unflushed: int
    """Writes that no FLUSH had covered."""
    promised: int
    """Rows that had to be there."""
    found: str
    """What was wrong; empty when nothing was."""


def record(setup: Setup, lab: Path, seed: int) -> list[Record]:
    """Run the writer on a recorded disk and return the disk's log."""
    with recorded(lab, setup.filesystem, setup.size) as (volume, path):
        marks = Marks(path)
        try:
            setup.writer.work(volume, marks, setup.rounds, seed)
        finally:
            marks.close()
    return list(records_of(lab / "log"))


def try_cut(setup: Setup, images: Images, cut: Cut, lab: Path) -> Outcome:
    """Make the image of a cut, mount it, and look for what was promised."""
    image = lab / "cut.img"
    unflushed = images.make(cut, image)
    acknowledged, sent = promised(images.log, cut.position)
    wrong = ""
    try:
        with mounted(image, lab / "after", "-o", "loop") as volume:
            setup.writer.check(volume, acknowledged, sent)
        check_file_system(image, setup.filesystem)
    except (LostError, OSError) as error:
        wrong = str(error)
    flags = (cut.position, cut.seed, cut.lying, unflushed, len(acknowledged))
    return Outcome(setup.name, *flags, wrong)


def keep_evidence(setup: Setup, images: Images, cut: Cut, lab: Path, folder: Path) -> None:
    """Keep the image of a cut as no server has touched it, its writes and what the server said."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{setup.name.replace(' ', '-')}-{cut.position}-{cut.seed}"
    images.make(cut, folder / f"{name}.img")
    first = last_flush(images.log, cut)
    rest = [
        {"at": at, "kind": one.kind, "offset": one.offset, "length": one.length}
        for at, one in enumerate(images.log[first : cut.position], first)
    ]
    (folder / f"{name}.json").write_text(json.dumps(rest, indent=1), encoding="utf-8")
    for log in lab.glob("*.log"):
        shutil.copyfile(log, folder / f"{name}-{log.name}")


def trials(
    setup: Setup, count: int, seed: int, *, lying: bool = False, evidence: Path | None = None
) -> Iterator[Outcome]:
    """Yield the outcome of `count` cuts of one run; takes everything away afterwards.

    `evidence`: where what belongs to a cut that lost something is kept.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        lab = Path(name).resolve()
        # A database's user must reach its folder.
        lab.chmod(0o755)
        log: Sequence[Record] = record(setup, lab, seed)
        os.unlink(lab / "log")
        images = Images(log, lab / "durable.img", setup.size, setup.whole)
        for cut in cuts_of(log, count, seed, lying=lying):
            outcome = try_cut(setup, images, cut, lab)
            if outcome.found and evidence:
                keep_evidence(setup, images, cut, lab, evidence)
            yield outcome
