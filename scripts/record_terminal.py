r"""Runs commands and writes what they print as a picture of a terminal.

`.venv/bin/python scripts/record_terminal.py OUT.svg 'disklab predict FILE' ['...' ...]` runs each
command in a shell, as it stands, and draws the command lines and their output, colours included;
progress, which goes to standard error, is not drawn.
The picture for the README is made by:

    scripts/record_terminal.py docs/terminal.svg \
        'disklab predict experiments/cassandra-host-caching-quick.yaml --fidelity quick'
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 128
LONGEST_S = 900
PRIVATE = re.compile(r"(?<![\w.])/(?:home|root|tmp|work)/\S*/")
"""Folders of the machine that records; what follows the last slash stays."""


def recorded(commands: list[str], folder: Path) -> Console:
    """Run the commands in `folder`; return a console that holds the lines and what they printed."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    surroundings = os.environ | {
        "COLUMNS": str(WIDTH),
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
    }
    surroundings["PATH"] = f"{folder / '.venv' / 'bin'}:{surroundings.get('PATH', '')}"
    for command in commands:
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        begun = time.monotonic()
        ran = subprocess.run(  # noqa: S602 - the commands are the caller's own
            command, shell=True, cwd=folder, env=surroundings, check=True, timeout=LONGEST_S,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        for line in ran.stdout.splitlines():
            console.print(Text.from_ansi(PRIVATE.sub("", line)))
        console.print(Text(f"({time.monotonic() - begun:.1f} s)", style="dim"))
    return console


def main() -> None:
    """Record the commands of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("commands", nargs="+")
    parser.add_argument("--title", default="disklab")
    given = parser.parse_args()
    folder = Path(__file__).resolve().parents[1]
    console = recorded(given.commands, folder)
    # The identifier would otherwise be drawn by chance: equal transcripts give equal pictures.
    svg = console.export_svg(title=given.title, unique_id="terminal")
    given.out.write_text(svg, encoding="utf-8")
    print(given.out)


if __name__ == "__main__":
    main()
