"""How etcd writes its log: a JSON object a line (`--logger=zap`)."""

from __future__ import annotations

import re

from disklab.databases.log import LogForm

LOG = LogForm(
    entry=re.compile(r'\{"level":"'),
    bad=re.compile(r'\{"level":"(warn|error|dpanic|panic|fatal)"'),
    # The stack of a panic.
    cause=re.compile(r"panic: |goroutine "),
    error=re.compile(r'\{"level":"(error|dpanic|panic|fatal)"'),
)
