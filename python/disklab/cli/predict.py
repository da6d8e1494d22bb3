"""`disklab predict`: a matrix by simulation."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from disklab import spec
from disklab.catalog.suggest import did_you_mean
from disklab.cli import fio_files
from disklab.cli.amounts import Cluster, Jobs, Out, Seed, workers_of
from disklab.cli.experiment import ExperimentFile, Only, choices
from disklab.cli.output import Check, code_of_run, console, needs_promise, notes, print_json, warn
from disklab.errors import Problem, UserError
from disklab.events import Emit, Event, RunFinished, RunStarted, TrialFinished, Warned
from disklab.interrupts import end_as_ctrl_c
from disklab.report import wording
from disklab.results import DEFAULT_OUT, Run, TrialResult
from disklab.results.required import Kept, Outcome, judged
from disklab.spec import bundled

if TYPE_CHECKING:
    from disklab.prediction import Options

Fidelity = Literal["full", "quick"]
FIDELITIES: tuple[Fidelity, ...] = ("full", "quick")


Ablate = Annotated[
    list[str] | None,
    typer.Option(help="Switch a mechanism off, such as read_around.", metavar="MECHANISM"),
]
BandsOption = Annotated[
    bool | None,
    typer.Option(
        "--bands/--no-bands",
        help="80 % bands for every figure; by default only where they take seconds.",
    ),
]
Register = Annotated[
    Path | None, typer.Option(help="Record the predictions, with a digest.", metavar="FILE")
]
CheckRegister = Annotated[
    Path | None,
    typer.Option(help="Compare them with a file that --register wrote.", metavar="FILE"),
]


Repeat = Annotated[
    int, typer.Option(help="Simulations of each cell, each with another seed.", min=1, max=1000)
]
Against = Annotated[
    str | None,
    typer.Option(
        help="reference: compare with the published results and show the errors.", metavar="WHAT"
    ),
]
Year = Annotated[
    bool,
    typer.Option(
        "--year", help="Draw a year of disk weather: minutes a month that miss the requirement."
    ),
]
Depth = Annotated[
    str | None,
    typer.Option(
        help="full, or quick: fewer rows and operations.",
        metavar="F",
        show_default="full; quick with --year for five cells or more that require nothing",
    ),
]
WeatherFile = Annotated[
    Path | None,
    typer.Option(help="Your own numbers of the weather, for --year.", metavar="FILE"),
]


def predict(  # noqa: PLR0913, PLR0917 - each option is a parameter
    experiment: ExperimentFile,
    seed: Seed = 1,
    repeat: Repeat = 1,
    jobs: Jobs = None,
    cluster: Cluster = None,
    only: Only = None,
    fidelity: Depth = None,
    bands: BandsOption = None,
    year: Year = False,
    weather: WeatherFile = None,
    against: Against = None,
    calibration: Annotated[
        Path | None, typer.Option(help="A calibration file of your own.", metavar="FILE")
    ] = None,
    register: Register = None,
    check_register: CheckRegister = None,
    ablate: Ablate = None,
    check: Check = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a cell.")] = False,
    out: Out = DEFAULT_OUT,
    disk: fio_files.Disks = None,
    vm: fio_files.Vm = None,
    caching: fio_files.Caching = None,
    write: fio_files.Write = None,
) -> None:
    """Answer an experiment, or a fio job (.fio) on `--disk`, by simulation, with the bottlenecks.

    Examples: [bold]disklab predict experiments/cassandra-disk-caching-threads.yaml[/bold],
    [bold]disklab predict FILE --against reference[/bold],
    [bold]disklab predict FILE --only 'data disks=local' --year[/bold],
    [bold]disklab predict FILE --cluster ray://head.example.com[/bold],
    [bold]disklab predict wal.fio --disk azure/P30 --write wal.yaml[/bold]
    """
    from disklab.prediction import Options, predict, read_calibration  # noqa: PLC0415 - polars
    from disklab.prediction.against import compare  # noqa: PLC0415
    from disklab.prediction.register import read_register  # noqa: PLC0415
    from disklab.prediction.uncertain import read_ranged  # noqa: PLC0415

    # `kill` and `timeout` end it as Ctrl-C does: its folder says so.
    end_as_ctrl_c()
    check_against(against)
    known = read_register(check_register) if check_register else None
    with fio_files.as_experiment(experiment, disk, vm, caching, write) as file:
        ranged = read_ranged(file, choices(only))
        needs_promise(ranged.middle, check=check)
        options = Options(
            seed=seed,
            repeats=repeat,
            fidelity=_depth(fidelity, ranged.middle, year=year or weather is not None),
            bands=bands,
            weather=(weather,) if weather is not None else (),
            year=year or weather is not None,
            ranged=ranged,
            ablate=tuple(ablate or ()),
            calibration=read_calibration(calibration) if calibration else None,
            out=out,
            command=("disklab", *sys.argv[1:]),
        )
        with progress(as_json=json) as emit, workers_of(cluster, jobs, emit) as who:
            run = predict(ranged.middle, replace(options, workers=who), emit)
    results = run.results()
    if not json:
        stays = file if write or file == experiment else None
        print_results(ranged.middle, results, judged(results, run.planned()))
        print_answer(run, stays, database=ranged.middle.kind == "cluster")
    if against:
        print_comparison(compare(ranged.middle, results), as_json=json)
    tell_register(register, known, (ranged.middle, options, results))
    end(run, results, check=check)


def end(run: Run, results: list[TrialResult], *, check: bool) -> None:
    """End with 1 where no cell has a result; with `check` as promises are kept."""
    if not any(result.usable for result in results):
        raise typer.Exit(1)
    if check:
        raise typer.Exit(code_of_run(run))


def check_against(against: str | None) -> None:
    """Raise UserError for what predictions cannot be held against."""
    if against not in {None, "reference"}:
        raise UserError(Problem("--against", str(against), "is not known", "write reference"))


def tell_register(
    path: Path | None,
    known: dict[str, Any] | None,
    made: tuple[spec.Experiment, Options, list[TrialResult]],
) -> None:
    """Write predictions down, and hold them against what was written down earlier."""
    from disklab.prediction.register import (  # noqa: PLC0415
        differences,
        registered,
        write_register,
    )

    if path is not None:
        content = registered(*made)
        write_register(path, content)
        notes().print(f"registered {content['registered']}, SHA-256 {content['sha256']}")
    if known is None:
        return
    notes().print(f"registered {known['registered']}: the digest {known['sha256']} holds")
    told = list(differences(known, *made))
    for line in told:
        notes().print(line, markup=False)
    if told:
        raise typer.Exit(1)
    notes().print("the predictions are the same now")


def print_answer(run: Run, experiment: Path | None, *, database: bool) -> None:
    """Print the verdict of a prediction, and what to do next; `database`: it has one.

    `experiment`: its file; None: there is none that stays.
    """
    from disklab.report.report import Report  # noqa: PLC0415 - it brings NumPy
    from disklab.report.terminal import show_answer  # noqa: PLC0415

    out = console()
    out.print()
    if not all(result.status == "refused" for result in run.results()):
        # Why nothing was simulated stands above.
        show_answer(Report.of([run]), out)
    where = "with a real database" if database else "on emulated disks"
    steps = {"charts, as one page": f"disklab report {run.folder}"}
    if experiment is not None:
        steps[where] = f"disklab rehearse {bundled.typed(str(experiment))} --quick --repeat 3"
    out.print()
    for gives, command in steps.items():
        out.print(Text.assemble((f"{gives + ':':22}", "dim"), command), soft_wrap=True)


def _depth(asked: str | None, experiment: spec.Experiment, *, year: bool) -> Fidelity:
    """Return how closely cells are simulated; a year's minutes have simulations of their own."""
    if asked is not None:
        return fidelity_of(asked)
    is_judged = any(cell.spec.require for cell in experiment.cells)
    if not year or is_judged or len(experiment.cells) <= FEW_CELLS:
        return "full"
    warn(
        "rates and percentiles beside the years are those of quick simulations, up to a quarter "
        "off for loads that read and write: --fidelity full takes longer"
    )
    return "quick"


