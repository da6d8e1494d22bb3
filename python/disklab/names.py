"""The one rule for names of volumes, nodes and hosts, wherever they are given.

They become names of files, devices, mount points and resources of clouds. The engine has the same
rule (`crates/disklab-emulator/src/host_dir.rs`).
"""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
NAME_RULE = (
    "a name has 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a volume, a node or a host."""
    return NAME.fullmatch(text) is not None
