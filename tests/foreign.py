"""Devices that disklab did not make, for tests of what it must leave alone."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path


def run(*command: str) -> str:
    """Run a program of the system and return what it printed."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def loop_device(file: Path) -> Iterator[Path]:
    """Show a file as a loop device of the test's own, and take it away again."""
    made = Path(run("losetup", "-f", "--show", str(file)))
    try:
        yield made
    finally:
        shown = Path(f"/sys/block/{made.name}/loop/backing_file").read_text().strip()
        assert shown == str(file)
        run("losetup", "-d", str(made))