FEW_CELLS = 4
"""A year of so many is drawn within a minute though they are simulated in full beside it."""


def fidelity_of(text: str) -> Fidelity:
    """Return the fidelity of that name."""
    for known in FIDELITIES:
        if text == known:
            return known
    way_out = did_you_mean(text, FIDELITIES, "choose full or quick")
    raise UserError(Problem("--fidelity", text, "is neither full nor quick", way_out))


LINE_EVERY_S = 15.0
"""Without a terminal: whoever waits for a log does not take it for hung."""


@contextmanager
def progress(*, as_json: bool) -> Iterator[Emit]:
    """Yield a listener: a bar on a terminal, and with `--json` each result as it comes.

    Without a terminal a line now and then says how far it is, from the first minute on.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}"),
        console=notes(),
        transient=True,
        disable=not notes().is_terminal,
    )
    task = bar.add_task("simulating", total=None, last="")

    def tell(event: Event) -> None:
        if isinstance(event, RunStarted):
            bar.update(task, total=len(event.planned) + event.refused)
        elif isinstance(event, Warned):
            warn(event.text)
        elif isinstance(event, TrialFinished):
            rate = event.result.get("ops_per_s")
            bar.update(task, advance=1, last=f"{wording.rate(rate)} ops/s" if rate else "")
            if as_json:
                print_json(dict(event.result))
        elif isinstance(event, RunFinished) and event.interrupted:
            warn(f"interrupted: {event.finished} cells are in {event.folder}")

    def say_how_far() -> None:
        while not over.wait(LINE_EVERY_S):
            done, of = bar.tasks[0].completed, bar.tasks[0].total
            far = "preparing the cells" if of is None else f"{done:,.0f} of {of:,.0f} cells"
            notes().print(f"simulating: {far}", markup=False, highlight=False)

    over = threading.Event()
    with bar:
        if not notes().is_terminal:
            threading.Thread(target=say_how_far, daemon=True).start()
        try:
            yield tell
        finally:
            over.set()


def print_results(
    experiment: spec.Experiment, results: list[TrialResult], kept: Mapping[int, Kept]
) -> None:
    """Print a table of the cells, why some were refused, and what keeps what is required."""
    out = console()
    out.print(Text(experiment.title, style="bold"))
    table = Table(box=None, pad_edge=False)
    for factor in experiment.factors:
        table.add_column(factor.name, overflow="fold")
    banded = any(result.bands for result in results)
    more = ["80 %"] if banded else []
    rate, tail = ["ops/s", *more], ["p99 ms", *more]
    for heading in (*rate, "p50 ms", "p95 ms", *tail, "host cache", "page cache"):
        table.add_column(heading, justify="right")
    table.add_column("bottleneck", overflow="fold")
    table.add_column("USD/month", justify="right")
    for result in results:
        table.add_row(*map(str, result.factors.values()), *cells_of(result, banded=banded))
    out.print(table)
    counted = [result for result in results if result.ops_per_s]
    unpriced = [result for result in counted if result.price_usd_per_month is None]
    if unpriced and len(counted) > 1:
        what = f"no price is known for {len(unpriced):,} of {len(counted):,} cells"
        out.print(f"{what}, so disklab cannot say which is the cheapest", markup=False)
    for line in parts_in_words(results):
        out.print(line, markup=False)
    for line in bands_in_words(results):
        out.print(line, markup=False)
    for text in refusals_in_words(results):
        out.print(f"\n{text}", markup=False)
    print_years(results)
    print_kept(kept, results)


def print_years(results: list[TrialResult]) -> None:
    """Print what a year of disk weather costs each cell, beside what failures cost."""
    from disklab.report import weather  # noqa: PLC0415 - it brings the charts

    years = {result.trial: (result.factors, result.year) for result in results if result.year}
    if not years:
        return
    table = Table(title="\nA year of disk weather", title_justify="left", box=None, pad_edge=False)
    for heading in weather.HEADS:
        table.add_column(heading, overflow="fold")
    for factors, year in years.values():
        table.add_row(", ".join(map(str, factors.values())) or "the cell", *weather.row_of(year))
    console().print(table)


def refusals_in_words(results: list[TrialResult]) -> Iterator[str]:
    """Yield why cells are refused: at each place of the file the first reason, and how many more.

    The same rule with another VM's numbers is the same fact.
    """
    places: dict[str, list[str]] = {}
    for result in results:
        if result.reason is not None:
            reasons = places.setdefault(result.reason.place, [])
            if str(result.reason) not in reasons:
                reasons.append(str(result.reason))
    for place, (first, *others) in places.items():
        yield f"refused: {first}"
        if others:
            more = wording.counted(len(others), "more refusal")
            yield f"{more} at {place}, with other numbers: the report has each"


def parts_in_words(results: list[TrialResult]) -> Iterator[str]:
    """Yield what fio's syncs took, and each section of several that run at the same time."""
    for result in results:
        parts = result.per_operation
        if result.loop.get("kind") != "closed" or not any(
            name.endswith("sync") or " " in name for name in parts
        ):
            continue
        for name, part in parts.items():
            level = ", ".join(map(str, result.factors.values()))
            p50, p99 = (wording.milliseconds(part.latency_ms[name]) for name in ("p50", "p99"))
            tail = f"p50 {p50} ms, p99 {p99} ms"
            rate = wording.rate(part.ops_per_s)
            yield f"  {f'{level}, ' if level else ''}{name}: {rate} a second, {tail}"


