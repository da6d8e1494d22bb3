"""Mutations of texts, messages and JSON values, drawn from a seed."""

from __future__ import annotations

import json
import random
from typing import Any

ODD: list[Any] = [
    None, True, 0, -1, 1, 0.5, -0.0, 1e308, 1e-308, 2**31, 2**32 - 1, 2**53 + 1, 2**63, 2**64,
    -(2**63) - 1, "", "\x00", "\ud800", "\x1b]52;c;AAAA\x07", "../../etc", "x" * 5000, [], {},
    [[[[[]]]]], {"": {"": {}}},
]  # fmt: skip
"""Values at which programs break: bounds of numbers, empty ones, deep ones, wrong types."""
BYTES = [b"\x00", b"\xff", b"\x80", b"\x7f", b"{", b"[", b'"', b"\\", b"\n", b"\xed\xa0\x80"]


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return a message with some of its bytes changed, repeated, cut out or put in."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(made) + 1)
        end = min(len(made), at + chance.choice((1, 2, 4, 8, 64)))
        match chance.randrange(6):
            case 0 if made:
                made[at % len(made)] ^= 1 << chance.randrange(8)
            case 1:
                made[at:at] = chance.choice(BYTES) * chance.choice((1, 4, 300))
            case 2:
                del made[at:end]
            case 3:
                made[at:at] = made[at:end]
            case 4:
                made[at:end] = chance.randbytes(end - at)
            case _:
                # A length or a count, as messages have them.
                size = chance.choice((2, 4, 8))
                value = chance.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1)) % 2 ** (8 * size)
                made[at : at + size] = value.to_bytes(size, "big")
    return bytes(made)


def changed_value(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with one place in it changed."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        made = dict(value)
        key = chance.choice(list(made))
        match chance.randrange(8):
            case 0:
                del made[key]
            case 1:
                made[chance.choice(("", "x", key.upper(), key + "s"))] = made[key]
            case _:
                made[key] = changed_value(made[key], chance)
        return made
    if isinstance(value, list) and value and chance.random() < 0.9:
        copied = list(value)
        at = chance.randrange(len(copied))
        if chance.randrange(5):
            copied[at] = changed_value(copied[at], chance)
        else:
            copied[at:at] = copied[at : at + 1] * chance.choice((1, 2, 500))
        return copied
    if isinstance(value, int) and chance.random() < 0.5:
        return chance.choice((value + 1, value - 1, -value, value * 1000, value // 2))
    return chance.choice(ODD)


def changed_line(line: bytes, chance: random.Random) -> bytes:
    """Return a JSON line changed, as a value or as bytes; it stays one line."""
    if chance.random() < 0.7:
        value = json.loads(line)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            value = changed_value(value, chance)
        return json.dumps(value).encode()
    return changed_bytes(line, chance).replace(b"\n", b" ")
