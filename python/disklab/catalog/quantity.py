"""Amounts of data and rates as text. The unit words are those of `disklab-units`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from disklab.catalog.suggest import suggestions
from disklab.errors import Problem, UserError, refuse

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

BYTES_RULE = "a number of whole bytes with B, kB, KiB, MB, MiB, GB, GiB, TB or TiB"
BYTES_PATTERN = rf"(\d+(?:\.\d+)?)\s*({'|'.join(BYTE_UNITS)})?"
_BYTES = re.compile(BYTES_PATTERN, re.ASCII)


def parse_bytes(text: str) -> int:
    """Read `64KiB`, `4096`, `250 MB` or `1.5TB`. Raises ValueError with the rule."""
    parts = _BYTES.fullmatch(text.strip())
    amount = None if parts is None else Fraction(parts[1]) * BYTE_UNITS[parts[2] or "B"]
    if amount is None or amount.denominator != 1:
        raise ValueError(f"expected {BYTES_RULE}")
    return int(amount)


def _later(amount: float, form: str) -> str | None:
    """Return the mark of an amount that is chosen later (`knob.trace`); None: it is a number."""
    words: Callable[[str], str] | None = getattr(amount, "in_words", None)
    return words and words(form)


def format_bytes(amount: int) -> str:
    """Return the amount in the largest unit that divides it; parsing gives the same amount back."""
    if mark := _later(amount, "bytes"):
        return mark
    for unit, factor in BYTE_UNITS.items():
        if amount and amount % factor == 0:
            return f"{amount // factor}{unit}"
    return f"{amount}B"


def format_rate(bytes_per_s: int) -> str:
    """Return a rate in MB/s (10^6), as vendors quote it, exactly."""
    if mark := _later(bytes_per_s, "rate"):
        return mark
    for unit in ("MB", "MiB", "kB", "KiB", "B"):
        if bytes_per_s % BYTE_UNITS[unit] == 0:
            return f"{bytes_per_s // BYTE_UNITS[unit]} {unit}/s"
    raise AssertionError("one byte divides everything")


def plain_number(value: float, digits: int = 12) -> str:
    """Return a number of at least 0 as experiment files take it: digits and no exponent.

    Nine decimals at most; what would be none of them is the least that has one.
    """
    text = f"{Decimal(f'{value:.{digits}g}'):.9f}".rstrip("0").rstrip(".")
    return text if float(text) or not value else "0.000000001"


def about_bytes(amount: float) -> str:
    """Return the amount with three digits or so, for people."""
    if mark := _later(amount, "about"):
        return mark
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


# Disk expressions: `azure/P30`, `4 x azure/P30`, `azure/Ultra(250GiB, 10000 IOPS, 250 MB/s)`.

LOCAL_DISKS = ("local", "nvme", "ephemeral-os")
"""Disks that a VM brings along: its temp disk, one of its NVMe disks, its ephemeral OS disk."""

SWITCHES = ("on-demand-burst", "performance-plus")

GRAMMAR = "[COUNT x] NAME[(SIZE, N IOPS, N MB/s, on-demand-burst, performance-plus)]"
EXAMPLES = "azure/P30 or 4 x azure/P30 or azure/PremiumV2(250GiB, 10000 IOPS, 250 MB/s)"

# More disks than any VM takes; a larger count is a slip of the finger, and must not fill memory.
MOST_DISKS = 256

_EXPRESSION = re.compile(
    r"\s*(?:(?P<count>\d{1,9})\s*[x*×]\s+)?(?P<name>[A-Za-z][\w./-]*)\s*"  # noqa: RUF001
    r"(?:\((?P<arguments>[^()]*)\))?\s*",
    re.ASCII,
)
_IOPS = re.compile(r"(\d{1,15})\s*IOPS", re.ASCII | re.IGNORECASE)
_RATE = re.compile(r"(\d{1,15})\s*(GiB|GB|MiB|MB|KiB|kB|B)/s", re.ASCII)
_SIZE = re.compile(r"\d{1,15}\s*(?:TiB|GiB|MiB|KiB|TB|GB|MB|kB|B)", re.ASCII)


@dataclass(frozen=True)
class DiskExpression:
    """A disk, or a stripe of equal disks, by name and by what was asked for beyond the name."""

    name: str
    count: int = 1
    size_bytes: int | None = None
    iops: int | None = None
    bytes_per_s: int | None = None
    on_demand_burst: bool = False
    performance_plus: bool = False

    def __str__(self) -> str:
        """Return the expression in the form that parses to the same disks."""
        arguments = [
            *([] if self.size_bytes is None else [format_bytes(self.size_bytes)]),
            *([] if self.iops is None else [f"{self.iops} IOPS"]),
            *([] if self.bytes_per_s is None else [format_rate(self.bytes_per_s)]),
            *(["on-demand-burst"] if self.on_demand_burst else []),
            *(["performance-plus"] if self.performance_plus else []),
        ]
        disk = self.name + (f"({', '.join(arguments)})" if arguments else "")
        return disk if self.count == 1 else f"{self.count} x {disk}"

    @property
    def is_local(self) -> bool:
        """Whether the VM brings the disk along."""
        return self.name in LOCAL_DISKS


def is_expression(text: str) -> bool:
    """Return whether a text says more than a name: a count, or arguments in brackets."""
    return "(" in text or re.match(r"\s*\d+\s*[x*×]\s", text) is not None  # noqa: RUF001


def parse_disks(text: str, place: str = "DISKS") -> DiskExpression:
    """Read a disk expression. Raises UserError with every argument that is wrong."""
    matched = _EXPRESSION.fullmatch(text)
    if matched is None:
        rule = f"a disk expression reads {GRAMMAR}"
        raise UserError(Problem(place, repr(text), rule, f"write for example {EXAMPLES}"))
    count = int(matched["count"] or 1)
    problems = []
    if not 1 <= count <= MOST_DISKS:
        rule = f"a volume has 1 to {MOST_DISKS} disks"
        problems.append(Problem(place, repr(text), rule, "choose a number in that range"))
    asked: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in (matched["arguments"] or "").split(","))):
        key, value = _argument(part)
        if key is None:
            near = suggestions(part, SWITCHES)
            rule = f"an argument is a size, N IOPS, N MB/s, {' or '.join(SWITCHES)}"
            way_out = f"did you mean {near[0]}?" if near else f"write for example {EXAMPLES}"
            problems.append(Problem(place, repr(part), rule, way_out))
        elif key in asked:
            rule = "each argument may stand once"
            problems.append(Problem(place, repr(part), rule, "leave one of them out"))
        else:
            asked[key] = value
    refuse(problems)
    return DiskExpression(
        name=matched["name"],
        count=count,
        size_bytes=asked.get("size"),
        iops=asked.get("iops"),
        bytes_per_s=asked.get("rate"),
        on_demand_burst="on-demand-burst" in asked,
        performance_plus="performance-plus" in asked,
    )


def _argument(part: str) -> tuple[str | None, int]:
    """Return which argument this is (None: none) and its value."""
    if found := _IOPS.fullmatch(part):
        return "iops", int(found[1])
    if found := _RATE.fullmatch(part):
        return "rate", int(found[1]) * BYTE_UNITS[found[2]]
    if _SIZE.fullmatch(part):
        return "size", parse_bytes(part)
    if part.casefold() in SWITCHES:
        return part.casefold(), 1
    return None, 0
