"""Programs that a test runs to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
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