def bands_in_words(results: list[TrialResult]) -> Iterator[str]:
    """Yield what the bands are, and what moves the rates and the tails most."""
    from disklab.report.answer import in_words  # noqa: PLC0415 - it brings polars

    banded = [result for result in results if result.bands]
    if not banded:
        return
    yield "\n80 %: the band that results from what is not known about disks, machines and database."
    for figure, words in (("ops_per_s", "ops/s"), ("p99_ms", "p99")):
        most: dict[str, tuple[float, str]] = {}
        for result in banded:
            for mover in result.bands.movers if result.bands else ():
                size = abs(math.log(mover.ratios.get(figure, 1)))
                known = f"within {mover.within:g} times" if mover.within > 1 else mover.because
                name = in_words(mover.name)
                moves = f"{name} ({known}): {math.expm1(size):.0%}"
                most[name] = max(most.get(name, (0.0, "")), (size, moves))
        named = [moves for size, moves in sorted(most.values(), reverse=True)[:3] if size > MOVES]
        if named:
            yield f"What moves {words} most: {'; '.join(named)}"


MOVES = 0.01
"""What moves a figure by less than a percent is not named on the terminal."""


def band_of(result: TrialResult, figure: str, value: float) -> str:
    """Return where a figure lies in eight cases of ten; empty without bands."""
    found = result.bands.figures.get(figure) if result.bands else None
    if found is None:
        return ""
    ends = (wording.significant(value * end, 2) for end in (found.low, found.high))
    return " to ".join(ends)


