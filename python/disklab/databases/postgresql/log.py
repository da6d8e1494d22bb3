"""How PostgreSQL writes its log."""

from __future__ import annotations

import re

from disklab.databases.log import LogForm

LOG = LogForm(
    # log_line_prefix "%m [%p] ", then the level.
    entry=re.compile(r"\d{4}-\d\d-\d\d .*?\[\d+\] +(?!DETAIL|HINT|CONTEXT|STATEMENT)[A-Z]+: "),
    bad=re.compile(r".*?\] +(WARNING|ERROR|FATAL|PANIC): "),
    cause=re.compile(r".*?\] +(DETAIL|HINT): "),
    # Whoever asks while it starts or stops, and whoever gives up, is told so in this way.
    error=re.compile(
        r".*?\] +(ERROR|FATAL|PANIC):  (?!the database system is |terminating connection due to "
        r"administrator|canceling |sorry, too many clients)"
    ),
)
