"""The lab of the emulated disks, and a folder of the user who calls sudo."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.conftest import lab

__all__ = ["lab"]

CALLER = 65534


@pytest.fixture
def mine() -> Iterator[Path]:
    """A folder that the caller reaches, and may write to."""
    made = Path(tempfile.mkdtemp(prefix="disklab-caller-")).resolve()
    os.chown(made, CALLER, CALLER)
    yield made
    shutil.rmtree(made)
