"""Emulated hosts for the tests of kits."""

from tests.hosts.conftest import lab

__all__ = ["lab"]
