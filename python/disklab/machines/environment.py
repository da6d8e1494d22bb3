"""The environment of what disklab starts: a few variables that are nobody's secret.

A server that an experiment configures, or a program that it loads, could read all the others: keys
of a cloud, tokens, a proxy with its password. And those that change a program from outside
(`LD_PRELOAD`, `JAVA_TOOL_OPTIONS`, `PGOPTIONS`) would be in no result. Jobs of agents on hosts have
the same ones: `crates/disklab-node/src/keeper.rs`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
OURS = "DISKLAB_"
"""What the names of disklab's own begin with: where its folders are, say."""


def minimal(
    variables: Mapping[str, str] | None = None, inherited: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what a program is started with. `variables`: its own, such as a password for it.

    `inherited`: of which the few are kept; None: this process's.
    """
    whole = os.environ if inherited is None else inherited
    kept = {name: value for name, value in whole.items() if name in KEPT or name.startswith(OURS)}
    return kept | dict(variables or {})
