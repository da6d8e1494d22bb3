"""Databases of other publishers on other machines, on which nothing is fitted, and their pages."""

from __future__ import annotations

import pytest

from scripts import abroad_page


# In CI tests/prediction/test_answers.py: the simulator's answers are what they were.
@pytest.mark.long
@pytest.mark.parametrize("page", abroad_page.PAGES, ids=lambda page: page.name)
def test_a_page_shows_every_cell_as_it_is_predicted_now(page: abroad_page.Page) -> None:
    assert page.file.read_text(encoding="utf-8").startswith(abroad_page.tables(page))