def print_kept(kept: Mapping[int, Kept], results: list[TrialResult]) -> None:
    """Print whether each cell keeps what the file requires, in a sentence a cell."""
    factors = {result.trial: result.factors for result in results}
    if kept:
        met = sum(one.outcome is Outcome.MET for one in kept.values())
        told = f"{met} of {len(kept)} keep" if met != 1 else f"1 of {len(kept)} keeps"
        console().print(f"\n{told} what the file requires:", markup=False)
    for trial, one in kept.items():
        name = ", ".join(map(str, factors[trial].values())) or "the cell"
        console().print(f"  {name}: {one}", markup=False)


def cells_of(result: TrialResult, *, banded: bool = False) -> list[str]:
    """Return the figures of a result as the table shows them. `banded`: with columns of bands."""
    if result.ops_per_s is None:
        return [result.status]
    latency = result.latency_ms
    bottleneck = result.bottleneck
    bound = ""
    if bottleneck is not None:
        bound = f"{bottleneck.resource} {percent(bottleneck.utilisation)}".strip()
    price = result.price_usd_per_month
    return [
        f"{result.ops_per_s:,.0f}",
        *([band_of(result, "ops_per_s", result.ops_per_s)] if banded else []),
        *(wording.milliseconds(latency[name]) for name in ("p50", "p95", "p99")),
        *([band_of(result, "p99_ms", latency["p99"])] if banded else []),
        percent(result.host_cache_hit_ratio),
        percent(result.telemetry.page_cache_hit_ratio),
        bound,
        "" if price is None else f"{price:,.0f}",
    ]


def percent(share: float | None) -> str:
    """Return a share as people read it."""
    return "" if share is None else f"{share * 100:.0f} %"


def print_comparison(comparison: Any, *, as_json: bool) -> None:
    """Print published, predicted and error, cell by cell, and the errors of the whole."""
    if as_json:
        print_json(comparison.as_json())
        return
    out = console()
    if not comparison.cells:
        out.print("\nNo published result answers this experiment.")
        return
    title = "\nPublished -> predicted (error); latencies in ms"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("cell", overflow="fold")
    for figure in comparison.figures:
        table.add_column(figure, justify="right")
    table.add_column("")
    for cell in comparison.cells:
        row = [", ".join(map(str, cell.factors.values()))]
        row += [cell.text(figure) for figure in comparison.figures]
        table.add_row(*row, Text(cell.note, style="dim"))
    out.print(table)
    for line in comparison.summary():
        out.print(line, markup=False)
