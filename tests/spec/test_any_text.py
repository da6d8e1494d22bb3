"""Whatever a file says, it is an experiment or a user's error: never a crash."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from disklab import spec
from disklab.errors import UserError

TEXTS = [
    file.read_text(encoding="utf-8")
    for file in sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
]
WORDS = (
    "null",
    "[]",
    "{}",
    "-1",
    "0",
    "true",
    "None",
    "~",
    "'x'",
    "99999999999999999999",
    "1e400",
    ".nan",
    ".inf",
    "[1,2]",
    "{a:b}",
    "local",
    "x.y",
    "azure/P30",
    "1/0",
    "nvme",
    "ephemeral-os",
    "azure/Ultra",
    "azure/PremiumV2(1GiB)",
    '""',
    "&a",
    "*a",
    "30%",
    "200%",
    "1s",
    "?",
    "-",
)
# Most twists make a mistake: among this many texts of each seed some are still experiments.
TEXTS_EACH = 60


def twisted(text: str, chance: random.Random) -> str:
    """Return the text with a few words, lines or characters changed."""
    for _ in range(chance.randint(1, 3)):
        words = [match.span() for match in re.finditer(r"[A-Za-z0-9_./%]+", text)]
        lines = text.split("\n")
        here, there = chance.choice(words), chance.choice(words)
        at = chance.randrange(len(lines))
        mark = chance.randrange(len(text))
        text = chance.choice([
            text[: here[0]] + chance.choice(WORDS) + text[here[1] :],
            text[: here[0]] + text[there[0] : there[1]] + text[here[1] :],
            text[: here[0]] + text[here[1] :],
            "\n".join(lines[:at] + lines[at + 1 :]),
            "\n".join([*lines[:at], chance.choice(lines), *lines[at:]]),
            text[:mark] + chance.choice("{}[]:,-#'\" \n") + text[mark + 1 :],
        ])  # fmt: skip
    return text


@pytest.mark.parametrize("seed", range(4))
def test_a_twisted_file_is_an_experiment_or_a_users_error(seed: int) -> None:
    chance = random.Random(seed)
    refused = 0
    for _ in range(TEXTS_EACH):
        text = twisted(chance.choice(TEXTS), chance)
        try:
            for trial in spec.parse(text, "x.yaml").trials("rehearse"):
                assert trial.refused is not None or trial.here.workload is not None
        except UserError as error:
            refused += 1
            for problem in error.problems:
                assert problem.place, text
                assert problem.rule, text
                assert problem.way_out, text
    assert 0 < refused < TEXTS_EACH
