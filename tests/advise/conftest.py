"""One advice for all tests that look at an advice: a search costs 20 s of processor time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.advise.test_command import advised


@dataclass(frozen=True)
class Advice:
    """What was told as JSON, and the page."""

    told: dict[str, Any]
    page: Path


@pytest.fixture(scope="package")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    folder = tmp_path_factory.mktemp("advice")
    page = folder / "advice.html"
    told = advised(
        folder,
        "{read: {p99: 40ms}, head_room: 10%}",
        *("--candidates", "P30,nvme,E8s_v3,L8s_v3", "--html", str(page)),
    )
    return Advice(told, page)
