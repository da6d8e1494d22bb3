"""Which licences are allowed, and what a bill of materials holds."""

from __future__ import annotations

import json

import pytest

from scripts.supply_chain import Part, allowed, bill, python_parts


@pytest.mark.parametrize(
    ("licence", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0", True),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("MIT OR", True),
        ("", False),
        ("MIT)", False),
    ],
)
def test_an_expression_is_allowed_when_it_can_be_met(licence: str, is_allowed: bool) -> None:
    assert allowed(licence) is is_allowed


def test_every_locked_package_has_a_licence_and_a_hash() -> None:
    parts = list(python_parts())
    assert len(parts) > 50
    assert [part.name for part in parts if not part.hashes or not part.licence] == []


def test_the_same_parts_give_the_same_bill() -> None:
    parts = [Part("cargo", "b", "1.0.0", "MIT", ("00",)), Part("pypi", "a", "2", "MIT", ("01",))]
    made = bill(parts, "1.2.3")
    assert made == bill(parts[::-1], "1.2.3")
    assert json.loads(json.dumps(made))["components"][1]["purl"] == "pkg:pypi/a@2"
    assert made["metadata"]["component"]["version"] == "1.2.3"
