"""What a writer was promised, said in the order of the disk's own log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Marks:
    """The recorder's file of marks; each is in the log when the call returns."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY)

    def begin(self) -> None:
        """Say that all before is there after each cut."""
        os.write(self.file, b"begin")

    @contextmanager
    def promise(self, row: str, version: int) -> Iterator[None]:
        """Say before the block that a version is sent, and after it that it is acknowledged."""
        os.write(self.file, f"sent {row} {version}".encode())
        yield
        os.write(self.file, f"acknowledged {row} {version}".encode())

    def close(self) -> None:
        os.close(self.file)
