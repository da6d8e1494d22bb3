"""What a host may run in our agent's place: noise, lies, floods. sshd starts nothing else."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

ESCAPE = "\x1b]0;owned\x07"


def encoded(size: int) -> str:
    return base64.b64encode(b"x" * size).decode()


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


LIES: dict[str, dict[str, Any]] = {
    "escape": {"error": {"place": ESCAPE, "value": ESCAPE, "rule": "no\nsuch", "way_out": ESCAPE}},
    "names": {"answer": {"names": ["../../root/.ssh/authorized_keys"]}},
    "more": {"answer": {"data": encoded(500_000), "end": True, "offset": 0, "identity": "1"}},
    "types": {"answer": {"data": {"a": 1}, "pid": "x", "clock_ns": -1, "ended": {"code": []}}},
    "other-part": {"answer": {"data": "", "ended": True, "offset": 7, "pid": 1}},
    "forever": {"answer": {"data": encoded(1), "end": False, "identity": "1"}},
    "deep": {"error": None},
}


GREETING: dict[str, Any] = {"protocol": 1, "pid": 7, "clock_ns": 1, "processors": 2}
GREETINGS: dict[str, dict[str, Any]] = {
    "protocol": {"protocol": 2},
    "many": {"processors": 1_000_000_000},
    "none": {"processors": 0},
    "text": {"processors": "abc"},
    "share": {"processors": 2.5},
    "true": {"processors": True},
    "list": {"pid": [1]},
    "clock": {"clock_ns": -1},
}


def ask_for_ever(token: str) -> None:
    """Want the agent again whenever it has come."""
    while True:
        sys.stdout.write(f"{token} want {os.uname().machine}\n")
        sys.stdout.flush()
        if not sys.stdin.buffer.read(1 << 20):
            return


def flood(mode: str) -> None:
    """Write without an end."""
    floods = {
        "endless": "x" * 65536,
        "strays": json.dumps({"id": 10**9, "answer": {}}) + "\n",
        "noise-only": "Welcome to the jungle\n",
    }
    while mode in floods:
        sys.stdout.write(floods[mode])


def main() -> None:
    mode = (Path(__file__).parent / "mode").read_text()
    words = os.environ["SSH_ORIGINAL_COMMAND"].replace("'", " ").split()
    token = words[words.index("--hello") + 1]
    if mode == "noise-only":
        flood(mode)
    if mode == "silent":
        sys.stdin.read()
    if mode == "wants":
        ask_for_ever(token)
    say(hello=token, **{**GREETING, **GREETINGS.get(mode, {})})
    for line in sys.stdin:
        flood(mode)
        if mode == "deep":
            sys.stdout.write("[" * 100_000 + "\n")
        say(id=json.loads(line)["id"], **LIES[mode])


if __name__ == "__main__":
    main()
