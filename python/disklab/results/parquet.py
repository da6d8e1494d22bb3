"""How large a Parquet file is when it is unpacked, from its own headers; nothing is unpacked.

A file of a megabyte can hold two hundred million rows, or a page of gigabytes: what reads it gets
as much memory as it asks for. So footer and headers of all pages are read first, and added up.
**Source:** parquet-format, `parquet.thrift` (field numbers) and Thrift's compact protocol.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

MAGIC = b"PAR1"
MOST_ROWS = 20_000_000
"""Ten hours of five hundred figures a second."""
MOST_UNPACKED_BYTES = 2 << 30
MOST_FOOTER_BYTES = 16 << 20
MOST_PAGES = 200_000
"""A page has a megabyte, or what a row group of some minutes has of a column."""
# A header has statistics: the least and the greatest string of the page.
MOST_HEADER_BYTES = 1 << 20
MOST_DEPTH = 12

Fields = dict[int, Any]
"""A struct of Thrift: its fields by their numbers."""


class ParquetError(ValueError):
    """A file is no Parquet file, or is larger than what is read."""


@dataclass
class Unpacked:
    """What files have together when they are unpacked."""

    rows: int = 0
    size_bytes: int = 0
    pages: int = 0

    def add(self, file: BinaryIO) -> None:
        """Count a file. Raises ParquetError."""
        try:
            self._add(file)
        except ParquetError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError, OSError):
            raise ParquetError("its headers are damaged") from None

    def _add(self, file: BinaryIO) -> None:
        size = file.seek(0, os.SEEK_END)
        footer = _struct(_footer(file, size))
        for group in footer.get(4, []):
            self._count(rows=group.get(3, 0))
            for column in group.get(1, []):
                self._add_pages(file, size, column[3])

    def _add_pages(self, file: BinaryIO, size: int, chunk: Fields) -> None:
        """Count the pages of one column of one row group."""
        values = 0
        for header in _pages(file, size, chunk):
            data: Fields = header.get(5) or header.get(8) or {}
            values += data.get(1, 0)
            self._count(size_bytes=header.get(2, 0), pages=1)
            if values > MOST_ROWS:
                raise ParquetError(f"a column has more than {MOST_ROWS:,} values")

    def _count(self, rows: int = 0, size_bytes: int = 0, pages: int = 0) -> None:
        if min(rows, size_bytes) < 0:
            raise ParquetError("a size in its headers is negative")
        self.rows += rows
        self.size_bytes += size_bytes
        self.pages += pages
        if self.rows > MOST_ROWS:
            raise ParquetError(f"it has {self.rows:,} rows, and at most {MOST_ROWS:,} are read")
        if self.size_bytes > MOST_UNPACKED_BYTES:
            rule = f"unpacked it has more than the {MOST_UNPACKED_BYTES:,} bytes that are read"
            raise ParquetError(rule)
        if self.pages > MOST_PAGES:
            raise ParquetError(f"it has more than {MOST_PAGES:,} pages")


def _footer(file: BinaryIO, size: int) -> BinaryIO:
    file.seek(max(size - 8, 0))
    end = file.read(8)
    if len(end) < 8 or end[4:] != MAGIC:
        raise ParquetError("it is no Parquet file")
    length = int.from_bytes(end[:4], "little")
    if length > min(size - 8, MOST_FOOTER_BYTES):
        raise ParquetError("its footer is longer than what is read")
    file.seek(size - 8 - length)
    return io.BytesIO(file.read(length))


def _pages(file: BinaryIO, size: int, chunk: Fields) -> Iterator[Fields]:
    """Yield the headers of a column's pages."""
    begins = [chunk[number] for number in (9, 11) if chunk.get(number)]
    at = min(begins)
    end = at + chunk.get(7, 0)
    if not 0 <= at <= end <= size:
        raise ParquetError("a column lies outside of the file")
    while at < end:
        file.seek(at)
        told = io.BytesIO(file.read(min(MOST_HEADER_BYTES, end - at)))
        header = _struct(told)
        length = header.get(3, 0)
        if length < 0:
            raise ParquetError("a size in its headers is negative")
        at += told.tell() + length
        yield header


def _struct(told: BinaryIO, depth: int = 0) -> Fields:
    """Return the struct that begins here."""
    if depth > MOST_DEPTH:
        raise ParquetError("its headers are too deep")
    fields: Fields = {}
    number = 0
    while head := _byte(told):
        number = number + (head >> 4) if head >> 4 else _signed(told)
        fields[number] = _value(told, head & 15, depth, in_list=False)
    return fields


def _value(told: BinaryIO, kind: int, depth: int, *, in_list: bool) -> Any:
    match kind:
        case 1 | 2:  # a field's kind is its truth; in a list each is a byte
            return _byte(told) == 1 if in_list else kind == 1
        case 3 | 7 | 8:  # a byte, a float of 64 bits, a text
            return told.read({3: 1, 7: 8}.get(kind) or _count(told))
        case 4 | 5 | 6:
            return _signed(told)
        case 9 | 10:
            head = _byte(told)
            length = head >> 4 if head >> 4 < 15 else _count(told)
            return [_value(told, head & 15, depth + 1, in_list=True) for _ in range(length)]
        case 12:
            return _struct(told, depth + 1)
    raise ParquetError("its headers are damaged")


def _count(told: BinaryIO) -> int:
    length = _unsigned(told)
    if length > MOST_FOOTER_BYTES:
        raise ParquetError("its headers are damaged")
    return length


def _signed(told: BinaryIO) -> int:
    number = _unsigned(told)
    return (number >> 1) ^ -(number & 1)


def _unsigned(told: BinaryIO) -> int:
    number = 0
    for shift in range(0, 70, 7):
        part = _byte(told)
        number |= (part & 0x7F) << shift
        if part < 0x80:
            return number
    raise ParquetError("its headers are damaged")


def _byte(told: BinaryIO) -> int:
    return told.read(1)[0]
