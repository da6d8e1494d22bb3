"""The page's rules against Python's: jobs, sentences, prices, expressions."""

from __future__ import annotations

import json
import random
import re
from dataclasses import astuple
from fractions import Fraction
from importlib import resources
from math import floor
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.catalog.price import REGIONS
from disklab.catalog.quantity import about_bytes
from disklab.databases.calibration import calibration_for
from disklab.errors import Problem, UserError
from disklab.knob.trace import Unknown, traced
from disklab.prediction.cells import prepare
from disklab.results.pricing import cluster_price
from playwright.sync_api import Browser

from tests.knob.choices import choice, everything

Json = dict[str, Any]

pytestmark = pytest.mark.xdist_group("tests/knob")

ASK = """
(choices) => choices.map((choice) => {
  const problems = problemsOf(window.offer, choice);
  const text = experimentOf(window.offer, choice);
  if (problems.length) return {problems, text};
  return {problems, text, job: jobOf(window.offer, choice), usd: priceOf(window.offer, choice)};
})
"""
CHOICES = [200, pytest.param(2000, marks=pytest.mark.long)]


def sentences(problems: tuple[Problem, ...]) -> list[str]:
    """Return problems without the file and its lines, which the page does not have."""
    return [re.sub(r"knob\.yaml(:\d+)?: ", "", str(problem)) for problem in problems]


def of_python(text: str, engine: str) -> tuple[list[str], Json | None, float | None]:
    """Return what the command line says of an experiment file: problems, job and price."""
    try:
        (trial,) = spec.parse(text, Path("knob.yaml")).trials("predict")
    except UserError as error:
        return sentences(error.problems), None, None
    if trial.refused:
        first = Problem(*astuple(trial.refused)[:4])
        return sentences((first, *trial.refused.more)), None, None
    calibration = None if engine == "fio" else calibration_for(engine)
    prepared = prepare(trial, load_catalog(), calibration, "knob.yaml")
    vendor = (trial.spec.cluster or trial.spec.device).vm.split("/")[0]
    usd = cluster_price(load_catalog(), trial.spec, REGIONS.get(vendor, ""))
    return sentences(prepared.reasons), prepared.job, usd


@pytest.mark.parametrize("count", CHOICES)
def test_a_choice_has_the_job_the_sentences_and_the_price_of_its_file(
    browser: Browser, count: int
) -> None:
    offered = everything()
    chance = random.Random(42)
    choices = [choice(chance, offered) for _ in range(count)]
    tab = browser.new_page()
    rules = resources.files("disklab.knob").joinpath("jobs.js").read_text(encoding="utf-8")
    tab.evaluate("offer => { window.offer = offer; }", offered)
    tab.add_script_tag(content=rules)
    answers = tab.evaluate(ASK, choices)
    tab.close()
    possible = 0
    for chosen, answer in zip(choices, answers, strict=True):
        said, job, usd = of_python(answer["text"], chosen["engine"])
        here = [str(Problem(**problem)) for problem in answer["problems"]]
        assert here == said, (chosen, answer["text"])
        if job is not None:
            possible += 1
            assert json.dumps(answer["job"], sort_keys=True) == json.dumps(job, sort_keys=True), (
                answer["text"]
            )
            assert answer["usd"] == pytest.approx(usd, abs=0.02 * 9), answer["text"]
    assert possible > count // 4


NUMBERS = """
(values) => Object.keys(USUAL).filter((key) => typeof USUAL[key] === 'number').flatMap((key) =>
  ['fio', 'cassandra', 'postgresql', 'yugabytedb'].flatMap((engine) =>
    ['azure/P30', 'azure/PremiumV2', 'nvme'].flatMap((disk) => values.flatMap((value) => {
      const choice = {...USUAL, engine, disk, [key]: Number(value)};
      try {
        const problems = problemsOf(window.offer, choice);
        if (!problems.length) jobOf(window.offer, choice);
        return [];
      } catch (error) {
        return [`${engine} ${disk} ${key}=${value}: ${error}`];
      }
    }))))
"""


def test_no_number_of_an_address_ends_in_an_exception(browser: Browser) -> None:
    tab = browser.new_page()
    rules = resources.files("disklab.knob").joinpath("jobs.js").read_text(encoding="utf-8")
    tab.evaluate("offer => { window.offer = offer; }", everything())
    tab.add_script_tag(content=rules)
    values = ["0", "0.5", "-1", "NaN", "Infinity", "-Infinity", "1e300", "-0", "7", "1e12"]
    failures = tab.evaluate(NUMBERS, values)
    tab.close()
    assert failures == []


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
