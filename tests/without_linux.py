"""Runs a command of disklab where Python has nothing that only Linux has.

That is as near to macOS as a test on Linux comes; what that system does otherwise is not seen.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import time
from importlib import import_module
from typing import Any

# Other people's modules look at the system when they are imported; they have wheels for it.
for theirs in ("altair", "numpy", "polars", "pydantic", "scipy.stats", "typer", "vl_convert"):
    import_module(theirs)

LACKING: dict[Any, str] = {
    os: "memfd_create MFD_CLOEXEC pidfd_open pipe2 posix_fadvise posix_fallocate O_DIRECT O_PATH "
    "O_TMPFILE setresuid setresgid setxattr getxattr listxattr removexattr sched_getaffinity "
    "sched_setaffinity setns unshare fdatasync waitid copy_file_range splice eventfd",
    signal: "pidfd_send_signal sigtimedwait",
    time: "CLOCK_BOOTTIME",
    select: "epoll",
    socket: "SO_PEERCRED AF_NETLINK AF_PACKET",
    fcntl: "F_ADD_SEALS F_GET_SEALS F_SETPIPE_SZ",
}
"""**Source:** Python's documentation, "Availability", and typeshed, by `mypy --platform darwin`."""


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Know neither /proc nor /sys."""
    if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


if __name__ == "__main__":
    for module, names in LACKING.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"
    sys.addaudithook(refuse)
    from disklab.cli import main

    main()
