"""`disklab report`: the answer of runs, as a page, a table, JSON, pictures or CSV."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from disklab.cli import fio_files
from disklab.cli.output import Json, console, notes, print_json
from disklab.cli.output import report as tell
from disklab.errors import Problem, UserError
from disklab.results import DEFAULT_OUT, ExperimentNote, Run, RunInfo, new_run_id, utc_now


def report(  # noqa: PLR0913, PLR0917 - each option is a parameter
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="A run's folder, its id, or the beginning of it."),
    ],
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write the page here; without it, report.html in the first run's folder."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="`reference`: what was published of this experiment.", metavar="reference"
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Write the charts as PNG into this folder.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write the charts as SVG into this folder.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the data of the charts as CSV into this folder.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs are looked for by id.")] = DEFAULT_OUT,
    json: Json = False,
    disk: fio_files.Measured = None,
    vm: fio_files.Vm = None,
    caching: fio_files.Caching = None,
) -> None:
    """Say what runs found: the verdict with its reasons, and a page with charts and tables.

    Several runs are compared cell by cell: an old and a new one, a prediction and a rehearsal.
    fio's JSON output of a disk becomes a run, beside what the disk promises.

    Examples: [bold]disklab report disklab-runs/RUN[/bold],
    [bold]disklab report fio.json --disk azure/P30[/bold],
    [bold]disklab report RUN --against reference[/bold], [bold]disklab report OLD NEW[/bold]
    """
    # Charts take a second to import; other commands should not wait for them.
    from disklab.advice.advise import PAGE  # noqa: PLC0415
    from disklab.report import files  # noqa: PLC0415
    from disklab.report.report import Report, content  # noqa: PLC0415
    from disklab.report.terminal import show  # noqa: PLC0415

    names = [imported(name, out, (disk, vm, caching)) for name in runs]
    opened, unreadable = readable_ones(names, out)
    made = Report.of([*opened, *files.references(opened, checked(against))])
    page = html or opened[0].inside("report.html")
    written = [
        files.write_page(made, page),
        *files.write_tables(made, page),
        *files.write_pictures(made, png=png, svg=svg, csv=csv),
    ]
    if json:
        print_json(content(made))
    else:
        show(made, console())
    for path in written:
        notes().print(Text(f"report: {path}"))
    for run in opened:
        if run.inside(PAGE).is_file():
            notes().print(Text(f"advice: {run.folder / PAGE}"))
    if unreadable is not None:
        tell(unreadable, as_json=False)
        raise typer.Exit(unreadable.exit_code)


def imported(name: str, out: Path, on: tuple[str | None, str | None, str | None]) -> str:
    """Return the run of a name: of fio's output one that is made of it. Raises UserError."""
    path = Path(name)
    if path.suffix != ".json" or not path.is_file():
        return name
    from disklab.probe import fio_results  # noqa: PLC0415 - as above

    read = fio_results.read(path, fio_files.disk_of_output(path, *on))
    info = RunInfo(
        id=new_run_id(name, "measure"),
        mode="measure",
        experiment=ExperimentNote(title=f"fio's {path.name}", source="fio", file=name),
        command=["disklab", *sys.argv[1:]],
        started=utc_now(),
        notes=["imported from fio"],
    )
    run = Run.create(out, info, experiment_text=read.experiment_text)
    with run.writing():
        for result in read.results:
            run.append(result)
        run.end()
    for result in read.results:
        console().print(fio_files.beside_its_promise(result), markup=False)
    return str(run.folder)


def readable_ones(names: list[str], out: Path) -> tuple[list[Run], UserError | None]:
    """Return the runs that can be read, and what is wrong with the others.

    A bad run hides no other. Raises UserError where none can be read.
    """
    opened: list[Run] = []
    problems: list[Problem] = []
    for name in names:
        try:
            run = Run.open(name, out)
            run.planned()
            opened.append(run)
        except UserError as error:  # noqa: PERF203 - each run has its own
            problems += error.problems
    unreadable = UserError(*problems) if problems else None
    if unreadable is not None and not opened:
        raise unreadable
    return opened, unreadable


def checked(against: str | None) -> bool:
    """Return whether the published figures are wanted."""
    if against not in (None, "reference"):
        rule = "the one thing to hold a run against by name is `reference`"
        way_out = "write --against reference, or name the other run beside the first"
        raise UserError(Problem("--against", str(against), rule, way_out))
    return against is not None
