"""What the tests of measurements share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def volume() -> Iterator[Path]:
    """A directory that the server's user may pass through; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    folder.chmod(0o755)
    try:
        yield folder
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder)
