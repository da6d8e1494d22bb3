"""What reaches a terminal: text from files and other programs never steers it.

A title may hold an escape sequence that sets the clipboard, or a mark that turns the direction of
writing. Every console of disklab is a `SafeConsole`, and every line of JSON comes from `json_line`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from disklab.reading import UNSAFE

PIPE_WIDTH = 160
"""Columns where no terminal says how many. **Reason:** no table of ours is wider."""

SHOWN = "\N{REPLACEMENT CHARACTER}"


def plain(text: str) -> str:
    """Return a text as a terminal may show it."""
    return UNSAFE.sub(SHOWN, text)


def json_line(content: Any) -> str:
    """Return an object as JSON on one line, what is unsafe in JSON's own escapes."""
    told = json.dumps(content, ensure_ascii=False, default=str)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", told) + "\n"


def width_of(stream: TextIO) -> int | None:
    """Return how many columns there are; None: as COLUMNS says, or as the terminal is wide."""
    return None if stream.isatty() or os.environ.get("COLUMNS", "").isdigit() else PIPE_WIDTH


class SafeConsole(Console):
    """A console that shows control characters instead of sending them, and reads no markup.

    What is to be bold is a `Text` with a style: names and titles may hold brackets.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})
        self._has_own_width = options.get("width") is not None
        """Whether it was made with a width."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; text for a pipe or a file is not broken where COLUMNS would have a table end."""
        is_text = all(isinstance(each, str | Text) for each in objects)
        if self.is_terminal or self._has_own_width or not is_text:
            super().print(*objects, **options)
            return
        width, self.width = self.width, max(self.width, PIPE_WIDTH)
        try:
            super().print(*objects, **options)
        finally:
            self.width = width

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments; only rich's own may hold control codes."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else plain(text), style, control)
