"""Experiment files from elsewhere: changed in their bytes and in their words."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import yaml
from disklab import spec
from disklab.cloud.layout import layout_of
from disklab.errors import DisklabError
from disklab.spec import feasible
from disklab.spec.experiment import Mode

from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.words import hostile_word
from campaigns.fuzz.mutation import changed_bytes, changed_value

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
COMMAND_EVERY = 100
"""The command line takes a second to start; the reader itself is the same."""
COMMAND_SECONDS = 120.0


def _with_word(value: Any, chance: random.Random, there: Path) -> Any:
    """Return a value with one of its words, or names of keys, replaced by a hostile one."""
    if isinstance(value, dict) and value:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {(hostile_word(chance, there) if k == key else k): v for k, v in value.items()}
        return {**value, key: _with_word(value[key], chance, there)}
    if isinstance(value, list) and value:
        at = chance.randrange(len(value))
        return [*value[:at], _with_word(value[at], chance, there), *value[at + 1 :]]
    return hostile_word(chance, there)


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield the project's own experiments, changed."""
    number = 0
    while True:
        number += 1
        source = chance.choice(EXPERIMENTS)
        content = source.read_bytes()
        if chance.random() < 0.4:
            content = changed_bytes(content, chance)
        else:
            value = yaml.safe_load(content)
            for _ in range(chance.choice((1, 1, 2, 4))):
                change = partial(_with_word, there=yard.canary)
                value = (change if chance.random() < 0.7 else changed_value)(value, chance)
            try:
                content = yaml.safe_dump(value, allow_unicode=True).encode()
            except (UnicodeEncodeError, yaml.YAMLError):
                continue  # a lone surrogate, which no file can hold
        file = yard.folder / "experiment.yaml"
        words = f"{source.name}, changed: {content[:2000]!r}"
        yield words, partial(_attempt, file, content, number % COMMAND_EVERY == 0)


def _attempt(file: Path, content: bytes, by_command: bool) -> None:
    file.write_bytes(content)
    if by_command:
        _by_command(file)
    experiment = spec.load(file)
    for mode in get_args(Mode):
        trials = experiment.trials(mode)
        if mode == "measure":
            try:
                layout_of(experiment, trials, feasible.catalogue())
            except DisklabError:
                continue


def _by_command(file: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "disklab", "experiment", "check", str(file)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if ran.returncode not in (0, 1, 2) or "Traceback" in ran.stderr or "\x1b]" in ran.stdout:
        raise HurtError(f"experiment check ended with {ran.returncode}: {ran.stderr[-1000:]}")


KIND = Kind(
    "files",
    "an experiment of the project, changed in its bytes or its words, read as `check`, `predict`, "
    "`rehearse` and `measure` do; one in a hundred by the command itself. It is taken or refused "
    "in words, never by a traceback, and nothing in it is run",
    tries,
)
