"""Versions in PostgreSQL's rows, as PostgreSQL is set up by default, with data checksums."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from campaigns.power.disk import LostError, run
from campaigns.power.marks import Marks

ROWS = 50
USER = "postgres"
BIN = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/bin"))


def as_user(*command: str | Path) -> str:
    return run("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command)


def sockets_of(volume: Path) -> Path:
    return volume.parent / "sockets"


def start(volume: Path) -> None:
    """Start on a socket beside the volume. LostError: recovery does not end well.

    Sockets and their locks are in memory on a real machine, and gone after a power cut; so are
    processes, while here a lock's PID may still be a zombie's.
    """
    sockets = sockets_of(volume)
    shutil.rmtree(sockets, ignore_errors=True)
    sockets.mkdir()
    shutil.chown(sockets, USER, USER)
    (volume / "pg/postmaster.pid").unlink(missing_ok=True)
    options = f"-c listen_addresses= -c unix_socket_directories={sockets}"
    log = volume / "pg/log"
    more = "-c shared_buffers=16MB -c checkpoint_timeout=30s"
    where = ("-D", volume / "pg", "-l", log, "-o", f"{options} {more}")
    try:
        # 30 s: shorter than `run` waits, so that pg_ctl says what is wrong.
        as_user(BIN / "pg_ctl", "-s", "-w", "-t", "30", *where, "start")
    except LostError as error:
        said = log.read_text(errors="replace")[-1000:]
        # It may run all the same, and would keep the volume busy.
        with suppress(LostError):
            stop(volume)
        raise LostError(f"{error}: {said}") from None


def stop(volume: Path) -> None:
    as_user(BIN / "pg_ctl", "-s", "-w", "-D", volume / "pg", "-m", "immediate", "stop")


def psql(volume: Path, *options: str) -> list[str]:
    return [str(BIN / "psql"), "-XqAt", "-h", str(sockets_of(volume)), "-U", USER, *options]


def work(volume: Path, marks: Marks, rounds: int, seed: int) -> None:
    """Commit versions of rows until `rounds` were acknowledged; checkpoints between."""
    chance = random.Random(seed)
    (volume / "pg").mkdir(mode=0o700)
    shutil.chown(volume / "pg", USER, USER)
    as_user(BIN / "initdb", "-k", "-A", "trust", "-U", USER, "--no-instructions", volume / "pg")
    start(volume)
    try:
        table = "create table v (id int primary key, version int, filler text)"
        rows = f"insert into v select i, 0, repeat('x', 300) from generate_series(1, {ROWS}) i"
        run(*psql(volume, "-c", table, "-c", rows, "-c", "create extension amcheck"))
        run("sync", "-f", volume)
        marks.begin()
        with subprocess.Popen(
            psql(volume), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as session:
            assert session.stdin
            assert session.stdout
            for version in range(1, rounds + 1):
                row = chance.randint(1, ROWS)
                with marks.promise(str(row), version):
                    change = f"update v set version = {version} where id = {row} returning version;"
                    session.stdin.write(change + "\n")
                    if session.stdout.readline() != f"{version}\n":
                        raise LostError(f"version {version} was not committed")
                if version % 40 == 0:
                    session.stdin.write("checkpoint; vacuum v;\n")
            session.stdin.close()
    finally:
        stop(volume)


def check(volume: Path, acknowledged: Mapping[str, int], sent: Mapping[str, int]) -> None:
    """LostError: recovery or its checkers fail, or a row is older than promised."""
    start(volume)
    try:
        found = run(*psql(volume, "-c", "select id, version from v order by id")).splitlines()
        versions = dict(line.split("|") for line in found)
        if len(found) != ROWS or len(versions) != ROWS:
            raise LostError(f"{len(found)} rows, {len(versions)} different ones, of {ROWS}")
        for row, version in versions.items():
            least, most = acknowledged.get(row, 0), sent.get(row, 0)
            if not least <= int(version) <= most:
                text = f"row {row}: version {version}; {least} was promised and {most} sent"
                raise LostError(text)
        as_user(BIN / "pg_amcheck", "-h", sockets_of(volume), "-U", USER, "--heapallindexed", USER)
    finally:
        stop(volume)
