"""The lab of the emulated disks, for the live bed."""

from __future__ import annotations

from tests.hosts.conftest import lab

__all__ = ["lab"]
