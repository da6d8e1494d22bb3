"""The command line in the process of the test, for what starts nothing and whose words are tested.

Starting Python and reading the catalogue cost half a second of a processor; here once, not for
each command. Others start the program, or a copy of it (`tests/warm.py`).
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from disklab.cli import main


def disklab(
    *words: str,
    code: int | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command as its program would; return what it said, and its code: the one asked for."""
    out, err = io.StringIO(), io.StringIO()
    ended: object = 0
    before = Path.cwd()
    surroundings = os.environ if environment is None else environment
    with (
        patch.dict(os.environ, surroundings, clear=True),
        patch.object(sys, "argv", ["disklab", *words]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            os.chdir(before if folder is None else folder)
            main()
        except SystemExit as left:
            ended = left.code
        finally:
            os.chdir(before)
    number = ended if isinstance(ended, int) else 0
    assert code in {None, number}, out.getvalue() + err.getvalue()
    return subprocess.CompletedProcess(list(words), number, out.getvalue(), err.getvalue())
