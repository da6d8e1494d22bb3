"""Which name comes first in `did you mean`."""

from __future__ import annotations

import pytest
from disklab.catalog import load_catalog
from disklab.catalog.suggest import suggestions


@pytest.mark.parametrize(
    ("word", "first"),
    [("azure/P21", "azure/P20"), ("P31", "azure/P30"), ("S41", "azure/S40")],
)
def test_the_nearest_size_comes_first(word: str, first: str) -> None:
    assert suggestions(word, load_catalog().disks)[0] == first
