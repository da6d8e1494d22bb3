"""The two leagues of docs/accuracy.md follow from the pages that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import leagues


def test_both_leagues_are_read_from_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "truth.md").write_text(
        "| mechanism | cells | ops/s |\n| --- | --- | --- |\n| keys | 2 | 1.0 %, 2.0 % |\n\n"
        "| cell | ops/s rehearsed | ops/s |\n| --- | --- | --- |\n"
        "| a | 1,000 | +10.0 % |\n| late | 1,500 |  |\n| b | 2,000 | -10.0 % |\n",
        encoding="utf-8",
    )
    table = "| cell | ops/s | bound by |\n|---|---|---|\n"
    (tmp_path / "abroad.md").write_text(
        f"{table}| x | 100 -> 200 (+100 %) | latency |\n| y | 110 -> 110 (+0 %) | latency |\n",
        encoding="utf-8",
    )
    (tmp_path / "abroad-sql.md").write_text(
        f"{table}| x | 100 -> 50 (-50 %) | latency |\n| y | 400 -> 200 (-50 %) | latency |\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(leagues, "DOCS", tmp_path)
    found = [line for line in leagues.leagues() if line.startswith(("| same", "| other"))]
    same, other, sql = found
    assert same.startswith("| same machine, calibrated | 2 | 10.6 % |")
    assert same.endswith("| 2 | 100 % | +0.89 |")
    assert other.startswith("| other machines, Cassandra | 2 | 50.0 % |")
    assert other.endswith("| 1 | 10 % | -4.00 |")
    assert sql.startswith("| other machines, MySQL and PostgreSQL | 2 | 100.0 % | -50.0 % | 0 |")
