"""Rules of Python as data: both ways of each comparison, expressions and sentences."""

from __future__ import annotations

from fractions import Fraction
from math import floor

from disklab.catalog.quantity import about_bytes
from disklab.knob.trace import Unknown, traced


def test_each_way_of_a_comparison_is_a_branch() -> None:
    def rule(size: int, most: int) -> object:
        return {"size": min(most, 2 * size)}

    assert traced(rule, "size", "most") == {
        "if": ["<", ["*", 2, "size"], "most"],
        "then": {"size": {"of": ["*", 2, "size"]}},
        "else": {"size": {"of": "most"}},
    }


def test_branches_that_say_the_same_are_one() -> None:
    assert traced(lambda size: ["small", "small"][size < 10], "size") == "small"


def test_a_comparison_is_answered_once_in_a_call() -> None:
    def rule(size: int) -> object:
        return [size < 10, size < 10, size >= 10]

    assert traced(rule, "size") == {
        "if": ["<", "size", 10],
        "then": [True, True, False],
        "else": [False, False, True],
    }


def test_fractions_stay_exact_and_whole_numbers_divide_to_floats() -> None:
    def rule(size: int) -> object:
        return [floor(size / Fraction(3, 2)), size / 4, size * 0.5, -(-size // 8), int(size + 1)]

    assert traced(rule, "size") == [
        {"of": ["floor", ["/", "size", [":", 3, 2]]]},
        {"of": ["div", "size", 4]},
        {"of": ["*", "size", ["float", 0.5]]},
        {"of": ["-", 0, ["//", ["-", 0, "size"], 8]]},
        {"of": ["+", "size", 1]},
    ]


def test_a_sentence_keeps_the_amounts_that_it_names() -> None:
    def rule(size: Unknown, name: Unknown) -> object:
        return f"{name} has {size} of {about_bytes(size)}"

    parts = ["", ["name", ""], " has ", ["size", ""], " of ", ["size", "about"], ""]
    assert traced(rule, "size", "name") == {"text": parts}
