"""Databases of other publishers on other machines, on which nothing is fitted, and their pages."""

from __future__ import annotations

import pytest

from scripts import abroad_page

# Each cell of SQL is simulated for minutes of its own time: two thirds of the CPU of both pages.
PAGES = [
    pytest.param(page, marks=[pytest.mark.long] if page is abroad_page.SQL else [], id=page.name)
    for page in abroad_page.PAGES
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_every_cell_as_it_is_predicted_now(page: abroad_page.Page) -> None:
    assert page.file.read_text(encoding="utf-8").startswith(abroad_page.tables(page))
