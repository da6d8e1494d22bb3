"""Publishes to a JetStream stream, each message with its acknowledgement, and looks for them again.

Speaks NATS's own text protocol, with the host's Python alone. A message is its number and bytes
that follow from it, so that what is read back can be compared.

    load.py create|delete|publish|check HOST:PORT,... [options]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import socket
import sys
import threading
import time
from typing import Any

STREAM, SUBJECT = "s", "s.x"
ANSWER_SECONDS = 10.0
PAUSE_SECONDS = 0.1


class Connection:
    """One connection to one of the servers."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses, self.turn = addresses, 0
        self.wire: socket.socket | None = None

    def connect(self) -> None:
        host, _, port = self.addresses[self.turn % len(self.addresses)].rpartition(":")
        self.turn += 1
        self.wire = socket.create_connection((host, int(port)), ANSWER_SECONDS)
        self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.wire.makefile("rb")
        self.inbox = f"_INBOX.{os.getpid()}.{id(self)}.{self.turn}"
        self.file.readline()
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self.send(f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox} 1\r\nPING\r\n".encode())
        while self.file.readline() not in (b"PONG\r\n", b""):
            pass

    def send(self, data: bytes) -> None:
        assert self.wire is not None
        self.wire.sendall(data)

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self.wire = None

    def ask(self, subject: str, body: bytes) -> Any:
        """Return the JSON answer to a request. Raises OSError: there is none."""
        try:
            if self.wire is None:
                self.connect()
            self.send(
                b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), self.inbox.encode(), len(body), body)
            )
            return json.loads(self.answer())
        except (OSError, ValueError) as error:
            self.close()
            raise OSError(str(error)) from error

    def answer(self) -> bytes:
        while True:
            words = self.file.readline().split()
            if not words:
                raise OSError("the server has closed the connection")
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] == b"MSG":
                return self.file.read(int(words[-1]) + 2)[:-2]
            elif words[0] == b"HMSG":
                head, whole = int(words[-2]), int(words[-1])
                data = self.file.read(whole + 2)[:-2]
                if whole == head:
                    raise OSError("no server answers for the stream")
                return data[head:]


def content(key: str, size: int) -> bytes:
    """Return the message of a key: itself, and bytes that follow from it."""
    head = f"{key} ".encode()
    seed = hashlib.sha256(head).hexdigest().encode()
    return (head + seed * (size // len(seed) + 1))[: max(size, len(head) + 16)]


def api(connection: Connection, what: str, body: dict[str, Any]) -> Any:
    return connection.ask(f"$JS.API.{what}", json.dumps(body).encode())


class Publisher(threading.Thread):
    """Publishes one message after another until its time or its count is over."""

    def __init__(self, options: argparse.Namespace, number: int, begin: float) -> None:
        super().__init__(daemon=True)
        self.options, self.number, self.begin = options, number, begin
        self.done, self.failed = 0, 0
        self.latencies: dict[int, int] = {}
        self.end = begin
        self.last_error = ""
        self.ledger = None
        if options.ledger:
            name = f"{options.ledger}/{os.getpid()}-{number}"
            self.ledger = open(name, "a", encoding="ascii")

    def run(self) -> None:
        options, connection = self.options, Connection(self.options.addresses.split(","))
        connection.turn = self.number
        share = -(-options.count // options.threads) if options.count else 0
        pause = options.threads / options.rate if options.rate else 0.0
        due, turn = self.begin + pause * self.number / options.threads, 0
        over = self.begin + options.seconds if options.seconds else float("inf")
        while time.monotonic() < over and (not share or self.done < share):
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(min(wait, max(over - time.monotonic(), 0)))
            due = max(due + pause, time.monotonic() - pause)
            key = f"{os.getpid()}-{self.number}-{turn}"
            turn += 1
            started = time.monotonic()
            try:
                answer = connection.ask(SUBJECT, content(key, options.bytes))
                if "seq" not in answer:
                    raise OSError(answer.get("error", {}).get("description", "no sequence"))
            except OSError as error:
                self.failed += 1
                self.last_error = str(error)
                time.sleep(PAUSE_SECONDS)
                if options.count and self.failed > 100:
                    break
                continue
            us = int((time.monotonic() - started) * 1e6)
            # Three digits, as a histogram has them.
            us -= us % max(10 ** (len(str(us)) - 3), 1)
            self.latencies[us] = self.latencies.get(us, 0) + 1
            self.done += 1
            if self.ledger:
                self.ledger.write(f"{answer['seq']} {key} {options.bytes}\n")
        self.end = time.monotonic()
        if self.ledger:
            self.ledger.close()
        connection.close()


def publish(options: argparse.Namespace) -> int:
    begin = time.monotonic()
    workers = [Publisher(options, number, begin) for number in range(options.threads)]
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
    failed = sum(worker.failed for worker in workers)
    errors = {worker.last_error for worker in workers if worker.last_error}
    if errors:
        print("failures, such as:", sorted(errors)[0])
    done = sum(worker.done for worker in workers)
    print(
        json.dumps(
            {"count": done, "failed": failed, "seconds": max(w.end for w in workers) - begin}
        )
    )
    return 0 if done else 1


def check(options: argparse.Namespace) -> int:
    """Look for each acknowledged message at its sequence, and compare what it is."""
    connection = Connection(options.addresses.split(","))
    checked = lost = wrong = 0
    for name in sorted(os.listdir(options.ledger)):
        with open(f"{options.ledger}/{name}", encoding="ascii") as file:
            for line in file:
                number, key, size = line.split()
                answer = patient(connection, f"STREAM.MSG.GET.{STREAM}", {"seq": int(number)})
                checked += 1
                data = base64.b64decode(answer.get("message", {}).get("data", ""))
                # A stream that has lost its end counts on from there: another message has the
                # sequence then, and this one is lost.
                if not data.startswith(f"{key} ".encode()):
                    lost += 1
                elif data != content(key, int(size)):
                    wrong += 1
    print(json.dumps({"checked": checked, "lost": lost, "wrong": wrong}))
    return 0


def patient(connection: Connection, what: str, body: dict[str, Any]) -> Any:
    """Ask until somebody answers: a cluster may still choose its leader."""
    for _ in range(100):
        try:
            answer = api(connection, what, body)
            if answer.get("error", {}).get("code") != 503:
                return answer
        except OSError:
            pass
        time.sleep(PAUSE_SECONDS * 3)
    raise OSError("no server has answered")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["create", "delete", "publish", "check"])
    parser.add_argument("addresses")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--bytes", type=int, default=512)
    parser.add_argument("--ledger", default="")
    options = parser.parse_args()
    connection = Connection(options.addresses.split(","))
    if options.what == "create":
        wanted = {"name": STREAM, "subjects": ["s.>"], "storage": "file", "retention": "limits",
                  "discard": "old", "num_replicas": options.replicas}  # fmt: skip
        answer = api(connection, f"STREAM.CREATE.{STREAM}", wanted)
    elif options.what == "delete":
        answer = api(connection, f"STREAM.DELETE.{STREAM}", {})
    else:
        return publish(options) if options.what == "publish" else check(options)
    if answer.get("error") and answer["error"].get("err_code") != 10059:
        print(json.dumps(answer["error"]))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
