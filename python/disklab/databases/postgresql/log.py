"""How PostgreSQL writes its log."""

from __future__ import annotations

import re

from disklab.databases.log import LogForm

LOG = LogForm(
    # log_line_prefix "%m [%p] ", then the level.
    entry=re.compile(r"\d{4}-\d\d-\d\d .*?\[\d+\] +(?!DETAIL|HINT|CONTEXT|STATEMENT)[A-Z]+: "),
    bad=re.compile(r".*?\] +(WARNING|ERROR|FATAL|PANIC): "),
    cause=re.compile(r".*?\] +(DETAIL|HINT): "),
)
