"""Programs that a test runs to their end, and what it waits for beside them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

MOST_S = 300.0
"""A busy machine takes minutes for what an idle one does in seconds."""


def ended(
    command: Sequence[str | PathLike[str]],
    *,
    code: int | None = None,
    most_s: float = MOST_S,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program; return what it said, and its exit code, which is the one asked for."""
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=most_s, check=False, **more
    )
    assert code in {None, ran.returncode}, ran.stdout + ran.stderr
    return ran


def wait_until(
    is_so: Callable[[], object], process: subprocess.Popen[Any] | None = None, most_s: float = 60.0
) -> None:
    """Wait until something is so, as long as the program that is to do it runs."""
    deadline = time.monotonic() + most_s
    while not is_so():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"it did not come about in {most_s:.0f} s"
        time.sleep(0.05)
