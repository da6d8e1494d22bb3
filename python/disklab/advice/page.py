"""Advice as one HTML file that needs nothing else: judged again in the browser as it is edited."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from disklab import durable
from disklab.advice.answer import Advice, settings_of
from disklab.advice.candidates import PLAINER_RATIO, Candidate
from disklab.advice.options import Option, bound_by
from disklab.advice.purchase import snippet
from disklab.advice.rows import Row
from disklab.catalog import load_catalog
from disklab.catalog.price import NoPrice, Price, vm_price, volume_price
from disklab.folders import Inside
from disklab.report.files import write_what_if
from disklab.report.html import LIGHT, axes_script, data, items, tag, text
from disklab.report.page import styles, what_if_link
from disklab.results import TrialResult
from disklab.results.records import STRETCHES
from disklab.results.required import CLIFF_RATIO, Required, is_overloaded, required_of

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
"""Nothing is loaded from anywhere."""


def write(advice: Advice, file: Path | Inside, seed: int) -> None:
    """Write the page. Raises UserError."""
    simulator = write_what_if(_configurations(advice), file)
    durable.write_file(file, page(advice, seed, simulator).encode("utf-8"), "--html")


def page(advice: Advice, seed: int, simulator: str | None = None) -> str:
    """Return the HTML of an advice; `simulator`: the page of it that lies beside."""
    title = advice.question.path.stem
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<link rel="icon" href="data:,">',
        text("title", f"What to buy: {title}"),
        tag("style", styles(), asset("page.css")),
    ]
    main = tag(
        "main",
        text("h1", "What to buy"),
        text("p", advice.in_words(), class_="quiet"),
        tag("section", *_answer(advice), id="answer", aria_live="polite"),
        text("h2", "Price and latency"),
        tag("div", id="scatter"),
        text("h2", "Options"),
        tag("div", id="ranked", class_="wide", tabindex="0", role="region", aria_label="Options"),
        text("h2", "What if"),
        tag("form", id="asked", aria_label="Objective and prices"),
        text("h2", "Finalists"),
        tag("div", id="finalists"),
        text("h2", "Evidence"),
        items(evidence(advice, seed)),
        *_what_if(advice, simulator),
    )
    told = data(content(advice), id="advice")
    body = tag("body", main, told, tag("script", axes_script() + asset("page.js")))
    return f'<!doctype html>\n<html lang="en"><head>{"".join(head)}</head>{body}</html>\n'


def _configurations(advice: Advice) -> list[dict[str, Any]]:
    """Return the first two options as specifications."""
    levels = {one.candidate.name: one.candidate.patch() for one in advice.options[:2]}
    cells = advice.question.experiment(levels).cells if levels else []
    return [cell.spec.model_dump(mode="json") for cell in cells]


def _what_if(advice: Advice, simulator: str | None) -> list[str]:
    """Return the link to the simulator with the first two options."""
    required = advice.question.require.latencies().values()
    promises = [bounds["p99"] for bounds in required if "p99" in bounds]
    return what_if_link(_configurations(advice), simulator, min(promises, default=None))


def asset(name: str) -> str:
    """Return a file that lies beside this one."""
    return resources.files("disklab.advice").joinpath(name).read_text("utf-8")


def _answer(advice: Advice) -> list[str]:
    first, *rest = [*advice.sentences(), *advice.changes]
    return [text("p", first, id="says"), *(text("p", line, class_="why") for line in rest)]


def content(advice: Advice) -> dict[str, Any]:
    """Return what the page's script works with; money in USD a month, times in milliseconds."""
    question = advice.question
    required = required_of(question.spec.model_dump(mode="json")) or Required()
    rate = question.rate_per_s or None
    bounds = [list(one) for one in required.latencies()]
    if required.storage_p99_ms is not None:
        bounds.append(["storage", "p99", required.storage_p99_ms])
    return {
        "says": advice.sentences()[0],
        "cliff_ratio": CLIFF_RATIO,
        "bounds": bounds,
        "rate_per_s": required.rate_per_s or rate,
        "raised_per_s": question.raised_per_s,
        "head_room_ratio": required.head_room_ratio,
        "budget": required.budget_usd_per_month,
        "plainer_ratio": PLAINER_RATIO,
        "stretches": STRETCHES,
        "series": len(LIGHT["series"]),
        "options": [_row(row, advice) for row in advice.rows()],
    }


