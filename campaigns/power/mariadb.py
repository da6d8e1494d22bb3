"""Versions in MariaDB's rows, as MariaDB is set up by default: commits wait for the redo log."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from campaigns.power.disk import LostError, run
from campaigns.power.marks import Marks

ROWS = 50
USER = "mysql"
READY_SECONDS = 60.0
SERVER = [
    "--no-defaults",
    "--skip-networking",
    "--skip-grant-tables",
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=16M",
    "--innodb-flush-method=O_DIRECT",
]


def as_user(*command: str | Path) -> list[str]:
    words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    return [*words, *map(str, command)]


def client(volume: Path, *options: str) -> list[str]:
    command = ["mariadb", "--no-defaults", "-BNr", "--unbuffered", "-u", "root"]
    return [*command, f"--socket={volume.parent}/sockets/mariadb", *options]


def ask(volume: Path, statement: str) -> list[str]:
    return run(*client(volume, "-e", statement)).splitlines()


def _answers(volume: Path) -> bool:
    try:
        ask(volume, "select 1")
    except LostError:
        return False
    return True


class Writer:
    """A server with its doublewrite buffer or without, whose commits wait for the log or do not."""

    def __init__(self, doublewrite: str = "ON", synced: int = 1) -> None:
        """Take `innodb_doublewrite` and `innodb_flush_log_at_trx_commit`."""
        self.doublewrite, self.synced = doublewrite, synced

    @contextmanager
    def server(self, volume: Path) -> Iterator[None]:
        """Run a server while the block does. LostError: it does not come up."""
        sockets = volume.parent / "sockets"
        shutil.rmtree(sockets, ignore_errors=True)
        sockets.mkdir()
        shutil.chown(sockets, USER, USER)
        log = volume.parent / "mariadb.log"
        command = as_user("mariadbd", *SERVER, f"--innodb-doublewrite={self.doublewrite}")
        command += [f"--innodb-flush-log-at-trx-commit={self.synced}"]
        command += [f"--datadir={volume}/mariadb", f"--socket={sockets}/mariadb"]
        command += [f"--tmpdir={sockets}"]
        with (
            log.open("wb") as said,
            subprocess.Popen(command, stdout=said, stderr=said, cwd="/") as process,
        ):
            try:
                self._await_ready(volume, process, log)
                yield
            finally:
                # As the power goes: nothing is written in an orderly way.
                process.kill()

    @staticmethod
    def _await_ready(volume: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not _answers(volume):
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-1000:]
                raise LostError(f"MariaDB does not start: {text}")
            time.sleep(0.1)

    def work(self, volume: Path, marks: Marks, rounds: int, seed: int) -> None:
        """Commit versions of rows until `rounds` were acknowledged; pages are written between."""
        chance = random.Random(seed)
        (volume / "mariadb").mkdir(mode=0o700)
        shutil.chown(volume / "mariadb", USER, USER)
        made = "--auth-root-authentication-method=normal"
        run(
            *as_user("mariadb-install-db", "--no-defaults", "--skip-test-db", made),
            *(f"--datadir={volume}/mariadb", f"--tmpdir={volume}/mariadb"),
        )
        with self.server(volume):
            table = (
                "create database v; use v; create table v (id int primary key, version int, t text)"
            )
            rows = f"insert into v select seq, 0, repeat('x', 3000) from seq_1_to_{ROWS}"
            ask(volume, f"{table}; {rows}; set global innodb_log_checkpoint_now = on")
            run("sync", "-f", volume)
            marks.begin()
            with subprocess.Popen(
                client(volume, "v"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as session:
                assert session.stdin
                assert session.stdout
                for version in range(1, rounds + 1):
                    row = chance.randint(1, ROWS)
                    with marks.promise(str(row), version):
                        # All bytes of a row change: the checksum of a torn page fails.
                        text = f"repeat('{version % 10}', 3000)"
                        change = f"update v set version = {version}, t = {text} where id = {row};"
                        session.stdin.write(f"{change} select {version};\n")
                        session.stdin.flush()
                        if session.stdout.readline() != f"{version}\n":
                            raise LostError(f"version {version} was not committed")
                    # A checkpoint syncs the log, too.
                    if version % 10 == 0 and self.synced == 1:
                        session.stdin.write("set global innodb_log_checkpoint_now = on;\n")
                session.stdin.close()

    def check(self, volume: Path, acknowledged: Mapping[str, int], sent: Mapping[str, int]) -> None:
        """LostError: recovery or CHECK TABLE fails, or a row is older than promised."""
        with self.server(volume):
            (answer,) = ask(volume, "check table v.v extended")
            if not answer.endswith("\tOK"):
                raise LostError(answer)
            found = ask(volume, "select id, version from v.v order by id")
            versions = dict(line.split("\t") for line in found)
            if len(found) != ROWS or len(versions) != ROWS:
                raise LostError(f"{len(found)} rows, {len(versions)} different ones, of {ROWS}")
            wrong = []
            for row, version in versions.items():
                least, most = acknowledged.get(row, 0), sent.get(row, 0)
                if not least <= int(version) <= most:
                    wrong.append(f"row {row}: version {version}; {least} was promised, {most} sent")
            if wrong:
                raise LostError(f"{len(wrong)} of {len(acknowledged)} promised rows: {wrong[0]}")


SAFE, TORN, UNSYNCED = Writer(), Writer(doublewrite="OFF"), Writer(synced=2)
