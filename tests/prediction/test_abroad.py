"""Cassandra of other publishers on other machines, on which nothing is fitted, and its page."""

from __future__ import annotations

from scripts import abroad_page


def test_the_page_shows_every_cell_as_it_is_predicted_now() -> None:
    assert abroad_page.PAGE.read_text(encoding="utf-8").startswith(abroad_page.tables())
