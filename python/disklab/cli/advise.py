"""`disklab advise`: what to buy, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from disklab import spec
from disklab.catalog.facts import PriceTerms
from disklab.catalog.load import with_more
from disklab.catalog.price import DEFAULT_REGION, DEFAULT_TERMS, REGIONS
from disklab.cli.advise_asked import (
    NAME,
    P95,
    P999,
    AdvisedNodes,
    Asked,
    Budget,
    Cloud,
    Commits,
    Database,
    DataOption,
    Durable,
    FileArgument,
    Growth,
    HeadRoom,
    Reads,
    ServerCopies,
    State,
    StorageP99,
    Version,
    Warehouses,
    Writes,
)
from disklab.cli.amounts import Cluster, Jobs, Out, Seed, workers_of
from disklab.cli.experiment_new import P99, Row
from disklab.cli.output import MISSED, Check, Json, code_of, console, notes, print_json, warn
from disklab.errors import Problem, UserError
from disklab.events import Event, Warned
from disklab.interrupts import end_as_ctrl_c
from disklab.results import DEFAULT_OUT
from disklab.results.required import Outcome, percent_of_time
from disklab.spec import bundled

if TYPE_CHECKING:
    from disklab.advice import rows
    from disklab.advice.answer import Advice


Candidates = Annotated[
    str,
    typer.Option(
        help="Consider only these: parts of the names of disks and VM sizes, separated by commas, "
        "such as P30,PremiumV2,nvme,E16.",
        metavar="NAME,...",
        show_default="the whole catalogue",
    ),
]
Region = Annotated[
    str | None,
    typer.Option(help="Region whose prices are used.", metavar="REGION", show_default="by cloud"),
]
Prices = Annotated[
    Path | None,
    typer.Option(
        help="Your own prices of VM sizes and disks, before those of the catalogue "
        "(docs/prices.md has the form).",
        metavar="FILE",
    ),
]
Terms = Annotated[
    PriceTerms,
    typer.Option(help="How VMs are bought; `disklab prices` adds terms other than pay-as-you-go."),
]
Write = Annotated[
    Path | None,
    typer.Option(
        help="Where the experiment of the finalists is written.",
        metavar="FILE",
        show_default="EXPERIMENT-advice.yaml",
    ),
]
Everything = Annotated[
    bool,
    typer.Option("--all", help="Print settings one by one, and what was ruled out and why."),
]
Html = Annotated[
    Path | None,
    typer.Option(
        help="Also write the advice as a page on which requirements and prices can be edited.",
        metavar="FILE",
    ),
]
Bands = Annotated[
    bool | None,
    typer.Option(help="80 % bands for the finalists.", show_default="where that takes seconds"),
]
OfTime = Annotated[
    str | None,
    typer.Option(
        help="The share of a year's minutes that must meet the latencies, disk weather included.",
        metavar="99.9%",
    ),
]


def advise(  # noqa: PLR0913, PLR0917 - each option is a parameter
    experiment: FileArgument = None,
    database: Database = None,
    data: DataOption = None,
    reads: Reads = None,
    writes: Writes = None,
    p99: P99 = None,
    p95: P95 = None,
    p999: P999 = None,
    of_time: OfTime = None,
    storage_p99: StorageP99 = None,
    row: Row = None,
    nodes: AdvisedNodes = None,
    copies: ServerCopies = None,
    commits: Commits = None,
    tpcc: Warehouses = None,
    version: Version = None,
    head_room: HeadRoom = None,
    growth: Growth = None,
    durable: Durable = None,
    budget: Budget = None,
    state: State = None,
    cloud: Cloud = None,
    candidates: Candidates = "",
    region: Region = None,
    prices: Prices = None,
    terms: Terms = DEFAULT_TERMS,
    bands: Bands = None,
    write: Write = None,
    html: Html = None,
    seed: Seed = 1,
    jobs: Jobs = None,
    cluster: Cluster = None,
    everything: Everything = False,
    check: Check = False,
    json: Json = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Find the cheapest VMs and disks that meet the requirements of a file or of options.

    It rules out what cannot work within the limits, simulates the rest, and then
    simulates the finalists at full fidelity.
    Examples: [bold]disklab advise --data 2TB --reads 20000 --writes 5000 --p99 10[/bold],
    [bold]disklab advise --database postgresql --data 500GB --reads 8000 --p99 10[/bold],
    [bold]disklab advise cassandra-what-to-buy[/bold],
    [bold]disklab advise FILE --candidates P30,PremiumV2,nvme --html advice.html[/bold]
    """
    from disklab.advice.advise import How, advise  # noqa: PLC0415 - it brings polars
    from disklab.advice.page import write as write_page  # noqa: PLC0415
    from disklab.advice.question import question_of  # noqa: PLC0415

    wanted = tuple(word.strip() for word in candidates.split(",") if word.strip())
    asked = Asked(
        *(database, cloud, count_of(nodes), copies, data, row, reads, writes, p99),
        *(head_room, durable, budget, version, state, p95, p999, storage_p99, commits),
        tpcc=tpcc,
    )
    with with_more(prices), asked.in_options():
        wish, bought = experiment_of(experiment, asked), room_of(growth, nodes, experiment, of_time)
        question = question_of(wish, wanted, region or usual_region(wish), terms, **bought)
        for text in question.notes:
            warn(text)
        command, file = ("disklab", *sys.argv[1:]), write or beside(experiment)
        how = How(seed=seed, bands=bands, out=out, command=command, beside=file)
        with progress() as tell, workers_of(cluster, jobs, quiet) as workers:
            found = advise(question, replace(how, workers=workers), quiet, tell)
        if html is not None:
            write_page(found, html, seed)
        print_json(found.as_json()) if json else show(found, everything=everything)
    raise typer.Exit(exit_code(found) if check else 0)


