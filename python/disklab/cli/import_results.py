"""`disklab import`: results that another program measured, as a run beside ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from disklab import reading, spec
from disklab.cli.experiment import ExperimentFile, Only, chosen
from disklab.cli.output import Json, console, print_json
from disklab.errors import Problem, UserError
from disklab.results import DEFAULT_OUT, ExperimentNote, Run, RunInfo, new_run_id, utc_now
from disklab.results import yugabyte_tpcc as tpcc


def import_results(  # noqa: PLR0913, PLR0917 - each option is a parameter
    experiment: ExperimentFile,
    results: Annotated[
        list[Path],
        typer.Argument(metavar="OUTPUT.JSON...", help="Of yugabyte/tpcc, one a repeat."),
    ],
    only: Only = None,
    into: Annotated[
        str | None, typer.Option(help="An imported run that gets them too.", metavar="RUN")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the run.", metavar="DIR")] = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Import TPC-C results of yugabyte/tpcc as repeats of one cell of an experiment.

    They are stored as a run of mode measure, which `disklab report` compares with ours.

    Examples: [bold]disklab import FILE output.json --only disk=Ultra --only workload=TPC-C[/bold],
    [bold]disklab import FILE v2.json --only disk=v2 --only workload=TPC-C --into RUN[/bold]
    """
    asked = spec.load(experiment)
    cells = chosen(asked, only).trials("measure")
    if len(cells) != 1:
        rule = f"results are of one cell, and this names {len(cells)}"
        way_out = "name a level of each factor: " + ", ".join(
            f"{f.name}=..." for f in asked.factors
        )
        raise UserError(Problem("--only", ", ".join(only or ["nothing"]), rule, way_out))
    cell = cells[0]
    if cell.spec.workload.tpcc is None:
        rule = "the results are TPC-C's"
        levels = ", ".join(f"{name}={level}" for name, level in cell.factors.items())
        raise UserError(Problem("--only", levels, rule, "name a cell whose workload is TPC-C"))
    # All are read before anything is made.
    found = [tpcc.read(reading.text(path, reading.IMPORTED), str(path)) for path in results]
    run = Run.open_own(into, out, "--into") if into else _made(asked, experiment, out)
    if run.info.experiment.title != asked.title or run.info.mode != "measure":
        rule = f"it is a run of mode {run.info.mode} of {run.info.experiment.title!r}"
        raise UserError(Problem("--into", str(into), rule, "name a run that was imported for FILE"))
    with run.writing():
        known = [repeat for trial, repeat in run.finished() if trial == cell.index]
        for repeat, one in enumerate(found, start=max(known, default=-1) + 1):
            run.append(tpcc.trial_of(one, asked.title, cell.index, repeat, dict(cell.factors)))
        run.end()
    if json:
        print_json({"run": run.info.id, "folder": str(run.folder), "imported": len(found)})
    else:
        console().print(
            f"{len(found)} imported into {run.folder}; see: disklab report {run.info.id}"
        )


def _made(asked: spec.Experiment, experiment: Path, out: Path) -> Run:
    info = RunInfo(
        id=new_run_id(str(experiment), "measure"),
        mode="measure",
        experiment=ExperimentNote(title=asked.title, source=asked.source, file=str(experiment)),
        command=["disklab", *sys.argv[1:]],
        started=utc_now(),
        notes=["imported from yugabyte/tpcc"],
    )
    return Run.create(out, info, experiment_text=asked.document.text)
