"""The eight questions that people ask: each page beside its terminal, and what became of each.

Here with a handful of disks and VM sizes; `python -m campaigns.promises.eight` asks them among the
whole catalogue, simulates each answer again, and keeps a record.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.advice import page
from disklab.advice.advise import How, advise
from playwright.sync_api import Browser

from campaigns.promises import eight
from tests.advise.test_advice_page import opened

WANTED = {
    "Cassandra 2 TB, azure": ("P30", "nvme", "E16s_v3", "L16s_v3"),
    "Cassandra 2 TB, aws": ("gp3", "nvme", "r6i.4xlarge", "i4i.4xlarge"),
    "PostgreSQL 500 GB, azure": ("P30", "E8s_v5"),
    "PostgreSQL 500 GB, aws": ("gp3", "m7g.2xlarge"),
    "MariaDB 300 GB, a replica, azure": ("PremiumV2", "E8s_v5"),
    "MariaDB 300 GB, a replica, aws": ("gp3", "m7g.2xlarge"),
    "MySQL 300 GB, azure": ("PremiumV2", "E8s_v5"),
    "MySQL 300 GB, aws": ("gp3", "m7g.2xlarge"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WANTED)
def test_the_page_of_each_question_says_what_its_terminal_says(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    question = eight.question_with(eight.ASKED[name], WANTED[name])
    how = How(bands=False, out=tmp_path / "runs")
    advice = advise(question, how, lambda _: None, lambda *_: None)
    assert advice.options
    assert [*eight.beside_the_page(advice)] == []
    file = tmp_path / "advice.html"
    page.write(advice, file, seed=1)
    tab = opened(browser, file, 1200)
    assert tab.inner_text("#says") == advice.sentences()[0]
    shown = tab.evaluate("ranked().map((row) => [row.one.name, row.word])")
    assert shown == [[row.name, row.outcome.value] for row in advice.rows()]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1200
    tab.close()