def room_of(
    growth: float | None, nodes: str | None, file: Path | None, of_time: str | None = None
) -> dict[str, Any]:
    """Return what options say of room, nodes and share of time, as `question_of` takes it.

    A file's nodes are what is asked for; without any, three or more are.
    """
    more = file is None and (nodes is None or nodes.endswith("+"))
    grown = {} if growth is None else {"growth_ratio": growth / 100}
    asks = {"more_nodes": more, "nodes_asked": file is None and not more}
    return {**asks, "of_time": of_time or "", **grown}


def count_of(nodes: str | None) -> int | None:
    """Return the number in `6` or `6+`; None: none was given."""
    return None if nodes is None else int(nodes.removesuffix("+"))


def exit_code(advice: Advice) -> int:
    """Return what `--check` ends with: 0 something surely keeps the promise, 3 nothing does."""
    best = advice.chosen or advice.perhaps
    return MISSED if best is None else code_of([best.kept.outcome])


def experiment_of(file: Path | None, asked: Asked) -> spec.Experiment:
    """Return the file's experiment, or the one that the options stand for. Raises UserError."""
    if file is None:
        return asked.experiment()
    if given := asked.given():
        rule = "the file says that already"
        way_out = f"change it in {file}, or leave the file out"
        raise UserError(*(Problem(name, str(file), rule, way_out) for name in given))
    return spec.load(file)


def usual_region(wish: spec.Experiment) -> str:
    """Return the region whose prices the catalogue has most of."""
    cluster = wish.cells[0].spec.cluster
    vendor = cluster.vm.partition("/")[0] if cluster is not None else ""
    return REGIONS.get(vendor, DEFAULT_REGION)


def beside(file: Path | None) -> Path:
    """Return where the experiment of the finalists is written: never among disklab's own files."""
    if file is None:
        return NAME
    name = f"{file.stem}-advice.yaml"
    return Path(name) if file.parent == bundled.folder() else file.with_name(name)


def quiet(event: Event) -> None:
    """Leave out the events of the finalists' run but its warnings.

    What a calibration has not seen stands in one sentence of the answer.
    """
    if isinstance(event, Warned) and not event.text.startswith("outside the calibrated range"):
        warn(event.text)


LINE_EVERY_S = 30.0
"""Between two lines of progress where no terminal shows it, as in CI."""


@contextmanager
def progress() -> Iterator[Any]:
    """Yield a listener that shows what is done; what was found is told when it is killed."""
    # `kill` and `timeout` end it as Ctrl-C does.
    end_as_ctrl_c()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[cells]} cells simulated"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[best]}"),
        console=notes(),
        transient=True,
        disable=not notes().is_terminal,
    )
    task = bar.add_task("reading", total=None, cells=0, best="")

    best_so_far, last_line = "", monotonic()

    def tell(what: str, cells: int, best: str) -> None:
        nonlocal best_so_far, last_line
        best_so_far = best or best_so_far
        shown = f"best so far: {best_so_far}" if best_so_far else ""
        bar.update(task, description=what, cells=cells, best=escape(shown))
        if bar.disable and monotonic() - last_line >= LINE_EVERY_S:
            last_line = monotonic()
            line = f"{what}: {cells} cells simulated{'; ' * bool(shown)}{shown}"
            notes().print(line, markup=False, highlight=False)

    try:
        with bar:
            yield tell
    except KeyboardInterrupt:
        cheapest = "the cheapest so far, not yet at full fidelity: "
        nothing = "nothing that meets the requirement has been found so far"
        warn(f"interrupted; {cheapest + best_so_far if best_so_far else nothing}")
        raise


