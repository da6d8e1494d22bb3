"""Amounts of data and rates as text. The unit words are those of `disklab-units`."""

from __future__ import annotations

import re

BYTE_UNITS = {
    "TiB": 1 << 40,
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}

BYTES_RULE = "a whole number with B, kB, KiB, MB, MiB, GB, GiB, TB or TiB"
_BYTES = re.compile(rf"(\d+)\s*({'|'.join(BYTE_UNITS)})?", re.ASCII)


def parse_bytes(text: str) -> int:
    """Read `64KiB`, `4096` or `250 MB`. Raises ValueError with the rule."""
    found = _BYTES.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected {BYTES_RULE}")
    return int(found[1]) * BYTE_UNITS[found[2] or "B"]


def format_bytes(amount: int) -> str:
    """Return the amount in the largest unit that divides it; parsing gives the same amount back."""
    for unit, factor in BYTE_UNITS.items():
        if amount and amount % factor == 0:
            return f"{amount // factor}{unit}"
    return f"{amount}B"


def format_rate(bytes_per_s: int) -> str:
    """Return a rate in MB/s (10^6), as vendors quote it, exactly."""
    for unit in ("MB", "MiB", "kB", "KiB", "B"):
        if bytes_per_s % BYTE_UNITS[unit] == 0:
            return f"{bytes_per_s // BYTE_UNITS[unit]} {unit}/s"
    raise AssertionError("one byte divides everything")


def about_bytes(amount: float) -> str:
    """Return the amount with three digits or so, for people."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if amount >= BYTE_UNITS[unit]:
            return f"{amount / BYTE_UNITS[unit]:.4g} {unit}"
    return f"{amount:.0f} B"


def about_rate(bytes_per_s: float) -> str:
    """Return a rate in MB/s with three digits or so, for people."""
    return (
        f"{bytes_per_s / 1e6:.0f} MB/s" if bytes_per_s >= 10e6 else f"{bytes_per_s / 1e6:.3g} MB/s"
    )


def about_time(nanoseconds: float) -> str:
    """Return a time with three digits or so, for people."""
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
