"""Predictions written down before their answers are known, so that nobody can doubt the order.

The file has a SHA-256 digest over everything in it. Whoever publishes the digest (in a commit, a
message, a printed page) can show later that the predictions are those of that day; whoever has the
file can check the digest and simulate them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from disklab import reading
from disklab.errors import Problem, UserError
from disklab.prediction.run import Options, calibration_of
from disklab.results import TrialResult, utc_now
from disklab.spec import Experiment

FORMAT = 1
CONFIDENCE = 0.8
PLACE = "--check-register"
MOST_OFF = 1e-6
"""By which a figure simulated again may differ: the same seed gives the same figures."""


class Register(BaseModel):
    """The part of a register that is needed to check it; the rest is kept as it is."""

    model_config = ConfigDict(extra="allow")

    format: Literal[1]
    registered: str
    sha256: str
    experiment_sha256: str
    calibration_sha256: dict[str, str]
    predictions: list[dict[str, Any]]


def registered(
    experiment: Experiment, options: Options, results: Sequence[TrialResult]
) -> dict[str, Any]:
    """Return the content of a register with its digest."""
    content = {
        "format": FORMAT,
        "registered": utc_now(),
        "experiment": experiment.title,
        "experiment_sha256": _sha256(experiment.document.text),
        "disklab": version("disklab"),
        "calibration_sha256": _calibrations(experiment, options),
        "seed": options.seed,
        "repeats": options.repeats,
        "fidelity": options.fidelity,
        "ablate": list(options.ablate),
        "confidence": CONFIDENCE,
        "predictions": [_prediction(result) for result in results if result.usable],
    }
    return {**content, "sha256": digest(content)}


def digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 of a register without its own digest, in one canonical form."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return _sha256(json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def write_register(path: Path, content: dict[str, Any]) -> None:
    """Write a register. Raises UserError where a file is there already, or none can be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(content, file, indent=1, ensure_ascii=False)
            file.write("\n")
    except FileExistsError:
        rule = "exists already, and a register is never overwritten"
        raise UserError(Problem("--register", str(path), rule, "name another file")) from None
    except OSError as error:
        rule, way_out = f"cannot be written: {error.strerror}", "name another file"
        raise UserError(Problem("--register", str(path), rule, way_out)) from None


def read_register(path: Path) -> dict[str, Any]:
    """Return a register whose digest holds. Raises UserError for any other file."""
    data = reading.contents(path, reading.REGISTER, PLACE)
    try:
        content = reading.parse(Register, data).model_dump(mode="json")
    except reading.NotAsExpectedError:
        rule = "is not a file of --register"
        raise UserError(Problem(PLACE, str(path), rule, reading.REGISTER.way_out)) from None
    if digest(content) != content.get("sha256"):
        rule = f"was changed after {content.get('registered')}: its digest does not match"
        raise UserError(Problem(PLACE, str(path), rule, "get the file that was registered"))
    return content


def differences(
    content: dict[str, Any],
    experiment: Experiment,
    options: Options,
    results: Sequence[TrialResult],
) -> Iterator[str]:
    """Yield in what an experiment and its predictions of now differ from a register."""
    now = registered(experiment, options, results)
    names = ("experiment_sha256", "disklab", "calibration_sha256", "seed", "repeats", "fidelity")
    for name in (*names, "ablate"):
        if now[name] != content.get(name):
            yield f"{name}: registered {content.get(name)}, now {now[name]}"
    known = {_key(one): one["figures"] for one in content["predictions"]}
    found = {_key(one): one["figures"] for one in now["predictions"]}
    for key in known.keys() | found.keys():
        old, new = known.get(key), found.get(key)
        if old is None or new is None:
            yield f"{key}: {'not registered' if old is None else 'not predicted now'}"
            continue
        for name in old.keys() & new.keys():
            was, is_ = old[name]["value"], new[name]["value"]
            if abs(is_ - was) > MOST_OFF * abs(was):
                yield f"{key}: {name}: registered {was:g}, now {is_:g}"


def _key(prediction: dict[str, Any]) -> str:
    levels = ", ".join(f"{name}={level}" for name, level in prediction["factors"].items())
    return f"{levels} (repeat {prediction['repeat']})"


def _prediction(result: TrialResult) -> dict[str, Any]:
    values = {f"{name}_ms": value for name, value in result.latency_ms.items()}
    if result.ops_per_s is not None:
        values = {"ops_per_s": result.ops_per_s, **values}
    bands = result.bands.figures if result.bands else {}
    figures: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        figures[name] = {"value": value}
        if name in bands:
            figures[name] |= {"low": value * bands[name].low, "high": value * bands[name].high}
    return {"factors": dict(result.factors), "repeat": result.repeat, "figures": figures}


def _calibrations(experiment: Experiment, options: Options) -> dict[str, str]:
    used = (calibration_of(trial, options) for trial in experiment.trials("predict"))
    return {one.name: _sha256(one.model_dump_json()) for one in used if one is not None}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
