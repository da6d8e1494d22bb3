"""fio of other publishers, on which nothing is fitted, and the page that shows it."""

from __future__ import annotations

from statistics import median

from scripts import fio_page


def test_predictions_beside_fio_of_others_are_as_the_page_says() -> None:
    cells = list(fio_page.compared())
    assert fio_page.PAGE.read_text(encoding="utf-8") == fio_page.page(cells)
    rates = [cell for cell in cells if cell.figure != "avg_ms"]
    # Writes through a ReadWrite cache are the disk's, at random and in order.
    writes = [cell for cell in rates if "P3, " in cell.name and "write 4k" in cell.name]
    assert len(writes) == 2
    assert all(cell.within for cell in writes)
    assert sum(cell.within for cell in rates) >= 11
    assert median(abs(cell.deviation) for cell in cells if cell.figure == "avg_ms") <= 0.02