def _row(row: Row, advice: Advice) -> dict[str, Any]:
    """Return a row, judged as the terminal has it; of finalists with all that is told of them."""
    option = row.option
    results = [row.result] if option is None else option.results
    head_room = None if option is None else option.head_room
    found = _point(advice, row.candidate, results, head_room) | {
        "full": row.fidelity == "full",
        "name": row.name,
        "outcome": row.outcome.value,
        "why": row.why,
        "overloaded": row.kept.achieved_ratio is not None,
        "other": [point.what for point in row.kept.points if point.outcome.value == "missed"],
        "binds": bound_by(row.result) if option is None else option.binds,
        "raised": row.raised,
    }
    return found if option is None else found | _finalist(option, advice)


def _finalist(option: Option, advice: Advice) -> dict[str, Any]:
    raised = None if option.raised is None or is_overloaded([option.raised]) else option.raised
    return {
        "plainer_than": [
            one.candidate.hardware
            for one in advice.options
            if option.candidate.plainer_than(one.candidate)
        ],
        "raised_ms": None if raised is None else _latencies([raised]),
        "tail": option.results[0].tail_ms.get("p99", {}),
        "settings": settings_of(option),
        "lost": option.lost,
        "snippets": snippet(option, advice.question.region),
        "warnings": option.results[0].warnings,
    }


def _point(
    advice: Advice, candidate: Candidate, results: Sequence[TrialResult], head_room: float | None
) -> dict[str, Any]:
    """Return what every option has: prices in their parts, rate, latencies with their bands."""
    catalog, question = load_catalog(), advice.question
    nodes = candidate.nodes_of(question.spec.cluster.nodes)
    region, terms = question.region, question.terms
    disks = candidate.disks.expression
    vm = _usd(vm_price(catalog, candidate.vm, region=region, terms=terms))
    volume = _usd(volume_price(catalog, disks, region=region, terms=terms))
    result = results[0]
    return {
        "hardware": candidate.hardware,
        "vm": candidate.vm,
        "disks": disks,
        "local": candidate.local,
        "lossy": candidate.lossy,
        "nodes": nodes,
        "vm_usd": vm,
        "disks_usd": volume,
        # Other volumes, such as a commit log's: nobody edits these.
        "other_usd": candidate.usd_per_month - nodes * (vm + volume),
        "ops_per_s": result.ops_per_s,
        "head_room_ratio": head_room,
        "latency_ms": _latencies(results),
    }


def _latencies(results: Sequence[TrialResult]) -> dict[str, dict[str, list[float]]]:
    """Return percentiles by kind of operation, each with its range."""
    result = results[0]
    latency = {"all": _banded(results, None)} | {
        kind: _banded(results, kind) for kind in result.per_operation
    }
    if result.storage_p99_ms is not None:
        latency["storage"] = {"p99": [result.storage_p99_ms] * 3}
    return latency


def _usd(price: Price | NoPrice) -> float:
    return price.usd_per_month if isinstance(price, Price) else 0.0


def _banded(results: Sequence[TrialResult], kind: str | None) -> dict[str, list[float]]:
    """Return the lowest, the first result's figure and the highest of each percentile.

    Operations have the band of all together, as where the promise is judged.
    """
    found: dict[str, list[float]] = {}
    for result in results:
        latency = result.latency_ms if kind is None else result.per_operation[kind].latency_ms
        for name, value in latency.items():
            band = result.bands.figures.get(f"{name}_ms") if result.bands else None
            low, high = (band.low, band.high) if band is not None else (1.0, 1.0)
            least, first, most = found.get(name, [value, value, value])
            found[name] = [min(least, value * low), first, max(most, value * high)]
    return found


def evidence(advice: Advice, seed: int) -> Sequence[str]:
    """Return what the page rests on: search, prices, calibration, load, where it lies."""
    question = advice.question
    doubts = " ".join(advice.price_doubts())
    run = f" Run: {advice.run}." if advice.run is not None else ""
    found = [
        advice.search_in_words(),
        f"Prices: {question.region}, {question.terms}, from disklab's catalogue and your lists. "
        f"{doubts}".rstrip(),
        advice.uncalibrated(),
        advice.raised_in_words(),
        f"Seed {seed}. Experiment: {question.path}.{run} {advice.next_step()}".rstrip(),
    ]
    return [sentence for sentence in found if sentence]
