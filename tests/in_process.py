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
    *words: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as its program would, in a folder, and return what it said."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
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
        except SystemExit as ended:
            code = ended.code
        finally:
            os.chdir(before)
    number = code if isinstance(code, int) else 0
    return subprocess.CompletedProcess(list(words), number, out.getvalue(), err.getvalue())