def show(advice: Advice, *, everything: bool = False) -> None:
    """Print the answer, the options, what would change it, what to do next; the rest if asked."""
    out = console()
    first, *rest = advice.sentences()
    out.print(first, style="bold", markup=False)
    for line in rest:
        out.print(line, markup=False)
    out.print(advice.in_words(), markup=False)
    if advice.options:
        out.print()
        out.print(table_of(advice))
        out.print()
    doubts = [advice.uncalibrated(), *advice.price_doubts(), advice.unpriced()]
    for line in [*years_in_words(advice), *advice.changes, *filter(None, doubts)]:
        out.print(line, markup=False)
    if step := advice.next_step():
        out.print(step, markup=False)
    if everything:
        show_levers(advice)
        show_search(advice)
    if advice.run is not None:
        more = "" if everything else "`--all` prints the rest; it is also in "
        out.print(f"\n{more}{advice.run}", markup=False)


def years_in_words(advice: Advice) -> Iterator[str]:
    """Yield each option's year of disk weather, what would turn it, and what each nine costs."""
    from disklab.report import weather  # noqa: PLC0415 - it brings the charts

    years = [(one, one.results[0].year) for one in advice.options if one.results]
    found = [(one.candidate, year) for one, year in years if year is not None]
    for candidate, year in found:
        said, why = weather.sentence(year)
        yield f"{candidate.hardware}: {said}; {why}"
        yield f"  {weather.strip_in_text(year)}  365 days: the fuller, the more minutes"
    for nines in NINES:
        able = [each for each, year in found if year.kept_ends[0] >= nines]
        cheapest = min(able, key=lambda each: each.usd_per_month, default=None)
        if cheapest is not None:
            price = f"{cheapest.usd_per_month:,.0f} USD a month"
            yield f"{percent_of_time(nines)} of the minutes costs {price}: {cheapest.hardware}"


NINES = (0.99, 0.999, 0.9999, 0.99999)
"""Shares of time whose price is told."""


def show_levers(advice: Advice) -> None:
    """Print what each setting that costs nothing changes, by option."""
    for one in advice.options:
        for lever in one.levers:
            console().print(f"  {one.candidate.hardware}: {lever}", markup=False)


def show_search(advice: Advice) -> None:
    """Print how many options there were, and why most are left out."""
    out = console()
    out.print(f"\n{advice.search_in_words()}", markup=False)
    for reason in advice.reasons():
        out.print(f"  ruled out: {reason}", markup=False)
    for ladder in advice.ladders:
        if ladder.failed and ladder.nearest is not None:
            name = ladder.nearest.candidate.name
            out.print(f"  {ladder.kind}: even {name}: {ladder.nearest.kept}", markup=False)


def table_of(advice: Advice) -> Table:
    """Return the first rows as a table."""
    from disklab.advice.options import bound_by, short  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    table.add_column("option", max_width=28)
    table.add_column("USD/month", justify="right")
    table.add_column("p99 ms", justify="right", max_width=16)
    table.add_column("to spare", justify="right", max_width=8)
    table.add_column("bound by", max_width=18)
    table.add_column("promise", max_width=16)
    for row in advice.rows()[:SHOWN]:
        one = row.option
        room = None if one is None else one.head_room
        p99 = row.result.latency_ms.get("p99")
        brief = "" if p99 is None or row.kept.achieved_ratio is not None else short(p99)
        table.add_row(
            row.name,
            f"{row.usd:,.0f}",
            brief if one is None else one.latency("p99").replace(" ms", "") or one.carries,
            # Nearly empty limits promise no rate.
            "" if room is None else "> 100 %" if room >= 1 else f"{room * 100:.0f} %",
            bound_by(row.result) if one is None else one.binds,
            promise_of(row),
        )
    return table


SHOWN = 5
"""Rows of the terminal's table; the page and `--json` have all."""


def promise_of(row: rows.Row) -> str:
    """Return the judgement for a table's cell: its outcome, and the first reason in few words."""
    if row.outcome is Outcome.MET:
        return str(row.outcome.value)
    points = [point for point in row.kept.points if point.outcome is row.outcome]
    if not points:
        return f"{row.outcome.value}: {row.why}"
    first, *others = points
    more = f", and {len(others)} more" if others else ""
    return f"{row.outcome.value}: {first.what} {first.found}{more}"
