"""Option values in words: sizes, rates, read-ahead, scale. And the spinner of long work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

from disklab.catalog import format_bytes, parse_bytes
from disklab.cli.output import notes
from disklab.errors import Problem, UserError


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show what is being done: a spinner on a terminal, nothing elsewhere."""
    out = notes()
    if not out.is_terminal:
        yield lambda _: None
        return
    with out.status("looking") as status:
        yield status.update


def bytes_of(text: str | None, place: str) -> int | None:
    """Read `64GiB`. Raises UserError that names the option."""
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UserError(Problem(place, repr(text), str(error), "write for example 64GiB")) from None


def rate_of(text: str | None) -> int | None:
    """Read `200MB` or `200 MB/s`; a number alone would leave the unit open."""
    if text is None:
        return None
    amount = bytes_of(text.strip().removesuffix("/s"), "--throughput")
    if text.strip().isdigit():
        rule = "a throughput needs a unit"
        raise UserError(Problem("--throughput", text, rule, f"write {text}MB for {text} MB/s"))
    return amount


def read_ahead_kib(text: str | None) -> int | None:
    """Read `8KiB` or `0` as KiB."""
    amount = bytes_of(text, "--read-ahead")
    if amount is None:
        return None
    # The kernel keeps it in KiB; more than 64 MiB is a slip.
    if amount % 1024 or amount > 64 << 20:
        rule = "read-ahead is whole KiB up to 64MiB"
        value = format_bytes(amount)
        raise UserError(Problem("--read-ahead", value, rule, "write for example 8KiB, or 0"))
    return amount // 1024


def scale_of(text: str | None) -> Fraction | None:
    """Read `1/100`."""
    if text is None:
        return None
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        rule = "a scale is a fraction"
        raise UserError(Problem("--scale", repr(text), rule, "write for example 1/100")) from None
