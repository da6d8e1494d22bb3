"""A share of each kind of hostile tries. `make attack` goes on for longer."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.hosts import cleaning
from disklab.web.access import Guard

from campaigns.attack import namespaces, serve
from campaigns.attack.campaign import attack
from campaigns.attack.findings import FINDINGS, Finding
from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.page import renewed
from campaigns.attack.registry import KINDS

ROOT = Path(__file__).resolve().parents[2]
SHARE = {
    "files": 60,
    "kits": 90,
    "names": 40,
    "requests": 100,
    "folders": 60,
    "namespaces": 13,
    "servers": 12,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_nothing_hostile_is_let_in(kind: Kind) -> None:
    wanted = SHARE.get(kind.name, 200)
    tally = attack(kind, wanted, seed=1)
    assert tally.failures == []
    assert tally.tried == wanted


def test_what_is_let_in_is_seen() -> None:
    """A campaign that could not fail would prove nothing."""

    def tries(_chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
        def broken() -> None:
            raise KeyError("x")

        def hurt() -> None:
            raise HurtError("it was taken")

        yield "a command", yard.canary.touch
        yield "a file", lambda: os.truncate(yard.victim, 0)
        yield "a traceback", broken
        yield "an oracle", hurt
        yield "nothing", lambda: None

    tally = attack(Kind("weak", "nothing holds", tries), 10, 1)
    assert tally.tried == 5
    assert len(tally.failures) == 4


def test_a_live_page_without_its_guard_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "_refusal", lambda *_: None)
    assert "without the token" in "".join(attack(serve.KIND, 300, 1).failures)


@pytest.mark.machine
def test_a_clean_that_goes_by_numbers_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "unseen", lambda _: None)
    assert "something was taken away" in "".join(attack(namespaces.KIND, 1, 1).failures)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_what_was_found_is_held_by_tests_that_are_there(finding: Finding) -> None:
    assert finding.tests
    for test in finding.tests:
        file, _, name = test.partition("::")
        assert re.search(rf"\b(def|fn) {name}\(", (ROOT / file).read_text(encoding="utf-8")), test


def test_the_page_has_every_finding() -> None:
    page = (ROOT / "docs/security-tries.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| ([A-Z]\d+) \|", page, re.MULTILINE)
    assert shown == [finding.name for finding in FINDINGS]


def test_the_page_keeps_the_counts_of_other_kinds(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first, second, *_ = KINDS
    for kind in (first, second):
        renewed(page, [attack(kind, 3, 1)], 1, "2026-01-01")
    text = page.read_text()
    assert f"| {first.name} | 3 |" in text
    assert f"| {second.name} | 3 |" in text
