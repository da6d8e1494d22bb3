"""What load programs of kits share: threads, rate, latencies, a ledger of what was acknowledged.

It lies beside a kit's own program (`script`) on the host, whose `Connection` it uses. The host's
Python runs both, with its standard library alone. What else the program can do stands in its
`COMMANDS`.

    harness.py PROGRAM write|check|... HOST:PORT,... [options]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

PAUSE_SECONDS = 0.1
PATIENCE_SECONDS = 60.0
MOST_FAILURES = 100
"""Of a run that ends by its count."""


class Client(Protocol):
    """One connection to one of the servers. What fails raises OSError; the next call connects."""

    def write(self, key: str, body: bytes) -> str:
        """Write what follows from a key; return a word by which it is found, once it is safe."""

    def read(self, note: str, key: str) -> bytes | None:
        """Return what was written; None: it is gone."""

    def close(self) -> None:
        """Let go of the connection."""


def content(key: str, size: int) -> bytes:
    """Return what is written for a key: itself, and bytes that follow from it."""
    head = f"{key} ".encode()
    seed = hashlib.sha256(head).hexdigest().encode()
    return (head + seed * (size // len(seed) + 1))[: max(size, len(head) + 16)]


def rounded(us: int) -> int:
    """Return a latency with three digits, as a histogram has it."""
    step: int = 10 ** max(len(str(us)) - 3, 0)
    return us - us % step


class Writer(threading.Thread):
    """Writes one thing after another until its time or its count is over."""

    def __init__(self, client: Client, options: Any, number: int, begin: float) -> None:
        super().__init__(daemon=True)
        self.client, self.options, self.number, self.begin = client, options, number, begin
        self.done, self.failed, self.end, self.last_error = 0, 0, begin, ""
        self.latencies: dict[int, int] = {}

    def run(self) -> None:
        options = self.options
        name = f"{os.getpid()}-{self.number}"
        ledger = open(f"{options.ledger or '/dev'}/{name if options.ledger else 'null'}", "a")
        share = -(-options.count // options.threads) if options.count else 0
        pause = options.threads / options.rate if options.rate else 0.0
        due, turn = self.begin + pause * self.number / options.threads, 0
        over = self.begin + options.seconds if options.seconds else float("inf")
        while time.monotonic() < over and (not share or self.done < share):
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(min(wait, max(over - time.monotonic(), 0)))
            # A closed loop: what was late is not made up for.
            due = max(due + pause, time.monotonic() - pause)
            key = f"{name}-{turn}"
            turn += 1
            started = time.monotonic()
            try:
                note = self.client.write(key, content(key, options.bytes))
            except OSError as error:
                self.failed, self.last_error = self.failed + 1, str(error)
                time.sleep(PAUSE_SECONDS)
                if share and self.failed > MOST_FAILURES:
                    break
                continue
            us = rounded(int((time.monotonic() - started) * 1e6))
            self.latencies[us] = self.latencies.get(us, 0) + 1
            self.done += 1
            ledger.write(f"{note} {key} {options.bytes}\n")
        self.end = time.monotonic()
        ledger.close()
        self.client.close()


def write(make: Callable[[list[str], int], Client], options: Any) -> int:
    """Write with all threads; print each second, the histogram, and the sums as JSON."""
    begin, addresses = time.monotonic(), options.addresses.split(",")
    workers = [Writer(make(addresses, n), options, n, begin) for n in range(options.threads)]
    for worker in workers:
        worker.start()
    second, before = 1, 0
    while any(worker.is_alive() for worker in workers):
        time.sleep(max(min(begin + second - time.monotonic(), 0.05), 0.001))
        if time.monotonic() >= begin + second:
            done = sum(worker.done for worker in workers)
            print(f"second {done - before}", flush=True)
            second, before = second + 1, done
    latencies: dict[int, int] = {}
    for worker in workers:
        for us, count in worker.latencies.items():
            latencies[us] = latencies.get(us, 0) + count
    for us, count in sorted(latencies.items()):
        print(f"{us} us {count}")
    done, failed = (sum(getattr(w, name) for w in workers) for name in ("done", "failed"))
    if failed:
        print("failures, such as:", next(w.last_error for w in workers if w.last_error))
    seconds = max(worker.end for worker in workers) - begin
    print(json.dumps({"count": done, "failed": failed, "seconds": seconds}))
    return 0 if done else 1


def patiently(act: Callable[[], Any]) -> Any:
    """Return what an act returns, tried again while servers still find together."""
    over = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return act()
        except OSError:
            if time.monotonic() > over:
                raise
            time.sleep(PAUSE_SECONDS * 3)


def check(make: Callable[[list[str], int], Client], options: Any) -> int:
    """Look for all that ledgers have, and compare what it is."""
    client = make(options.addresses.split(","), 0)
    checked = lost = wrong = 0
    for name in sorted(os.listdir(options.ledger)):
        with open(f"{options.ledger}/{name}", encoding="ascii") as file:
            for line in file:
                note, key, size = line.split()
                data = patiently(partial(client.read, note, key))
                checked += 1
                # At the place of what is lost there may be another one by now.
                if data is None or not data.startswith(f"{key} ".encode()):
                    lost += 1
                elif data != content(key, int(size)):
                    wrong += 1
    print(json.dumps({"checked": checked, "lost": lost, "wrong": wrong}))
    return 0


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("what")
    parser.add_argument("addresses")
    for name, value in {"threads": 1, "count": 0, "bytes": 512, "copies": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    for name in ("seconds", "rate"):
        parser.add_argument(f"--{name}", type=float, default=0)
    parser.add_argument("--ledger", default="")
    options = parser.parse_args()
    # The folder may be closed to us, and an import lists it.
    program = runpy.run_path(options.program)
    own: Mapping[str, Callable[[Any], int]] = program.get("COMMANDS", {})
    if options.what in own:
        return own[options.what](options)
    known = {"write": write, "check": check}
    return known[options.what](program["Connection"], options)


if __name__ == "__main__":
    sys.exit(main())
